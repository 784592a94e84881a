//! [`Matching`]: runs of bytes that a value has in common with what is known.

use super::chunks::{Chunk, Chunking};
use super::table::{At, Source, Table, mark_of};
use super::{Did, source_key};
use crate::core::Core;
use crate::index::Was;
use crate::{Key, StoreError, Value};

/// Chunks that are looked up in one step.
const LOOKUPS: usize = 512;

/// Bytes that a value has in common with a source. They were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub at: usize,
    pub bytes: usize,
    pub source: u32,
    pub offset: usize,
}

/// The search in a value.
#[derive(Debug, Default)]
pub(super) struct Matching {
    next: usize,
    /// Runs end here at the latest.
    covered: usize,
    comparing: Option<Comparing>,
    window: Window,
    pub runs: Vec<Run>,
}

/// A comparison from a place on, first forward and then backward.
#[derive(Debug)]
struct Comparing {
    /// The source's.
    key: Key,
    at: usize,
    source: u32,
    offset: usize,
    was: Was,
    source_bytes: usize,
    forward: usize,
    backward: usize,
    turned: bool,
}

/// What was read last of a source, as the next comparison often goes on near it.
#[derive(Debug, Default)]
struct Window {
    source: Option<u32>,
    start: usize,
    bytes: Value,
}

impl Matching {
    /// Looks up some chunks, or compares at most so many bytes more; whether all is done.
    pub fn step(
        &mut self,
        core: &Core,
        table: &Table,
        value: (&[u8], &[Chunk], u64),
        chunking: Chunking,
        bytes_max: u64,
    ) -> Result<Did, StoreError> {
        let (data, chunks, scope) = value;
        if let Some(comparing) = self.comparing.take() {
            let bytes = self.compare(core, comparing, data, chunking, bytes_max as usize)?;
            return Ok((bytes, false));
        }
        for chunk in chunks.iter().skip(self.next).take(LOOKUPS) {
            self.next += 1;
            if chunk.at < self.covered {
                continue;
            }
            if let Some(at) = table.find(scope, chunk.print) {
                self.comparing = begin(core, table, chunk, at)?;
                if self.comparing.is_some() {
                    return Ok((0, false));
                }
            }
        }
        Ok((0, self.next >= chunks.len()))
    }

    fn compare(
        &mut self,
        core: &Core,
        mut on: Comparing,
        data: &[u8],
        chunking: Chunking,
        most: usize,
    ) -> Result<u64, StoreError> {
        let bytes = if on.turned {
            let wanted = most.min(on.offset - on.backward).min(on.at - self.covered - on.backward);
            let (upto, end) = (on.offset - on.backward, on.at - on.backward);
            let part = self.window.read(core, &on, upto - wanted..upto, most)?;
            let equal = part.iter().rev().zip(data[..end].iter().rev()).take_while(|(a, b)| a == b).count();
            on.backward += equal;
            if equal < wanted || wanted == 0 {
                self.end(&on, chunking);
                return Ok(wanted as u64);
            }
            wanted
        } else {
            let (from, at) = (on.offset + on.forward, on.at + on.forward);
            let wanted = most.min(on.source_bytes.saturating_sub(from)).min(data.len() - at);
            let part = self.window.read(core, &on, from..from + wanted, most)?;
            let equal = part.iter().zip(&data[at..]).take_while(|(a, b)| a == b).count();
            on.forward += equal;
            on.turned = equal < wanted || wanted == 0;
            wanted
        };
        self.comparing = Some(on);
        Ok(bytes as u64)
    }

    fn end(&mut self, on: &Comparing, chunking: Chunking) {
        let bytes = on.forward + on.backward;
        if bytes < chunking.run_bytes_min() {
            return;
        }
        let (at, offset) = (on.at - on.backward, on.offset - on.backward);
        self.covered = at + bytes;
        match self.runs.last_mut() {
            // A long run may have been followed in two parts.
            Some(last) if last.source == on.source && last.at + last.bytes == at && last.offset + last.bytes == offset => {
                last.bytes += bytes;
            }
            _ => self.runs.push(Run { at, bytes, source: on.source, offset }),
        }
    }
}

/// Finds the source of a chunk, if it is still what it was.
fn begin(core: &Core, table: &Table, chunk: &Chunk, at: At) -> Result<Option<Comparing>, StoreError> {
    let Some(source) = table.source(at.source) else { return Ok(None) };
    let key = source_key(source);
    let raw = match core.index.raw(&key) {
        Ok(Some(raw)) => raw,
        Ok(None) | Err(StoreError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_same = match source {
        Source::Plain { mark, .. } => mark_of(&key, &raw) == *mark && !matches!(raw.was, Was::Recipe(_)),
        Source::Pack(_) => true,
    };
    let offset = at.offset as usize;
    let source_bytes = raw.bytes as usize;
    let comparing = Comparing {
        key,
        at: chunk.at,
        source: at.source,
        offset,
        was: raw.was,
        source_bytes,
        forward: 0,
        backward: 0,
        turned: false,
    };
    Ok((is_same && offset < source_bytes).then_some(comparing))
}

impl Window {
    /// A part of a source, through what was read last if that has all of it. Nothing, if the source is no more where it was.
    fn read(&mut self, core: &Core, on: &Comparing, part: std::ops::Range<usize>, most: usize) -> Result<Value, StoreError> {
        let place = match &on.was {
            Was::Inline(value) => return Ok(value.slice(part)),
            Was::Segment(place) => place,
            Was::Recipe(_) => return Ok(Value::new()),
        };
        let has_all = self.source == Some(on.source) && part.start >= self.start && part.end <= self.start + self.bytes.len();
        if !has_all {
            // A comparison forward is read a step ahead, so that short runs do not cost a request each.
            let upto = part.end.max(part.start + if on.turned { 0 } else { most }).min(on.source_bytes);
            let range = place.offset + part.start as u64..place.offset + upto as u64;
            let bytes = core.segments.read_part(place.file, range)?;
            // A source that has moved meanwhile may have left holes, which would be compared as zeros.
            if core.index.place(&on.key)?.is_none_or(|(now, _)| now != *place) {
                *self = Window::default();
                return Ok(Value::new());
            }
            *self = Window { source: Some(on.source), start: part.start, bytes };
        }
        Ok(self.bytes.slice(part.start - self.start..part.end - self.start))
    }
}
