//! CSV, plain or compressed.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::text::Packed;
use super::{RowWriter, WriteError, WriteOptions};

/// Text that is written at once, about.
const LINES_BYTES: usize = 1 << 16;

/// CSV. Lists and structs are written as text.
pub(super) struct CsvRows<W: Write> {
    form: Form,
    out: Packed<W>,
    /// Rows that are not written yet.
    lines: Vec<u8>,
}

impl<W: Write> CsvRows<W> {
    /// Writes the header at once, so that an answer without rows has one too.
    pub(super) fn new(options: &WriteOptions, schema: &SchemaRef, mut out: Packed<W>) -> Result<Self, WriteError> {
        let form = Form::new(options.delimiter, &options.null, schema.fields().len());
        let mut lines = Vec::with_capacity(LINES_BYTES);
        if options.header {
            form.put_row(&mut lines, schema.fields().iter().map(|field| field.name().as_str()));
        }
        // What follows may take a while, and nobody is to wait for the names.
        out.write_all(&lines)?;
        out.flush()?;
        lines.clear();
        Ok(Self { form, out, lines })
    }
}

impl<W: Write> RowWriter for CsvRows<W> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let batch = flat(batch)?;
        let options = FormatOptions::default();
        let columns = batch.columns().iter().map(|column| Column::new(column, &options)).collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            for (index, column) in columns.iter().enumerate() {
                self.form.put_delimiter(&mut self.lines, index);
                if column.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    self.form.put_null(&mut self.lines);
                    continue;
                }
                text.clear();
                column.values.value(row).write(&mut text)?;
                self.form.put(&mut self.lines, &text);
            }
            self.lines.push(b'\n');
            if self.lines.len() >= LINES_BYTES {
                self.out.write_all(&self.lines)?;
                self.lines.clear();
            }
        }
        self.out.write_all(&self.lines)?;
        self.lines.clear();
        Ok(self.out.flush()?)
    }

    fn finish(self: Box<Self>) -> Result<(), WriteError> {
        Ok(self.out.finish()?)
    }
}

/// A column that is written.
struct Column<'a> {
    values: ArrayFormatter<'a>,
    nulls: Option<NullBuffer>,
}

impl<'a> Column<'a> {
    fn new(column: &'a ArrayRef, options: &FormatOptions<'a>) -> Result<Self, ArrowError> {
        Ok(Self { values: ArrayFormatter::try_new(column, options)?, nulls: column.logical_nulls() })
    }
}

/// How fields are written.
struct Form {
    delimiter: u8,
    /// What stands for NULL, as it is written.
    null: Vec<u8>,
    /// The value that has to be told from it.
    null_text: String,
    /// Whether a byte has to be in quotes.
    is_special: [bool; 256],
    /// Whether a row has but one column: an empty line is no row to many readers.
    is_alone: bool,
}

impl Form {
    fn new(delimiter: u8, null: &str, columns: usize) -> Self {
        let mut is_special = [false; 256];
        for byte in [delimiter, b'"', b'\n', b'\r'] {
            is_special[usize::from(byte)] = true;
        }
        let mut form = Self { delimiter, null: Vec::new(), null_text: null.to_owned(), is_special, is_alone: columns == 1 };
        let mut written = Vec::new();
        match form.is_plain(null) && !(null.is_empty() && form.is_alone) {
            true => written.extend_from_slice(null.as_bytes()),
            false => put_quoted(&mut written, null),
        }
        form.null = written;
        form
    }

    fn is_plain(&self, text: &str) -> bool {
        !text.bytes().any(|byte| self.is_special[usize::from(byte)])
    }

    /// What is before a field with this number.
    fn put_delimiter(&self, lines: &mut Vec<u8>, index: usize) {
        if index > 0 {
            lines.push(self.delimiter);
        }
    }

    fn put_null(&self, lines: &mut Vec<u8>) {
        lines.extend_from_slice(&self.null);
    }

    /// A value. One that would be NULL to a reader is in quotes.
    fn put(&self, lines: &mut Vec<u8>, text: &str) {
        match self.is_plain(text) && text != self.null_text && !(text.is_empty() && self.is_alone) {
            true => lines.extend_from_slice(text.as_bytes()),
            false => put_quoted(lines, text),
        }
    }

    fn put_row<'a>(&self, lines: &mut Vec<u8>, texts: impl Iterator<Item = &'a str>) {
        for (index, text) in texts.enumerate() {
            self.put_delimiter(lines, index);
            self.put(lines, text);
        }
        lines.push(b'\n');
    }
}

fn put_quoted(lines: &mut Vec<u8>, text: &str) {
    lines.push(b'"');
    for (index, part) in text.split('"').enumerate() {
        if index > 0 {
            lines.extend_from_slice(b"\"\"");
        }
        lines.extend_from_slice(part.as_bytes());
    }
    lines.push(b'"');
}

/// The same rows with nested columns as text.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    if !batch.columns().iter().any(|column| column.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| match column.data_type().is_nested() {
        true => Ok((Arc::new(Field::new(field.name(), DataType::Utf8, true)), as_text(column)?)),
        false => Ok((Arc::clone(field), Arc::clone(column))),
    });
    let (fields, columns): (Vec<_>, Vec<_>) = columns.collect::<Result<Vec<_>, ArrowError>>()?.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn as_text(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let options = FormatOptions::new().with_null("NULL");
    let formatter = ArrayFormatter::try_new(column, &options)?;
    let texts = (0..column.len()).map(|row| match column.is_null(row) {
        true => Ok(None),
        false => formatter.value(row).try_to_string().map(Some),
    });
    Ok(Arc::new(texts.collect::<Result<StringArray, _>>()?))
}
