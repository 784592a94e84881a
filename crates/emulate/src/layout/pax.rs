//! Column by column: after the header come the values of column 0 of all rows that fit, then those of column 1, and so
//! on. A page that is not full has gaps.

use super::{HEADER_BYTES, Layout, VALUE_BYTES};

pub(super) fn write(columns: usize, values: &[i32], page: &mut [u8]) {
    for (row, values) in values.chunks_exact(columns).enumerate() {
        for (column, value) in values.iter().enumerate() {
            let at = value_at(columns, row, column);
            page[at..at + VALUE_BYTES].copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Where a value lies.
pub(super) fn value_at(columns: usize, row: usize, column: usize) -> usize {
    HEADER_BYTES + (column * Layout::rows_max(columns) + row) * VALUE_BYTES
}
