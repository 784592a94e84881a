//! PAX: a page holds its rows column by column. Who wants one column touches its part of the page, a minipage.
//!
//! ```text
//! +--------+------------------------+------------+------------+-----+---- ... ----+
//! | header | where each minipage    | minipage 0 | minipage 1 | ... | nothing     |
//! | 96     | starts, and where the  |            |            |     |             |
//! |        | last ends, 2 each      |            |            |     |             |
//! +--------+------------------------+------------+------------+-----+---- ... ----+
//!
//! +------------------+--------------------------------------------------------------------+
//! | a bit for each   | values of one width, NULL as zero; or a bit for each truth; or     |
//! | row; 1: NULL     | where each value ends among the bytes of all, 2 each, and then     |
//! |                  | these bytes                                                        |
//! +------------------+--------------------------------------------------------------------+
//!                    a minipage
//! ```
//!
//! Bits are eight a byte, the least significant first. In a run of pages, which has one row, offsets have 4 bytes. The
//! minipage of a column that has no values has no bytes.

use std::ops::Range;

use bytes::Bytes;

use crate::SliceError;
use crate::paged::{Form, HEADER_BYTES, Layout, PageColumn, Shape, Source, Width};

/// Column by column within a page.
#[derive(Debug)]
pub(crate) struct Pax;

/// A page whose minipages lie behind one another.
#[derive(Debug)]
pub(crate) struct PaxPage {
    bytes: Bytes,
    rows: usize,
    width: Width,
}

impl Layout for Pax {
    const NAME: &'static str = "pax";
    const ID: (u16, u16) = (5, 1);
    const MARK: u8 = 2;
    type Page = PaxPage;
    type Column<'a> = PaxColumn<'a>;

    fn bytes(shape: &Shape, rows: usize, variable_bytes: usize, width: Width) -> usize {
        let bits = (shape.valued + shape.truths) * rows.div_ceil(8);
        let values = (shape.fixed_bytes - shape.truths + shape.variable * width.bytes()) * rows;
        HEADER_BYTES + (shape.columns() + 1) * width.bytes() + bits + values + variable_bytes
    }

    fn write(shape: &Shape, sources: &[Source], rows: Range<usize>, page: &mut [u8], width: Width) {
        let mut start = HEADER_BYTES + (shape.columns() + 1) * width.bytes();
        for (column, (source, form)) in sources.iter().zip(&shape.forms).enumerate() {
            width.put(page, HEADER_BYTES + column * width.bytes(), start);
            start += write_minipage(source, *form, &rows, &mut page[start..], width);
        }
        width.put(page, HEADER_BYTES + shape.columns() * width.bytes(), start);
    }

    fn open(shape: &Shape, bytes: Bytes, rows: usize, width: Width) -> Result<PaxPage, SliceError> {
        let mut free = HEADER_BYTES + (shape.columns() + 1) * width.bytes();
        if free > bytes.len() {
            return Err(damaged("a page has no room for its columns"));
        }
        for column in 0..=shape.columns() {
            let start = width.get(&bytes, HEADER_BYTES + column * width.bytes());
            if start < free || start > bytes.len() {
                return Err(damaged("minipages overlap, or leave their page"));
            }
            free = start;
        }
        Ok(PaxPage { bytes, rows, width })
    }

    fn column<'a>(shape: &Shape, page: &'a PaxPage, column: usize) -> Result<PaxColumn<'a>, SliceError> {
        let place = |column: usize| page.width.get(&page.bytes, HEADER_BYTES + column * page.width.bytes());
        let known = shape.forms.get(column).zip(page.bytes.get(place(column)..place(column + 1)));
        let (form, minipage) = known.ok_or_else(|| damaged("a column is missing"))?;
        PaxColumn::open(*form, minipage, page.rows, page.width).ok_or_else(|| damaged("a minipage does not have its rows"))
    }
}

