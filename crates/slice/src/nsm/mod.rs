//! NSM: slotted pages with row behind row. Who wants one value of a row walks its record.
//!
//! ```text
//! +--------+----------+----------+-----+------ ... ------+-----+--------+--------+
//! | header | record 0 | record 1 | ... | nothing         | ... | slot 1 | slot 0 |
//! | 96     |          |          |     |                 |     | 2      | 2      |
//! +--------+----------+----------+-----+------ ... ------+-----+--------+--------+
//!
//! +--------+----------+-------------+---------+-----------------+------------------+-----------------+
//! | zero 2 | where    | values of   | columns | a bit for each  | where each value | values without  |
//! |        | these    | one width,  | 2       | column; 1: NULL | without a width  | a width, column |
//! |        | end 2    | NULL as zero|         |                 | ends, 2 each     | by column       |
//! +--------+----------+-------------+---------+-----------------+------------------+-----------------+
//!          a record; what it says of places is counted from its start
//! ```
//!
//! A slot says where in the page its record starts, and slots lie backwards from the page's end. Truths take a byte. In a
//! run of pages, which has one record, offsets have 4 bytes. A page of whole numbers without NULL has as many rows as one
//! of SQL Server has.

use std::ops::Range;

use bytes::Bytes;

use crate::SliceError;
use crate::paged::{Form, HEADER_BYTES, Layout, PageColumn, Shape, Source, Width};

/// Bytes at a record's start, and those of its number of columns.
const STATUS_BYTES: usize = 2;
const COLUMNS_BYTES: usize = 2;

/// Row by row.
#[derive(Debug)]
pub(crate) struct Nsm;

/// Where the parts of a record are.
#[derive(Clone, Copy)]
struct Record {
    fixed: usize,
    fixed_end: usize,
    nulls: usize,
    /// Where the values without a width are said to end.
    ends: usize,
    /// Where they start.
    variable: usize,
}

impl Record {
    fn of(shape: &Shape, width: Width) -> Record {
        let fixed = STATUS_BYTES + width.bytes();
        let fixed_end = fixed + shape.fixed_bytes;
        let nulls = fixed_end + COLUMNS_BYTES;
        let ends = nulls + shape.columns().div_ceil(8);
        Record { fixed, fixed_end, nulls, ends, variable: ends + shape.variable * width.bytes() }
    }

    /// Checks a record that starts a piece of a page, which reaches to the slots. Its length.
    fn check(self, shape: &Shape, record: &[u8], width: Width) -> Option<usize> {
        let own = record.get(..self.variable)?;
        let columns = u16::from_le_bytes([own[self.fixed_end], own[self.fixed_end + 1]]);
        if width.get(own, STATUS_BYTES) != self.fixed_end || usize::from(columns) != shape.columns() {
            return None;
        }
        let mut end = self.variable;
        for place in 0..shape.variable {
            let next = width.get(own, self.ends + place * width.bytes());
            end = if next >= end { next } else { return None };
        }
        (end <= record.len()).then_some(end)
    }
}

/// A page whose records were walked.
#[derive(Debug)]
pub(crate) struct NsmPage {
    bytes: Bytes,
    /// Where each record starts.
    starts: Vec<u32>,
    width: Width,
}

impl Layout for Nsm {
    const NAME: &'static str = "nsm";
    const ID: (u16, u16) = (4, 1);
    const MARK: u8 = 1;
    type Page = NsmPage;
    type Column<'a> = NsmColumn<'a>;

    fn bytes(shape: &Shape, rows: usize, variable_bytes: usize, width: Width) -> usize {
        HEADER_BYTES + rows * (Record::of(shape, width).variable + width.bytes()) + variable_bytes
    }

    fn write(shape: &Shape, sources: &[Source], rows: Range<usize>, page: &mut [u8], width: Width) {
        let mut start = HEADER_BYTES;
        let slots = page.len();
        for (slot, row) in rows.enumerate() {
            width.put(page, slots - (slot + 1) * width.bytes(), start);
            start += write_record(shape, sources, row, &mut page[start..], width);
        }
    }

