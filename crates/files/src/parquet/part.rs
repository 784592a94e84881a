//! Where the decoder of a Parquet file has its bytes from: a file of this machine, or what was fetched of one at a server.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use pithead_model::{Blame, Fault};

use crate::input::{Input, fetch, fetch_all};
use crate::remote::RemoteFile;
use crate::source::{damaged, open_file, unreadable};
use crate::spool::{At, Spool};

/// Bytes at the end of a file that are fetched to read its footer. Most footers are shorter.
const END_BYTES: u64 = 64 << 10;
/// The longest footer that is fetched.
const FOOTER_BYTES_MAX: u64 = 512 << 20;
/// Behind the footer: its length and four letters.
const TAIL_BYTES: u64 = 8;

/// Where a file lies.
#[derive(Debug)]
pub(super) enum ParquetLocation {
    /// It is opened when a part is read, so that many files need no handles.
    Local(PathBuf),
    /// Parts of it are fetched when they are read.
    Remote(Arc<RemoteFile>),
    /// It was fetched as a whole, because its server gives no parts.
    Fetched(PathBuf, Arc<Spool>),
}

impl ParquetLocation {
    /// Of a file that was found.
    pub(super) fn new(input: &Input) -> Result<ParquetLocation, Fault> {
        Ok(match input {
            Input::Local(path) => ParquetLocation::Local(path.clone()),
            Input::Remote(file) if file.has_ranges() => ParquetLocation::Remote(Arc::clone(file)),
            Input::Remote(file) => ParquetLocation::Fetched(file.name().to_owned(), fetch_all(file)?),
        })
    }

    pub(super) fn name(&self) -> &Path {
        match self {
            ParquetLocation::Local(path) | ParquetLocation::Fetched(path, _) => path,
            ParquetLocation::Remote(file) => file.name(),
        }
    }

    /// The file's size, and its end with all of the footer.
    pub(super) fn end(&self) -> Result<(u64, PartBytes), Fault> {
        match self {
            ParquetLocation::Local(path) => {
                let file = open_file(path)?;
                let bytes = file.metadata().map_err(|error| unreadable(path, &error))?.len();
                Ok((bytes, PartBytes::File(file)))
            }
            ParquetLocation::Remote(file) => {
                let bytes = file.bytes();
                Ok((bytes, PartBytes::Spool(fetch_end(file, bytes)?, bytes)))
            }
            ParquetLocation::Fetched(_, spool) => Ok((spool.end(), PartBytes::Spool(Arc::clone(spool), spool.end()))),
        }
    }

    /// What can be read of these ranges of a file of so many bytes.
    pub(super) fn part(&self, ranges: &[Range<u64>], bytes: u64) -> Result<PartBytes, Fault> {
        match self {
            ParquetLocation::Local(path) => Ok(PartBytes::File(open_file(path)?)),
            ParquetLocation::Remote(file) => Ok(PartBytes::Spool(fetch(file, ranges.to_vec())?, bytes)),
            ParquetLocation::Fetched(_, spool) => Ok(PartBytes::Spool(Arc::clone(spool), bytes)),
        }
    }
}

fn fetch_end(file: &RemoteFile, bytes: u64) -> Result<Arc<Spool>, Fault> {
    if bytes < TAIL_BYTES {
        return Err(damaged(file.name(), "it is too short for a Parquet file"));
    }
    let end = fetch(file, iter::once(bytes.saturating_sub(END_BYTES)..bytes).collect())?;
    let tail = end.get(bytes - TAIL_BYTES, TAIL_BYTES as usize).map_err(|error| unreadable(file.name(), &error))?;
    let footer = tail.first_chunk::<4>().map_or(0, |length| u64::from(u32::from_le_bytes(*length)));
    let needed = footer + TAIL_BYTES;
    match needed {
        // The decoder tells what is wrong with one that is longer than its file.
        _ if needed <= END_BYTES || needed > bytes || !tail.ends_with(b"PAR1") => Ok(end),
        _ if needed > FOOTER_BYTES_MAX => {
            let what = format!("{}: a footer of {footer} bytes; at most {FOOTER_BYTES_MAX} are fetched", file.name().display());
            Err(Fault::new(Blame::Limit, what).hint("fetch the file first, and load that"))
        }
        _ => fetch(file, iter::once(bytes - needed..bytes).collect()),
    }
}

/// The bytes of a part, at their places in the file.
#[derive(Debug)]
pub(super) enum PartBytes {
    File(File),
    /// With the file's size.
    Spool(Arc<Spool>, u64),
}

impl PartBytes {
    /// Fills all of `into` from a place on.
    pub(super) fn fill(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            PartBytes::File(file) => file.read_exact_at(into, at),
            PartBytes::Spool(spool, _) => At::spool(Arc::clone(spool), at).read_exact(into),
        }
    }
}

impl Length for PartBytes {
    fn len(&self) -> u64 {
        match self {
            PartBytes::File(file) => file.len(),
            PartBytes::Spool(_, bytes) => *bytes,
        }
    }
}

impl ChunkReader for PartBytes {
    type T = PartReader;

    fn get_read(&self, start: u64) -> Result<PartReader, ParquetError> {
        match self {
            PartBytes::File(file) => file.get_read(start).map(PartReader::File),
            PartBytes::Spool(spool, _) => Ok(PartReader::Spool(At::spool(Arc::clone(spool), start))),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match self {
            PartBytes::File(file) => file.get_bytes(start, length),
            PartBytes::Spool(spool, _) => spool.get(start, length).map_err(|error| ParquetError::General(error.to_string())),
        }
    }
}

/// Reads from a place on.
#[derive(Debug)]
pub(super) enum PartReader {
    File(BufReader<File>),
    Spool(At),
}

impl Read for PartReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            PartReader::File(file) => file.read(into),
            PartReader::Spool(at) => at.read(into),
        }
    }
}
