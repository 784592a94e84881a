//! CSV, and one JSON object a line.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::json::writer::{LineDelimited, Writer as JsonWriter, WriterBuilder as JsonWriterBuilder};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::CliError;
use crate::output::{RowWriter, Sink};

/// CSV with a header. Lists and structs are written as text.
pub(crate) struct CsvRows<'a> {
    writer: arrow::csv::Writer<&'a mut Sink>,
}

impl<'a> CsvRows<'a> {
    /// Writes the header at once, so that an answer without rows has one too.
    pub(crate) fn new(schema: &SchemaRef, sink: &'a mut Sink) -> Result<Self, CliError> {
        let mut rows = Self { writer: arrow::csv::WriterBuilder::new().with_header(true).build(sink) };
        rows.write(&RecordBatch::new_empty(Arc::clone(schema)))?;
        Ok(rows)
    }
}

impl RowWriter for CsvRows<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), CliError> {
        Ok(self.writer.write(&flat(batch)?)?)
    }

    fn finish(self: Box<Self>) -> Result<(), CliError> {
        Ok(())
    }
}

/// The same rows with nested columns as text.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, CliError> {
    if !batch.columns().iter().any(|column| column.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| match column.data_type().is_nested() {
        true => Ok((Arc::new(Field::new(field.name(), DataType::Utf8, true)), as_text(column)?)),
        false => Ok((Arc::clone(field), Arc::clone(column))),
    });
    let (fields, columns): (Vec<_>, Vec<_>) = columns.collect::<Result<Vec<_>, CliError>>()?.into_iter().unzip();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn as_text(column: &ArrayRef) -> Result<ArrayRef, CliError> {
    let options = FormatOptions::new().with_null("NULL");
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let texts = (0..column.len()).map(|row| match column.is_null(row) {
        true => Ok(None),
        false => formatter.value(row).try_to_string().map(Some),
    });
    Ok(Arc::new(texts.collect::<Result<StringArray, _>>()?))
}

/// One JSON object a line, nulls written out.
pub(crate) struct JsonRows<'a> {
    writer: JsonWriter<&'a mut Sink, LineDelimited>,
}

impl<'a> JsonRows<'a> {
    pub(crate) fn new(sink: &'a mut Sink) -> Self {
        Self { writer: JsonWriterBuilder::new().with_explicit_nulls(true).build(sink) }
    }
}

impl RowWriter for JsonRows<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), CliError> {
        Ok(self.writer.write(batch)?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), CliError> {
        Ok(self.writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int32Array, ListArray};
    use arrow::datatypes::Int32Type;

    use super::*;
    use crate::output::{Format, row_writer};

    fn written(format: Format, batch: &RecordBatch) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let mut sink = Sink::file(&path).unwrap();
        let mut writer = row_writer(format, &batch.schema(), &mut sink).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
        sink.finish().unwrap();
        std::fs::read_to_string(&path).unwrap()
    }

    fn batch() -> RecordBatch {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
        RecordBatch::try_from_iter_with_nullable([
            ("n", Arc::new(Int32Array::from(vec![None, Some(2)])) as Arc<dyn Array>, true),
            ("name", Arc::new(StringArray::from(vec!["a,\"b\"", "é"])), true),
            ("list", Arc::new(lists), true),
        ])
        .unwrap()
    }

    #[test]
    fn csv_quotes_what_it_must_and_leaves_null_empty() {
        assert_eq!(written(Format::Csv, &batch()), "n,name,list\n,\"a,\"\"b\"\"\",\"[1, NULL]\"\n2,é,\n");
        assert_eq!(written(Format::Csv, &batch().slice(0, 0)), "n,name,list\n");
    }

    #[test]
    fn json_is_one_object_a_line_with_nulls() {
        let expected = "{\"n\":null,\"name\":\"a,\\\"b\\\"\",\"list\":[1,null]}\n{\"n\":2,\"name\":\"é\",\"list\":null}\n";
        assert_eq!(written(Format::Json, &batch()), expected);
    }
}
