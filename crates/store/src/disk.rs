//! [`DiskStore`]: a store on a medium.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use pithead_model::DriveId;

use crate::background::Background;
use crate::cache::{CacheUse, ValueCache};
use crate::commit::Queue;
use crate::compact::Compacted;
use crate::core::{Core, Sharing, Work};
use crate::format::{
    FORMAT, MARKER, MarkerState, WITH_RECIPES, find_marker, format_needed, format_of_index, io_error, random_drive_id,
    read_marker, write_marker,
};
use crate::index::{COMMIT, DRIVE, INDEX, Index, LAST_FILE, LAST_NUMBER, corrupt_index, damaged};
use crate::journal::Journal;
use crate::medium::Medium;
use crate::recipe::is_own;
use crate::recover::recover;
use crate::segments::{FOLDER, Segments};
use crate::upgrade;
use crate::{
    Checking, Dedup, Durability, Entry, FolderMedium, Key, KeyRange, Staged, Store, StoreError, StoreOptions, StoreUse, Value,
    Write,
};

/// The least room that puts leave free, whatever the medium's size.
const RESERVE_BYTES_MIN: u64 = 4 << 20;
/// If the journal must be made anew, an open waits for that if the index has at most this many bytes. With a larger
/// index, the store's thread does it.
const JOURNALED_AT_ONCE_BYTES: u64 = 64 << 20;

/// A store on a medium: in a folder of a file system.
///
/// ```text
/// FORMAT            the format's version and the drive's identity, written last when a store is made
/// LOCK              locked by the process that has the store open
/// index.redb        keys, small values, where large values lie, the drive's identity
/// journal/          all changes of the index once more, to make it anew from
/// segments/*.seg    large values
/// ```
///
/// Large values are flushed before the commit that names them. A durable commit is in the journal's log first, and in
/// the index about a second later; an open after an unclean end brings the index up to the log. A value that no key names does not exist: a
/// segment file with no other values is deleted when the store is opened.
#[derive(Debug)]
pub struct DiskStore {
    drive_id: DriveId,
    core: Arc<Core>,
    background: Option<Background>,
}

impl DiskStore {
    /// Opens the store in `dir`, and makes both if they do not exist. A store that is open already is
    /// [`StoreError::InUse`], and one of a newer format is [`StoreError::Format`]; an older one is upgraded.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        Self::open_on(FolderMedium::open(dir)?, options)
    }

    /// Opens the store on a medium that this process alone uses.
    pub fn open_on(medium: Arc<dyn Medium>, options: StoreOptions) -> Result<Self, StoreError> {
        let opened = open_parts(&medium, &options);
        let (drive_id, core) = opened.map_err(|error| damaged(medium.path(), error))?;
        let core = Arc::new(core);
        if !core.medium.is_read_only() && (!options.background || core.index.bytes()? <= JOURNALED_AT_ONCE_BYTES) {
            core.keep_journal();
        }
        let mut store = Self { drive_id, core, background: None };
        if options.background && !store.core.medium.is_read_only() {
            let started = Background::start(store.core.clone(), options.compacts);
            store.background = Some(started.map_err(|error| io_error(store.core.medium.path(), 0, error))?);
        }
        Ok(store)
    }

    /// Opens the store in `dir` for reading only. Nothing in the folder is changed, so it may be on a medium that
    /// refuses writes. A write is an error. A store of an older format is read if that needs no upgrade; otherwise it
    /// is [`StoreError::Index`].
    pub fn open_read_only(dir: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        Self::open_on(FolderMedium::open_read_only(dir)?, options)
    }

    /// The drive's identity, chosen when the store was made.
    pub fn drive_id(&self) -> DriveId {
        self.drive_id
    }

    /// Gives back all dead room that is worth it, before it returns. The open segment takes no more values then.
    pub fn compact_now(&self) -> Result<Compacted, StoreError> {
        self.core.segments.seal(None);
        self.core.make_durable()?;
        let done = self.core.compact(&|| true)?;
        self.core.make_durable()?;
        self.core.keep_journal();
        Ok(done)
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// How full the cache of large values is, and its hits and misses.
    pub fn cache_usage(&self) -> CacheUse {
        self.core.cache.usage()
    }
}

