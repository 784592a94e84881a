//! Finding files, telling their format, reading them in parts.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pithead_model::{Blame, Fault};

use crate::csv::CsvSource;
use crate::ipc::IpcSource;
use crate::options::{CsvOptions, Format};
use crate::parquet::ParquetSource;

/// A file that was opened far enough to know its columns.
pub trait Source: Send + Sync {
    /// The file.
    fn path(&self) -> &Path;

    /// Its size.
    fn bytes(&self) -> u64;

    /// Its columns, in its own order and types.
    fn schema(&self) -> &SchemaRef;

    /// Whether the file says its columns' types. Otherwise they were guessed, and [`Source::retype`] can change them.
    fn is_typed(&self) -> bool {
        true
    }

    /// Reads the columns as these types, which are given in the file's order.
    fn retype(&mut self, _schema: SchemaRef) {}

    /// Number of parts that can be read at the same time.
    fn parts(&self) -> usize;

    /// Reads one part: all columns, or only one.
    fn read(&self, part: usize, batch_rows: usize, only: Option<usize>) -> Result<Chunks, Fault>;
}

/// Some rows, and the bytes of the file that were read for them.
pub struct Chunk {
    /// The rows.
    pub batch: RecordBatch,
    /// The bytes.
    pub bytes: u64,
}

/// The rows of one part.
pub type Chunks = Box<dyn Iterator<Item = Result<Chunk, Fault>>>;

/// Opens all files that the sources name, in order.
pub fn open_all(sources: &[String], format: Option<Format>, csv: &CsvOptions) -> Result<Vec<Box<dyn Source>>, Fault> {
    if sources.is_empty() {
        return Err(Fault::invalid("expected at least one file to load"));
    }
    let mut opened = Vec::new();
    for source in sources {
        for path in find(source)? {
            opened.push(open(&path, format, csv)?);
        }
    }
    Ok(opened)
}

/// Runs a decoder on a file that may be anything. A panic inside becomes a fault that names the file.
pub fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(damaged(path, format_args!("its decoder gave up: {}", said.unwrap_or("no reason given"))))
    })
}

/// A file whose bytes are not what its format says.
pub fn damaged(path: &Path, what: impl std::fmt::Display) -> Fault {
    Fault::invalid(format!("{}: {what}", path.display()))
}

/// A file that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Fault {
    use std::io::ErrorKind::{IsADirectory, NotFound, PermissionDenied, UnexpectedEof};
    let blame = match error.kind() {
        NotFound | PermissionDenied | IsADirectory | UnexpectedEof => Blame::User,
        _ => Blame::Device,
    };
    Fault::new(blame, format!("{}: {error}", path.display()))
}

pub(crate) fn open_file(path: &Path) -> Result<File, Fault> {
    File::open(path).map_err(|error| unreadable(path, &error))
}

fn open(path: &Path, format: Option<Format>, csv: &CsvOptions) -> Result<Box<dyn Source>, Fault> {
    let format = match format {
        Some(format) => format,
        None => format_of(path)?,
    };
    guarded(path, || {
        Ok(match format {
            Format::Parquet => Box::new(ParquetSource::open(path)?) as Box<dyn Source>,
            Format::Csv => Box::new(CsvSource::open(path, csv)?),
            Format::ArrowIpc => Box::new(IpcSource::open(path)?),
        })
    })
}

/// By the name's ending, else by the first bytes.
fn format_of(path: &Path) -> Result<Format, Fault> {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("parquet" | "pq") => return Ok(Format::Parquet),
        Some("csv" | "tsv") => return Ok(Format::Csv),
        Some("arrow" | "arrows" | "ipc" | "feather") => return Ok(Format::ArrowIpc),
        _ => {}
    }
    let mut magic = [0; 6];
    let read = open_file(path)?.read(&mut magic).map_err(|error| unreadable(path, &error))?;
    match &magic[..read] {
        [b'P', b'A', b'R', b'1', ..] => Ok(Format::Parquet),
        b"ARROW1" => Ok(Format::ArrowIpc),
        _ => Err(damaged(path, "cannot tell its format from its name").hint("name it with --format parquet, csv or arrow")),
    }
}

/// The files that a source names: itself, or those that match it as a glob, sorted.
fn find(source: &str) -> Result<Vec<PathBuf>, Fault> {
    let path = Path::new(source);
    if path.is_dir() {
        let hint = format!("name its files, as in '{}'", path.join("*.parquet").display());
        return Err(Fault::invalid(format!("{source} is a directory")).hint(hint));
    }
    if path.exists() || !source.contains(['*', '?', '[']) {
        return Ok(vec![path.to_owned()]);
    }
    let matches =
        glob::glob(source).map_err(|error| Fault::invalid(format!("{source} is not a pattern for files: {error}")))?;
    let mut files = Vec::new();
    for file in matches {
        let file = file.map_err(|error| unreadable(error.path(), error.error()))?;
        if file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(Fault::invalid(format!("no file matches {source}")));
    }
    Ok(files)
}
