//! Writers of the same formats: batches become a file, which takes its name when it is whole.

mod binary;
mod csv;
mod floats;
mod named;
mod new_file;
mod place;
mod text;
mod uuids;

use std::io::{self, Write};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use pithead_model::{Blame, Fault};

use named::{Renamed, told_apart};
pub use new_file::{NewFile, be_as};
pub use uuids::uuids_as_texts;
use uuids::{UuidTexts, with_texts};

use crate::Format;
use crate::text::{compression, ending};

/// How rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The format. Arrow's is that of files.
    pub format: Format,
    /// Between fields of CSV.
    pub delimiter: u8,
    /// Whether the first line of CSV names the columns.
    pub header: bool,
    /// What stands for NULL in CSV.
    pub null: String,
    /// How it is compressed; none: Parquet with Zstandard, others not at all.
    pub compression: Option<Compression>,
}

/// How a file is compressed: as a whole, and Parquet in its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// With gzip.
    Gzip,
    /// With Zstandard.
    Zstd,
    /// With Snappy; Parquet only.
    Snappy,
    /// With LZ4; Parquet only.
    Lz4,
}

impl WriteOptions {
    /// A format's usual ones.
    pub fn new(format: Format) -> Self {
        Self { format, delimiter: b',', header: true, null: String::new(), compression: None }
    }

    /// As a file's name says: `rows.csv.gz`. None: it does not tell the format.
    pub fn of_file(path: &Path) -> Option<Self> {
        let options = Self::new(Format::of_ending(&ending(path)?)?);
        let compression = match compression(path).as_deref() {
            Some("gz") => Some(Compression::Gzip),
            Some(_) => Some(Compression::Zstd),
            None => None,
        };
        let delimiter = if ending(path).as_deref() == Some("tsv") { b'\t' } else { b',' };
        Some(Self { delimiter, compression, ..options })
    }
}

/// Why rows could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The medium, or whoever reads.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The format cannot hold the rows.
    #[error("{0}")]
    Rows(String),
}

impl From<ArrowError> for WriteError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => Self::Io(error),
            other => Self::Rows(other.to_string()),
        }
    }
}

impl From<ParquetError> for WriteError {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(error) => Self::Io(*error),
                Err(other) => Self::Rows(other.to_string()),
            },
            other => Self::Rows(other.to_string()),
        }
    }
}

impl WriteError {
    /// As a fault that names the file.
    pub fn fault(self, path: &Path) -> Fault {
        let fault = match self {
            WriteError::Rows(what) => Fault::new(Blame::Unsupported, what).hint("cast the columns that it names to text"),
            WriteError::Io(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => {
                    Fault::new(Blame::User, error.to_string())
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::new(Blame::Limit, error.to_string()),
                _ => Fault::new(Blame::Device, error.to_string()),
            },
        };
        fault.at(path.display())
    }
}

/// Writes the batches of one file as they come.
pub trait RowWriter {
    /// The next rows.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError>;

    /// After the last rows. What is written to still has to be flushed.
    fn finish(self: Box<Self>) -> Result<(), WriteError>;
}

/// The writer of a file. Compression as a whole is that of the ending, if there is one. Columns of one name get names of their
/// own.
pub fn file_writer<'a>(
    options: &WriteOptions,
    schema: &SchemaRef,
    out: impl Write + Send + 'a,
) -> Result<Box<dyn RowWriter + Send + 'a>, WriteError> {
    with_names_apart(schema, |schema| {
        Ok(match options.format {
            Format::Csv => {
                let out = text::Packed::new(options.compression, out)?;
                Box::new(UuidTexts(Box::new(csv::CsvRows::new(options, &with_texts(schema), out)?)))
            }
            Format::Json => {
                let out = text::Packed::new(options.compression, out)?;
                Box::new(UuidTexts(Box::new(text::JsonRows::new(out))))
            }
            Format::ArrowIpc => Box::new(binary::ArrowFileRows::new(schema, out)?),
            Format::Parquet => Box::new(binary::ParquetRows::new(options.compression, schema, out)?),
        })
    })
}

/// The writer of Arrow's stream format, which whoever reads a pipe takes. Columns of one name get names of their own.
pub fn stream_writer<'a>(
    schema: &SchemaRef,
    out: impl Write + Send + 'a,
) -> Result<Box<dyn RowWriter + Send + 'a>, WriteError> {
    with_names_apart(schema, |schema| Ok(Box::new(binary::ArrowStreamRows::new(schema, out)?)))
}

type Rows<'a> = Box<dyn RowWriter + Send + 'a>;

fn with_names_apart<'a>(
    schema: &SchemaRef,
    writer: impl FnOnce(&SchemaRef) -> Result<Rows<'a>, WriteError>,
) -> Result<Rows<'a>, WriteError> {
    match told_apart(schema) {
        Some(schema) => Ok(Box::new(Renamed { rows: writer(&schema)?, schema })),
        None => writer(schema),
    }
}
