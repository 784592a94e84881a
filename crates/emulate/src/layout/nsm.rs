//! Row by row. A row has 2 bytes of status, 2 bytes that say where its values end, the values, 2 bytes with the number
//! of columns, and a bit for each column that is set where it is NULL (none is). The last 2 bytes of the page say where
//! row 0 begins, the 2 before them where row 1 begins, and so on.

use super::{HEADER_BYTES, PAGE_BYTES, PageError, VALUE_BYTES, u16_at};

pub(super) const SLOT_BYTES: usize = 2;
/// Status, and the end of the values.
const ROW_HEAD_BYTES: usize = 4;

pub(super) const fn row_bytes(columns: usize) -> usize {
    ROW_HEAD_BYTES + columns * VALUE_BYTES + 2 + columns.div_ceil(8)
}

pub(super) fn write(columns: usize, values: &[i32], page: &mut [u8]) {
    let row_bytes = row_bytes(columns);
    for (row, values) in values.chunks_exact(columns).enumerate() {
        let at = HEADER_BYTES + row * row_bytes;
        let end = at + ROW_HEAD_BYTES + columns * VALUE_BYTES;
        page[at..at + 2].fill(0);
        page[at + 2..at + 4].copy_from_slice(&((end - at) as u16).to_le_bytes());
        for (place, value) in page[at + ROW_HEAD_BYTES..end].chunks_exact_mut(VALUE_BYTES).zip(values) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        page[end..end + 2].copy_from_slice(&(columns as u16).to_le_bytes());
        page[end + 2..at + row_bytes].fill(0);
        let slot = slot_at(row);
        page[slot..slot + SLOT_BYTES].copy_from_slice(&(at as u16).to_le_bytes());
    }
}

/// Checks that each row lies between the header and the slots.
pub(super) fn check(page: &[u8], columns: usize, rows: usize) -> Result<(), PageError> {
    let end = PAGE_BYTES - rows * SLOT_BYTES;
    for row in 0..rows {
        let offset = usize::from(u16_at(page, slot_at(row)));
        if offset < HEADER_BYTES || offset + row_bytes(columns) > end {
            return Err(PageError::Slot { row, offset });
        }
    }
    Ok(())
}

/// Where a value lies, by its row's slot.
pub(super) fn value_at(page: &[u8], row: usize, column: usize) -> usize {
    usize::from(u16_at(page, slot_at(row))) + ROW_HEAD_BYTES + column * VALUE_BYTES
}

const fn slot_at(row: usize) -> usize {
    PAGE_BYTES - (row + 1) * SLOT_BYTES
}
