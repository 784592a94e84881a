//! Values that are read in parts, as their recipes have them.

use std::io;
use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64;

use super::Segments;
use crate::format::io_error;
use crate::index::{PartAt, Parts, ValuePart, corrupt};
use crate::medium::ALIGNMENT;
use crate::{StoreError, Value};

/// Parts of a file with no more than this between them are read together, as that costs less than another request.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// A read that serves several parts.
#[derive(Debug, PartialEq, Eq)]
struct Together {
    file: u64,
    range: Range<u64>,
}

impl Segments {
    /// Puts a value together from its parts, and verifies its checksum. Parts that lie near one another are read at
    /// once.
    pub fn assemble(&self, key: &[u8], value: &Parts) -> Result<Value, StoreError> {
        let reads = together(&value.parts);
        let mut read = Vec::with_capacity(reads.len());
        for Together { file, range } in &reads {
            read.push(self.part_of(key, *file, range.clone())?);
        }
        let mut out = Aligned::new(value.bytes);
        for part in &value.parts {
            match &part.at {
                PartAt::Inline(bytes) => out.add(bytes),
                PartAt::Segment { file, offset } => {
                    let at = reads.partition_point(|read| (read.file, read.range.end) <= (*file, *offset));
                    let found = reads.get(at).zip(read.get(at)).and_then(|(read, bytes)| {
                        let from = usize::try_from(offset.checked_sub(read.range.start)?).ok()?;
                        bytes.get(from..from.checked_add(usize::try_from(part.bytes).ok()?)?)
                    });
                    out.add(found.ok_or_else(|| corrupt(key, "a part of it was not read"))?);
                }
            }
        }
        let out = out.end();
        if xxh3_64(&out) != value.checksum {
            return Err(corrupt(key, "the checksum of its value does not hold, which was put together from parts"));
        }
        Ok(out)
    }

    /// The next piece of a value in parts, at most so many bytes from `done` on.
    pub fn piece(&self, key: &[u8], value: &Parts, done: u64, bytes_max: u64) -> Result<Value, StoreError> {
        let mut skipped = 0;
        for part in &value.parts {
            if done < skipped + part.bytes {
                let from = done - skipped;
                let bytes = (part.bytes - from).min(bytes_max);
                return match &part.at {
                    PartAt::Inline(value) => Ok(value.slice(from as usize..(from + bytes) as usize)),
                    PartAt::Segment { file, offset } => {
                        self.part_of(key, *file, offset.saturating_add(from)..offset.saturating_add(from + bytes))
                    }
                };
            }
            skipped += part.bytes;
        }
        Ok(Value::new())
    }

    fn part_of(&self, key: &[u8], file: u64, range: Range<u64>) -> Result<Value, StoreError> {
        let at = range.start;
        match self.handle(file).and_then(|handle| handle.read_large(range)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
                let path = self.path(file);
                Err(corrupt(key, &format!("a part of its value is missing: {error} ({} at byte {at})", path.display())))
            }
            read => read.map_err(|error| io_error(&self.path(file), 0, error)),
        }
    }
}

/// The reads that bring all parts, in the order of files and offsets.
fn together(parts: &[ValuePart]) -> Vec<Together> {
    let placed = parts.iter().filter_map(|part| match part.at {
        PartAt::Inline(_) => None,
        PartAt::Segment { file, offset } => Some((file, offset, offset.saturating_add(part.bytes))),
    });
    let mut placed: Vec<(u64, u64, u64)> = placed.collect();
    placed.sort_unstable();
    let mut reads: Vec<Together> = Vec::new();
    for (file, start, end) in placed {
        match reads.last_mut() {
            Some(last) if last.file == file && start <= last.range.end.saturating_add(GAP_BYTES_MAX) => {
                last.range.end = last.range.end.max(end);
            }
            _ => reads.push(Together { file, range: start..end }),
        }
    }
    reads
}

/// A value that is being put together, in memory that is as well aligned as that of a value in one piece.
struct Aligned {
    bytes: Vec<u8>,
    skipped: usize,
}

impl Aligned {
    fn new(bytes: u64) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity((bytes + ALIGNMENT) as usize);
        let skipped = bytes.as_ptr().align_offset(ALIGNMENT as usize).min(ALIGNMENT as usize);
        bytes.resize(skipped, 0);
        Self { bytes, skipped }
    }

    fn add(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
    }

    fn end(self) -> Value {
        let skipped = self.skipped;
        Value::from(self.bytes).slice(skipped..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_lie_near_one_another_are_read_together() {
        let part = |file, offset, bytes| ValuePart { bytes, at: PartAt::Segment { file, offset } };
        let inline = ValuePart { bytes: 3, at: PartAt::Inline(Value::from_static(b"abc")) };
        let far = 10_000 + GAP_BYTES_MAX + 1;
        let parts = [part(2, 0, 5), part(1, 8_000, 2_000), inline, part(1, 0, 100), part(1, far, 1), part(1, 50, 20)];
        let read = |file, range| Together { file, range };
        assert_eq!(together(&parts), [read(1, 0..10_000), read(1, far..far + 1), read(2, 0..5)]);
        assert_eq!(together(&[]), []);
    }

    #[test]
    fn what_is_put_together_is_aligned() {
        for bytes in [1_u64, 5_000, 300_000] {
            let mut out = Aligned::new(bytes);
            (0..bytes).for_each(|at| out.add(&[at as u8]));
            let value = out.end();
            assert!(value.as_ptr().addr().is_multiple_of(ALIGNMENT as usize) && value.len() as u64 == bytes);
        }
    }
}
