//! The index: keys, small values, and where large ones lie, in one redb file. Its commit is the store's only commit
//! point.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use pithead_model::DriveId;
use redb::{
    Builder, Database, Durability, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _, Table,
    TableDefinition,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::format::io_error;
use crate::record::{Body, Place, Record};
use crate::{Entry, Expected, Staged, StoreError, Value, Version};

/// Key to record. Keys are bytes, since redb would panic over text that is not UTF-8.
const ENTRIES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");
/// Each segment file that a record names, and its bytes.
const FILES: TableDefinition<u64, u64> = TableDefinition::new("files");
/// Numbers about the whole store.
const FACTS: TableDefinition<&str, u64> = TableDefinition::new("facts");
const DRIVE: &str = "drive";
const LAST_VERSION: &str = "last_version";
const VALUE_BYTES: &str = "value_bytes";

type Entries<'t> = Table<'t, &'static [u8], &'static [u8]>;
type Files<'t> = Table<'t, u64, u64>;
type Facts<'t> = Table<'t, &'static str, u64>;

/// Memory for pages of the index, both ways.
const CACHE_BYTES: usize = 64 << 20;

/// One write, its large value staged.
#[derive(Debug)]
pub(crate) struct Change {
    pub key: String,
    pub expected: Expected,
    /// None deletes.
    pub new: Option<NewValue>,
}

#[derive(Debug)]
pub(crate) enum NewValue {
    Inline(Value),
    Segment(Staged),
}

/// A value, or where to read it.
#[derive(Debug)]
pub(crate) enum Found {
    Inline(Value),
    Segment { place: Place, checksum: u64 },
}

/// The index of one store.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    /// None after the medium failed: redb then refuses all calls until its file is opened again, which the next call
    /// tries.
    database: RwLock<Option<Database>>,
}

impl Index {
    /// Opens the file at `path`, or makes it where `create` says so.
    pub fn open(path: PathBuf, create: bool) -> Result<Self, StoreError> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let opened = if create { builder.create(&path) } else { builder.open(&path) };
        let database = opened.map_err(|error| store_error(&path, error.into()))?;
        let index = Self { path, database: RwLock::new(Some(database)) };
        index.change(|_, _, _| Ok(()))?;
        Ok(index)
    }

    /// The identity of the drive, none in an index that is new.
    pub fn drive_id(&self) -> Result<Option<DriveId>, StoreError> {
        self.run(|database| {
            let facts = database.begin_read()?.open_table(FACTS)?;
            Ok(facts.get(DRIVE)?.map(|id| DriveId(id.value())))
        })
    }

    pub fn set_drive_id(&self, id: DriveId) -> Result<(), StoreError> {
        self.change(|_, _, facts| {
            facts.insert(DRIVE, id.0)?;
            Ok(())
        })
    }

    /// All segment files that keys name.
    pub fn files(&self) -> Result<HashSet<u64>, StoreError> {
        self.run(|database| {
            let files = database.begin_read()?.open_table(FILES)?;
            files.iter()?.map(|row| Ok(row?.0.value())).collect()
        })
    }

    /// Whether a key names the segment file.
    pub fn names(&self, file: u64) -> Result<bool, StoreError> {
        self.run(|database| Ok(database.begin_read()?.open_table(FILES)?.get(file)?.is_some()))
    }

    pub fn get(&self, key: &str) -> Result<Option<(Found, Version)>, StoreError> {
        self.run(|database| {
            let entries = database.begin_read()?.open_table(ENTRIES)?;
            let Some(row) = entries.get(key.as_bytes())? else { return Ok(None) };
            let record = decode(key, row.value())?;
            let found = match record.body {
                Body::Segment(place) => Found::Segment { place, checksum: record.checksum },
                Body::Inline(value) if xxh3_64(value) == record.checksum => Found::Inline(Value::copy_from_slice(value)),
                Body::Inline(_) => return Err(corrupt(key, "its checksum does not hold".to_string()).into()),
            };
            Ok(Some((found, record.version)))
        })
    }

    pub fn entry(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.run(|database| {
            let entries = database.begin_read()?.open_table(ENTRIES)?;
            let row = entries.get(key.as_bytes())?;
            row.map(|row| read_entry(key.as_bytes(), row.value())).transpose()
        })
    }

    pub fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        self.run(|database| {
            let entries = database.begin_read()?.open_table(ENTRIES)?;
            let mut listed = Vec::new();
            for row in entries.range(prefix.as_bytes()..)? {
                let (key, record) = row?;
                if !key.value().starts_with(prefix.as_bytes()) {
                    break;
                }
                listed.push(read_entry(key.value(), record.value())?);
            }
            Ok(listed)
        })
    }

    /// Keys, and bytes of their values.
    pub fn totals(&self) -> Result<(u64, u64), StoreError> {
        self.run(|database| {
            let read = database.begin_read()?;
            let value_bytes = read.open_table(FACTS)?.get(VALUE_BYTES)?.map_or(0, |bytes| bytes.value());
            Ok((read.open_table(ENTRIES)?.len()?, value_bytes))
        })
    }

    /// All changes or none, durable when it returns. Gives the segment files that no key names any more.
    pub fn commit(&self, changes: &[Change]) -> Result<Vec<u64>, StoreError> {
        self.change(|entries, files, facts| {
            let last_version = facts.get(LAST_VERSION)?.map_or(0, |version| version.value());
            let value_bytes = facts.get(VALUE_BYTES)?.map_or(0, |bytes| bytes.value());
            let mut ledger = Ledger { last_version, value_bytes, freed: Vec::new() };
            changes.iter().try_for_each(|change| ledger.apply(change, entries, files))?;
            facts.insert(LAST_VERSION, ledger.last_version)?;
            facts.insert(VALUE_BYTES, ledger.value_bytes)?;
            Ok(ledger.freed)
        })
    }

    fn change<T>(
        &self,
        work: impl FnOnce(&mut Entries, &mut Files, &mut Facts) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        self.run(|database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            let done = work(
                &mut transaction.open_table(ENTRIES)?,
                &mut transaction.open_table(FILES)?,
                &mut transaction.open_table(FACTS)?,
            )?;
            transaction.commit()?;
            Ok(done)
        })
    }

    fn run<T>(&self, work: impl FnOnce(&Database) -> Result<T, Failure>) -> Result<T, StoreError> {
        let done = work(&*self.database()?);
        done.map_err(|failure| match failure {
            Failure::Store(error) => error,
            Failure::Redb(error) => {
                if matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo) {
                    *self.database.write() = None;
                }
                store_error(&self.path, error)
            }
        })
    }

    fn database(&self) -> Result<MappedRwLockReadGuard<'_, Database>, StoreError> {
        let open = self.database.read();
        let open = if open.is_some() {
            open
        } else {
            drop(open);
            let mut closed = self.database.write();
            if closed.is_none() {
                let opened = Builder::new().set_cache_size(CACHE_BYTES).open(&self.path);
                *closed = Some(opened.map_err(|error| store_error(&self.path, error.into()))?);
            }
            RwLockWriteGuard::downgrade(closed)
        };
        Ok(RwLockReadGuard::map(open, |database| database.as_ref().expect("opened above, under the same lock")))
    }
}

