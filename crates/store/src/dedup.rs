//! [`Dedup`]: values that have bytes in common share them, found out afterwards and in small steps.
//!
//! A round looks at the packs that there are, and then at each value that it has not seen: the value is read, cut into
//! chunks, and chunks that are known are compared byte by byte with what is stored, from there on in both directions.
//! Where enough is the same, one commit gives the key a recipe (see `recipe`): the first owner of the bytes gives its
//! value to a pack without a copy, and what is left of this value is written to a pack of its own. The commit needs no
//! flush: if a crash undoes it, the value is stored as it was.
//!
//! Values share bytes only within a scope, so that what one user deletes is not kept by another's values.

mod chunks;
mod matching;
mod packing;
mod packs;
mod table;
mod value;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use xxhash_rust::xxh3::xxh3_64;

pub use self::chunks::Chunking;
use self::packs::PackWork;
use self::table::{Source, Table, mark_of};
use self::value::ValueWork;
use crate::core::Core;
use crate::format::{WITH_RECIPES, write_marker};
use crate::index::Was;
use crate::listing::{behind_hole, first_readable};
use crate::{Key, KeyRange, StoreError};

/// Keys and packs that are listed at once.
const LISTED: usize = 64;
/// Smaller values are left alone: a record of their own costs as much as they could save.
const VALUE_BYTES_MIN: u64 = 4 << 10;

/// What is deduplicated, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupOptions {
    /// How values are cut into chunks.
    pub chunking: Chunking,
    /// Prefixes of keys: values under one prefix share bytes with one another, and with no others.
    pub scopes: Vec<Key>,
    /// The memory for known chunks. Those of 1 GiB take about 1.4 MiB where the content cuts them, 42 MiB at 1 KiB, and
    /// 84 MiB at 0.5 KiB; when there is less, some are forgotten.
    pub memory_bytes: u64,
}

/// Deduplication of one store: the round in hand, and the chunks that are known.
#[derive(Debug)]
pub struct Dedup {
    options: DedupOptions,
    table: Table,
    stage: Stage,
    work: Option<Work>,
    /// The last key that was looked at.
    after: Option<Key>,
    done_bytes: u64,
    total_bytes: u64,
}

/// Where a round is.
#[derive(Debug)]
enum Stage {
    /// Adds up what there is, from a key on.
    Count {
        scope: usize,
        after: Option<Key>,
    },
    Packs {
        after: Option<u64>,
        listed: VecDeque<(u64, u64)>,
    },
    Keys {
        scope: usize,
        listed: VecDeque<(Key, u64)>,
    },
}

#[derive(Debug)]
enum Work {
    Value(Box<ValueWork>),
    Pack(Box<PackWork>),
}

/// What a step of a piece of work did: so many bytes, and whether it was the last.
type Did = (u64, bool);

impl Dedup {
    /// A first round.
    pub fn new(options: DedupOptions) -> Self {
        let table = Table::new(options.memory_bytes);
        let stage = Stage::Count { scope: 0, after: None };
        Self { options, table, stage, work: None, after: None, done_bytes: 0, total_bytes: 0 }
    }

    /// What it was made with.
    pub fn options(&self) -> &DedupOptions {
        &self.options
    }

    /// Goes on after a key, in a round in which so many bytes were done before. Chunks from before that are not known any more, but
    /// for those in packs.
    pub fn go_on_after(&mut self, key: Key, done_bytes: u64) {
        (self.after, self.done_bytes) = (Some(key), done_bytes);
    }

    /// The last key that was looked at in this round.
    pub fn after(&self) -> Option<&Key> {
        self.after.as_ref()
    }

    /// Bytes of values that this round has looked at, and bytes that it has to look at in all.
    pub fn progress(&self) -> (u64, u64) {
        (self.done_bytes, self.total_bytes.max(self.done_bytes))
    }

    /// Whether the next step only computes, and waits for nothing.
    pub fn computes(&self) -> bool {
        match &self.work {
            Some(Work::Value(work)) => work.computes(),
            Some(Work::Pack(work)) => work.computes(),
            None => false,
        }
    }

    /// Whether the next step reads, and neither writes nor commits: nobody waits for it.
    pub fn only_reads(&self) -> bool {
        match &self.work {
            Some(Work::Value(work)) => work.only_reads(),
            Some(Work::Pack(work)) => work.only_reads(),
            None => true,
        }
    }

    /// See [`crate::Store::dedup_step`].
    pub(crate) fn step(&mut self, core: &Core, bytes_max: u64) -> Result<Option<u64>, StoreError> {
        let Some(work) = self.work.take() else { return self.next(core) };
        let bytes_max = bytes_max.max(1);
        let (stepped, work) = match work {
            Work::Value(mut work) => (work.step(core, &mut self.table, self.options.chunking, bytes_max), Work::Value(work)),
            Work::Pack(mut work) => (work.step(core, &mut self.table, self.options.chunking, bytes_max), Work::Pack(work)),
        };
        match stepped {
            Ok((bytes, is_over)) => {
                self.work = (!is_over).then_some(work);
                Ok(Some(bytes))
            }
            // A value that is damaged or gone, or that found no room, stays as it is.
            Err(error @ (StoreError::Corrupt { .. } | StoreError::NoSpace { .. })) => {
                tracing::debug!(%error, "a value is not deduplicated");
                Ok(Some(0))
            }
            // It was moved or replaced while it was read. Where it is really missing, a scrub names it.
            Err(StoreError::Io { source, .. }) if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => {
                Ok(Some(0))
            }
            Err(error) => Err(error),
        }
    }

