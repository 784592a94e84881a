//! [`PackWork`]: what a pack has that is not used any more is given back, and its chunks become known.

use std::ops::Range;

use super::Did;
use super::chunks::{Chunk, Chunking};
use super::packing::{Packing, Reading};
use super::table::{Source, Table};
use super::value::pack_mark;
use crate::core::Core;
use crate::index::{Action, Change, Depth, Was};
use crate::recipe::{Recipe, Share, encode, pack_key};
use crate::segments::Pinned;
use crate::{Expected, Key, StoreError};

/// A pack of more keys is worth what it has.
pub(super) const USERS_MAX: usize = 256;
/// Keys whose recipes are read in one step.
const USERS_STEP: usize = 16;
/// A pack is written anew when this share of it is dead, and so many bytes.
const DEAD_SHARE: u64 = 4;
const DEAD_BYTES_MIN: u64 = 8 << 10;

#[derive(Debug)]
pub(super) struct PackWork {
    pack: u64,
    bytes: u64,
    /// None: its keys are in none.
    scope: Option<u64>,
    users: Vec<Key>,
    measured: usize,
    live: Vec<Range<usize>>,
    reading: Option<Reading>,
    chunks: Vec<Chunk>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Measure,
    Read { anew: bool },
    Write(Packing),
    Hash { at: usize },
}

impl PackWork {
    pub fn new(pack: u64, bytes: u64, scope: Option<u64>, users: Vec<Key>) -> Self {
        let (live, chunks) = (Vec::new(), Vec::new());
        Self { pack, bytes, scope, users, measured: 0, live, reading: None, chunks, phase: Phase::Measure }
    }

    pub fn computes(&self) -> bool {
        matches!(self.phase, Phase::Hash { .. })
    }

    pub fn only_reads(&self) -> bool {
        matches!(self.phase, Phase::Measure | Phase::Read { .. })
    }

    pub fn step(&mut self, core: &Core, table: &mut Table, chunking: Chunking, bytes_max: u64) -> Result<Did, StoreError> {
        match &mut self.phase {
            Phase::Measure => self.measure(core, table),
            Phase::Read { anew } => {
                let (anew, Some(reading)) = (*anew, &mut self.reading) else { return Ok((0, true)) };
                let bytes = reading.step(core, bytes_max)?;
                if !reading.is_over() {
                    return Ok((bytes, bytes == 0));
                }
                let is_whole = reading.is_whole();
                self.phase = match anew {
                    true if is_whole => Phase::Write(Packing::begin(core, core.next_number(), self.live.clone())?),
                    _ => Phase::Hash { at: 0 },
                };
                Ok((bytes, !is_whole))
            }
            Phase::Write(packing) => {
                let data = self.reading.as_ref().map_or(&[][..], |reading| &reading.data);
                let bytes = packing.step(data, bytes_max)?;
                if bytes == 0 {
                    self.commit(core)?;
                }
                Ok((bytes, bytes == 0))
            }
            Phase::Hash { at } => {
                let data = self.reading.as_ref().map_or(&[][..], |reading| &reading.data);
                let before = *at;
                *at = chunking.cut(data, before, bytes_max as usize, &mut self.chunks);
                let (bytes, is_over) = ((*at - before) as u64, *at >= data.len());
                if let (true, Some(scope)) = (is_over, self.scope) {
                    table.see(pack_mark(self.pack));
                    table.add(scope, Source::Pack(self.pack), self.chunks.iter().map(|chunk| (*chunk, chunk.at)));
                }
                Ok((bytes, is_over))
            }
        }
    }

    /// Reads the recipes of some of the keys, and decides what becomes of the pack after the last.
    fn measure(&mut self, core: &Core, table: &Table) -> Result<Did, StoreError> {
        let is_shared_much = self.users.len() > USERS_MAX;
        let upto = if is_shared_much { self.users.len() } else { (self.measured + USERS_STEP).min(self.users.len()) };
        for key in self.users[self.measured..upto].iter().filter(|_| !is_shared_much) {
            let Some(recipe) = recipe_of(core, key)? else { continue };
            let shares = Recipe::decode(&recipe).into_iter().flat_map(|recipe| recipe.shares());
            let of_this = shares.filter(|share| share.pack == self.pack);
            self.live.extend(of_this.map(|share| share.offset as usize..share.end() as usize));
        }
        self.measured = upto;
        if upto < self.users.len() {
            return Ok((0, false));
        }
        self.live = union(std::mem::take(&mut self.live));
        let live: u64 = self.live.iter().map(|range| range.len() as u64).sum();
        let dead = self.bytes.saturating_sub(live);
        let anew = !is_shared_much && live > 0 && dead >= (self.bytes / DEAD_SHARE).max(DEAD_BYTES_MIN);
        if !anew && (self.scope.is_none() || table.is_seen(pack_mark(self.pack))) {
            return Ok((0, true));
        }
        self.reading = core.index.raw(&pack_key(self.pack))?.map(Reading::new);
        self.phase = Phase::Read { anew };
        Ok((0, false))
    }

    /// Gives the keys recipes of the new pack. The old one goes with the last of its recipes.
    fn commit(&mut self, core: &Core) -> Result<(), StoreError> {
        let Phase::Write(packing) = std::mem::replace(&mut self.phase, Phase::Measure) else { return Ok(()) };
        let mut changes = Vec::with_capacity(self.users.len() + 1);
        for key in &self.users {
            let Some(was) = recipe_of(core, key)? else { continue };
            let Some(recipe) = Recipe::decode(&was) else { continue };
            let moved = |share: Share| match share.pack == self.pack {
                false => Some(share),
                true => {
                    let offset = packing.offset_of(share.offset as usize)?;
                    packing.offset_of(share.end() as usize - 1).filter(|last| last - offset + 1 == share.bytes as usize)?;
                    Some(Share { pack: packing.pack, offset: offset as u32, ..share })
                }
            };
            // A recipe that names more of the pack by now keeps it.
            let Some(shares) = recipe.shares().map(moved).collect::<Option<Vec<Share>>>() else { continue };
            let action = Action::Share { recipe: encode(core.next_number(), &shares), was: Was::Recipe(was) };
            changes.push(Change { key: key.clone(), expected: Expected::Any, action });
        }
        let mut pinned = Pinned::new(core.segments.clone());
        let data = self.reading.as_ref().map_or(&[][..], |reading| &reading.data);
        changes.insert(0, packing.end(core, data, &mut pinned)?);
        core.submit(changes, pinned, Depth::Back)
    }
}

/// A key's recipe, if it has one that can be read.
fn recipe_of(core: &Core, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    match core.index.raw(key) {
        Ok(Some(raw)) => Ok(if let Was::Recipe(recipe) = raw.was { Some(recipe) } else { None }),
        Ok(None) | Err(StoreError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ranges in order, those that touch put together.
fn union(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut all: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}
