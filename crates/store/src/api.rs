//! [`Store`]: what a drive needs from the medium under it.

use std::fmt::Debug;
use std::ops::{Bound, Range};
use std::path::PathBuf;

use bytes::Bytes;
use pithead_model::{Blame, Fault};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::recipe::pack_of;
use crate::{CacheUse, Checking, Compacted, Dedup};

/// A key: any bytes, at most [`crate::KEY_BYTES_MAX`]. The empty one is legal. Keys are ordered as bytes. Those that begin with eight
/// bytes 255 are the store's own: they are refused, and never shown.
pub type Key = Bytes;
/// A value, shared. A value that the store has in memory is returned without a copy.
pub type Value = Bytes;
/// A value's version: any bytes, at most [`crate::VERSION_BYTES_MAX`], chosen by the writer of the value.
pub type Version = Bytes;

/// What a client says of a value's integrity. The store keeps it and returns it unchanged, and never checks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// A number for the algorithm, as the Kinetic protocol numbers them (see Kinetic in `docs/bibliography.md`).
    pub algorithm: i32,
    /// At most [`crate::TAG_BYTES_MAX`] bytes.
    pub bytes: Bytes,
}

/// The description of a key, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The value's version.
    pub version: Version,
    /// The value's tag.
    pub tag: Tag,
    /// Bytes of the value.
    pub bytes: u64,
}

/// The condition that a write places on its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No condition: the write is forced.
    Any,
    /// The key does not exist.
    Absent,
    /// The key has a value of this version.
    Version(Version),
    /// The key does not exist, or has a value of the empty version. A Kinetic client that names no version means this.
    Unversioned,
}

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Puts a value.
    Put(Put),
    /// Gives a key the value of another one, with an empty version and tag, whatever it had. A store on a medium writes no byte of the
    /// value again: both keys share it from then on. [`StoreError::Conflict`] if there is no such value. No other write of the batch may
    /// be of one of the two keys, but for copies of the same value.
    Copy {
        /// The key that has the value.
        from: Key,
        /// The key that gets it.
        to: Key,
        /// The part of it that `to` gets, and what it has around that; none: the whole value, and nothing else.
        splice: Option<Splice>,
    },
    /// Deletes a key. A key that does not exist is no error unless `expected` names a version.
    Delete {
        /// The key.
        key: Key,
        /// The condition.
        expected: Expected,
    },
}

/// A part of a value, between bytes that are new. It tells the value by its checksum, so that nobody has to read it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Splice {
    pub(crate) head: Value,
    pub(crate) kept: Range<u64>,
    pub(crate) tail: Value,
    /// The checksum (xxh3) of the value that the part is of.
    pub(crate) was: u64,
    /// That of the value that it becomes a part of.
    pub(crate) checksum: u64,
}

/// A value under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Key,
    /// Its value.
    pub value: Value,
    /// The new version.
    pub version: Version,
    /// The new tag.
    pub tag: Tag,
    /// The condition.
    pub expected: Expected,
}

/// When a write is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the call returns. Everything that was written back before is durable then, too (Kinetic's WRITETHROUGH and
    /// FLUSH).
    #[default]
    Through,
    /// As [`Durability::Through`], in room that other writes leave free, if need be. For what has to be noted before
    /// something can be deleted: without it, nothing could be given back on a full medium.
    Reserved,
    /// After the next flush or write-through. The write is visible at once. After a crash, all writes up to some moment
    /// are there and none after it: never a later write without an earlier one (Kinetic's WRITEBACK).
    Back,
}

/// Keys of a range, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end, also if `reverse`.
    pub start: Bound<Key>,
    /// The upper end.
    pub end: Bound<Key>,
    /// From the largest key to the smallest.
    pub reverse: bool,
    /// The most keys.
    pub limit: usize,
}