/// Writes the values of a column, and returns the bytes that they take.
fn write_minipage(source: &Source, form: Form, rows: &Range<usize>, minipage: &mut [u8], width: Width) -> usize {
    if form == Form::Nothing {
        return 0;
    }
    let bits = rows.len().div_ceil(8);
    let put_bits = |bytes: &mut [u8], is_set: &dyn Fn(usize) -> bool| {
        rows.clone().enumerate().for_each(|(bit, row)| bytes[bit / 8] |= u8::from(is_set(row)) << (bit % 8));
    };
    put_bits(minipage, &|row| source.is_null(row));
    let values = &mut minipage[bits..];
    bits + match form {
        Form::Nothing => 0,
        Form::Bits => {
            put_bits(values, &|row| source.is_true(row));
            bits
        }
        Form::Fixed(bytes) => {
            for (place, row) in rows.clone().enumerate() {
                if let Some(value) = source.fixed(row) {
                    values[place * bytes..(place + 1) * bytes].copy_from_slice(value);
                }
            }
            rows.len() * bytes
        }
        Form::Texts | Form::Bytes | Form::Rows => {
            let first = rows.len() * width.bytes();
            let mut end = 0;
            for (place, row) in rows.clone().enumerate() {
                let value = source.bytes(row);
                values[first + end..first + end + value.len()].copy_from_slice(value);
                end += value.len();
                width.put(values, place * width.bytes(), end);
            }
            first + end
        }
    }
}

/// A minipage whose bytes are as many as its rows need.
pub(crate) struct PaxColumn<'a> {
    nulls: &'a [u8],
    /// Values of a width, or truths, or where values end.
    values: &'a [u8],
    /// Bytes of a value of a width.
    bytes: usize,
    /// The values without a width.
    variable: &'a [u8],
    width: Width,
}

impl<'a> PaxColumn<'a> {
    fn open(form: Form, minipage: &'a [u8], rows: usize, width: Width) -> Option<PaxColumn<'a>> {
        let bits = if form == Form::Nothing { 0 } else { rows.div_ceil(8) };
        let (nulls, rest) = minipage.split_at_checked(bits)?;
        let (bytes, of_values) = match form {
            Form::Nothing => (0, 0),
            Form::Bits => (0, bits),
            Form::Fixed(bytes) => (bytes, rows.checked_mul(bytes)?),
            Form::Texts | Form::Bytes | Form::Rows => (0, rows * width.bytes()),
        };
        let (values, variable) = rest.split_at_checked(of_values)?;
        let mut end = 0;
        if form.is_variable() {
            for row in 0..rows {
                let next = width.get(values, row * width.bytes());
                end = if next >= end { next } else { return None };
            }
        }
        (end == variable.len()).then_some(PaxColumn { nulls, values, bytes, variable, width })
    }
}

#[inline]
fn bit(bits: &[u8], row: usize) -> bool {
    bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 != 0)
}

impl<'a> PageColumn<'a> for PaxColumn<'a> {
    #[inline]
    fn is_null(&self, row: usize) -> bool {
        bit(self.nulls, row)
    }

    fn has_no_nulls(&self) -> bool {
        self.nulls.iter().all(|byte| *byte == 0)
    }

    #[inline]
    fn fixed(&self, row: usize) -> &'a [u8] {
        &self.values[row * self.bytes..(row + 1) * self.bytes]
    }

    fn together(&self, rows: &Range<usize>) -> Option<&'a [u8]> {
        self.values.get(rows.start * self.bytes..rows.end * self.bytes)
    }

    #[inline]
    fn truth(&self, row: usize) -> bool {
        bit(self.values, row)
    }

    #[inline]
    fn bytes(&self, row: usize) -> &'a [u8] {
        let start = if row == 0 { 0 } else { self.width.get(self.values, (row - 1) * self.width.bytes()) };
        &self.variable[start..self.width.get(self.values, row * self.width.bytes())]
    }
}

fn damaged(what: &str) -> SliceError {
    SliceError::Corrupt(what.to_owned())
}
