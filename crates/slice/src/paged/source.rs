//! The values of a column that is written to pages.

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};

use super::shape::Form;

/// The values of a column.
pub(crate) struct Source {
    nulls: Option<NullBuffer>,
    values: Values,
}

enum Values {
    Nothing,
    Bits(BooleanArray),
    Fixed(Buffer, usize),
    Texts(StringViewArray),
    Bytes(BinaryViewArray),
    Rows(Rows),
}

impl Source {
    pub(super) fn new(column: &ArrayRef, form: Form) -> Result<Source, ArrowError> {
        let values = match form {
            Form::Nothing => Values::Nothing,
            Form::Bits => Values::Bits(column.as_boolean().clone()),
            Form::Fixed(width) => {
                let data = column.to_data();
                Values::Fixed(data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width), width)
            }
            Form::Texts => Values::Texts(column.as_string_view().clone()),
            Form::Bytes => Values::Bytes(column.as_binary_view().clone()),
            Form::Rows => Values::Rows(converter(column.data_type())?.convert_columns(std::slice::from_ref(column))?),
        };
        Ok(Source { nulls: column.logical_nulls().filter(|nulls| nulls.null_count() > 0), values })
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// The value of a width; none: it is NULL, or has no width.
    pub(crate) fn fixed(&self, row: usize) -> Option<&[u8]> {
        match &self.values {
            Values::Fixed(bytes, width) if !self.is_null(row) => Some(&bytes[row * width..(row + 1) * width]),
            _ => None,
        }
    }

    /// Whether the value is true; NULL is not.
    pub(crate) fn is_true(&self, row: usize) -> bool {
        matches!(&self.values, Values::Bits(bits) if bits.value(row) && !self.is_null(row))
    }

    /// The value without a width; NULL has no bytes.
    pub(crate) fn bytes(&self, row: usize) -> &[u8] {
        if self.is_null(row) {
            return &[];
        }
        match &self.values {
            Values::Texts(texts) => texts.value(row).as_bytes(),
            Values::Bytes(values) => values.value(row),
            Values::Rows(rows) => rows.row(row).data(),
            Values::Nothing | Values::Bits(_) | Values::Fixed(..) => &[],
        }
    }
}

/// What makes rows of Arrow's row format of a column's values, and values of these.
pub(super) fn converter(data_type: &DataType) -> Result<RowConverter, ArrowError> {
    RowConverter::new(vec![SortField::new(data_type.clone())])
}
