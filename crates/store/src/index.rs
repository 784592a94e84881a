//! The index: keys, small values and the places of large values, in one redb file. A commit is durable by the journal's
//! log or by the index (`commit`).
//!
//! ```text
//! entries    key → record (see `record`)
//! places     (file, offset) → bytes and key of the large value that lies there
//! segments   file → bytes written, live, punched
//! uses       (pack, key) → nothing: the key's recipe names the pack
//! facts      drive, keys' bytes, the last commit's number, the last segment file's number, …
//! ```
//!
//! Once its file has failed, redb refuses all calls until the file is opened again. Here the next call does that, and
//! repeats what was committed without a flush since the last durable commit, so that a medium that was full for a
//! moment costs nothing.

mod apply;
mod audit;
mod commit;
mod dedup_parts;
mod failure;
mod file;
mod index_file;
mod kept_entries;
mod ledger;
mod read;
mod write_behind;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use pithead_model::DriveId;
use redb::{Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};

use self::index_file::{OpenIndex, open_file, repeat, rewrite, set_durability};
use crate::format::io_error;
use crate::journal::Journal;
use crate::medium::Medium;
use crate::record::ValueLocation;
use crate::{StoreError, Value};

pub(crate) use self::apply::{Action, Batch, Change, Committed, Named, NewValue, Spliced, Was};
pub(crate) use self::commit::Depth;
use self::commit::{Made, Unflushed};
pub(crate) use self::dedup_parts::{PartAt, Parts, Raw, ValuePart};
pub(crate) use self::failure::{Failure, caught, corrupt, damaged};
pub(crate) use self::file::PlainFile;
pub(crate) use self::ledger::Totals;
use self::read::decode;
use self::write_behind::WriteBehind;

/// Name of the file.
pub(crate) const INDEX: &str = "index.redb";

pub(crate) const ENTRIES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");
pub(crate) const PLACES: TableDefinition<(u64, u64), (u64, &[u8])> = TableDefinition::new("places");
pub(crate) const SEGMENTS: TableDefinition<u64, (u64, u64, u64)> = TableDefinition::new("segments");
pub(crate) const USES: TableDefinition<(u64, &[u8]), ()> = TableDefinition::new("uses");
pub(crate) const FACTS: TableDefinition<&str, u64> = TableDefinition::new("facts");
pub(crate) const DRIVE: &str = "drive";
pub(crate) const VALUE_BYTES: &str = "value_bytes";
pub(crate) const COMMIT: &str = "commit";
pub(crate) const LAST_FILE: &str = "last_file";
/// How many packs there are, and their bytes.
pub(crate) const PACKS: &str = "packs";
pub(crate) const PACK_BYTES: &str = "pack_bytes";
/// Bytes of the values that have a recipe.
pub(crate) const RECIPE_BYTES: &str = "recipe_bytes";
/// The last number that a pack or a recipe has got.
pub(crate) const LAST_NUMBER: &str = "last_number";
/// The log that may have commits which the index lacks, and from where on in both accounts; 0 if none has.
pub(crate) const LOG: &str = "log";
const LOG_AT: &str = "log_at";
const LOG_KEYS_AT: &str = "log_keys_at";

/// The account of a segment file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentRow {
    /// The end of the last value that a commit named.
    pub written: u64,
    /// The values that keys name, each with the bytes up to the next multiple of the alignment.
    pub live: u64,
    /// The bytes that were given back to the medium.
    pub punched: u64,
}

/// A value, or the place to read it from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredValue {
    Inline(Value),
    Segment { place: ValueLocation, checksum: u64 },
    Parts(Parts),
}

/// The index of one store.
#[derive(Debug)]
pub(crate) struct Index {
    medium: Arc<dyn Medium>,
    name: &'static str,
    cache_bytes: usize,
    /// None after the medium failed.
    open: RwLock<Option<OpenIndex>>,
    unflushed: Mutex<Unflushed>,
    /// The file was opened again since [`Index::take_reopened`], and may show other commits.
    reopened: AtomicBool,
    /// The file failed: what the kernel shows of it may not be on the medium.
    suspect: AtomicBool,
    /// Receives all changes before they are committed. An index that is only read, or that is being built, has none.
    journal: OnceLock<Arc<Journal>>,
    /// The last commit that is known to be durable in the index.
    durable: AtomicU64,
    /// The log that the index names durably, so that a commit may be durable by it alone; 0 if there is none.
    logging: AtomicU64,
}

/// The contents of the index at one moment.
pub(crate) struct Snapshot {
    pub read: ReadTransaction,
    /// The last commit in it.
    pub commit: u64,
    /// The log that it names.
    log: u64,
    /// The file that it was written to.
    behind: Arc<WriteBehind>,
}

