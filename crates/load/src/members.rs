//! Members of columns: of structs, lists and maps. What writers of files note of them, as field ids are, makes no two types, nor does
//! it whether they are NOT NULL.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, SchemaRef};
use pithead_model::Fault;

/// A column without what its writer noted of it and its members. What names an extension's type stays.
pub(crate) fn without_notes(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| key.starts_with("ARROW:extension:"));
    let member = |member: &FieldRef| Arc::new(without_notes(member));
    let data_type = match field.data_type() {
        DataType::List(item) => DataType::List(member(item)),
        DataType::LargeList(item) => DataType::LargeList(member(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(member(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(member).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(member(entries), *is_sorted),
        other => other.clone(),
    };
    field.clone().with_data_type(data_type).with_metadata(metadata)
}

/// The first type, in which members may be NULL where they may in either. Types that are not alike stay as they are.
pub(crate) fn loosened(known: &DataType, other: &DataType) -> DataType {
    match (known, other) {
        (DataType::List(known), DataType::List(other)) => DataType::List(looser(known, other)),
        (DataType::LargeList(known), DataType::LargeList(other)) => DataType::LargeList(looser(known, other)),
        (DataType::FixedSizeList(known, size), DataType::FixedSizeList(other, _)) => {
            DataType::FixedSizeList(looser(known, other), *size)
        }
        (DataType::Map(known, is_sorted), DataType::Map(other, _)) => DataType::Map(looser(known, other), *is_sorted),
        (DataType::Struct(known), DataType::Struct(other)) if have_one_name_each(known, other) => {
            DataType::Struct(known.iter().zip(other).map(|(known, other)| looser(known, other)).collect())
        }
        (known, _) => known.clone(),
    }
}

fn looser(known: &FieldRef, other: &FieldRef) -> FieldRef {
    let data_type = loosened(known.data_type(), other.data_type());
    let is_nullable = known.is_nullable() || other.is_nullable();
    Arc::new(known.as_ref().clone().with_data_type(data_type).with_nullable(is_nullable))
}

fn have_one_name_each(known: &Fields, other: &Fields) -> bool {
    known.len() == other.len() && known.iter().zip(other).all(|(known, other)| known.name() == other.name())
}

/// Whether columns are of one type, but for notes and NOT NULL of their members.
pub(crate) fn are_alike(a: &DataType, b: &DataType) -> bool {
    let plain = |data_type| without_notes(&Field::new("", data_type, true));
    a == b || plain(loosened(a, b)) == plain(loosened(b, a))
}

/// The batch with the columns of a schema that are alike. A NULL where the schema has none is an error.
pub(crate) fn with_members(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        let cast = cast_with_options(column, field.data_type(), &options);
        cast.map_err(|error| Fault::invalid(format!("column {}: {error}", field.name())))
    });
    let columns = columns.collect::<Result<Vec<ArrayRef>, Fault>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options);
    batch.map_err(|error| Fault::invalid(error.to_string()))
}
