//! CSV files.

use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use pithead_model::Fault;

use crate::input::Input;
use crate::options::CsvOptions;
use crate::quotes::{Quoted, unclosed};
use crate::source::damaged;
use crate::text::{Batches, GuessedText, TextFormat, TextSource, ending, open_text, plain, told};

/// CSV in one of its many forms.
#[derive(Debug)]
pub(crate) struct Csv {
    format: Format,
    delimiter: u8,
}

impl Csv {
    /// Reads the header, and guesses types from the first rows.
    pub(crate) fn open(input: &Input, options: &CsvOptions) -> Result<TextSource<Csv>, Fault> {
        let (format, delimiter) = format(input.name(), options)?;
        let met: Arc<OnceLock<Fault>> = Arc::default();
        let inferred = format.infer_schema(GuessedText::open(input, &met)?, Some(options.schema_rows));
        // An open quote hides the fields after it, of which the decoder complains.
        let unclosed = |error: ArrowError| unclosed(input, delimiter).unwrap_or_else(|| told(input.name(), &error));
        let fault = |error: ArrowError| met.get().cloned().unwrap_or_else(|| unclosed(error));
        let (schema, _) = inferred.map_err(fault)?;
        let schema = if options.header { schema } else { called(schema, &options.names) };
        TextSource::new(input, schema, Csv { format, delimiter })
    }
}

/// The columns under these names, if there are as many.
fn called(schema: Schema, names: &[String]) -> Schema {
    if names.len() != schema.fields().len() {
        return schema;
    }
    let fields = schema.fields().iter().zip(names);
    Schema::new(fields.map(|(field, name)| field.as_ref().clone().with_name(name)).collect::<Vec<_>>())
}

impl TextFormat for Csv {
    fn read(
        &self,
        file: &TextSource<Csv>,
        read: &Arc<AtomicU64>,
        batch_rows: usize,
        only: Option<usize>,
    ) -> Result<Batches, Fault> {
        let mut builder =
            ReaderBuilder::new(Arc::clone(&file.schema)).with_format(self.format.clone()).with_batch_size(batch_rows);
        if let Some(column) = only {
            builder = builder.with_projection(vec![column]);
        }
        let place = CsvFile { input: file.input.clone(), schema: Arc::clone(&file.schema) };
        let text = Quoted::new(open_text(&file.input, read)?, &file.input, self.delimiter);
        let batches = builder.build_buffered(text).map_err(|error| place.fault(&error))?;
        Ok(Box::new(batches.map(move |batch| batch.map_err(|error| place.fault(&error)))))
    }
}

/// The format, and what is between its fields.
fn format(path: &Path, options: &CsvOptions) -> Result<(Format, u8), Fault> {
    let is_tsv = ending(path).is_some_and(|ending| ending == "tsv");
    let delimiter = options.delimiter.unwrap_or(if is_tsv { b'\t' } else { b',' });
    if matches!(delimiter, b'"' | b'\n' | b'\r') {
        return Err(Fault::invalid("a CSV delimiter cannot be a quote or the end of a line"));
    }
    let format = Format::default().with_header(options.header).with_delimiter(delimiter);
    match &options.null {
        None => Ok((format, delimiter)),
        Some(null) => {
            let pattern = format!("^{}$", regex::escape(null));
            let pattern = regex::Regex::new(&pattern).map_err(|error| Fault::invalid(format!("NULL as {null:?}: {error}")))?;
            Ok((format.with_null_regex(pattern), delimiter))
        }
    }
}

/// Says where in a file the decoder failed.
struct CsvFile {
    input: Input,
    schema: SchemaRef,
}

impl CsvFile {
    fn fault(&self, error: &ArrowError) -> Fault {
        let text = plain(error);
        if let Some(bad) = BadValue::parse(&text) {
            // The decoder counts rows from the header, which is 0, or from the first row.
            let line = self.line(bad.row + 1);
            let field = self.schema.fields().get(bad.column);
            let (name, data_type) = field.map_or(("?", &DataType::Null), |field| (field.name(), field.data_type()));
            let fault = damaged(
                self.input.name(),
                format_args!("line {line}: expected {data_type} in column {name}, got {:?}", bad.value),
            );
            return fault.hint("types are guessed from the first rows; --csv-null names what stands for NULL");
        }
        let wrong_count = text.strip_prefix("incorrect number of fields for line ").and_then(|rest| rest.split_once(", "));
        match wrong_count.and_then(|(record, rest)| Some((record.parse::<u64>().ok()?, rest))) {
            Some((record, rest)) => {
                let rest = rest.replace("expected ", "").replace("got ", "");
                let (expected, got) = rest.split_once(' ').unwrap_or((rest.as_str(), "others"));
                damaged(self.input.name(), format_args!("line {}: expected {expected} fields, got {got}", self.line(record)))
            }
            None => told(self.input.name(), error),
        }
    }

    /// The line that a record begins on, both counted from 1 and with the header. They differ where quoted fields hold
    /// line ends, or lines are empty.
    fn line(&self, record: u64) -> u64 {
        open_text(&self.input, &Arc::default()).ok().and_then(|text| line_of(text, record)).unwrap_or(record)
    }
}

/// What the decoder says of a value that it cannot read.
#[derive(Debug, PartialEq)]
struct BadValue {
    value: String,
    column: usize,
    row: u64,
}

impl BadValue {
    fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("Error while parsing value '") {
            let (value, rest) = rest.split_once("' as type '")?;
            let (_, rest) = rest.split_once("' for column ")?;
            let (column, rest) = rest.split_once(" at line ")?;
            let (row, _) = rest.split_once('.')?;
            return Some(Self { value: value.to_owned(), column: column.parse().ok()?, row: row.parse().ok()? });
        }
        let (column, rest) = text.strip_prefix("Error parsing column ")?.split_once(" at line ")?;
        let (row, what) = rest.split_once(": ")?;
        let value = what.split('\'').nth(1).unwrap_or(what);
        Some(Self { value: value.to_owned(), column: column.parse().ok()?, row: row.parse().ok()? })
    }
}

fn line_of(bytes: impl BufRead, wanted: u64) -> Option<u64> {
    let (mut line, mut record, mut quoted, mut is_empty) = (1, 1, false, true);
    for byte in bytes.bytes() {
        if record == wanted && !is_empty {
            return Some(line);
        }
        match byte.ok()? {
            b'\n' if quoted => line += 1,
            b'\n' => {
                line += 1;
                record += u64::from(!is_empty);
                is_empty = true;
            }
            b'\r' if !quoted => {}
            b'"' => (quoted, is_empty) = (!quoted, false),
            _ => is_empty = false,
        }
    }
    (record == wanted).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_records_line_is_found_past_quoted_line_ends_and_empty_lines() {
        let text = "a,b\n1,\"x\ny\"\n\n3,4\n5,6";
        assert_eq!(line_of(text.as_bytes(), 1), Some(1));
        assert_eq!(line_of(text.as_bytes(), 2), Some(2));
        assert_eq!(line_of(text.as_bytes(), 3), Some(5));
        assert_eq!(line_of(text.as_bytes(), 4), Some(6));
        assert_eq!(line_of(text.as_bytes(), 9), None);
    }

    #[test]
    fn the_decoders_words_are_read() {
        let bad = BadValue::parse("Error while parsing value 'it's' as type 'Int64' for column 2 at line 7. Row data: '[x]'");
        assert_eq!(bad, Some(BadValue { value: "it's".into(), column: 2, row: 7 }));
        assert_eq!(BadValue::parse("something else"), None);
    }
}
