//! Arrow's types, and how the Vortex file represents them.
//!
//! Dates, times, timestamps and durations are stored as their whole numbers, because Vortex's own temporal types refuse
//! values outside the years that their library knows.

use std::sync::Arc;

use ::vortex::array::dtype::DType;
use ::vortex::arrow::ArrowSessionExt;
use ::vortex::error::VortexResult;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::datatypes::*;
use arrow::error::ArrowError;

use super::unseen::zero_unseen;
use super::{NAME, SESSION};
use crate::SliceError;
use crate::nested::rebuild;

/// Whether a column can be stored and comes back unchanged.
pub(super) fn supports(field: &Field) -> Result<(), SliceError> {
    match holds(field.data_type()) {
        true => Ok(()),
        false => Err(SliceError::Unsupported {
            column: field.name().clone(),
            data_type: field.data_type().to_string(),
            encoding: NAME,
        }),
    }
}

fn holds(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::Boolean | DataType::Utf8View | DataType::BinaryView => true,
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale >= 0,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, 1..) => holds_nested(item),
        DataType::Struct(fields) => {
            !fields.is_empty() && names_differ(fields) && fields.iter().all(|field| holds_nested(field))
        }
        other => matches!(stored_leaf(other), DataType::Int32 | DataType::Int64) || other.is_integer() || other.is_floating(),
    }
}

/// Extension types inside nested ones would be taken for Vortex's own.
fn holds_nested(field: &Field) -> bool {
    holds(field.data_type()) && field.extension_type_name().is_none()
}

fn names_differ(fields: &Fields) -> bool {
    let mut names: Vec<&String> = fields.iter().map(|field| field.name()).collect();
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1])
}

/// The columns as they are in the file: named by position, with stored types, and without metadata of their own.
pub(super) fn stored_schema(schema: &Schema) -> Schema {
    let field = |(index, field): (usize, &FieldRef)| {
        Field::new(stored_name(index), stored_type(field.data_type()), field.is_nullable())
    };
    Schema::new(schema.fields().iter().enumerate().map(field).collect::<Fields>())
}

/// The name of a column in the file.
pub(super) fn stored_name(column: usize) -> String {
    column.to_string()
}

/// The type with which a column is stored.
pub(super) fn stored_type(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| -> FieldRef {
        let stored = stored_type(field.data_type());
        if stored == *field.data_type() { field.clone() } else { Arc::new(field.as_ref().clone().with_data_type(stored)) }
    };
    match data_type {
        DataType::List(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => stored_leaf(other),
    }
}

fn stored_leaf(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Date32 | DataType::Time32(_) => DataType::Int32,
        DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => DataType::Int64,
        other => other.clone(),
    }
}

/// A batch as it is in the file, with zeros under the NULLs of decimals.
pub(super) fn to_stored(batch: &RecordBatch, stored: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = batch.columns().iter().zip(stored.fields());
    let columns = columns.map(|(column, field)| zero_unseen(&retype(column, field.data_type())?)).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(stored.clone(), columns, &options)
}

/// The same values under another type. Temporal types and their whole numbers are converted into each other without a
/// copy.
pub(super) fn retype(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    match array.data_type() == to {
        true => Ok(array.clone()),
        false => rebuild(array, to, &retype_leaf),
    }
}

fn retype_leaf(leaf: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if leaf.data_type() == to {
        return Ok(leaf.clone());
    }
    // The buffers are the same. Only the type with which they are read changes, and both types have the same width.
    let same_width = stored_leaf(leaf.data_type()) == stored_leaf(to);
    match same_width {
        true => leaf.to_data().into_builder().data_type(to.clone()).build().map(make_array),
        false => Err(ArrowError::CastError(format!("{} is not stored as {to}", leaf.data_type()))),
    }
}

/// Vortex's type of a whole row.
pub(super) fn row_type(stored: &Schema) -> VortexResult<DType> {
    SESSION.arrow().from_arrow_schema(stored)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, Int64Array, ListArray, TimestampSecondArray};
    use arrow::buffer::OffsetBuffer;

    use super::*;

    #[test]
    fn temporal_values_change_type_without_a_copy() {
        let times = TimestampSecondArray::from(vec![Some(i64::MIN), None, Some(i64::MAX)]).with_timezone("UTC");
        let values = times.values().as_ptr();
        let times: ArrayRef = Arc::new(times);
        let stored = retype(&times, &stored_type(times.data_type())).unwrap();
        assert_eq!(stored.as_ref(), &Int64Array::from(vec![Some(i64::MIN), None, Some(i64::MAX)]) as &dyn Array);
        assert_eq!(stored.as_primitive::<Int64Type>().values().as_ptr(), values);
        assert_eq!(&retype(&stored, times.data_type()).unwrap(), &times);
        assert!(retype(&stored, &DataType::Date32).is_err());
    }

    #[test]
    fn temporal_values_in_lists_too() {
        let item = Arc::new(Field::new("item", DataType::Duration(TimeUnit::Second), true));
        let items = Arc::new(arrow::array::DurationSecondArray::from(vec![1, 2, 3]));
        let list: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([2, 1]), items, None));
        let stored = retype(&list, &stored_type(list.data_type())).unwrap();
        assert_eq!(stored.as_list::<i32>().values().data_type(), &DataType::Int64);
        assert_eq!(&retype(&stored, list.data_type()).unwrap(), &list);
    }

    #[test]
    fn what_vortex_has_no_place_for_is_refused() {
        let twice = DataType::Struct(vec![Field::new("a", DataType::Int8, true), Field::new("a", DataType::Int8, true)].into());
        for data_type in [DataType::FixedSizeBinary(4), DataType::Interval(IntervalUnit::DayTime), twice] {
            assert!(supports(&Field::new("x", data_type, true)).is_err());
        }
        assert!(supports(&Field::new("x", DataType::Duration(TimeUnit::Second), true)).is_ok());
    }
}