/// How full the store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// The number of keys.
    pub keys: u64,
    /// Bytes of values, as they are read.
    pub value_bytes: u64,
    /// Those of `value_bytes` that are stored as parts of packs (see [`crate::Dedup`]).
    pub deduplicated_bytes: u64,
    /// Bytes of these packs.
    pub pack_bytes: u64,
    /// Bytes on the medium that no value uses any more, and that compaction will give back.
    pub dead_bytes: u64,
    /// Bytes by which the files of values shrank since the store was opened, as dead room was given back.
    pub given_back_bytes: u64,
    /// Bytes that are free on the medium for puts. The reserve for deletes is not counted.
    pub free_bytes: u64,
    /// How full the cache of values is, and its hits and misses.
    pub cache: CacheUse,
}

impl StoreUse {
    /// Bytes of values as they are stored.
    pub fn stored_bytes(&self) -> u64 {
        self.value_bytes.saturating_sub(self.deduplicated_bytes).saturating_add(self.pack_bytes)
    }

    /// Bytes that deduplication saves.
    pub fn saved_bytes(&self) -> u64 {
        self.value_bytes.saturating_sub(self.stored_bytes())
    }
}

/// An ordered, versioned key-value store. Calls block; a drive makes them on its bounded pool.
pub trait Store: Send + Sync + Debug {
    /// A value and its entry. A value with a wrong checksum is [`StoreError::Corrupt`], for that key alone.
    fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError>;

    /// A value and its entry as [`Store::get`] gives them, where the value is in memory; none: it may be on the medium, or there is
    /// none. It waits for pages of the index at most, so that those may call it who must not block for long.
    fn get_resident(&self, _key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        Ok(None)
    }

    /// Reads a value where it is stored, whatever is kept in memory, and compares its checksum. A key that is not there is no error.
    fn check(&self, key: &[u8]) -> Result<(), StoreError> {
        self.get(key).map(drop)
    }

    /// A value and its entry as [`Store::get`] gives them, read where the value is stored, whatever is kept in memory.
    fn get_stored(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        self.check(key)?;
        self.get(key)
    }

    /// A number that tells a key's value, as it is stored, from those that come after it. It stays the same while the value's
    /// bytes stay where they are, and is another one once the value was replaced, or written anew. Never 0; none: there is no
    /// such key.
    fn stamp(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        let known = |entry: Entry| xxh3_64(&[&entry.version[..], &entry.bytes.to_le_bytes()].concat()).max(1);
        Ok(self.entry(key)?.map(known))
    }

    /// Checks at most so many bytes more of a value where it is stored; how many it was, and whether that was the last part. A key
    /// that is not there is no error.
    fn check_part(&self, key: &[u8], _checking: &mut Checking, _bytes_max: u64) -> Result<(u64, bool), StoreError> {
        let bytes = self.entry(key)?.map_or(0, |entry| entry.bytes);
        self.check(key).map(|()| (bytes, true))
    }

    /// A key's entry, without reading the value.
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError>;

    /// The entries of a range.
    fn range(&self, range: &KeyRange) -> Result<Vec<Entry>, StoreError>;

    /// All writes of the batch or none. Writes apply in order, each seeing those before it. On [`StoreError::Conflict`]
    /// nothing has changed: of two batches in conflict, one fails as a whole (Montana et al. 2023, Skytether, section
    /// 5.1; see `docs/bibliography.md`).
    fn write(&self, batch: Vec<Write>, durability: Durability) -> Result<(), StoreError>;

    /// Makes all that was written back durable.
    fn flush(&self) -> Result<(), StoreError>;

    /// Writes a large value that has no key yet. [`Store::adopt`] gives it a key and makes it durable. A staged value
    /// that was not adopted is gone when the store is opened again.
    fn stage(&self, value: Value) -> Result<Staged, StoreError>;

    /// Gives keys to staged values, together with `batch`: all or none, durable when it returns.
    ///
    /// The staged values come first. They replace whatever their keys had, with an empty version and tag. The call
    /// consumes them in any case: if it writes nothing, they are gone. No copy of `batch` may be of a key that gets one.
    fn adopt(&self, staged: Vec<(Key, Staged)>, batch: Vec<Write>) -> Result<(), StoreError>;

    /// Discards a staged value and frees its room. The room of a staged value that is only dropped is freed when the
    /// store is opened again.
    fn unstage(&self, staged: Staged);

