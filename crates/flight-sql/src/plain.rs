//! Columns as every client can read them: no views, no dictionaries, no runs. JDBC's client of today reads none of these.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_flight::{IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use pithead_host::converted;
use pithead_model::{Blame, Fault};

/// A type as it is sent.
pub(crate) fn plain_type(data_type: &DataType) -> DataType {
    use DataType::{
        Binary, BinaryView, Decimal32, Decimal64, Decimal128, Dictionary, FixedSizeList, LargeList, LargeListView, List,
        ListView, Map, RunEndEncoded, Struct, Utf8, Utf8View,
    };
    match data_type {
        Utf8View => Utf8,
        BinaryView => Binary,
        Decimal32(precision, scale) | Decimal64(precision, scale) => Decimal128(*precision, *scale),
        Dictionary(_, values) => plain_type(values),
        RunEndEncoded(_, values) => plain_type(values.data_type()),
        // arrow-flight 59 sends large lists as lists, whatever was announced.
        List(item) | ListView(item) | LargeList(item) | LargeListView(item) => List(plain_field(item)),
        FixedSizeList(item, length) => FixedSizeList(plain_field(item), *length),
        Struct(fields) => Struct(plain_fields(fields)),
        Map(entries, sorted) => Map(plain_field(entries), *sorted),
        other => other.clone(),
    }
}

fn plain_field(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(plain_type(field.data_type())))
}

fn plain_fields(fields: &Fields) -> Fields {
    fields.iter().map(plain_field).collect()
}

/// The columns of a dataset as they are sent.
pub(crate) fn plain_schema(schema: &Schema) -> Schema {
    Schema::new(plain_fields(schema.fields()))
}

/// The columns of rows to come as they are sent. Any may have NULL: what planning says of that is not what a client should rely on.
pub(crate) fn answer_schema(schema: &Schema) -> SchemaRef {
    let nullable = |field: &FieldRef| -> Field { plain_field(field).as_ref().clone().with_nullable(true) };
    Arc::new(Schema::new(schema.fields().iter().map(nullable).collect::<Vec<_>>()))
}

/// A batch with the columns that were announced.
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    let changed = |what: String| {
        Fault::new(Blame::Conflict, format!("the columns are others than were announced: {what}")).hint("ask again")
    };
    if batch.num_columns() != schema.fields().len() {
        return Err(changed(format!("{} columns, expected {}", batch.num_columns(), schema.fields().len())));
    }
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (column, field) in batch.columns().iter().zip(schema.fields()) {
        let same = column.data_type() == field.data_type();
        let plain = || cast(column, field.data_type()).map_err(|error| changed(format!("column {}: {error}", field.name())));
        columns.push(match same {
            true => Arc::clone(column),
            false if plain_type(column.data_type()) == *field.data_type() => plain()?,
            // Values of parameters, or a table that was made anew, may have made another type.
            false => converted(column, field.data_type()).ok_or_else(|| {
                let (name, told, now) = (field.name(), field.data_type(), column.data_type());
                changed(format!("column {name} was announced as {told}, and has values of the type {now}"))
            })?,
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(Fault::bug)
}

/// Bytes that columns take in memory, about.
pub(crate) fn schema_held_bytes(schema: &Schema) -> usize {
    /// What a column takes beside its name.
    const FIELD_BYTES: usize = 250;
    schema.fields().iter().map(|field| FIELD_BYTES + field.name().len()).sum()
}

/// A schema as messages carry it.
pub(crate) fn schema_bytes(schema: &Schema) -> Result<Bytes, Fault> {
    let message = IpcMessage::try_from(SchemaAsIpc::new(schema, &Default::default())).map_err(Fault::bug)?;
    Ok(message.0)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, ArrayRef, AsArray, DictionaryArray, ListArray, StringViewArray, StructArray};
    use arrow::datatypes::{Int32Type, UInt8Type};

    use super::*;

    #[test]
    fn whatever_is_nested_becomes_plain() {
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None, Some("a text that is longer than a view")]));
        let dictionary: ArrayRef = Arc::new(["x", "y", "x"].into_iter().collect::<DictionaryArray<UInt8Type>>());
        let inner = Arc::new(Field::new("v", DataType::Utf8View, true));
        let nested: ArrayRef = Arc::new(StructArray::from(vec![(inner, Arc::clone(&views))]));
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None, Some(vec![])]);
        let large = cast(&lists, &DataType::LargeList(Arc::new(Field::new_list_field(DataType::Int32, true)))).unwrap();
        let batch = RecordBatch::try_from_iter([
            ("a", views),
            ("b", dictionary),
            ("c", nested),
            ("d", Arc::new(lists) as ArrayRef),
            ("e", large),
        ]);
        let batch = batch.unwrap();
        let schema = answer_schema(&batch.schema());
        let plain = conform(&batch, &schema).unwrap();
        assert_eq!(plain.column(0).as_string::<i32>().value(2), "a text that is longer than a view");
        assert_eq!(plain.column(1).data_type(), &DataType::Utf8);
        let texts = plain.column(2).as_struct().column(0);
        assert!(texts.as_string::<i32>().value(0) == "a" && texts.is_null(1));
        assert_eq!(plain.column(3), batch.column(3));
        assert_eq!(plain.column(4), plain.column(3));
    }

    #[test]
    fn other_columns_than_announced_are_an_error() {
        let batch = RecordBatch::try_from_iter([("a", Arc::new(StringViewArray::from(vec!["x"])) as ArrayRef)]).unwrap();
        let schema = Arc::new(Schema::empty());
        assert_eq!(conform(&batch, &schema).unwrap_err().blame, Blame::Conflict);
    }
}