    fn open(shape: &Shape, bytes: Bytes, rows: usize, width: Width) -> Result<NsmPage, SliceError> {
        let slots = bytes.len().checked_sub(rows * width.bytes()).ok_or_else(|| damaged("a page has more slots than room"))?;
        let (parts, mut free) = (Record::of(shape, width), HEADER_BYTES);
        let mut starts = Vec::with_capacity(rows);
        for slot in 0..rows {
            let start = width.get(&bytes, bytes.len() - (slot + 1) * width.bytes());
            // Records that shared bytes could make much of a small page.
            let record = bytes.get(start..slots).filter(|_| start >= free);
            let length = record.and_then(|record| parts.check(shape, record, width));
            free = start + length.ok_or_else(|| damaged("a record is not where its slot says, or not one of these columns"))?;
            starts.push(start as u32);
        }
        Ok(NsmPage { bytes, starts, width })
    }

    fn column<'a>(shape: &Shape, page: &'a NsmPage, column: usize) -> Result<NsmColumn<'a>, SliceError> {
        let known = shape.forms.get(column).zip(shape.places.get(column));
        let (form, place) = known.ok_or_else(|| damaged("a column is missing"))?;
        let parts = Record::of(shape, page.width);
        let (before, end) = match place.checked_sub(1) {
            Some(before) => (parts.ends + before * page.width.bytes(), parts.ends + place * page.width.bytes()),
            None => (0, parts.ends),
        };
        let bytes = if let Form::Fixed(bytes) = form { *bytes } else { 0 };
        Ok(NsmColumn {
            bytes: &page.bytes,
            starts: &page.starts,
            null: (parts.nulls + column / 8, 1 << (column % 8)),
            fixed: parts.fixed + place..parts.fixed + place + bytes,
            ends: (before, end),
            variable: parts.variable,
            width: page.width,
        })
    }
}

/// Writes a row, and returns the bytes that it takes.
fn write_record(shape: &Shape, sources: &[Source], row: usize, record: &mut [u8], width: Width) -> usize {
    let parts = Record::of(shape, width);
    width.put(record, STATUS_BYTES, parts.fixed_end);
    record[parts.fixed_end..parts.nulls].copy_from_slice(&(shape.columns() as u16).to_le_bytes());
    let mut end = parts.variable;
    for (column, ((source, form), place)) in sources.iter().zip(&shape.forms).zip(&shape.places).enumerate() {
        record[parts.nulls + column / 8] |= u8::from(source.is_null(row)) << (column % 8);
        match form {
            Form::Nothing => {}
            Form::Bits => record[parts.fixed + place] = source.is_true(row).into(),
            Form::Fixed(bytes) => {
                if let Some(value) = source.fixed(row) {
                    record[parts.fixed + place..parts.fixed + place + bytes].copy_from_slice(value);
                }
            }
            Form::Texts | Form::Bytes | Form::Rows => {
                let value = source.bytes(row);
                record[end..end + value.len()].copy_from_slice(value);
                end += value.len();
                width.put(record, parts.ends + place * width.bytes(), end);
            }
        }
    }
    end
}

/// A column of a page, with the places of its values in each record.
pub(crate) struct NsmColumn<'a> {
    bytes: &'a [u8],
    starts: &'a [u32],
    /// The byte and the bit that say whether the value is NULL.
    null: (usize, u8),
    fixed: Range<usize>,
    /// What says where the value before ends, and where this one does.
    ends: (usize, usize),
    /// Where the first of the values without a width starts.
    variable: usize,
    width: Width,
}

impl<'a> NsmColumn<'a> {
    #[inline]
    fn record(&self, row: usize) -> &'a [u8] {
        &self.bytes[self.starts[row] as usize..]
    }
}

impl<'a> PageColumn<'a> for NsmColumn<'a> {
    #[inline]
    fn is_null(&self, row: usize) -> bool {
        self.record(row)[self.null.0] & self.null.1 != 0
    }

    #[inline]
    fn fixed(&self, row: usize) -> &'a [u8] {
        &self.record(row)[self.fixed.clone()]
    }

    #[inline]
    fn truth(&self, row: usize) -> bool {
        self.record(row)[self.fixed.start] != 0
    }

    #[inline]
    fn bytes(&self, row: usize) -> &'a [u8] {
        let (record, (before, end)) = (self.record(row), self.ends);
        let start = if before == 0 { self.variable } else { self.width.get(record, before) };
        &record[start..self.width.get(record, end)]
    }
}

fn damaged(what: &str) -> SliceError {
    SliceError::Corrupt(what.to_owned())
}
