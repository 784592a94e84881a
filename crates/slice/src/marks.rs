//! Deletion marks: a slice that has lost rows keeps its bytes, and says behind them which rows are gone.
//!
//! The marks follow the body that an encoding wrote, index of pages and all, so nothing in it moves:
//!
//! ```text
//! +-----------------+---------------------------------+-----------+---------------+------------+
//! | the body of the | a bit for each row, from the    | rows that | bytes of the  | "DELMARKS" |
//! | slice as it was | least on; 1: the row is gone    | are gone 8| bits 8        | 8          |
//! +-----------------+---------------------------------+-----------+---------------+------------+
//! ```
//!
//! The header names the rows that are left, and [`MARKED`] is set in the version of the encoding, so that a release that knows no
//! marks refuses the slice by its version. Pages keep their rows and their bounds: some rows may be gone, and the bounds still
//! hold for the others.

use std::ops::Range;

use arrow::buffer::{BooleanBuffer, Buffer};
use bytes::Bytes;

use crate::SliceError;

const MAGIC: [u8; 8] = *b"DELMARKS";
const TRAILER_BYTES: usize = 24;
/// Is set in the version of a slice's encoding where the slice has marks.
pub(crate) const MARKED: u16 = 1 << 15;

/// The rows of a slice that are gone.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    bits: BooleanBuffer,
    gone: u64,
}

/// Marks of which is not known yet how many rows they are for.
#[derive(Debug)]
pub(crate) struct StoredMarks {
    bits: Bytes,
    gone: u64,
}

/// Checks that a slice has marks where its header says so, and nowhere else.
pub(crate) fn check_marked(encoding: (u16, u16), body: &[u8]) -> Result<(), SliceError> {
    match (encoding.1 & MARKED != 0) == body.ends_with(&MAGIC) {
        true => Ok(()),
        false => Err(damaged("its header and its body do not agree whether there are any")),
    }
}

/// Splits the marks from a body, which is then as the encoding wrote it; none: it has no marks.
pub(crate) fn split(body: Bytes) -> Result<(Bytes, Option<StoredMarks>), SliceError> {
    if !body.ends_with(&MAGIC) {
        return Ok((body, None));
    }
    let Some(trailer_start) = body.len().checked_sub(TRAILER_BYTES) else { return Err(damaged("they are too short")) };
    let trailer = &body[trailer_start..];
    let number = |at: usize| trailer[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let bits_bytes = usize::try_from(number(8)).unwrap_or(usize::MAX);
    let start = trailer_start.checked_sub(bits_bytes).ok_or_else(|| damaged("they are longer than the slice"))?;
    let found = StoredMarks { bits: body.slice(start..trailer_start), gone: number(0) };
    Ok((body.slice(..start), Some(found)))
}

impl StoredMarks {
    /// The marks of a slice of so many rows, those that are gone among them.
    pub(crate) fn of(self, rows: u64) -> Result<Marks, SliceError> {
        if self.bits.len() as u64 != rows.div_ceil(8) {
            return Err(damaged(&format!("{} bytes are not the bits of {rows} rows", self.bits.len())));
        }
        let (bytes, rows) = (self.bits.len(), rows as usize);
        let all = BooleanBuffer::new(Buffer::from(self.bits), 0, 8 * bytes);
        let bits = all.slice(0, rows);
        if all.slice(rows, 8 * bytes - rows).count_set_bits() > 0 {
            return Err(damaged("rows are gone that never were"));
        }
        let marks = Marks::of(bits);
        if marks.gone != self.gone || marks.gone == 0 || marks.gone >= rows as u64 {
            return Err(damaged(&format!("{} of {rows} rows are gone, and they say {}", marks.gone, self.gone)));
        }
        Ok(marks)
    }
}

impl Marks {
    pub(crate) fn of(bits: BooleanBuffer) -> Self {
        let gone = bits.count_set_bits() as u64;
        Self { bits, gone }
    }

    /// Rows that they are for.
    pub(crate) fn rows(&self) -> usize {
        self.bits.len()
    }

    /// Rows that are gone.
    pub(crate) fn gone(&self) -> u64 {
        self.gone
    }

    /// Of a range of rows, those that are gone.
    pub(crate) fn gone_in(&self, rows: &Range<u64>) -> u64 {
        self.within(rows).count_set_bits() as u64
    }

    /// Of a range of rows, a bit for each: whether it is left.
    pub(crate) fn left_in(&self, rows: &Range<u64>) -> BooleanBuffer {
        !&self.within(rows)
    }

    fn within(&self, rows: &Range<u64>) -> BooleanBuffer {
        self.bits.slice(rows.start as usize, (rows.end - rows.start) as usize)
    }

    /// The same marks, and more, which are of the rows that these leave.
    pub(crate) fn and(&self, more: &BooleanBuffer) -> BooleanBuffer {
        let mut more = more.iter();
        self.bits.iter().map(|gone| gone || more.next().unwrap_or(false)).collect()
    }

    /// Appends them to a body.
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend(self.bits.bit_chunks().iter_padded().flat_map(u64::to_le_bytes));
        bytes.truncate(start + self.bits.len().div_ceil(8));
        let bits_bytes = (bytes.len() - start) as u64;
        bytes.extend_from_slice(&self.gone.to_le_bytes());
        bytes.extend_from_slice(&bits_bytes.to_le_bytes());
        bytes.extend_from_slice(&MAGIC);
    }
}

fn damaged(what: &str) -> SliceError {
    SliceError::Corrupt(format!("its deletion marks: {what}"))
}
