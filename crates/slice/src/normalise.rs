//! The types that stored datasets have: one type of text, one of bytes, one of decimals, and no dictionaries, so that
//! all code above has to handle fewer types.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use pithead_model::COLUMNS_MAX;

use crate::SliceError;
use crate::nans::one_nan;

/// The schema with which a dataset of these columns is stored: texts as Utf8View, bytes as BinaryView, decimals of up
/// to 38 digits as Decimal128, and dictionaries decoded, also inside lists and structs. The items of lists have one name. Names of
/// columns and fields, nullability and metadata stay.
///
/// A column without a name, two columns with one name, and more than [`COLUMNS_MAX`] columns are
/// [`SliceError::Schema`].
pub fn normalise(schema: &Schema) -> Result<SchemaRef, SliceError> {
    check_names(schema)?;
    let fields: Vec<FieldRef> = schema.fields().iter().map(normalise_field).collect();
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

/// The batch, with the columns' types as in `schema`, which is the normalised one, and with one NaN. Columns are taken
/// by position.
pub fn normalise_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, SliceError> {
    if batch.num_columns() != schema.fields().len() {
        return Err(SliceError::Schema(format!("expected {} columns, got {}", schema.fields().len(), batch.num_columns())));
    }
    let normal = |(column, field): (&ArrayRef, &FieldRef)| {
        let converted = convert(column, field)?;
        one_nan(&converted).map_err(|error| SliceError::Schema(format!("column {:?}: {error}", field.name())))
    };
    let columns: Vec<ArrayRef> = batch.columns().iter().zip(schema.fields()).map(normal).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(|error| SliceError::Schema(error.to_string()))
}

fn check_names(schema: &Schema) -> Result<(), SliceError> {
    let columns = schema.fields().len();
    if columns == 0 {
        return Err(SliceError::Schema("a dataset needs at least one column".into()));
    }
    if columns > COLUMNS_MAX {
        return Err(SliceError::Schema(format!("{columns} columns are over the bound of {COLUMNS_MAX}")));
    }
    let mut seen = HashSet::with_capacity(columns);
    for (index, field) in schema.fields().iter().enumerate() {
        if field.name().is_empty() {
            return Err(SliceError::Schema(format!("column {} has no name", index + 1)));
        }
        if !seen.insert(field.name()) {
            return Err(SliceError::Schema(format!("two columns are named {:?}", field.name())));
        }
    }
    Ok(())
}

fn normalise_field(field: &FieldRef) -> FieldRef {
    let normal = normalise_type(field.data_type());
    match normal == *field.data_type() {
        true => field.clone(),
        // A field that was a dictionary must not stay marked as one.
        false => Arc::new(Field::new(field.name(), normal, field.is_nullable()).with_metadata(field.metadata().clone())),
    }
}

/// The items of a list. Files call them `element`, `item` or `array`, which makes no two types of them.
fn normalise_item(item: &FieldRef) -> FieldRef {
    let normal = normalise_type(item.data_type());
    match item.name() == Field::LIST_FIELD_DEFAULT_NAME && item.metadata().is_empty() && normal == *item.data_type() {
        true => item.clone(),
        false => Arc::new(Field::new_list_field(normal, item.is_nullable())),
    }
}

/// The type with which values of `data_type` are stored.
pub(crate) fn normalise_type(data_type: &DataType) -> DataType {
    let normal = match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Dictionary(_, value) => normalise_type(value),
        DataType::List(item) => DataType::List(normalise_item(item)),
        DataType::LargeList(item) => DataType::LargeList(normalise_item(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(normalise_item(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(normalise_field).collect()),
        other => other.clone(),
    };
    // A type for which there is no conversion stays as it is.
    match can_convert(data_type, &normal) {
        true => normal,
        false => data_type.clone(),
    }
}

fn can_convert(from: &DataType, to: &DataType) -> bool {
    match from {
        DataType::Dictionary(_, value) => can_cast_types(from, value) && can_convert(value, to),
        _ => from == to || can_cast_types(from, to),
    }
}

/// The column with the type of a field that is its normalised one.
pub(crate) fn convert(column: &ArrayRef, field: &Field) -> Result<ArrayRef, SliceError> {
    if column.data_type() == field.data_type() {
        return Ok(column.clone());
    }
    if normalise_type(column.data_type()) != *field.data_type() {
        return Err(SliceError::Schema(format!(
            "column {:?} should be {}, and is {}",
            field.name(),
            field.data_type(),
            column.data_type()
        )));
    }
    // The cast gives an error, and not NULL, for a value that does not fit.
    let options = CastOptions { safe: false, ..Default::default() };
    let cast = |column: &ArrayRef, to: &DataType| {
        cast_with_options(column, to, &options)
            .map_err(|error| SliceError::Schema(format!("column {:?}: {error}", field.name())))
    };
    match column.data_type() {
        DataType::Dictionary(_, value) => convert(&cast(column, value)?, field),
        _ => cast(column, field.data_type()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray, Decimal64Array, DictionaryArray, Int64Array, ListArray, StringArray};
    use arrow::datatypes::{Int8Type, Int32Type};

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn texts_decimals_and_dictionaries_take_their_stored_types() {
        let dictionary: DictionaryArray<Int8Type> = vec![Some("a"), None, Some("b")].into_iter().collect();
        let decimal = Decimal64Array::from(vec![Some(1), None, Some(-3)]).with_precision_and_scale(12, 2).unwrap();
        let batch = batch(vec![
            ("text", Arc::new(StringArray::from(vec!["x", "", "é"]))),
            ("code", Arc::new(dictionary)),
            ("price", Arc::new(decimal)),
            ("n", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ]);
        let schema = normalise(&batch.schema()).unwrap();
        let types: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        assert_eq!(types, [DataType::Utf8View, DataType::Utf8View, DataType::Decimal128(12, 2), DataType::Int64]);
        let stored = normalise_batch(&batch, &schema).unwrap();
        assert_eq!(stored.column(1).as_string_view().iter().collect::<Vec<_>>(), [Some("a"), None, Some("b")]);
        assert!(stored.column(2).is_null(1));
        assert_eq!(normalise(&schema).unwrap(), schema);
    }

    #[test]
    fn lists_are_normalised_inside() {
        let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths([2usize, 1]);
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let batch = batch(vec![("tags", Arc::new(ListArray::new(item, offsets, values, None)))]);
        let schema = normalise(&batch.schema()).unwrap();
        let stored = normalise_batch(&batch, &schema).unwrap();
        assert_eq!(stored.column(0).as_list::<i32>().values().data_type(), &DataType::Utf8View);
    }

    #[test]
    fn lists_are_of_one_type_whatever_their_items_are_called() {
        let list = |name: &str| {
            let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
            let inner = Arc::new(Field::new(name, DataType::Int64, true));
            let inner: ArrayRef =
                Arc::new(ListArray::new(inner, arrow::buffer::OffsetBuffer::from_lengths([1usize, 2]), values, None));
            let item =
                Arc::new(Field::new(name, inner.data_type().clone(), true).with_metadata([("a".into(), "b".into())].into()));
            let outer = ListArray::new(item, arrow::buffer::OffsetBuffer::from_lengths([2usize]), inner, None);
            batch(vec![("l", Arc::new(outer))])
        };
        let (of_parquet, of_arrow) = (list("element"), list("item"));
        let schema = normalise(&of_parquet.schema()).unwrap();
        assert_eq!(schema, normalise(&of_arrow.schema()).unwrap());
        assert_eq!(normalise_batch(&of_parquet, &schema).unwrap(), normalise_batch(&of_arrow, &schema).unwrap());
    }

    #[test]
    fn columns_need_names_of_their_own() {
        let named = |names: &[&str]| {
            let fields: Vec<_> = names.iter().map(|name| Field::new(*name, DataType::Int32, true)).collect();
            normalise(&Schema::new(fields)).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(named(&["a", "b"]), Ok(()));
        assert_eq!(named(&["a", "a"]), Err("two columns are named \"a\"".into()));
        assert_eq!(named(&["a", ""]), Err("column 2 has no name".into()));
        assert!(named(&vec!["x"; COLUMNS_MAX + 1]).is_err());
    }

    #[test]
    fn a_batch_of_other_types_or_with_nulls_is_refused() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let wrong = batch(vec![("n", Arc::new(arrow::array::PrimitiveArray::<Int32Type>::from(vec![1])))]);
        assert!(normalise_batch(&wrong, &schema).is_err());
        let nulls = batch(vec![("n", Arc::new(Int64Array::from(vec![None])))]);
        assert!(normalise_batch(&nulls, &schema).is_err());
    }
}
