//! Columns of one name, which readers of files cannot tell apart.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};

use super::{RowWriter, WriteError};

/// The same columns under names of their own, as DuckDB makes them: the second `a` is `a_1`. None: they have such names.
pub(super) fn told_apart(schema: &SchemaRef) -> Option<SchemaRef> {
    let mut seen = HashSet::with_capacity(schema.fields().len());
    if schema.fields().iter().all(|field| seen.insert(field.name().as_str())) {
        return None;
    }
    let mut taken = HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        let mut name = field.name().clone();
        let mut number = 1_u64;
        while taken.contains(&name) {
            name = format!("{}_{number}", field.name());
            number += 1;
        }
        taken.insert(name.clone());
        field.as_ref().clone().with_name(name)
    });
    Some(Arc::new(Schema::new_with_metadata(fields.collect::<Vec<Field>>(), schema.metadata().clone())))
}

/// Writes rows under the names of another schema.
pub(super) struct Renamed<'a> {
    pub(super) schema: SchemaRef,
    pub(super) rows: Box<dyn RowWriter + Send + 'a>,
}

impl RowWriter for Renamed<'_> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        self.rows.write(&RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        self.rows.finish()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::DataType;

    use super::*;
    use crate::{CsvOptions, NewFile, WriteOptions, file_writer, open_all};

    fn names(schema: &Schema) -> Vec<&str> {
        schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    fn batch(names: &[&str]) -> RecordBatch {
        let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
        let columns = (0..names.len() as i64).map(|value| Arc::new(Int64Array::from(vec![value])) as ArrayRef).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    #[test]
    fn names_are_made_apart_as_duckdb_makes_them() {
        let apart = |all: &[&str]| told_apart(&batch(all).schema()).map(|schema| names(&schema).join(" "));
        assert_eq!(apart(&["k", "k", "k_1", "K"]).as_deref(), Some("k k_1 k_1_1 K"));
        assert_eq!(apart(&["k", "k", "k"]).as_deref(), Some("k k_1 k_2"));
        assert_eq!(apart(&["k", "l"]), None);
    }

    #[test]
    fn a_file_of_an_answer_with_two_columns_of_one_name_is_read_back_with_both() {
        let folder = tempfile::tempdir().unwrap();
        let batch = batch(&["k", "s", "k"]);
        for name in ["rows.parquet", "rows.arrow", "rows.json", "rows.csv"] {
            let path = folder.path().join(name);
            let mut out = NewFile::create(&path).unwrap();
            let options = WriteOptions::of_file(&path).unwrap();
            let mut writer = file_writer(&options, &batch.schema(), &mut out).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
            out.finish().unwrap();
            let sources = open_all(&[path.display().to_string()], None, &CsvOptions::default()).unwrap();
            assert_eq!(names(sources[0].schema()), ["k", "s", "k_1"], "{name}");
            let read = sources[0].read(0, 10, None).unwrap().next().unwrap().unwrap().batch;
            assert_eq!(read.columns(), batch.columns(), "{name}");
        }
        let mut stream = Vec::new();
        let mut writer = crate::stream_writer(&batch.schema(), &mut stream).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let reader = arrow::ipc::reader::StreamReader::try_new(stream.as_slice(), None).unwrap();
        assert_eq!(names(&reader.schema()), ["k", "s", "k_1"]);
    }
}