impl Store for DiskStore {
    fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        self.core.get(key)
    }

    fn get_resident(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        self.core.get_resident(key)
    }

    fn check(&self, key: &[u8]) -> Result<(), StoreError> {
        self.core.get_stored(key).map(drop)
    }

    fn get_stored(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        self.core.get_stored(key)
    }

    fn stamp(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        self.core.stamp(key)
    }

    fn check_part(&self, key: &[u8], checking: &mut Checking, bytes_max: u64) -> Result<(u64, bool), StoreError> {
        self.core.check_part(key, checking, bytes_max)
    }

    fn compact_step(&self, bytes_max: u64) -> Result<Option<u64>, StoreError> {
        self.core.compact_step(bytes_max)
    }

    fn dedup_step(&self, dedup: &mut Dedup, bytes_max: u64) -> Result<Option<u64>, StoreError> {
        dedup.step(&self.core, bytes_max)
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        if is_own(key) { Ok(None) } else { self.core.index.entry(key) }
    }

    fn range(&self, range: &KeyRange) -> Result<Vec<Entry>, StoreError> {
        self.core.index.range(range)
    }

    fn write(&self, batch: Vec<Write>, durability: Durability) -> Result<(), StoreError> {
        self.core.write(batch, durability)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.core.flush()
    }

    fn stage(&self, value: Value) -> Result<Staged, StoreError> {
        self.core.stage(&value)
    }

    fn adopt(&self, staged: Vec<(Key, Staged)>, batch: Vec<Write>) -> Result<(), StoreError> {
        self.core.adopt(staged, batch)
    }

    fn unstage(&self, staged: Staged) {
        self.core.unstage(&staged);
    }

    fn usage(&self) -> Result<StoreUse, StoreError> {
        self.core.usage()
    }

    fn compact(&self) -> Result<Compacted, StoreError> {
        self.compact_now()
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.background = None;
        self.core.segments.seal(None);
        if let Some(why) = self.core.index.take_lost() {
            tracing::error!(why, "writes that were written back are lost, and no flush has said so");
        }
        if let Err(error) = self.core.make_durable().and_then(|()| self.core.index.end_log()) {
            tracing::error!(%error, "the store could not be flushed when it was closed");
            // Data that could not be flushed must not come back by redb's own last commit.
            self.core.index.give_up_unflushed("the store was closed");
        }
        if let Some(journal) = self.core.index.journal() {
            journal.close(self.core.index.durable_commit());
        }
    }
}

fn open_parts(medium: &Arc<dyn Medium>, options: &StoreOptions) -> Result<(DriveId, Core), StoreError> {
    let index = open_index(medium, options.index_cache_bytes)?;
    recover(&**medium, &index)?;
    let drive_id = identity(&**medium, &index)?;
    if !medium.is_read_only() {
        let marker = read_marker(&**medium)?;
        let format = format_needed(&index)?;
        if marker.is_none_or(|marker| marker.format < format) {
            write_marker(&**medium, format, drive_id)?;
        }
        let journal = Journal::open(medium.clone(), drive_id, index.fact(COMMIT)?.unwrap_or(0))?;
        index.set_journal(Arc::new(journal))?;
    }
    Ok((drive_id, open_core(medium.clone(), index, options, drive_id)?))
}

