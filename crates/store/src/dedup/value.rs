//! [`ValueWork`]: one value on its way to a recipe.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Did;
use super::chunks::{Chunk, Chunking};
use super::matching::{Matching, Run};
use super::packing::{Packing, Reading};
use super::source_key;
use super::table::{Source, Table, mark_of};
use crate::core::Core;
use crate::index::{Action, Change, Depth, Raw, Was};
use crate::recipe::{FOUND_SHARES_MAX, Share, encode};
use crate::segments::Pinned;
use crate::{Expected, Key, StoreError};

/// What a key's value saves at least, as a share of its bytes: below, it stays in one piece.
const SAVED_SHARE: u64 = 8;
/// The bytes that a record of a pack or a recipe costs, about.
const RECORD_BYTES: u64 = 256;

#[derive(Debug)]
pub(super) struct ValueWork {
    key: Key,
    scope: u64,
    mark: u64,
    reading: Reading,
    chunks: Vec<Chunk>,
    hashed: usize,
    matching: Matching,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Read,
    Hash,
    Match,
    Write(Plan, Option<Packing>),
}

/// What the value is to be made of.
#[derive(Debug)]
struct Plan {
    runs: Vec<Run>,
    /// The parts between the runs.
    rest: Vec<Range<usize>>,
}

impl ValueWork {
    pub fn new(key: Key, scope: u64, mark: u64, raw: Raw) -> Self {
        let (reading, matching) = (Reading::new(raw), Matching::default());
        Self { key, scope, mark, reading, chunks: Vec::new(), hashed: 0, matching, phase: Phase::Read }
    }

    pub fn computes(&self) -> bool {
        matches!(self.phase, Phase::Hash)
    }

    pub fn only_reads(&self) -> bool {
        matches!(self.phase, Phase::Read | Phase::Match)
    }

    pub fn step(&mut self, core: &Core, table: &mut Table, chunking: Chunking, bytes_max: u64) -> Result<Did, StoreError> {
        match &mut self.phase {
            Phase::Read => {
                let bytes = self.reading.step(core, bytes_max)?;
                if !self.reading.is_over() {
                    return Ok((bytes, bytes == 0));
                }
                self.phase = Phase::Hash;
                // A damaged value stays where it is, for a check to find it.
                Ok((bytes, !self.reading.is_whole()))
            }
            Phase::Hash => {
                let before = self.hashed;
                self.hashed = chunking.cut(&self.reading.data, before, bytes_max as usize, &mut self.chunks);
                if self.hashed >= self.reading.data.len() {
                    self.phase = Phase::Match;
                }
                Ok(((self.hashed - before) as u64, false))
            }
            Phase::Match => {
                let value = (&self.reading.data[..], &self.chunks[..], self.scope);
                let (bytes, is_over) = self.matching.step(core, table, value, chunking, bytes_max)?;
                if !is_over {
                    return Ok((bytes, false));
                }
                let Some(plan) = self.plan(chunking) else {
                    self.stays(table);
                    return Ok((bytes, true));
                };
                let packing = match plan.rest.is_empty() {
                    true => None,
                    false => Some(Packing::begin(core, core.next_number(), plan.rest.clone())?),
                };
                self.phase = Phase::Write(plan, packing);
                Ok((bytes, false))
            }
            Phase::Write(_, Some(packing)) => {
                let bytes = packing.step(&self.reading.data, bytes_max)?;
                if bytes == 0 {
                    self.commit(core, table)?;
                }
                Ok((bytes, bytes == 0))
            }
            Phase::Write(_, None) => {
                self.commit(core, table)?;
                Ok((0, true))
            }
        }
    }

    /// What is worth sharing of the runs; none if that is not enough.
    fn plan(&mut self, chunking: Chunking) -> Option<Plan> {
        let bytes = self.reading.data.len();
        let mut runs = std::mem::take(&mut self.matching.runs);
        let mut least = chunking.run_bytes_min();
        let (shares_max, mut rest) = (chunking.shares_max(bytes).min(FOUND_SHARES_MAX), between(&runs, bytes));
        while runs.len() + rest.len() > shares_max {
            least *= 2;
            runs.retain(|run| run.bytes >= least);
            rest = between(&runs, bytes);
        }
        let shared: u64 = runs.iter().map(|run| run.bytes as u64).sum();
        let costs = (runs.len() + rest.len()) as u64 * 16 + 2 * RECORD_BYTES;
        (shared >= costs + bytes as u64 / SAVED_SHARE).then_some(Plan { runs, rest })
    }

