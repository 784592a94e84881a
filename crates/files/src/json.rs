//! JSON lines: one object a line, one part a file, types inferred from the first rows.

use std::fmt;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::infer_json_schema;
use pithead_model::Fault;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::source::{Chunk, Chunks, Source, damaged, open_file, unreadable};
use crate::text::open_text;

/// Lines that say in which order columns come: those that only later lines have follow, by their names.
const ORDER_LINES: usize = 1_000;

#[derive(Debug)]
pub(crate) struct JsonSource {
    path: PathBuf,
    bytes: u64,
    schema: SchemaRef,
    schema_rows: usize,
}

impl JsonSource {
    /// Guesses columns and types from the first rows.
    pub(crate) fn open(path: &Path, schema_rows: usize) -> Result<Self, Fault> {
        let bytes = open_file(path)?.metadata().map_err(|error| unreadable(path, &error))?.len();
        let text = || open_text(path, &Arc::default());
        let inferred = infer_json_schema(text()?, Some(schema_rows)).map_err(|error| not_json(path, &error))?;
        let order = key_order(text()?);
        let mut fields: Vec<FieldRef> = inferred.0.fields().iter().cloned().collect();
        let place = |field: &FieldRef| order.iter().position(|key| key == field.name()).unwrap_or(order.len());
        fields.sort_by(|a, b| (place(a), a.name()).cmp(&(place(b), b.name())));
        if fields.is_empty() {
            return Err(damaged(path, "it has no object with a name and a value"));
        }
        Ok(Self { path: path.to_owned(), bytes, schema: Arc::new(Schema::new(fields)), schema_rows })
    }

    fn fault(path: &Path, schema_rows: usize, rows: usize, error: &ArrowError) -> Fault {
        let text = plain(error);
        match text.split('\'').nth(1).filter(|_| text.contains("missing from schema")) {
            Some(column) => {
                let what = format!("after row {rows}: column {column} was not in the first {schema_rows} rows");
                damaged(path, what).hint("put a row with all columns first, or load into a dataset that has the column")
            }
            None => damaged(path, format_args!("after row {rows}: {text}")),
        }
    }
}

impl Source for JsonSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn is_typed(&self) -> bool {
        false
    }

    fn retype(&mut self, schema: SchemaRef) {
        // A value that is absent is NULL; where that is not allowed, it is found later, with the column's name.
        let fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        self.schema = Arc::new(Schema::new(fields));
    }

    fn parts(&self) -> usize {
        1
    }

    fn read(&self, _part: usize, batch_rows: usize, only: Option<usize>) -> Result<Chunks, Fault> {
        let read = Arc::new(AtomicU64::new(0));
        let schema = match only {
            Some(column) => Arc::new(self.schema.project(&[column]).map_err(Fault::bug)?),
            None => Arc::clone(&self.schema),
        };
        let builder = ReaderBuilder::new(schema)
            .with_batch_size(batch_rows)
            // Texts among which there are numbers.
            .with_coerce_primitive(true)
            // A column that was not seen at first must not be lost.
            .with_strict_mode(only.is_none());
        let (path, schema_rows) = (self.path.clone(), self.schema_rows);
        let batches = builder.build(open_text(&path, &read)?).map_err(|error| not_json(&path, &error))?;
        let (mut told, mut rows) = (0, 0);
        Ok(Box::new(batches.map(move |batch| {
            let batch = batch.map_err(|error| Self::fault(&path, schema_rows, rows, &error))?;
            rows += batch.num_rows();
            let now = read.load(Ordering::Relaxed);
            let bytes = now - std::mem::replace(&mut told, now);
            Ok(Chunk { batch, bytes })
        })))
    }
}

fn not_json(path: &Path, error: &ArrowError) -> Fault {
    damaged(path, plain(error)).hint("expected JSON lines: one object a line, without a list around them")
}

/// The error without the library's own heading.
fn plain(error: &ArrowError) -> String {
    match error {
        ArrowError::JsonError(text) | ArrowError::ParseError(text) | ArrowError::SchemaError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The keys of the first lines, in the order in which they came.
fn key_order(text: impl BufRead) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    for line in text.lines().take(ORDER_LINES).map_while(Result::ok) {
        let keys = serde_json::from_str::<Keys>(&line).map(|keys| keys.0).unwrap_or_default();
        for key in keys {
            if !order.contains(&key) {
                order.push(key);
            }
        }
    }
    order
}

/// The keys of an object, in order; its values are passed over.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry()? {
            keys.push(key);
        }
        Ok(Keys(keys))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::RecordBatch;
    use arrow::compute::concat_batches;
    use arrow::datatypes::DataType;

    use super::*;

    fn source(text: &str, schema_rows: usize) -> (tempfile::TempDir, Result<JsonSource, Fault>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, text).unwrap();
        let source = JsonSource::open(&path, schema_rows);
        (folder, source)
    }

    fn rows(source: &JsonSource, only: Option<usize>) -> Result<RecordBatch, Fault> {
        let batches = source.read(0, 2, only)?.map(|chunk| chunk.map(|chunk| chunk.batch)).collect::<Result<Vec<_>, _>>()?;
        Ok(concat_batches(&batches[0].schema(), &batches).unwrap())
    }

    #[test]
    fn columns_are_in_the_order_in_which_they_come() {
        let (_folder, source) =
            source("{\"z\":1,\"b\":\"x\"}\n{\"b\":null,\"a\":[1,2],\"z\":2}\n\n{\"z\":3,\"m\":{\"k\":1.5}}\n", 100);
        let source = source.unwrap();
        let names: Vec<&str> = source.schema().fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["z", "b", "a", "m"]);
        let batch = rows(&source, None).unwrap();
        assert_eq!((batch.num_rows(), batch.column(1).null_count(), batch.column(3).null_count()), (3, 2, 2));
        assert_eq!(*batch.column(0).data_type(), DataType::Int64);
        let only = rows(&source, Some(0)).unwrap();
        assert_eq!((only.num_columns(), only.column(0)), (1, batch.column(0)));
    }

    #[test]
    fn numbers_among_texts_are_texts() {
        let (_folder, source) = source("{\"a\":1}\n{\"a\":\"x\"}\n", 100);
        let batch = rows(&source.unwrap(), None).unwrap();
        assert_eq!(*batch.column(0).data_type(), DataType::Utf8);
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_says_where() {
        let (_folder, later) = source("{\"a\":1}\n{\"a\":2}\n{\"a\":3,\"b\":4}\n", 2);
        let fault = rows(&later.unwrap(), None).unwrap_err();
        assert!(fault.message.contains("after row 2: column b was not in the first 2 rows"), "{}", fault.message);
        let (_folder, wrong) = source("{\"a\":1}\n{\"a\":2}\n{\"a\":{}}\n", 2);
        let fault = rows(&wrong.unwrap(), None).unwrap_err();
        assert!(fault.message.contains("after row 2"), "{}", fault.message);
    }

    #[test]
    fn what_is_no_list_of_objects_is_refused() {
        for text in ["", "1\n2\n", "[1]", "{\"a\":", "{}\n"] {
            let (_folder, source) = source(text, 100);
            assert!(source.is_err(), "{text}");
        }
    }
}
