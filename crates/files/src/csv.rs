//! CSV files.

use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use arrow::array::AsArray;
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use pithead_model::Fault;

use crate::batches::BoundedBatches;
use crate::exact::{Misfit, Reading, Unread, decoded, is_cut, read_batch};
use crate::guessed_moments::SeenMoments;
use crate::input::Input;
use crate::moments::Zones;
use crate::options::CsvOptions;
use crate::quoted::{Quoted, unclosed};
use crate::quoted_nulls::QuotedNulls;
use crate::source::damaged;
use crate::text::{Batches, GuessedText, TextFormat, TextSource, ending, open_text, plain, told};

/// Rows that are looked at together for what their days and moments are.
const GUESSED_ROWS: usize = 1_024;

const GUESSED_HINT: &str =
    "types are guessed from the first rows; --csv-null of load, and nullstr of read_csv, name what stands for NULL";
const DATASET_HINT: &str = "the types are those of the dataset that the rows go to; NULL '…' of COPY, and --csv-null of load, \
                            name what stands for NULL";

/// CSV in one of its many forms.
#[derive(Debug)]
pub(crate) struct Csv {
    format: Format,
    delimiter: u8,
    /// What stands for NULL.
    null: String,
    /// Lines before the first row.
    header_lines: u64,
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
        let null = options.null.clone().unwrap_or_default();
        let csv = Csv { format, delimiter, null, header_lines: u64::from(options.header) };
        let schema = csv.with_moments(input, schema, options.schema_rows)?;
        let schema = if options.header { schema } else { called(schema, &options.names) };
        TextSource::new(input, schema, csv)
    }

    /// The guessed schema, in which moments have microseconds at least, and a zone where all of the first rows say one. Moments
    /// of which some say one are texts, and so are columns with something that only looks like a day or a moment.
    fn with_moments(&self, input: &Input, schema: Schema, rows: usize) -> Result<Schema, Fault> {
        let is_seen = |field: &Field| matches!(field.data_type(), DataType::Timestamp(..) | DataType::Date32);
        let columns: Vec<usize> = (0..schema.fields().len()).filter(|column| is_seen(schema.field(*column))).collect();
        if columns.is_empty() {
            return Ok(schema);
        }
        let mut seen = self.seen_moments(input, &schema, &columns, rows)?.into_iter();
        let fields = schema.fields().iter().map(|field| match is_seen(field) {
            true => field.as_ref().clone().with_data_type(seen.next().unwrap_or_default().data_type(field.data_type())),
            false => field.as_ref().clone(),
        });
        Ok(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// What the first rows have in columns of days and moments.
    fn seen_moments(&self, input: &Input, schema: &Schema, columns: &[usize], rows: usize) -> Result<Vec<SeenMoments>, Fault> {
        let texts = decoded(schema, &|_| true);
        let place = CsvFile { input: input.clone(), schema: Arc::clone(&texts), is_guessed: true };
        let batch_rows = GUESSED_ROWS.min(rows).max(1);
        let builder = ReaderBuilder::new(texts).with_format(self.format.clone()).with_batch_size(batch_rows);
        let text = Quoted::new(open_text(input, &Arc::default())?, input, self.delimiter);
        let batches = BoundedBatches::new(text, builder.with_projection(columns.to_vec()).build_decoder(), batch_rows);
        let (mut seen, mut left) = (vec![SeenMoments::default(); columns.len()], rows);
        for batch in batches {
            let batch = batch.map_err(|error| place.fault(&error))?;
            for (seen, column) in seen.iter_mut().zip(batch.columns()) {
                column.as_string_view().iter().take(left).flatten().for_each(|text| seen.look(text));
            }
            left = left.saturating_sub(batch.num_rows());
            if left == 0 {
                break;
            }
        }
        Ok(seen)
    }

    /// How the columns of a file are read. Where moments were guessed to have a zone, or none, each of them has to be so: a
    /// later one that is not would be another moment than its text says.
    fn readings(file: &TextSource<Csv>) -> Vec<Reading> {
        let fields = file.schema.fields().iter();
        let guessed = |name: &str| file.guessed.field_with_name(name).ok().map(Field::data_type);
        let zones = fields.map(|field| match (guessed(field.name()), field.data_type()) {
            (Some(DataType::Timestamp(_, None)), DataType::Timestamp(_, None)) => Zones::None,
            (Some(DataType::Timestamp(_, Some(_))), DataType::Timestamp(_, Some(_))) => Zones::Each,
            _ => Zones::Any,
        });
        zones.map(|zones| Reading { zones, counts: false }).collect()
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
        check_types(file)?;
        let schema = decoded(&file.schema, &|data_type| is_cut(data_type, false));
        let mut builder = ReaderBuilder::new(schema).with_format(self.format.clone()).with_batch_size(batch_rows);
        let (mut wanted, mut readings) = (Arc::clone(&file.schema), Self::readings(file));
        if let Some(column) = only {
            builder = builder.with_projection(vec![column]);
            wanted = Arc::new(wanted.project(&[column]).map_err(Fault::bug)?);
            readings = readings.get(column).copied().into_iter().collect();
        }
        let (input, schema, is_guessed) = (file.input.clone(), Arc::clone(&file.schema), file.is_guessed);
        let place = CsvFile { input, schema, is_guessed };
        let nulls = QuotedNulls::of(&file.schema, only, &self.null, self.delimiter);
        let text = Quoted::new(open_text(&file.input, read)?, &file.input, self.delimiter).with_nulls(nulls.clone());
        let batches = BoundedBatches::new(text, builder.build_decoder(), batch_rows);
        let mut records = self.header_lines;
        Ok(Box::new(batches.map(move |batch| {
            let restored = |batch| match &nulls {
                Some(nulls) => nulls.restored(batch),
                None => Ok(batch),
            };
            let batch = batch.and_then(restored).map_err(|error| place.fault(&error))?;
            let before = records;
            records += batch.num_rows() as u64;
            read_batch(batch, &wanted, &readings).map_err(|unread| place.unread(unread, before))
        })))
    }
}

/// Columns of a dataset whose values CSV has no form for are told before they are read.
fn check_types(file: &TextSource<Csv>) -> Result<(), Fault> {
    use DataType::{Duration, FixedSizeBinary, Interval};
    let is_unread = |of: &DataType| of.is_nested() || matches!(of, FixedSizeBinary(_) | Duration(_) | Interval(_));
    let Some(field) = file.schema.fields().iter().find(|field| is_unread(field.data_type())) else { return Ok(()) };
    let (name, data_type) = (field.name(), field.data_type());
    let hint = match data_type.is_nested() {
        true => "write the rows as JSON lines, Parquet or Arrow, which have such columns",
        false => "write the rows as Parquet or Arrow, which have such columns",
    };
    Err(damaged(file.input.name(), format_args!("column {name} is {data_type}, which is not read from CSV")).hint(hint))
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
    /// Whether types were guessed, and are not those of a dataset.
    is_guessed: bool,
}

impl CsvFile {
    fn fault(&self, error: &ArrowError) -> Fault {
        let text = plain(error);
        if let Some(bad) = BadValue::parse(&text) {
            // The decoder counts rows from the header, which is 0, or from the first row.
            let field = self.schema.fields().get(bad.column);
            let (name, data_type) = field.map_or(("?", &DataType::Null), |field| (field.name(), field.data_type()));
            return self.bad_value(bad.row + 1, name, data_type, &bad.value);
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

    /// What a batch after so many records has that its columns do not hold.
    fn unread(&self, unread: Unread, before: u64) -> Fault {
        match unread {
            Unread::Misfit(Misfit { row, column, value, expected }) => {
                self.bad_value(before + row as u64 + 1, &column, &expected, &value)
            }
            Unread::Arrow(error) => self.fault(&error),
        }
    }

    fn bad_value(&self, record: u64, column: &str, expected: &DataType, value: &str) -> Fault {
        let line = self.line(record);
        damaged(self.input.name(), format_args!("line {line}: expected {expected} in column {column}, got {value:?}"))
            .hint(if self.is_guessed { GUESSED_HINT } else { DATASET_HINT })
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
        let rest = text.strip_prefix("Error while parsing value '")?;
        let (value, rest) = rest.split_once("' as type '")?;
        let (_, rest) = rest.split_once("' for column ")?;
        let (column, rest) = rest.split_once(" at line ")?;
        let (row, _) = rest.split_once('.')?;
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
mod tests;
