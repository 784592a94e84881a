//! Decoding: values of pages become a column.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayData, ArrayRef, BinaryViewBuilder, BooleanArray, BooleanBufferBuilder, NullArray, NullBufferBuilder,
    StringViewBuilder, make_array, new_null_array,
};
use arrow::buffer::MutableBuffer;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::layout::PageColumn;
use super::shape::Form;
use super::source::converter;
use crate::SliceError;

/// The rows of a page that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Picked {
    All(Range<usize>),
    Some(Vec<usize>),
}

impl Picked {
    pub(super) fn len(&self) -> usize {
        match self {
            Picked::All(rows) => rows.len(),
            Picked::Some(rows) => rows.len(),
        }
    }

    #[inline]
    fn each(&self, mut take: impl FnMut(usize)) {
        match self {
            Picked::All(rows) => rows.clone().for_each(take),
            Picked::Some(rows) => rows.iter().for_each(|row| take(*row)),
        }
    }

    fn try_each(&self, mut take: impl FnMut(usize) -> Result<(), SliceError>) -> Result<(), SliceError> {
        match self {
            Picked::All(rows) => rows.clone().try_for_each(take),
            Picked::Some(rows) => rows.iter().try_for_each(|row| take(*row)),
        }
    }
}

/// A column that is being decoded.
pub(super) struct Sink {
    data_type: DataType,
    rows: usize,
    values: Values,
}

enum Values {
    Nothing,
    Bits(NullBufferBuilder, BooleanBufferBuilder),
    Fixed(NullBufferBuilder, MutableBuffer, usize),
    Texts(StringViewBuilder),
    Bytes(BinaryViewBuilder),
    Rows(RowValues),
}

/// Values in Arrow's row format.
struct RowValues {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// What NULL is in that format.
    null: Vec<u8>,
}

impl Sink {
    /// For so many rows of a column.
    pub(super) fn new(data_type: &DataType, form: Form, rows: usize) -> Result<Sink, SliceError> {
        let nulls = NullBufferBuilder::new(rows);
        let values = match form {
            Form::Nothing => Values::Nothing,
            Form::Bits => Values::Bits(nulls, BooleanBufferBuilder::new(rows)),
            Form::Fixed(width) => Values::Fixed(nulls, MutableBuffer::new(0), width),
            Form::Texts => Values::Texts(StringViewBuilder::with_capacity(rows)),
            Form::Bytes => Values::Bytes(BinaryViewBuilder::with_capacity(rows)),
            Form::Rows => {
                let null = converter(data_type)
                    .and_then(|converter| converter.convert_columns(&[new_null_array(data_type, 1)]))
                    .map_err(damaged)?;
                Values::Rows(RowValues { bytes: Vec::new(), ends: Vec::with_capacity(rows), null: null.row(0).data().to_vec() })
            }
        };
        Ok(Sink { data_type: data_type.clone(), rows: 0, values })
    }

    /// Adds rows of a page.
    pub(super) fn take<'a>(&mut self, column: &impl PageColumn<'a>, picked: &Picked) -> Result<(), SliceError> {
        self.rows += picked.len();
        match &mut self.values {
            Values::Nothing => {}
            Values::Bits(nulls, bits) => {
                take_nulls(nulls, column, picked);
                picked.each(|row| bits.append(column.truth(row)));
            }
            Values::Fixed(nulls, values, width) => {
                take_nulls(nulls, column, picked);
                take_fixed(values, *width, column, picked);
            }
            Values::Texts(texts) => picked.try_each(|row| {
                match column.is_null(row) {
                    true => texts.append_null(),
                    false => texts.append_value(std::str::from_utf8(column.bytes(row)).map_err(damaged)?),
                }
                Ok(())
            })?,
            Values::Bytes(values) => picked.each(|row| match column.is_null(row) {
                true => values.append_null(),
                false => values.append_value(column.bytes(row)),
            }),
            Values::Rows(rows) => picked.each(|row| {
                let value = if column.is_null(row) { &rows.null } else { column.bytes(row) };
                rows.bytes.extend_from_slice(value);
                rows.ends.push(rows.bytes.len());
            }),
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<ArrayRef, SliceError> {
        Ok(match self.values {
            Values::Nothing => Arc::new(NullArray::new(self.rows)),
            Values::Bits(nulls, mut bits) => Arc::new(BooleanArray::new(bits.finish(), nulls.build())),
            Values::Fixed(nulls, values, _) => {
                let data = ArrayData::builder(self.data_type).len(self.rows).add_buffer(values.into()).nulls(nulls.build());
                make_array(data.build().map_err(damaged)?)
            }
            Values::Texts(mut texts) => Arc::new(texts.finish()),
            Values::Bytes(mut values) => Arc::new(values.finish()),
            Values::Rows(rows) => rows.finish(&self.data_type).map_err(damaged)?,
        })
    }
}

impl RowValues {
    /// The rows are foreign bytes: the converter's panics are caught by whoever scans, and what it makes is checked.
    fn finish(self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let converter = converter(data_type)?;
        let parser = converter.parser();
        let mut start = 0;
        let rows = self.ends.iter().map(|end| {
            let row = parser.parse(&self.bytes[start..*end]);
            start = *end;
            row
        });
        let array = converter.convert_rows(rows)?.pop();
        let array = array.ok_or_else(|| ArrowError::InvalidArgumentError("there is no column".to_owned()))?;
        array.to_data().validate_full()?;
        Ok(array)
    }
}

fn take_nulls<'a>(nulls: &mut NullBufferBuilder, column: &impl PageColumn<'a>, picked: &Picked) {
    match column.has_no_nulls() {
        true => nulls.append_n_non_nulls(picked.len()),
        false => picked.each(|row| nulls.append(!column.is_null(row))),
    }
}

fn take_fixed<'a>(into: &mut MutableBuffer, width: usize, column: &impl PageColumn<'a>, picked: &Picked) {
    if let Picked::All(rows) = picked
        && let Some(values) = column.together(rows)
    {
        into.extend_from_slice(values);
        return;
    }
    into.reserve(width * picked.len());
    match width {
        1 => take_each::<1>(into, column, picked),
        2 => take_each::<2>(into, column, picked),
        4 => take_each::<4>(into, column, picked),
        8 => take_each::<8>(into, column, picked),
        16 => take_each::<16>(into, column, picked),
        _ => picked.each(|row| into.extend_from_slice(column.fixed(row))),
    }
}

/// With a width that the compiler knows, a value is a move.
fn take_each<'a, const WIDTH: usize>(into: &mut MutableBuffer, column: &impl PageColumn<'a>, picked: &Picked) {
    picked.each(|row| {
        let value: [u8; WIDTH] = *column.fixed(row).first_chunk().unwrap_or(&[0; WIDTH]);
        into.extend_from_slice(&value);
    });
}

fn damaged(what: impl std::fmt::Display) -> SliceError {
    SliceError::Corrupt(what.to_string())
}
