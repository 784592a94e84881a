//! JSON lines: one object a line.

use std::fmt;
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{FieldRef, Schema};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::infer_json_schema;
use pithead_model::Fault;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::input::Input;
use crate::source::damaged;
use crate::text::{Batches, GuessedText, TextFormat, TextSource, open_text, plain, told};

/// Lines that say in which order columns come: those that only later lines have follow, by their names.
const ORDER_LINES: usize = 1_000;

/// JSON lines.
#[derive(Debug)]
pub(crate) struct JsonLines {
    schema_rows: usize,
}

impl JsonLines {
    /// Guesses columns and types from the first rows.
    pub(crate) fn open(input: &Input, schema_rows: usize) -> Result<TextSource<JsonLines>, Fault> {
        let path = input.name();
        let met: Arc<OnceLock<Fault>> = Arc::default();
        let text = || GuessedText::open(input, &met);
        let fault = |error: ArrowError| met.get().cloned().unwrap_or_else(|| not_json(path, &error));
        let (inferred, _) = infer_json_schema(text()?, Some(schema_rows)).map_err(fault)?;
        let order = key_order(text()?);
        if let Some(fault) = met.get() {
            return Err(fault.clone());
        }
        let mut fields: Vec<FieldRef> = inferred.fields().iter().cloned().collect();
        let place = |field: &FieldRef| order.iter().position(|key| key == field.name()).unwrap_or(order.len());
        fields.sort_by(|a, b| (place(a), a.name()).cmp(&(place(b), b.name())));
        if fields.is_empty() {
            let what = if input.bytes()? == 0 { "the file is empty" } else { "it has no object with a name and a value" };
            return Err(damaged(path, what).hint("expected JSON lines: one object a line; leave a file without rows out"));
        }
        TextSource::new(input, Schema::new(fields), JsonLines { schema_rows })
    }
}

impl TextFormat for JsonLines {
    fn read(
        &self,
        file: &TextSource<JsonLines>,
        read: &Arc<AtomicU64>,
        batch_rows: usize,
        only: Option<usize>,
    ) -> Result<Batches, Fault> {
        let schema = match only {
            Some(column) => Arc::new(file.schema.project(&[column]).map_err(Fault::bug)?),
            None => Arc::clone(&file.schema),
        };
        let builder = ReaderBuilder::new(schema)
            .with_batch_size(batch_rows)
            // Texts among which there are numbers.
            .with_coerce_primitive(true)
            // A column that was not seen at first must not be lost.
            .with_strict_mode(only.is_none());
        let (path, schema_rows) = (file.input.name().to_owned(), self.schema_rows);
        let batches = builder.build(open_text(&file.input, read)?).map_err(|error| not_json(&path, &error))?;
        let mut rows = 0;
        Ok(Box::new(batches.map(move |batch| {
            let batch = batch.map_err(|error| unreadable_row(&path, schema_rows, rows, &error))?;
            rows += batch.num_rows();
            Ok(batch)
        })))
    }
}

fn unreadable_row(path: &Path, schema_rows: usize, rows: usize, error: &ArrowError) -> Fault {
    let text = plain(error);
    match text.split('\'').nth(1).filter(|_| text.contains("missing from schema")) {
        Some(column) => {
            let what = format!("after row {rows}: column {column} was not in the first {schema_rows} rows");
            damaged(path, what).hint("put a row with all columns first, or load into a dataset that has the column")
        }
        None if matches!(error, ArrowError::IoError(..)) => told(path, error),
        None => damaged(path, format_args!("after row {rows}: {text}")),
    }
}

fn not_json(path: &Path, error: &ArrowError) -> Fault {
    match error {
        ArrowError::IoError(..) => told(path, error),
        _ => damaged(path, plain(error)).hint("expected JSON lines: one object a line, without a list around them"),
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
    use crate::source::Source;

    fn source(text: &str, schema_rows: usize) -> (tempfile::TempDir, Result<TextSource<JsonLines>, Fault>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, text).unwrap();
        let source = JsonLines::open(&Input::Local(path), schema_rows);
        (folder, source)
    }

    fn rows(source: &TextSource<JsonLines>, only: Option<usize>) -> Result<RecordBatch, Fault> {
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
            let fault = source.map(drop).unwrap_err();
            assert!(
                fault.hint.is_some() && (text.is_empty() == fault.message.ends_with("the file is empty")),
                "{text}: {fault}"
            );
        }
    }
}
