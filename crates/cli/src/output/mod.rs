//! The rows of an answer as a person or a program reads them.

mod grid;
mod sink;
mod table;

use arrow::datatypes::SchemaRef;
use clap::ValueEnum;
use pithead_files::{RowWriter, WriteOptions, file_writer, stream_writer};

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

/// The writer of a streamed format. [`Format::Table`] is not one: it looks at all rows before it writes the first.
pub(crate) fn row_writer<'a>(
    format: Format,
    schema: &SchemaRef,
    sink: &'a mut Sink,
) -> Result<Box<dyn RowWriter + Send + 'a>, CliError> {
    let written = match format {
        Format::Table => unreachable!("tables are not streamed"),
        Format::Csv => pithead_files::Format::Csv,
        Format::Json => pithead_files::Format::Json,
        Format::Arrow if !sink.is_file() => return Ok(stream_writer(schema, sink)?),
        Format::Arrow => pithead_files::Format::ArrowIpc,
        Format::Parquet => pithead_files::Format::Parquet,
    };
    Ok(file_writer(&WriteOptions::new(written), schema, sink)?)
}
