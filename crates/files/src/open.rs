//! Finding files, and telling their format.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pithead_model::Fault;

use crate::csv::Csv;
use crate::input::{Finder, FoundFile, Input};
use crate::ipc::IpcSource;
use crate::json::JsonLines;
use crate::options::{CsvOptions, Format};
use crate::parquet::ParquetSource;
use crate::source::{Source, damaged, guarded};
use crate::text::ending;

/// Files at servers that are opened at a time.
const OPENED_AT_ONCE: usize = 8;

/// A file, or why it is none.
type Opened = Result<Box<dyn Source>, Fault>;

/// Opens all files that the sources name, in order: paths and patterns of this machine's files, `http://` and `https://` URLs, and
/// `s3://` objects and patterns of them.
pub fn open_all(sources: &[String], format: Option<Format>, csv: &CsvOptions) -> Result<Vec<Box<dyn Source>>, Fault> {
    open_found(Finder::default(), sources, format, csv)
}

fn open_found(
    mut finder: Finder,
    sources: &[String],
    format: Option<Format>,
    csv: &CsvOptions,
) -> Result<Vec<Box<dyn Source>>, Fault> {
    if sources.is_empty() {
        return Err(Fault::invalid("expected at least one file to load"));
    }
    let mut found = Vec::new();
    for source in sources {
        found.extend(finder.find(source)?);
    }
    open_each(&found, &|file| open(&file.input()?, format, csv))
}

/// Opens files in order, those at servers several at a time: each takes some exchanges with its server.
fn open_each(found: &[FoundFile], open: &(dyn Fn(&FoundFile) -> Opened + Sync)) -> Result<Vec<Box<dyn Source>>, Fault> {
    if found.len() == 1 || !found.iter().any(FoundFile::is_remote) {
        return found.iter().map(open).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut own = Vec::new();
        while !failed.load(Ordering::Relaxed)
            && let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(file) = found.get(number)
        {
            let opened = open(file);
            failed.fetch_or(opened.is_err(), Ordering::Relaxed);
            own.push((number, opened));
        }
        own
    };
    let mut opened: Vec<(usize, Opened)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..OPENED_AT_ONCE.min(found.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    opened.sort_by_key(|(number, _)| *number);
    let opened = opened.into_iter().map(|(_, source)| source).collect::<Result<Vec<_>, _>>()?;
    match opened.len() == found.len() {
        true => Ok(opened),
        false => Err(Fault::bug("a thread that opens files ended early")),
    }
}

fn open(input: &Input, format: Option<Format>, csv: &CsvOptions) -> Opened {
    let format = match format {
        Some(format) => format,
        None => format_of(input)?,
    };
    guarded(input.name(), || {
        Ok(match format {
            Format::Parquet => Box::new(ParquetSource::open(input)?) as Box<dyn Source>,
            Format::Csv => Box::new(Csv::open(input, csv)?),
            Format::Json => Box::new(JsonLines::open(input, csv.schema_rows)?),
            Format::ArrowIpc => Box::new(IpcSource::open(input)?),
        })
    })
}

/// By the name's ending, else by the first bytes.
fn format_of(input: &Input) -> Result<Format, Fault> {
    if let Some(format) = ending(input.name()).and_then(|ending| Format::of_ending(&ending)) {
        return Ok(format);
    }
    match input.head(6)?.as_slice() {
        [b'P', b'A', b'R', b'1', ..] => Ok(Format::Parquet),
        b"ARROW1" => Ok(Format::ArrowIpc),
        _ => Err(damaged(input.name(), "cannot tell its format from its name")
            .hint("name it with --format parquet, csv, json or arrow")),
    }
}

#[cfg(test)]
mod tests;