    /// The value stays as it is, and its chunks are known from now on.
    fn stays(&self, table: &mut Table) {
        let source = Source::Plain { key: self.key.clone(), mark: self.mark };
        table.see(self.mark);
        table.add(self.scope, source, self.chunks.iter().map(|chunk| (*chunk, chunk.at)));
    }

    /// Makes the recipe, in one commit. Whatever has changed meanwhile, the value is the same after it.
    fn commit(&mut self, core: &Core, table: &mut Table) -> Result<(), StoreError> {
        let Phase::Write(plan, packing) = std::mem::replace(&mut self.phase, Phase::Read) else { return Ok(()) };
        core.allow_recipes()?;
        let Some((mut changes, packs)) = promotions(core, table, &plan.runs)? else {
            self.stays(table);
            return Ok(());
        };
        let number = core.next_number();
        let shares = shares(&plan, &packs, packing.as_ref(), self.reading.data.len());
        let mut pinned = Pinned::new(core.segments.clone());
        let (pack, moved) = match packing {
            None => (None, Vec::new()),
            Some(packing) => {
                let offset = |chunk: &Chunk| {
                    let (first, last) = (packing.offset_of(chunk.at)?, packing.offset_of(chunk.at + chunk.bytes - 1)?);
                    (last - first + 1 == chunk.bytes).then_some((*chunk, first))
                };
                let moved: Vec<(Chunk, usize)> = self.chunks.iter().filter_map(offset).collect();
                let pack = packing.pack;
                changes.push(packing.end(core, &self.reading.data, &mut pinned)?);
                (Some(pack), moved)
            }
        };
        let action = Action::Share { was: self.reading.raw.was.clone(), recipe: encode(number, &shares) };
        changes.push(Change { key: self.key.clone(), expected: Expected::Any, action });
        core.submit(changes, pinned, Depth::Back)?;
        // What was promoted is so, whatever became of this value.
        for (source, pack) in &packs {
            table.is_pack(*source, *pack);
        }
        if let Some(pack) = pack {
            table.see(pack_mark(pack));
            table.add(self.scope, Source::Pack(pack), moved.into_iter());
        }
        Ok(())
    }
}

/// The mark of a pack whose chunks are known.
pub(super) fn pack_mark(pack: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&crate::recipe::pack_key(pack))
}

/// The parts between runs, which are in order.
fn between(runs: &[Run], bytes: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut at = 0;
    for run in runs {
        if run.at > at {
            parts.push(at..run.at);
        }
        at = run.at + run.bytes;
    }
    if at < bytes {
        parts.push(at..bytes);
    }
    parts
}

/// A source, and the pack that has it.
type Packs = BTreeMap<u32, u64>;

/// The pack of each source of the runs, and the changes that make packs of those that are none. None if a source has changed.
fn promotions(core: &Core, table: &Table, runs: &[Run]) -> Result<Option<(Vec<Change>, Packs)>, StoreError> {
    let (mut changes, mut packs) = (Vec::new(), Packs::new());
    for run in runs {
        if packs.contains_key(&run.source) {
            continue;
        }
        let (key, mark) = match table.source(run.source) {
            Some(Source::Pack(pack)) => {
                packs.insert(run.source, *pack);
                continue;
            }
            Some(source @ Source::Plain { mark, .. }) => (source_key(source), *mark),
            None => return Ok(None),
        };
        let Some(raw) = core.index.raw(&key)? else { return Ok(None) };
        if mark_of(&key, &raw) != mark || matches!(raw.was, Was::Recipe(_)) {
            return Ok(None);
        }
        let (pack, number) = (core.next_number(), core.next_number());
        packs.insert(run.source, pack);
        let action = Action::Promote { was: raw.was, pack, number };
        changes.push(Change { key, expected: Expected::Any, action });
    }
    Ok(Some((changes, packs)))
}

/// The shares of a value, in its order.
fn shares(plan: &Plan, packs: &Packs, packing: Option<&Packing>, bytes: usize) -> Vec<Share> {
    let (mut shares, mut runs, mut rest, mut at) = (Vec::new(), plan.runs.iter(), plan.rest.iter(), 0);
    let (mut run, mut part) = (runs.next(), rest.next());
    while at < bytes {
        let share = match (run, part, packing) {
            (Some(found), ..) if found.at == at => {
                run = runs.next();
                let pack = packs.get(&found.source).copied().unwrap_or(0);
                Share { pack, offset: found.offset as u32, bytes: found.bytes as u32 }
            }
            (_, Some(range), Some(packing)) if range.start == at => {
                part = rest.next();
                let offset = packing.offset_of(at).unwrap_or(0);
                Share { pack: packing.pack, offset: offset as u32, bytes: range.len() as u32 }
            }
            _ => break,
        };
        at += share.bytes as usize;
        shares.push(share);
    }
    shares
}
