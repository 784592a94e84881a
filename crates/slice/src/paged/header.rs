//! The header of a page.
//!
//! ```text
//! byte  0        4        5        6         8      10     12       16        24       96
//!       +--------+--------+--------+---------+------+------+--------+---------+--------+------
//!       | "PHPG" | layout | log2 of| columns | rows | zero | pages  | first   | zero   | rows
//!       |        | 1      | bytes 1| 2       | 2    | 2    | of the | row 8   |        |
//!       |        |        |        |         |      |      | run 4  |         |        |
//!       +--------+--------+--------+---------+------+------+--------+---------+--------+------
//! ```
//!
//! It is as long as that of SQL Server, on whose pages the experiments of Do et al. 2013 ran, so that as many rows of whole
//! numbers fit row by row as there: 323 of 4 columns, 109 of 16, 29 of 64. All but the first page of a run is values from
//! end to end, without a header.

use std::ops::Range;

use super::shape::Width;
use crate::SliceError;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 96;
/// Bytes of the pages that are written.
pub(super) const PAGE_BYTES: usize = 8_192;
/// Bytes of the pages that are read: powers of two, and few enough for an offset of two bytes.
pub(super) const PAGE_BYTES_KNOWN: Range<usize> = 4_096..32_769;
const MAGIC: &[u8; 4] = b"PHPG";

/// What the header of a page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) columns: usize,
    pub(super) rows: usize,
    /// Pages of the run that this one starts; 1: it is by itself.
    pub(super) run: u32,
    /// The number of its first row in the slice.
    pub(super) first_row: u64,
}

impl PageHeader {
    pub(super) fn write(&self, mark: u8, page_bytes: usize, page: &mut [u8]) {
        page[..4].copy_from_slice(MAGIC);
        page[4..6].copy_from_slice(&[mark, page_bytes.ilog2() as u8]);
        page[6..8].copy_from_slice(&(self.columns as u16).to_le_bytes());
        page[8..10].copy_from_slice(&(self.rows as u16).to_le_bytes());
        page[12..16].copy_from_slice(&self.run.to_le_bytes());
        page[16..24].copy_from_slice(&self.first_row.to_le_bytes());
    }

    /// Reads the header of a page, of which there are at least its own bytes.
    pub(super) fn read(mark: u8, page_bytes: usize, page: &[u8]) -> Result<PageHeader, SliceError> {
        let header: &[u8; HEADER_BYTES] = page.first_chunk().ok_or_else(|| damaged("a page ends in its header".to_owned()))?;
        if header[..4] != *MAGIC || header[4] != mark || u32::from(header[5]) != page_bytes.ilog2() {
            return Err(damaged("a page does not start as one of these".to_owned()));
        }
        let two = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let mut first_row = [0; 8];
        first_row.copy_from_slice(&header[16..24]);
        Ok(PageHeader {
            columns: two(6),
            rows: two(8),
            run: u32::from_le_bytes([header[12], header[13], header[14], header[15]]),
            first_row: u64::from_le_bytes(first_row),
        })
    }

    /// Runs are longer than what two bytes can say.
    pub(super) fn width(&self) -> Width {
        if self.run > 1 { Width::Wide } else { Width::Narrow }
    }
}

fn damaged(what: String) -> SliceError {
    SliceError::Corrupt(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_others_are_refused() {
        let header = PageHeader { columns: 700, rows: 323, run: 3, first_row: 1 << 40 };
        let mut page = vec![0; PAGE_BYTES];
        header.write(2, PAGE_BYTES, &mut page);
        assert_eq!(PageHeader::read(2, PAGE_BYTES, &page).unwrap(), header);
        assert_eq!((header.width(), PageHeader { run: 1, ..header }.width()), (Width::Wide, Width::Narrow));
        assert!(PageHeader::read(1, PAGE_BYTES, &page).is_err(), "another layout");
        assert!(PageHeader::read(2, 2 * PAGE_BYTES, &page).is_err(), "another size");
        assert!(PageHeader::read(2, PAGE_BYTES, &page[..HEADER_BYTES - 1]).is_err());
        page[0] ^= 1;
        assert!(PageHeader::read(2, PAGE_BYTES, &page).is_err());
    }
}
