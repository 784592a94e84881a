//! [`Core`]: what the callers of a store and its background work share.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pithead_model::DriveId;

use crate::bounds::{SEGMENT_BYTES_MIN, check_batch, check_copies_beside, check_key};
use crate::cache::ValueCache;
use crate::commit::{Queue, Request};
use crate::compact::Compaction;
use crate::format::io_error;
use crate::index::{Action, Batch, Change, Depth, Index, NewValue, Snapshot, Spliced, StoredValue, Totals, corrupt};
use crate::journal::Journal;
use crate::medium::Medium;
use crate::recipe::is_own;
use crate::record::ValueLocation;
use crate::segments::{Extent, Pinned, Segments};
use crate::{Durability, Entry, Expected, Key, Put, Splice, Staged, StoreError, StoreUse, Value, Version, Write};

/// How often a reader looks at a key whose value moves again and again.
const LOOKS_MAX: usize = 64;
/// In the place of a file: the cache has values with recipes under this and the number of the recipe.
const RECIPES: u64 = u64::MAX;
/// The number of bytes that are not durable in the index, from which on the background work makes them durable at once.
const FLUSH_BYTES: u64 = 32 << 20;
/// From so many bytes on, it does that once its last round began so long ago. Commits wait while redb prepares it, so a little now and
/// then keeps them waiting for less than much at one time.
const SOON_BYTES: u64 = 1 << 20;
const SOON_AFTER: Duration = Duration::from_millis(50);

/// A store without its threads.
#[derive(Debug)]
pub(crate) struct Core {
    pub medium: Arc<dyn Medium>,
    /// Bytes that puts leave free on the medium.
    pub reserve_bytes: u64,
    pub segment_bytes: u64,
    pub index: Index,
    pub segments: Arc<Segments>,
    pub cache: ValueCache,
    pub queue: Queue,
    pub work: Work,
    pub sharing: Sharing,
}

/// What deduplication has to know.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// The last number that a pack or a recipe has got.
    pub last_number: AtomicU64,
    /// Whether the store's format allows recipes.
    pub allowed: Mutex<bool>,
    pub drive: DriveId,
}

/// What the background work has to know.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub state: Mutex<WorkState>,
    pub changed: Condvar,
    /// Held for one step at a time.
    pub compaction: Mutex<Compaction>,
}

#[derive(Debug, Default)]
pub(crate) struct WorkState {
    pub stop: bool,
    /// There is much written-back data.
    pub flush: bool,
    /// When the last round of background work began.
    pub began: Option<Instant>,
    /// The medium cannot give back a part of a file.
    pub no_punch: bool,
    /// Segments with a damaged value, which therefore cannot be emptied.
    pub stuck: HashSet<u64>,
    /// Segments of which the index has another account than its rows, so that no job would come to an end.
    pub odd: HashSet<u64>,
}

