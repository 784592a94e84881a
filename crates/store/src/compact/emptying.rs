//! [`Emptying`]: what is alive in a segment goes elsewhere.

use std::collections::VecDeque;

use super::{Compacted, PLACES_MAX, Stepped};
use crate::core::Core;
use crate::index::{Action, Change, Depth};
use crate::record::ValueLocation;
use crate::segments::{Extent, Pinned, Sealed, Writing};
use crate::sum::Sum;
use crate::{Expected, Key, StoreError};

/// The bytes that are copied before a commit names them.
const MOVED_BYTES_MAX: u64 = 32 << 20;
/// How often a segment's values are looked for before it is left alone.
const PASSES_MAX: u32 = 4;

/// What is alive in a segment goes elsewhere.
#[derive(Debug)]
pub(super) struct Emptying {
    pub one: Sealed,
    /// Up to where places were looked for.
    at: u64,
    /// How often they were looked for from the beginning.
    passes: u32,
    places: VecDeque<(ValueLocation, Key)>,
    copying: Option<Copying>,
    moves: Moves,
}

/// A value of which a part was copied.
#[derive(Debug)]
struct Copying {
    key: Key,
    from: ValueLocation,
    checksum: u64,
    writing: Writing,
    sum: Sum,
    done: u64,
}

impl Emptying {
    pub fn new(one: Sealed, core: &Core) -> Self {
        Self { one, at: 0, passes: 1, places: VecDeque::new(), copying: None, moves: Moves::new(core) }
    }

    pub fn step(&mut self, core: &Core, bytes_max: u64, done: &mut Compacted) -> Result<Stepped, StoreError> {
        if let Some(copying) = self.copying.take() {
            return self.copy(copying, core, bytes_max, done);
        }
        if let Some((from, key)) = self.places.pop_front() {
            match core.index.place(&key) {
                Ok(Some((place, checksum))) if place == from => {
                    let writing = core.segments.begin(from.bytes, 0)?;
                    self.copying = Some(Copying { key, from, checksum, writing, sum: Sum::new(), done: 0 });
                }
                // The key names another place by now.
                Ok(_) => {}
                Err(StoreError::Corrupt { .. }) => self.is_stuck(core),
                Err(error) => return Err(error),
            }
            return Ok(Stepped::Did(0));
        }
        self.commit(core, done)?;
        self.places = core.index.places(self.one.file, self.at, PLACES_MAX)?.into();
        if let Some((last, _)) = self.places.back() {
            self.at = last.end();
            return Ok(Stepped::Did(0));
        }
        if core.index.places(self.one.file, 0, 1)?.is_empty() {
            done.segments += 1;
        } else if self.passes < PASSES_MAX && !core.work.state.lock().stuck.contains(&self.one.file) {
            // Values that became shares meanwhile lie where they lay, under other keys.
            (self.passes, self.at) = (self.passes + 1, 0);
            return Ok(Stepped::Did(0));
        } else {
            self.is_stuck(core);
        }
        Ok(Stepped::Ended)
    }

    /// There is no room for what is left. Keys get the copies that were made all the same: their old room is dead then,
    /// and can be given back where it lies.
    pub fn leave(&mut self, core: &Core, done: &mut Compacted) -> Result<(), StoreError> {
        match self.commit(core, done) {
            Err(StoreError::NoSpace { .. }) => Ok(()),
            committed => committed,
        }
    }

    /// Copies the next part of a value to the open segment.
    fn copy(&mut self, mut copying: Copying, core: &Core, bytes_max: u64, done: &mut Compacted) -> Result<Stepped, StoreError> {
        let from = copying.from;
        let upto = (copying.done + bytes_max).min(from.bytes);
        let part = match core.segments.read_part(from.file, from.offset + copying.done..from.offset + upto) {
            Err(StoreError::Io { source, .. }) => {
                // Where the key names another place by now, the segment may be gone, and nothing is wrong.
                if core.index.place(&copying.key)?.is_some_and(|(now, _)| now == from) {
                    let key = crate::api::show_key(&copying.key);
                    tracing::warn!(error = %source, key, "a value cannot be read to be moved");
                    self.is_stuck(core);
                }
                return Ok(Stepped::Did(0));
            }
            read => read?,
        };
        copying.sum.add(&part);
        copying.writing.append(&part)?;
        copying.done = upto;
        if upto < from.bytes {
            self.copying = Some(copying);
        } else if copying.sum.digest() == copying.checksum {
            self.moves.add(copying.key, from, copying.writing.finish(copying.checksum));
            if self.moves.bytes >= MOVED_BYTES_MAX {
                self.commit(core, done)?;
            }
        } else {
            self.is_stuck(core);
        }
        Ok(Stepped::Did(part.len() as u64))
    }

    fn commit(&mut self, core: &Core, done: &mut Compacted) -> Result<(), StoreError> {
        let moved_bytes = std::mem::replace(&mut self.moves, Moves::new(core)).commit(core)?;
        core.segments.shrank(-(moved_bytes as i64));
        done.moved_bytes += moved_bytes;
        Ok(())
    }

    /// A value cannot be moved. It stays where it is, and whoever reads it gets an error that names it.
    fn is_stuck(&self, core: &Core) {
        core.work.state.lock().stuck.insert(self.one.file);
    }
}

/// Copies that wait for the commit that names them.
#[derive(Debug)]
struct Moves {
    changes: Vec<Change>,
    pinned: Pinned,
    bytes: u64,
}

impl Moves {
    fn new(core: &Core) -> Self {
        Self { changes: Vec::new(), pinned: Pinned::new(core.segments.clone()), bytes: 0 }
    }

    fn add(&mut self, key: Key, from: ValueLocation, extent: Extent) {
        self.bytes += from.bytes;
        self.changes.push(Change { key, expected: Expected::Any, action: Action::Move { from, to: extent.place } });
        self.pinned.add(extent);
    }

    /// Returns the bytes that were moved.
    fn commit(self, core: &Core) -> Result<u64, StoreError> {
        if self.changes.is_empty() {
            return Ok(0);
        }
        core.segments.flush(self.pinned.extents())?;
        core.submit(self.changes, self.pinned, Depth::Logged)?;
        Ok(self.bytes)
    }
}
