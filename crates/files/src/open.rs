//! Finding files, and telling their format.

use std::io::Read;
use std::path::{Path, PathBuf};

use pithead_model::Fault;

use crate::csv::Csv;
use crate::ipc::IpcSource;
use crate::json::JsonLines;
use crate::options::{CsvOptions, Format};
use crate::parquet::ParquetSource;
use crate::source::{Source, damaged, guarded, open_file, unreadable};
use crate::text::ending;

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

fn open(path: &Path, format: Option<Format>, csv: &CsvOptions) -> Result<Box<dyn Source>, Fault> {
    let format = match format {
        Some(format) => format,
        None => format_of(path)?,
    };
    guarded(path, || {
        Ok(match format {
            Format::Parquet => Box::new(ParquetSource::open(path)?) as Box<dyn Source>,
            Format::Csv => Box::new(Csv::open(path, csv)?),
            Format::Json => Box::new(JsonLines::open(path, csv.schema_rows)?),
            Format::ArrowIpc => Box::new(IpcSource::open(path)?),
        })
    })
}

/// By the name's ending, else by the first bytes.
fn format_of(path: &Path) -> Result<Format, Fault> {
    if let Some(format) = ending(path).and_then(|ending| Format::of_ending(&ending)) {
        return Ok(format);
    }
    let mut magic = [0; 6];
    let read = open_file(path)?.read(&mut magic).map_err(|error| unreadable(path, &error))?;
    match &magic[..read] {
        [b'P', b'A', b'R', b'1', ..] => Ok(Format::Parquet),
        b"ARROW1" => Ok(Format::ArrowIpc),
        _ => {
            Err(damaged(path, "cannot tell its format from its name").hint("name it with --format parquet, csv, json or arrow"))
        }
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