    /// How full it is.
    fn usage(&self) -> Result<StoreUse, StoreError>;

    /// Gives back all dead room that is worth it, before it returns. A store that has no dead room does nothing.
    fn compact(&self) -> Result<Compacted, StoreError> {
        Ok(Compacted::default())
    }

    /// The next small step of giving back dead room, over at most so many bytes of values; how many it was. None: there is nothing
    /// to do.
    fn compact_step(&self, _bytes_max: u64) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// The next small step of deduplication, over at most so many bytes of values; how many it was. None: the round is over, and the
    /// next step begins another one. A store that cannot do it has nothing to do.
    fn dedup_step(&self, _dedup: &mut Dedup, _bytes_max: u64) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// The entry of the smallest key above `key`.
    fn next(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        let start = Bound::Excluded(Key::copy_from_slice(key));
        let range = KeyRange { start, limit: 1, ..KeyRange::all() };
        Ok(self.range(&range)?.pop())
    }

    /// The entry of the largest key below `key`.
    fn previous(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        let end = Bound::Excluded(Key::copy_from_slice(key));
        let range = KeyRange { end, reverse: true, limit: 1, ..KeyRange::all() };
        Ok(self.range(&range)?.pop())
    }

    /// Entries whose key starts with `prefix`, in order.
    fn list(&self, prefix: &[u8]) -> Result<Vec<Entry>, StoreError> {
        self.range(&KeyRange::prefix(prefix))
    }
}

/// A large value that was written but has no key.
#[derive(Debug, PartialEq, Eq)]
pub struct Staged {
    /// The segment file that has it.
    pub(crate) file: u64,
    /// The offset in that file.
    pub(crate) offset: u64,
    /// Its bytes.
    pub(crate) bytes: u64,
    /// Its checksum (xxh3).
    pub(crate) checksum: u64,
}

impl Staged {
    /// Bytes of the value.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Put {
    /// A forced put with an empty version and tag.
    pub fn forced(key: impl Into<Key>, value: impl Into<Value>) -> Self {
        Self { key: key.into(), value: value.into(), version: Version::new(), tag: Tag::default(), expected: Expected::Any }
    }
}

impl Splice {
    /// The bytes `kept` of a value, between `head` and `tail`. None: the value does not have them, or they are none.
    pub fn new(of: &[u8], head: impl Into<Value>, kept: Range<u64>, tail: impl Into<Value>) -> Option<Self> {
        let (head, tail) = (head.into(), tail.into());
        let part = of.get(usize::try_from(kept.start).ok()?..usize::try_from(kept.end).ok()?)?;
        let mut checksum = Xxh3::new();
        [&head[..], part, &tail].into_iter().for_each(|bytes| checksum.update(bytes));
        (!part.is_empty()).then(|| Self { head, kept, tail, was: xxh3_64(of), checksum: checksum.digest() })
    }

    /// What `to` gets where `from` has this value; none: it is another one than the part is of.
    pub fn apply(&self, value: &[u8]) -> Option<Value> {
        let part = value.get(self.kept.start as usize..self.kept.end as usize)?;
        (xxh3_64(value) == self.was).then(|| [&self.head[..], part, &self.tail].concat().into())
    }

    /// Bytes of what `to` gets.
    pub fn bytes(&self) -> u64 {
        (self.kept.end - self.kept.start) + self.head.len() as u64 + self.tail.len() as u64
    }
}

impl Write {
    /// A forced put with an empty version and tag.
    pub fn put(key: impl Into<Key>, value: impl Into<Value>) -> Self {
        Write::Put(Put::forced(key, value))
    }

    /// A forced delete.
    pub fn delete(key: impl Into<Key>) -> Self {
        Write::Delete { key: key.into(), expected: Expected::Any }
    }

