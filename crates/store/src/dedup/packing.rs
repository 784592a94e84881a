//! Values that are read, and packs that are written, in steps.

use std::ops::Range;

use crate::bounds::SEGMENT_BYTES_MIN;
use crate::core::Core;
use crate::index::{Action, Change, NewValue, Raw, Was};
use crate::medium::ALIGNMENT;
use crate::recipe::pack_key;
use crate::segments::{Pinned, Writing};
use crate::sum::Sum;
use crate::{Expected, StoreError, Tag, Version};

/// A value that is being read whole.
#[derive(Debug)]
pub(super) struct Reading {
    pub raw: Raw,
    pub data: Vec<u8>,
    sum: Sum,
}

impl Reading {
    pub fn new(raw: Raw) -> Self {
        Self { raw, data: Vec::new(), sum: Sum::new() }
    }

    /// Reads at most so many bytes more; how many it was.
    pub fn step(&mut self, core: &Core, bytes_max: u64) -> Result<u64, StoreError> {
        let part = match &self.raw.was {
            Was::Inline(value) => value.clone(),
            Was::Segment(place) => {
                let from = place.offset + self.data.len() as u64;
                core.segments.read_part(place.file, from..(from + bytes_max).min(place.offset + place.bytes))?
            }
            Was::Recipe(_) => return Ok(0),
        };
        self.sum.add(&part);
        self.data.extend_from_slice(&part);
        Ok(part.len() as u64)
    }

    pub fn is_over(&self) -> bool {
        self.data.len() as u64 >= self.raw.bytes
    }

    /// Whether it is what was written.
    pub fn is_whole(&self) -> bool {
        self.sum.digest() == self.raw.checksum
    }
}

/// A pack that is being written, from parts of a value in memory.
#[derive(Debug)]
pub(super) struct Packing {
    pub pack: u64,
    /// In order.
    parts: Vec<Range<usize>>,
    /// The bytes before each part.
    before: Vec<usize>,
    /// None where the pack is small enough for the index.
    writing: Option<Writing>,
    /// The part that comes next, and how many of its bytes were written.
    next: (usize, usize),
    sum: Sum,
}

impl Packing {
    /// Room for a pack. `parts` are not empty, and lie in `data` of each step.
    pub fn begin(core: &Core, pack: u64, parts: Vec<Range<usize>>) -> Result<Self, StoreError> {
        let mut bytes = 0;
        let mut before = Vec::with_capacity(parts.len());
        for part in &parts {
            before.push(bytes);
            bytes += part.len();
        }
        let writing = match bytes < SEGMENT_BYTES_MIN {
            true => None,
            false => Some(core.segments.begin(bytes as u64, core.reserve_bytes)?),
        };
        Ok(Self { pack, parts, before, writing, next: (0, 0), sum: Sum::new() })
    }

    /// Writes at most so many bytes more, or 4 KiB; how many it was. 0: it is written.
    pub fn step(&mut self, data: &[u8], bytes_max: u64) -> Result<u64, StoreError> {
        let Some(writing) = &mut self.writing else { return Ok(0) };
        let upto = (bytes_max / ALIGNMENT * ALIGNMENT).max(ALIGNMENT) as usize;
        let mut out = Vec::with_capacity(upto);
        while let Some(part) = self.parts.get(self.next.0) {
            let rest = part.start + self.next.1..part.end;
            let taken = rest.len().min(upto - out.len());
            out.extend_from_slice(&data[rest.start..rest.start + taken]);
            self.next = if taken == rest.len() { (self.next.0 + 1, 0) } else { (self.next.0, self.next.1 + taken) };
            if out.len() == upto {
                break;
            }
        }
        self.sum.add(&out);
        writing.append(&out)?;
        Ok(out.len() as u64)
    }

    /// Where a byte of the data comes to lie in the pack, if it does.
    pub fn offset_of(&self, at: usize) -> Option<usize> {
        let part = self.parts.partition_point(|part| part.end <= at);
        let (range, before) = (self.parts.get(part)?, self.before.get(part)?);
        range.contains(&at).then(|| before + at - range.start)
    }

    /// The change that makes it a pack. What was written is flushed.
    pub fn end(self, core: &Core, data: &[u8], pinned: &mut Pinned) -> Result<Change, StoreError> {
        let value = match self.writing {
            None => {
                NewValue::Inline(self.parts.iter().flat_map(|part| &data[part.clone()]).copied().collect::<Vec<u8>>().into())
            }
            Some(writing) => {
                let extent = writing.finish(self.sum.digest());
                let (place, checksum) = (extent.place, extent.checksum);
                // Before anything can fail: what is in no `Pinned` stays pinned for ever.
                pinned.add(extent.clone());
                core.segments.flush(&[extent])?;
                NewValue::Segment { place, checksum }
            }
        };
        let action = Action::Put { version: Version::new(), tag: Tag::default(), value };
        Ok(Change { key: pack_key(self.pack), expected: Expected::Any, action })
    }
}
