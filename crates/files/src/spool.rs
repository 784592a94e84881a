//! [`Spool`]: parts of a file that lies elsewhere, in memory or, if they are large, in a file without a name.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use pithead_model::{Blame, Fault};

/// Bytes that are held in memory.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Some ranges of a file.
#[derive(Debug)]
pub(crate) struct Spool {
    /// Ascending; each with where its bytes begin in what is held.
    ranges: Vec<(Range<u64>, u64)>,
    held: SpoolBytes,
}

/// Where the bytes of a spool are.
#[derive(Debug)]
enum SpoolBytes {
    Memory(Bytes),
    File(File),
}

/// Bytes on their way into a spool.
#[derive(Debug, Default)]
pub(crate) struct Spooling {
    memory: Vec<u8>,
    file: Option<File>,
    bytes: u64,
}

impl Spooling {
    /// Adds bytes of a file with a name, for errors.
    pub(crate) fn add(&mut self, name: &Path, piece: &[u8]) -> Result<(), Fault> {
        self.put(piece).map_err(|error| {
            let place = std::env::temp_dir();
            let fault =
                Fault::new(Blame::Device, format!("{}: no room for it in {}: {error}", name.display(), place.display()));
            fault.hint("TMPDIR names a folder for what must be at hand while it is read")
        })
    }

    fn put(&mut self, piece: &[u8]) -> io::Result<()> {
        self.bytes += piece.len() as u64;
        if let Some(file) = &mut self.file {
            return file.write_all(piece);
        }
        if self.memory.len() + piece.len() <= MEMORY_BYTES_MAX {
            self.memory.extend_from_slice(piece);
            return Ok(());
        }
        let mut file = tempfile::tempfile()?;
        file.write_all(&std::mem::take(&mut self.memory))?;
        file.write_all(piece)?;
        self.file = Some(file);
        Ok(())
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was added, which are these ranges of the file, ascending and one after the other.
    pub(crate) fn finish(self, ranges: Vec<Range<u64>>) -> Spool {
        let mut at = 0;
        let placed = ranges.into_iter().map(|range| {
            let start = at;
            at += range.end - range.start;
            (range, start)
        });
        let ranges = placed.collect();
        let held = self.file.map_or_else(|| SpoolBytes::Memory(self.memory.into()), SpoolBytes::File);
        Spool { ranges, held }
    }
}

impl Spool {
    /// Where the last range ends.
    pub(crate) fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |(range, _)| range.end)
    }

    /// Where a place of the file is in what is held, and how many bytes are there from it on.
    fn place(&self, at: u64) -> io::Result<(u64, u64)> {
        let after = self.ranges.partition_point(|(range, _)| range.start <= at);
        let found = after.checked_sub(1).and_then(|place| self.ranges.get(place)).filter(|(range, _)| at < range.end);
        let (range, start) = found.ok_or_else(|| io::Error::other("bytes are asked for that are not of the columns"))?;
        Ok((start + (at - range.start), range.end - at))
    }

    /// Bytes of the file, which must lie in one of the ranges.
    pub(crate) fn get(&self, start: u64, bytes: usize) -> io::Result<Bytes> {
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        let (at, left) = self.place(start)?;
        if bytes as u64 > left {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &self.held {
            SpoolBytes::Memory(memory) => Ok(memory.slice(at as usize..at as usize + bytes)),
            SpoolBytes::File(file) => {
                let mut into = vec![0; bytes];
                file.read_exact_at(&mut into, at)?;
                Ok(into.into())
            }
        }
    }

    /// Reads some bytes at a place of the file; none at its end.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        if into.is_empty() || at >= self.end() {
            return Ok(0);
        }
        let (_, left) = self.place(at)?;
        let bytes = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let (into, _) = into.split_at_mut(bytes);
        into.copy_from_slice(&self.get(at, bytes)?);
        Ok(bytes)
    }
}

/// A file, here or spooled, as something that is read from a place on. A clone has a place of its own.
#[derive(Clone, Debug)]
pub(crate) struct At {
    what: ReadFrom,
    bytes: u64,
    at: u64,
}

/// What an [`At`] reads.
#[derive(Clone, Debug)]
enum ReadFrom {
    File(Arc<File>),
    Spool(Arc<Spool>),
}

impl At {
    /// From the start of a file.
    pub(crate) fn file(file: File) -> io::Result<At> {
        let bytes = file.metadata()?.len();
        Ok(At { what: ReadFrom::File(Arc::new(file)), bytes, at: 0 })
    }

    /// From some place of a spool on.
    pub(crate) fn spool(spool: Arc<Spool>, at: u64) -> At {
        let bytes = spool.end();
        At { what: ReadFrom::Spool(spool), bytes, at }
    }

    /// Bytes of the file.
    pub(crate) fn size(&self) -> u64 {
        self.bytes
    }

    /// Fills all of `into` from a place on.
    pub(crate) fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let mut reader = At { at, ..self.clone() };
        reader.read_exact(into)
    }
}

impl Read for At {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = match &self.what {
            ReadFrom::File(file) => file.read_at(into, self.at)?,
            ReadFrom::Spool(spool) => spool.read_at(into, self.at)?,
        };
        self.at += bytes as u64;
        Ok(bytes)
    }
}

impl Seek for At {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.bytes.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        self.at = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(pieces: &[&[u8]], ranges: Vec<Range<u64>>) -> Spool {
        let mut spooling = Spooling::default();
        for piece in pieces {
            spooling.add(Path::new("a"), piece).unwrap();
        }
        spooling.finish(ranges)
    }

    #[test]
    fn only_what_was_fetched_is_there() {
        let spool = Arc::new(spool(&[b"abc", b"de", b"xyz"], vec![10..15, 20..23]));
        assert_eq!(spool.get(11, 4).unwrap(), "bcde");
        assert_eq!(spool.get(20, 3).unwrap(), "xyz");
        for (start, bytes) in [(9, 1), (14, 2), (15, 1), (22, 2), (u64::MAX, 1)] {
            assert!(spool.get(start, bytes).is_err(), "{bytes} at {start}");
        }
        let mut rest = Vec::new();
        At::spool(Arc::clone(&spool), 21).read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"yz");
        assert!(At::spool(spool, 12).read_to_end(&mut rest).is_err(), "between the ranges is nothing");
    }

    #[test]
    fn what_is_large_lies_in_a_file() {
        let piece = vec![7; 1 << 20];
        let pieces: Vec<&[u8]> = (0..65).map(|_| piece.as_slice()).chain([b"end".as_slice()]).collect();
        let total = (65 << 20) + 3;
        let spool = spool(&pieces, std::iter::once(0..total).collect());
        assert!(matches!(spool.held, SpoolBytes::File(_)));
        assert_eq!(spool.get(total - 4, 4).unwrap(), &b"\x07end"[..]);
        let mut at = At::spool(Arc::new(spool), 0);
        at.seek(SeekFrom::End(-3)).unwrap();
        let mut end = String::new();
        at.read_to_string(&mut end).unwrap();
        assert_eq!(end, "end");
    }
}