/// Running totals of a commit.
struct Ledger {
    last_version: Version,
    value_bytes: u64,
    freed: Vec<u64>,
}

impl Ledger {
    fn apply(&mut self, change: &Change, entries: &mut Entries, files: &mut Files) -> Result<(), Failure> {
        let key = change.key.as_bytes();
        if let Some(old) = entries.get(key)? {
            let old = decode_for_change(change, old.value())?;
            self.value_bytes = self.value_bytes.saturating_sub(old.value_bytes());
            if let Some(file) = old.file() {
                files.remove(file)?;
                self.freed.push(file);
            }
        } else if matches!(change.expected, Expected::Version(_)) {
            return Err(conflict(change));
        }
        let Some(new) = &change.new else {
            entries.remove(key)?;
            return Ok(());
        };
        self.last_version += 1;
        let record = new_record(new, self.last_version);
        self.value_bytes += record.value_bytes();
        if let Some(file) = record.file() {
            files.insert(file, record.value_bytes())?;
        }
        entries.insert(key, record.encode().as_slice())?;
        Ok(())
    }
}

fn new_record(new: &NewValue, version: Version) -> Record<'_> {
    match new {
        NewValue::Inline(value) => Record { version, checksum: xxh3_64(value), body: Body::Inline(value) },
        NewValue::Segment(Staged { file, bytes, checksum }) => {
            let place = Place { file: *file, offset: 0, bytes: *bytes };
            Record { version, checksum: *checksum, body: Body::Segment(place) }
        }
    }
}

/// The record that a change meets, where the change expects it.
fn decode_for_change<'a>(change: &Change, record: &'a [u8]) -> Result<Record<'a>, Failure> {
    let old = decode(&change.key, record)?;
    match change.expected {
        Expected::Any => Ok(old),
        Expected::Version(version) if version == old.version => Ok(old),
        Expected::Version(_) | Expected::Absent => Err(conflict(change)),
    }
}

fn read_entry(key: &[u8], record: &[u8]) -> Result<Entry, Failure> {
    let named = String::from_utf8_lossy(key);
    let record = decode(&named, record)?;
    let key = std::str::from_utf8(key).map_err(|_| corrupt(&named, "the key is not UTF-8".to_string()))?;
    Ok(Entry { key: key.to_string(), version: record.version, bytes: record.value_bytes() })
}

fn decode<'a>(key: &str, record: &'a [u8]) -> Result<Record<'a>, Failure> {
    Record::decode(record).map_err(|what| corrupt(key, what).into())
}

fn corrupt(key: &str, what: String) -> StoreError {
    StoreError::Corrupt { key: key.to_string(), what }
}

fn conflict(change: &Change) -> Failure {
    StoreError::Conflict { key: change.key.clone() }.into()
}

enum Failure {
    Store(StoreError),
    Redb(redb::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Redb(error.into())
    }
}

fn store_error(path: &Path, error: redb::Error) -> StoreError {
    let path_buf = path.to_path_buf();
    match error {
        redb::Error::Io(error) => io_error(path, 0, error),
        redb::Error::Corrupted(what) => corrupt(&format!("the index {}", path.display()), what),
        redb::Error::DatabaseAlreadyOpen => StoreError::InUse { path: path_buf },
        other => StoreError::Index { path: path_buf, what: other.to_string() },
    }
}