impl Index {
    /// Opens the file, or makes it if `create` is set.
    pub fn open(medium: Arc<dyn Medium>, name: &'static str, create: bool, cache_bytes: usize) -> Result<Self, StoreError> {
        let opened = open_file(&*medium, name, create, cache_bytes)?;
        let (open, unflushed, suspect) = (RwLock::new(Some(opened)), Mutex::default(), AtomicBool::new(false));
        let (journal, durable, logging) = (OnceLock::new(), AtomicU64::new(0), AtomicU64::new(0));
        let reopened = AtomicBool::new(false);
        let index = Self { medium, name, cache_bytes, open, unflushed, reopened, suspect, journal, durable, logging };
        if create {
            index.change(|transaction| {
                transaction.open_table(ENTRIES)?;
                transaction.open_table(PLACES)?;
                transaction.open_table(SEGMENTS)?;
                transaction.open_table(USES)?;
                transaction.open_table(FACTS)?;
                Ok(())
            })?;
        }
        Ok(index)
    }

    pub fn fact(&self, name: &str) -> Result<Option<u64>, StoreError> {
        self.run(|database| Ok(database.begin_read()?.open_table(FACTS)?.get(name)?.map(|fact| fact.value())))
    }

    pub fn set_fact(&self, name: &str, value: u64) -> Result<(), StoreError> {
        self.change(|transaction| {
            transaction.open_table(FACTS)?.insert(name, value)?;
            Ok(())
        })
    }

    /// The drive's identity; none in a new index.
    pub fn drive_id(&self) -> Result<Option<DriveId>, StoreError> {
        Ok(self.fact(DRIVE)?.map(DriveId))
    }

    /// Makes a durable commit of one change to the tables.
    pub fn change<T>(&self, work: impl FnOnce(&WriteTransaction) -> Result<T, Failure>) -> Result<T, StoreError> {
        self.run_write(|opened| {
            let mut transaction = opened.database.begin_write()?;
            set_durability(&mut transaction, true)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })
    }

    /// Records that this many bytes of a segment file were given back. The record is not durable by itself, since it
    /// only saves work.
    pub fn set_punched(&self, file: u64, punched: u64) -> Result<(), StoreError> {
        self.run_write(|opened| {
            let mut transaction = opened.database.begin_write()?;
            set_durability(&mut transaction, false)?;
            {
                let mut segments = transaction.open_table(SEGMENTS)?;
                let row = segments.get(file)?.map(|row| row.value());
                if let Some((written, live, _)) = row {
                    segments.insert(file, (written, live, punched))?;
                }
            }
            Ok(transaction.commit()?)
        })
    }

    /// Makes a durable commit of nothing. What the index shows now is on the medium afterwards.
    pub fn settle(&self) -> Result<(), StoreError> {
        self.change(|_| Ok(()))
    }

    /// From now on each change goes to the journal, too. Everything that the index shows must be durable.
    pub fn set_journal(&self, journal: Arc<Journal>) -> Result<(), StoreError> {
        self.durable.store(self.fact(COMMIT)?.unwrap_or(0), Ordering::Release);
        // There is only one, which is set when the store is opened.
        let _ = self.journal.set(journal);
        Ok(())
    }