impl Core {
    pub fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        self.look(key, &|found| match found {
            StoredValue::Inline(value) => Ok(value.clone()),
            StoredValue::Segment { place, checksum } => {
                self.cache.get((place.file, place.offset), || self.segments.read(key, *place, *checksum))
            }
            StoredValue::Parts(parts) => self.cache.get((RECIPES, parts.number), || self.segments.assemble(key, parts)),
        })
    }

    /// A value that is in memory.
    pub fn get_resident(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        if is_own(key) {
            return Ok(None);
        }
        let Some((found, entry)) = self.index.get(key)? else { return Ok(None) };
        let value = match found {
            StoredValue::Inline(value) => Some(value),
            StoredValue::Segment { place, .. } => self.cache.resident((place.file, place.offset)),
            StoredValue::Parts(parts) => self.cache.resident((RECIPES, parts.number)),
        };
        Ok(value.map(|value| (value, entry)))
    }

    /// A value as it is on the medium, whatever is kept in memory.
    pub fn get_stored(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        let read = |found: &StoredValue| match found {
            StoredValue::Inline(value) => Ok(value.clone()),
            StoredValue::Segment { place, checksum } => self.segments.read(key, *place, *checksum),
            StoredValue::Parts(parts) => self.segments.assemble(key, parts),
        };
        self.look(key, &read)
    }

    /// A value, which `read` reads.
    fn look(
        &self,
        key: &[u8],
        read: &dyn Fn(&StoredValue) -> Result<Value, StoreError>,
    ) -> Result<Option<(Value, Entry)>, StoreError> {
        if is_own(key) {
            return Ok(None);
        }
        let mut seen: Option<(StoredValue, StoreError)> = None;
        for _ in 0..LOOKS_MAX {
            let Some((found, entry)) = self.index.get(key)? else { return Ok(None) };
            // Compaction, or a writer that replaced the value, may have removed it meanwhile. The same place is not
            // read twice.
            match seen.take() {
                Some((before, error)) if before == found => return Err(error),
                _ => {}
            }
            match read(&found) {
                Ok(value) => return Ok(Some((value, entry))),
                Err(error) => seen = Some((found, error)),
            }
        }
        Err(self.index_error("a value was replaced again and again while it was read"))
    }

    pub fn write(&self, batch: Vec<Write>, durability: Durability) -> Result<(), StoreError> {
        check_batch(&batch)?;
        let depth = if durability == Durability::Back { Depth::Back } else { Depth::Logged };
        let kept = if durability == Durability::Reserved { 0 } else { self.reserve_bytes };
        self.commit(Vec::new(), Pinned::new(self.segments.clone()), batch, depth, kept)
    }

    pub fn adopt(&self, staged: Vec<(Key, Staged)>, batch: Vec<Write>) -> Result<(), StoreError> {
        let mut pinned = Pinned::new(self.segments.clone());
        let mut changes = Vec::with_capacity(staged.len() + batch.len());
        let mut claimed = check_copies_beside(&staged.iter().map(|(key, _)| key).collect::<Vec<_>>(), &batch);
        for (key, staged) in staged {
            claimed = claimed.and_then(|()| check_key(&key));
            match self.segments.claim(&staged) {
                Some(extent) => {
                    changes.push(forced(key, NewValue::Segment { place: extent.place, checksum: extent.checksum }));
                    pinned.add(extent);
                }
                None => claimed = claimed.and(Err(corrupt(&key, "its value is not staged in this store"))),
            }
        }
        claimed?;
        check_batch(&batch)?;
        self.commit(changes, pinned, batch, Depth::Logged, self.reserve_bytes)
    }

    pub fn stage(&self, value: &Value) -> Result<Staged, StoreError> {
        self.check_writable()?;
        Ok(self.segments.stage(self.place(b"a staged value", value, self.reserve_bytes)?))
    }

    pub fn unstage(&self, staged: &Staged) {
        if let Some(extent) = self.segments.claim(staged) {
            let mut pinned = Pinned::new(self.segments.clone());
            pinned.add(extent);
        }
    }

    /// Makes all written-back data durable, and all commits in the index. What could not be made durable before is told
    /// to who calls this, once.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.make_durable()?;
        match self.index.take_lost() {
            None => Ok(()),
            Some(why) => Err(self.index_error(&format!("writes that were written back are lost: {why}"))),
        }
    }

    /// The same for the store itself, which leaves what was lost to be told to a writer.
    pub fn make_durable(&self) -> Result<(), StoreError> {
        if self.index.unflushed_bytes().is_some() || self.segments.has_empty() {
            self.durable_snapshot(|| ())?;
        }
        self.segments.unlink_forgotten();
        Ok(())
    }

    /// What the index shows, made durable with all that was written back. Commits wait while it is taken and while `between`
    /// runs, but not for the medium.
    pub fn durable_snapshot(&self, between: impl FnOnce()) -> Result<Snapshot, StoreError> {
        self.check_writable()?;
        self.queue.flush_ahead(self);
        let taken = self.queue.alone_and_flushed(self, || {
            self.refresh()?;
            // What the snapshot does not name is never named again.
            Ok((self.index.snapshot(between)?, self.segments.take_empty()))
        });
        let secured = taken.and_then(|(snapshot, empty)| match self.index.secure(&snapshot) {
            Ok(()) => Ok((snapshot, empty)),
            Err(error) => {
                empty.into_iter().for_each(|file| self.segments.put_back_empty(file));
                Err(error)
            }
        });
        let (snapshot, empty) = secured.inspect_err(|_| self.queue.alone(|| self.reload_or_later()))?;
        if !empty.is_empty() {
            self.queue.alone(|| self.forget_empty(empty));
        }
        Ok(snapshot)
    }

    /// Takes care of the journal: flushes it, and writes a new base when one is needed. Failures are only logged, since
    /// nothing is lost: the index has everything, or the old log is still there.
    pub fn keep_journal(&self) {
        let Some(journal) = self.index.journal() else { return };
        journal.mark(self.index.durable_commit());
        if journal.wants_base()
            && let Err(error) = self.make_durable().and_then(|()| self.write_base(journal))
        {
            tracing::warn!(%error, "the journal could not be made anew");
        }
    }

    /// Writes a new base of the journal. It makes everything durable that was written back. It may use one half of the
    /// reserve, since it mostly gives back more than that when it is done; the other half is left to deletes meanwhile.
    pub fn write_base(&self, journal: &Journal) -> Result<(), StoreError> {
        journal.tend(self.reserve_bytes / 2, |between| self.durable_snapshot(between))
    }

    pub fn usage(&self) -> Result<StoreUse, StoreError> {
        let (keys, totals) = self.index.totals()?;
        let Totals { value_bytes, recipe_bytes, pack_bytes, .. } = totals;
        let (dead_bytes, aside) = self.segments.spare();
        let free = self.medium.free_bytes().map_err(|error| io_error(self.medium.path(), 0, error))?;
        let free_bytes = free.saturating_sub(self.reserve_bytes).saturating_add(aside);
        let cache = self.cache.usage();
        Ok(StoreUse {
            keys,
            value_bytes,
            deduplicated_bytes: recipe_bytes,
            pack_bytes,
            dead_bytes,
            given_back_bytes: self.segments.given_back(),
            free_bytes,
            cache,
        })
    }

    /// Writes the large values of the batch, then commits all. `kept`: bytes that it leaves free on the medium.
    fn commit(
        &self,
        mut changes: Batch,
        mut pinned: Pinned,
        batch: Vec<Write>,
        depth: Depth,
        kept: u64,
    ) -> Result<(), StoreError> {
        self.check_writable()?;
        for write in batch {
            changes.push(match write {
                Write::Delete { key, expected } => Change { key, expected, action: Action::Delete },
                Write::Put(put) => self.put(put, &mut pinned, kept)?,
                Write::Copy { from, to, splice } => {
                    self.allow_recipes()?;
                    let splice = splice.map(|splice| self.splice(&to, splice, &mut pinned, kept)).transpose()?;
                    let [pack, own, copy] = [(); 3].map(|()| self.next_number());
                    let action = Action::Copy { from, pack, own, copy, splice };
                    Change { key: to, expected: Expected::Any, action }
                }
            });
        }
        let index_bytes = changes.iter().map(Change::index_bytes).sum();
        if index_bytes > 0 {
            self.check_room(index_bytes, kept)?;
        }
        if depth > Depth::Back {
            // The flush is here and not in the leader's commit, so that it goes on during an earlier commit.
            self.segments.flush(pinned.extents())?;
        }
        self.submit(changes, pinned, depth).map_err(|error| match error {
            StoreError::NoSpace { path, needed: 0 } => StoreError::NoSpace { path, needed: index_bytes },
            other => other,
        })
    }

    pub fn submit(&self, batch: Batch, pinned: Pinned, depth: Depth) -> Result<(), StoreError> {
        self.queue.commit(self, Request { batch, pinned, depth })
    }

    fn put(&self, put: Put, pinned: &mut Pinned, kept: u64) -> Result<Change, StoreError> {
        let Put { key, value, version, tag, expected } = put;
        let value = self.new_value(&key, value, pinned, kept)?;
        Ok(Change { key, expected, action: Action::Put { version, tag, value } })
    }

    /// Writes a value, where it is a large one.
    fn new_value(&self, key: &Key, value: Value, pinned: &mut Pinned, kept: u64) -> Result<NewValue, StoreError> {
        if value.len() < SEGMENT_BYTES_MIN {
            return Ok(NewValue::Inline(value));
        }
        let extent = self.place(key, &value, kept)?;
        let (place, checksum) = (extent.place, extent.checksum);
        pinned.add(extent);
        Ok(NewValue::Segment { place, checksum })
    }

    /// Writes what is new around a part of a value.
    fn splice(&self, to: &Key, splice: Splice, pinned: &mut Pinned, room: u64) -> Result<Box<Spliced>, StoreError> {
        let Splice { head, kept, tail, was, checksum } = splice;
        // A value has at most 64 MiB, which all of these are parts of.
        let short = |bytes: u64| u32::try_from(bytes).map_err(|_| corrupt(to, "a part of it begins behind any value"));
        let around = match [&head[..], &tail].concat() {
            around if around.is_empty() => None,
            around => Some((self.next_number(), self.new_value(to, around.into(), pinned, room)?)),
        };
        Ok(Box::new(Spliced {
            was,
            checksum,
            head: short(head.len() as u64)?,
            kept: short(kept.start)?..short(kept.end)?,
            tail: short(tail.len() as u64)?,
            around,
        }))
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        if self.medium.is_read_only() {
            let source = std::io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(StoreError::Io { path: self.medium.path().to_path_buf(), source });
        }
        Ok(())
    }

    /// Writes a large value. If there is no room, it gives back dead room first.
    fn place(&self, key: &[u8], value: &[u8], kept: u64) -> Result<Extent, StoreError> {
        let what = crate::api::show_key(key);
        match self.segments.write(&what, value, kept) {
            Err(StoreError::NoSpace { .. }) if self.reclaim(value.len() as u64) => self.segments.write(&what, value, kept),
            written => written,
        }
    }

    fn check_room(&self, needed: u64, kept: u64) -> Result<(), StoreError> {
        let has_room = || {
            let free = self.medium.free_bytes().map_err(|error| io_error(self.medium.path(), 0, error))?;
            Ok::<_, StoreError>(free >= needed.saturating_add(kept))
        };
        if has_room()? || (self.reclaim(needed) && has_room()?) {
            return Ok(());
        }
        Err(StoreError::NoSpace { path: self.medium.path().to_path_buf(), needed })
    }

    /// Called after the leader has made a commit, which is durable to a depth. Nothing else commits until this returns.
    pub fn committed(&self, dead: &[ValueLocation], unshared: &[u64], depth: Depth) {
        dead.iter().for_each(|place| self.cache.forget(place.file, place.offset));
        unshared.iter().for_each(|number| self.cache.forget(RECIPES, *number));
        if depth == Depth::Indexed {
            self.forget_empty(self.segments.take_empty());
        }
        // A segment without a value goes as soon as the index cannot name it any more after a crash.
        let has_room = depth == Depth::Logged && !dead.is_empty() && self.segments.has_empty();
        let unflushed = self.index.unflushed_bytes().unwrap_or(0);
        let mut state = self.work.state.lock();
        let is_soon = unflushed >= SOON_BYTES && state.began.is_none_or(|began| began.elapsed() >= SOON_AFTER);
        if has_room || is_soon || unflushed >= FLUSH_BYTES {
            state.flush = true;
            self.work.changed.notify_all();
        }
    }

    /// Forgets files that nothing names any more, unless something does. The store's thread unlinks them. Called while no
    /// commit is made.
    fn forget_empty(&self, files: Vec<u64>) {
        for file in files {
            match self.index.names(file) {
                Ok(false) => {
                    self.segments.forget(file);
                    self.cache.forget_file(file);
                }
                // The account in memory is behind: a commit may have been made in spite of an error.
                Ok(true) => self.reload_or_later(),
                Err(error) => {
                    tracing::warn!(%error, "whether a segment is named cannot be read");
                    self.segments.put_back_empty(file);
                }
            }
        }
    }

    /// Reads the account of segments again if the index was opened again since, and may show other commits. Called while
    /// no commit is made: the account of one that was made and not yet noted would count twice.
    pub fn refresh(&self) -> Result<(), StoreError> {
        if self.index.take_reopened() { self.reload() } else { Ok(()) }
    }

    /// Reads the account of segments. If that fails, [`Core::refresh`] tries it again.
    pub fn reload(&self) -> Result<(), StoreError> {
        let rows = self.index.segments().inspect_err(|_| self.index.note_reopened())?;
        self.segments.reload(&rows);
        Ok(())
    }

    /// As [`Core::reload`]. Until it succeeds the account is wrong, but nothing is unlinked or punched without a look at
    /// the index.
    pub fn reload_or_later(&self) {
        if let Err(error) = self.reload() {
            tracing::error!(%error, "the index cannot be read after it was opened again");
        }
    }

    pub fn index_error(&self, what: &str) -> StoreError {
        StoreError::Index { path: self.medium.path().to_path_buf(), what: what.to_string() }
    }
}

fn forced(key: Key, value: NewValue) -> Change {
    let (version, tag) = (Version::new(), crate::Tag::default());
    Change { key, expected: Expected::Any, action: Action::Put { version, tag, value } }
}
