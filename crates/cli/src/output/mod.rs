//! The rows of an answer as a person or a program reads them.

mod binary;
mod grid;
mod sink;
mod table;
mod text;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::ValueEnum;

pub(crate) use grid::{Align, Grid};
pub(crate) use sink::Sink;
pub(crate) use table::{TableRows, cell_options};

use crate::error::CliError;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for people
    Table,
    /// Comma-separated values with a header; NULL is empty
    Csv,
    /// One JSON object a line
    Json,
    /// Arrow IPC: the stream format to stdout, the file format to a file
    Arrow,
    /// Parquet, zstd
    Parquet,
}

impl Format {
    /// By a file's ending.
    pub(crate) fn of_file(path: &std::path::Path) -> Option<Format> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "csv" => Some(Format::Csv),
            "json" | "jsonl" | "ndjson" => Some(Format::Json),
            "arrow" | "arrows" | "feather" | "ipc" => Some(Format::Arrow),
            "parquet" => Some(Format::Parquet),
            "txt" => Some(Format::Table),
            _ => None,
        }
    }

    /// Whether a file of this format can hold the rows of one answer only, in bytes that no terminal shows.
    pub(crate) fn is_binary(self) -> bool {
        matches!(self, Format::Arrow | Format::Parquet)
    }
}

/// Writes batches of one answer as they come.
pub(crate) trait RowWriter {
    /// The next rows.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), CliError>;

    /// After the last rows. The sink still has to be flushed.
    fn finish(self: Box<Self>) -> Result<(), CliError>;
}

/// The writer of a streamed format. [`Format::Table`] is not one: it looks at all rows before it writes the first.
pub(crate) fn row_writer<'a>(
    format: Format,
    schema: &SchemaRef,
    sink: &'a mut Sink,
) -> Result<Box<dyn RowWriter + 'a>, CliError> {
    let to_file = sink.is_file();
    match format {
        Format::Table => unreachable!("tables are not streamed"),
        Format::Csv => Ok(Box::new(text::CsvRows::new(schema, sink)?)),
        Format::Json => Ok(Box::new(text::JsonRows::new(sink))),
        Format::Arrow if to_file => Ok(Box::new(binary::ArrowFileRows::new(schema, sink)?)),
        Format::Arrow => Ok(Box::new(binary::ArrowStreamRows::new(schema, sink)?)),
        Format::Parquet => Ok(Box::new(binary::ParquetRows::new(schema, sink)?)),
    }
}