    /// The key of the write.
    pub fn key(&self) -> &Key {
        match self {
            Write::Put(put) => &put.key,
            Write::Delete { key, .. } => key,
            Write::Copy { to, .. } => to,
        }
    }
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded, reverse: false, limit: usize::MAX }
    }

    /// The keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        // The smallest key that does not start with the prefix: the last byte that can be increased is increased.
        let kept = prefix.iter().rposition(|byte| *byte != u8::MAX);
        let end = kept.map_or(Bound::Unbounded, |last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bound::Excluded(Key::from(end))
        });
        Self { start: Bound::Included(Key::copy_from_slice(prefix)), end, ..Self::all() }
    }

    /// Whether the range is empty, whatever is stored.
    pub(crate) fn is_empty(&self) -> bool {
        let (Some((start, from)), Some((end, to))) = (edge(&self.start), edge(&self.end)) else { return false };
        start > end || (start == end && !(from && to))
    }
}

/// The key of a bound, and whether it belongs to the range.
fn edge(bound: &Bound<Key>) -> Option<(&Key, bool)> {
    match bound {
        Bound::Included(key) => Some((key, true)),
        Bound::Excluded(key) => Some((key, false)),
        Bound::Unbounded => None,
    }
}

/// A key for people: printable characters as they are, the others escaped, long ones cut.
pub fn show_key(key: &[u8]) -> String {
    const SHOWN: usize = 200;
    if let Some(pack) = pack_of(key) {
        return format!("pack {pack} of deduplicated values");
    }
    match key.len() {
        0 => "the empty key".to_string(),
        1..=SHOWN => key.escape_ascii().to_string(),
        bytes => format!("{}… ({bytes} bytes)", key[..SHOWN].escape_ascii()),
    }
}

/// Errors of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A key does not have the expected version; nothing has changed.
    #[error("{key} has another version than expected; nothing was written")]
    Conflict {
        /// The key, for people.
        key: String,
    },
    /// The medium is full; nothing has changed.
    #[error("no space left on the medium at {path} ({needed} bytes needed)")]
    NoSpace {
        /// The store.
        path: PathBuf,
        /// Bytes that did not fit.
        needed: u64,
    },
    /// A value or a page of the index is damaged.
    #[error("{key} is damaged: {what}")]
    Corrupt {
        /// The key, for people.
        key: String,
        /// What was found to be wrong.
        what: String,
    },
    /// The store is in use by another process.
    #[error("the store at {path} is open in another process")]
    InUse {
        /// The store.
        path: PathBuf,
    },
    /// The store cannot be opened, because of damage that a repair may correct.
    #[error("the store at {path} is damaged: {what}; run `pithead check --repair {path}`")]
    Damaged {
        /// The store.
        path: PathBuf,
        /// What was found to be wrong.
        what: String,
    },
    /// The store was written by another release.
    #[error("the store at {path} has format {found}; this release reads formats up to {newest}")]
    Format {
        /// The store.
        path: PathBuf,
        /// Its format.
        found: String,
        /// The newest format that this release reads.
        newest: u32,
    },
    /// A key, version, tag or value exceeds its bound.
    #[error("{0}")]
    TooLarge(String),
    /// The medium failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The medium's message.
        source: std::io::Error,
    },
    /// The index failed.
    #[error("the index at {path} failed: {what}")]
    Index {
        /// The store.
        path: PathBuf,
        /// The index's message.
        what: String,
    },
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        let blame = match &error {
            StoreError::Conflict { .. } => Blame::Conflict,
            StoreError::NoSpace { .. } | StoreError::TooLarge(_) => Blame::Limit,
            StoreError::Corrupt { .. } | StoreError::Damaged { .. } => Blame::Corrupt,
            StoreError::InUse { .. } | StoreError::Format { .. } => Blame::User,
            StoreError::Io { .. } | StoreError::Index { .. } => Blame::Device,
        };
        let fault = Fault::new(blame, error.to_string());
        match error {
            StoreError::NoSpace { .. } => fault.hint(
                "free space on the medium, or drop a dataset and what its versions of before hold: `pithead log --forget`",
            ),
            StoreError::InUse { .. } => fault.hint("stop the other process, or give this one another --data directory"),
            StoreError::Format { .. } => fault.hint("run a release that is at least as new as the one that wrote it"),
            _ => fault,
        }
    }
}