    /// The journal, if it has one.
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.get()
    }

    /// The last commit that is known to be durable in the index.
    pub fn durable_commit(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// The contents of the index, which [`Index::secure`] makes durable. The large values that it names must be durable
    /// already. No commit happens while `between` runs: the commits before it are in the snapshot, and those after it are
    /// not.
    pub fn snapshot(&self, between: impl FnOnce()) -> Result<Snapshot, StoreError> {
        self.run_write(|opened| {
            let mut transaction = opened.database.begin_write()?;
            set_durability(&mut transaction, true)?;
            let read = opened.database.begin_read()?;
            between();
            let commit = read.open_table(FACTS)?.get(COMMIT)?.map_or(0, |commit| commit.value());
            let log = self.name_log(&transaction)?;
            opened.behind.hold(|| transaction.commit())?;
            Ok(Snapshot { read, commit, log, behind: opened.behind.clone() })
        })
    }

    /// Makes a snapshot durable, while commits go on.
    pub fn secure(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        self.run_open(|opened| {
            // What was lined up is given up when the file is opened again.
            if !Arc::ptr_eq(&opened.behind, &snapshot.behind) {
                let what = "the index failed before all of it was durable".to_string();
                return Err(Failure::Store(StoreError::Index { path: self.medium.path().to_path_buf(), what }));
            }
            opened.behind.catch_up().map_err(|error| Failure::Redb(redb::Error::Io(error)))
        })?;
        let mut unflushed = self.unflushed.lock();
        // A later commit may have become durable before, and have named another log.
        if self.durable.fetch_max(snapshot.commit, Ordering::AcqRel) <= snapshot.commit {
            self.logging.store(snapshot.log, Ordering::Release);
        }
        unflushed.are_durable(snapshot.commit);
        Ok(())
    }

    /// The contents of the index, made durable as in [`Index::snapshot`].
    pub fn durable_snapshot(&self, between: impl FnOnce()) -> Result<Snapshot, StoreError> {
        let snapshot = self.snapshot(between)?;
        self.secure(&snapshot)?;
        Ok(snapshot)
    }

    /// Whether the file was opened again since the last call, so that it may show other commits.
    pub fn take_reopened(&self) -> bool {
        self.reopened.swap(false, Ordering::AcqRel)
    }

    pub fn note_reopened(&self) {
        self.reopened.store(true, Ordering::Release);
    }

    /// Runs a read transaction.
    fn run<T>(&self, work: impl FnOnce(&Database) -> Result<T, Failure>) -> Result<T, StoreError> {
        self.run_open(|opened| work(&opened.database))
    }

    /// Runs something that reads the open index.
    fn run_open<T>(&self, work: impl FnOnce(&OpenIndex) -> Result<T, Failure>) -> Result<T, StoreError> {
        let done = {
            let opened = self.opened()?;
            caught(|| work(&opened))
        };
        done.map_err(|failure| self.failed(failure))
    }

    /// Runs a write transaction. A transaction that ends in a panic may have left redb's memory half changed, so its
    /// file is opened again.
    fn run_write<T>(&self, work: impl FnOnce(&OpenIndex) -> Result<T, Failure>) -> Result<T, StoreError> {
        let done = {
            let opened = self.opened()?;
            let done = caught(|| work(&opened));
            opened.entries.forget();
            done
        };
        if matches!(done, Err(Failure::Panicked)) {
            self.close();
        }
        done.map_err(|failure| self.failed(failure))
    }

    fn close(&self) {
        if let Some(opened) = self.open.write().take() {
            opened.shut();
        }
    }

    fn failed(&self, failure: Failure) -> StoreError {
        use redb::Error::{Io, LockPoisoned, PreviousIo};
        if matches!(failure, Failure::Redb(Io(_) | PreviousIo | LockPoisoned(_))) {
            self.suspect.store(true, Ordering::Release);
            self.close();
        }
        failure.on(self.medium.path())
    }

    /// Behaves as if the medium had failed under it.
    #[cfg(test)]
    pub fn fail_for_test(&self) {
        self.failed(Failure::Redb(redb::Error::PreviousIo));
    }

    fn opened(&self) -> Result<MappedRwLockReadGuard<'_, OpenIndex>, StoreError> {
        loop {
            let open = self.open.read();
            if let Ok(opened) = RwLockReadGuard::try_map(open, Option::as_ref) {
                return Ok(opened);
            }
            let mut closed = self.open.write();
            if closed.is_none() {
                *closed = Some(self.reopen()?);
            }
            if let Ok(opened) = RwLockReadGuard::try_map(RwLockWriteGuard::downgrade(closed), Option::as_ref) {
                return Ok(opened);
            }
        }
    }

    fn reopen(&self) -> Result<OpenIndex, StoreError> {
        if self.suspect.load(Ordering::Acquire) {
            let file = self.medium.open(self.name, false);
            let rewritten = file.and_then(|file| rewrite(&*file));
            rewritten.map_err(|error| io_error(&self.medium.path().join(self.name), 0, error))?;
            self.suspect.store(false, Ordering::Release);
        }
        let mut unflushed = self.unflushed.lock();
        loop {
            let opened = open_file(&*self.medium, self.name, false, self.cache_bytes)?;
            let Err(failure) = caught(|| repeat(&opened.database, &unflushed.commits)) else {
                self.note_reopened();
                return Ok(opened);
            };
            opened.shut();
            let error = failure.on(self.medium.path());
            // What is durable by the log was acknowledged: the index is shown with it, or not at all.
            if !unflushed.give_up(&error.to_string()) {
                return Err(error);
            }
            tracing::error!(%error, "writes that were written back are lost");
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if let Some(opened) = self.open.get_mut().take() {
            opened.close();
        }
    }
}

pub(crate) fn corrupt_index(medium: &dyn Medium, what: &str) -> StoreError {
    let key = format!("the index of {}", medium.path().display());
    StoreError::Corrupt { key, what: what.to_string() }
}