    /// Begins what comes next in the round.
    fn next(&mut self, core: &Core) -> Result<Option<u64>, StoreError> {
        match &mut self.stage {
            Stage::Count { scope, after } => {
                let Some(prefix) = self.options.scopes.get(*scope) else {
                    self.stage = Stage::Packs { after: None, listed: VecDeque::new() };
                    return Ok(Some(0));
                };
                let page = list(core, prefix, after.as_ref())?;
                self.total_bytes += page.iter().map(|(_, bytes)| bytes).sum::<u64>();
                match page.into_iter().next_back() {
                    Some((last, _)) => *after = Some(last),
                    None => (*scope, *after) = (*scope + 1, None),
                }
                Ok(Some(0))
            }
            Stage::Packs { after, listed } => {
                if listed.is_empty() {
                    *listed = list_packs(core, *after)?.into();
                }
                let Some((pack, bytes)) = listed.pop_front() else {
                    // Scopes come in the order of the options, and keys in their own within each.
                    let at = self.after.as_ref().and_then(|after| self.scope_of(after));
                    self.stage = Stage::Keys { scope: at.unwrap_or(0), listed: VecDeque::new() };
                    return Ok(Some(0));
                };
                *after = Some(pack);
                match self.pack_work(core, pack, bytes) {
                    Ok(work) => self.work = Some(Work::Pack(Box::new(work))),
                    // Who has a part of it cannot be read: it stays as it is.
                    Err(StoreError::Corrupt { .. }) => {}
                    Err(error) => return Err(error),
                }
                Ok(Some(0))
            }
            Stage::Keys { .. } => self.next_key(core),
        }
    }

    fn next_key(&mut self, core: &Core) -> Result<Option<u64>, StoreError> {
        let Stage::Keys { scope, listed } = &mut self.stage else { return Ok(Some(0)) };
        let Some(prefix) = self.options.scopes.get(*scope) else {
            self.end_round();
            return Ok(None);
        };
        if listed.is_empty() {
            let after = self.after.as_ref().filter(|after| after.starts_with(prefix));
            *listed = list(core, prefix, after)?.into();
        }
        let Some((key, bytes)) = listed.pop_front() else {
            *scope += 1;
            return Ok(Some(0));
        };
        let prefix = prefix.clone();
        self.done_bytes += bytes;
        self.after = Some(key.clone());
        if bytes < VALUE_BYTES_MIN {
            return Ok(Some(0));
        }
        match core.index.raw(&key) {
            Ok(Some(raw)) if !matches!(raw.was, Was::Recipe(_)) => {
                let mark = mark_of(&key, &raw);
                if !self.table.is_seen(mark) {
                    self.work = Some(Work::Value(Box::new(ValueWork::new(key, scope_sum(&prefix), mark, raw))));
                }
            }
            Ok(_) | Err(StoreError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Some(0))
    }

    fn pack_work(&self, core: &Core, pack: u64, bytes: u64) -> Result<PackWork, StoreError> {
        let users = core.index.users(pack, packs::USERS_MAX + 1)?;
        let scope = users.first().and_then(|key| self.scope_of(key)).and_then(|scope| self.options.scopes.get(scope));
        Ok(PackWork::new(pack, bytes, scope.map(|prefix| scope_sum(prefix)), users))
    }

    /// The first scope of a key.
    fn scope_of(&self, key: &[u8]) -> Option<usize> {
        self.options.scopes.iter().position(|prefix| key.starts_with(prefix))
    }

    fn end_round(&mut self) {
        self.stage = Stage::Count { scope: 0, after: None };
        (self.after, self.done_bytes, self.total_bytes) = (None, 0, 0);
    }
}

impl Core {
    /// A number that no pack and no recipe has had.
    pub(crate) fn next_number(&self) -> u64 {
        self.sharing.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// From now on the store may have recipes, and older releases refuse it.
    pub(crate) fn allow_recipes(&self) -> Result<(), StoreError> {
        let mut allowed = self.sharing.allowed.lock();
        if !*allowed {
            write_marker(&*self.medium, WITH_RECIPES, self.sharing.drive)?;
            *allowed = true;
        }
        Ok(())
    }
}

fn scope_sum(prefix: &[u8]) -> u64 {
    xxh3_64(prefix)
}

/// Keys of a scope after a key, with the bytes of their values. Those that the index cannot list are passed over: a scrub tells of
/// them.
fn list(core: &Core, prefix: &Key, after: Option<&Key>) -> Result<Vec<(Key, u64)>, StoreError> {
    let all = &|range: &KeyRange| core.index.range(range);
    let mut range = KeyRange { limit: LISTED, ..KeyRange::prefix(prefix) };
    if let Some(after) = after {
        range.start = Bound::Excluded(after.clone());
    }
    let mut entries = first_readable(all, range.clone())?;
    if entries.is_none()
        && let Some(key) = behind_hole(all, &range)?
    {
        entries = first_readable(all, KeyRange { start: Bound::Included(key), ..range })?;
    }
    Ok(entries.unwrap_or_default().into_iter().map(|entry| (entry.key, entry.bytes)).collect())
}

/// The next packs after a number. Those behind a damaged page of the index are left alone.
fn list_packs(core: &Core, after: Option<u64>) -> Result<Vec<(u64, u64)>, StoreError> {
    let mut limit = LISTED;
    loop {
        match core.index.packs(after, limit) {
            Err(StoreError::Corrupt { .. }) if limit > 1 => limit /= 2,
            Err(StoreError::Corrupt { .. }) => return Ok(Vec::new()),
            listed => return listed,
        }
    }
}

/// Where a value's bytes come from.
fn source_key(source: &Source) -> Key {
    match source {
        Source::Plain { key, .. } => key.clone(),
        Source::Pack(pack) => crate::recipe::pack_key(*pack),
    }
}

#[cfg(test)]
mod tests;