/// The index of a store of this release's format. A store of an older format is upgraded; where there is no store, a
/// new index is made.
fn open_index(medium: &Arc<dyn Medium>, cache_bytes: usize) -> Result<Index, StoreError> {
    match find_marker(&**medium)? {
        MarkerState::Nothing => return make_index(medium, cache_bytes),
        // The index has everything that the marker had.
        MarkerState::Missing => upgrade::finish(medium, format_of_index(&**medium)?)?,
        MarkerState::Damaged(what) => return Err(StoreError::Damaged { path: medium.path().to_path_buf(), what }),
        MarkerState::Whole(marker) => upgrade::finish(medium, marker.format)?,
    }
    Index::open(medium.clone(), INDEX, false, cache_bytes).map_err(|error| match error {
        StoreError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => corrupt_index(&**medium, "it is missing"),
        other => other,
    })
}

/// The index of a store that is being made, perhaps by an open that was cut short before. An index that cannot be
/// opened is put aside.
fn make_index(medium: &Arc<dyn Medium>, cache_bytes: usize) -> Result<Index, StoreError> {
    let failed = |error| io_error(medium.path(), 0, error);
    if medium.is_read_only() {
        return Err(StoreError::Io { path: medium.path().join(MARKER), source: io::ErrorKind::NotFound.into() });
    }
    if format_of_index(&**medium)? == 1 {
        return Err(corrupt_index(&**medium, "it is of format 1, and the FORMAT file is missing"));
    }
    let opened = Index::open(medium.clone(), INDEX, true, cache_bytes);
    let orphans = medium.list(FOLDER).map_err(failed)?;
    match opened {
        Err(StoreError::Corrupt { .. } | StoreError::Index { .. } | StoreError::Io { .. }) if orphans.is_empty() => {
            upgrade::put_aside(&**medium).map_err(failed)?;
            Index::open(medium.clone(), INDEX, true, cache_bytes)
        }
        opened => opened,
    }
}

fn open_core(medium: Arc<dyn Medium>, index: Index, options: &StoreOptions, drive: DriveId) -> Result<Core, StoreError> {
    let rows = index.segments()?;
    let segments = Segments::open(medium.clone(), options, &rows, index.fact(LAST_FILE)?.unwrap_or(0))?;
    // What is free may be little because the store is full: then, above all, puts must leave the reserve alone.
    let size = medium.size_bytes().map_err(|error| io_error(medium.path(), 0, error))?;
    let format = read_marker(&*medium)?.map_or(FORMAT, |marker| marker.format);
    let last_number = AtomicU64::new(index.fact(LAST_NUMBER)?.unwrap_or(0));
    Ok(Core {
        sharing: Sharing { last_number, allowed: Mutex::new(format >= WITH_RECIPES), drive },
        reserve_bytes: options.reserve_bytes.min((size / 50).max(RESERVE_BYTES_MIN)),
        segment_bytes: options.segment_bytes,
        index,
        segments: Arc::new(segments),
        cache: ValueCache::new(options.cache_bytes),
        queue: Queue::default(),
        work: Work::default(),
        medium,
    })
}

/// The drive's identity: read from an existing store, or else chosen now. A folder that has segments but no index is
/// not made anew, since that would delete the segments.
fn identity(medium: &dyn Medium, index: &Index) -> Result<DriveId, StoreError> {
    let marker = read_marker(medium)?;
    match (index.drive_id(), marker.and_then(|marker| marker.drive)) {
        (Ok(Some(id)), _) => return Ok(id),
        (Err(StoreError::Corrupt { .. }), Some(id)) => return Ok(id),
        (Err(error), _) => return Err(error),
        (Ok(None), _) => {}
    }
    let orphans = medium.list(FOLDER).map_err(|error| io_error(medium.path(), 0, error))?;
    let journal = !crate::journal::names(medium).map_err(|error| io_error(medium.path(), 0, error))?.is_empty();
    if marker.is_some() || journal || !orphans.is_empty() {
        return Err(corrupt_index(medium, "it names no drive"));
    }
    let id = random_drive_id()?;
    index.set_fact(DRIVE, id.0)?;
    Ok(id)
}

#[cfg(test)]
mod tests;
