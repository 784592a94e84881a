//! [`Store`]: what a drive needs of the medium under it.

use std::fmt::Debug;
use std::path::PathBuf;

use bytes::Bytes;
use pithead_model::{Blame, Fault};

/// A key's version: changes with each put.
pub type Version = u64;
/// A value, shared, without a copy where it is mapped.
pub type Value = Bytes;

/// A key's entry without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its version.
    pub version: Version,
    /// Bytes of the value.
    pub bytes: u64,
}

/// What a write expects of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Anything.
    Any,
    /// No such key.
    Absent,
    /// This version.
    Version(Version),
}

/// One write of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Puts a value.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: Bytes,
        /// Condition.
        expected: Expected,
    },
    /// Deletes a key; a key that is not there is no error unless `expected` names a version.
    Delete {
        /// The key.
        key: String,
        /// Condition.
        expected: Expected,
    },
}

/// How full the store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// Keys.
    pub keys: u64,
    /// Bytes of values.
    pub value_bytes: u64,
    /// Bytes free on the medium.
    pub free_bytes: u64,
}

/// An ordered, versioned key-value store. Calls block; a drive makes them on its bounded pool.
pub trait Store: Send + Sync + Debug {
    /// A value and its version. A value whose checksum does not hold is [`StoreError::Corrupt`], for that key alone.
    fn get(&self, key: &str) -> Result<Option<(Value, Version)>, StoreError>;

    /// A key's entry without reading the value.
    fn entry(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    /// Entries whose key starts with `prefix`, in order.
    fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError>;

    /// All writes or none, durable when it returns. Writes apply in order, each seeing those before it. On
    /// [`StoreError::Conflict`] nothing has changed.
    fn write(&self, batch: Vec<Write>) -> Result<(), StoreError>;

    /// Writes a large value so that it is durable but names no key yet. [`Store::adopt`] names it; one that was not
    /// adopted when the store is opened again is gone.
    fn stage(&self, value: &[u8]) -> Result<Staged, StoreError>;

    /// Names staged values by their keys, together with `batch`: all or none, durable when it returns.
    ///
    /// The staged values come first, over whatever their keys hold. They are spent either way: where nothing was
    /// written, they are gone.
    fn adopt(&self, staged: Vec<(String, Staged)>, batch: Vec<Write>) -> Result<(), StoreError>;

    /// Gives up a staged value and its room. One that is only dropped keeps its room until the store is opened again.
    fn unstage(&self, staged: Staged);

    /// How full it is.
    fn usage(&self) -> Result<StoreUse, StoreError>;
}

/// A large value, durable and without a name.
#[derive(Debug, PartialEq, Eq)]
pub struct Staged {
    /// The segment file that holds it.
    pub file: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its checksum (xxh3).
    pub checksum: u64,
}

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A key does not have the expected version; nothing has changed.
    #[error("{key} has another version than expected; nothing was written")]
    Conflict {
        /// The key.
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
    /// A value or the index is not what was written.
    #[error("{key} is damaged: {what}")]
    Corrupt {
        /// The key.
        key: String,
        /// What does not hold.
        what: String,
    },
    /// The store is in use by another process.
    #[error("the store at {path} is open in another process")]
    InUse {
        /// The store.
        path: PathBuf,
    },
    /// The store was written by another release.
    #[error("the store at {path} has format {found}; this release reads format {expected}")]
    Format {
        /// The store.
        path: PathBuf,
        /// Its format.
        found: String,
        /// Ours.
        expected: u32,
    },
    /// A key or value is over its bound.
    #[error("{0}")]
    TooLarge(String),
    /// The medium failed.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// The index failed.
    #[error("the index at {path} failed: {what}")]
    Index {
        /// The store.
        path: PathBuf,
        /// What it said.
        what: String,
    },
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        let blame = match &error {
            StoreError::Conflict { .. } => Blame::Conflict,
            StoreError::NoSpace { .. } | StoreError::TooLarge(_) => Blame::Limit,
            StoreError::Corrupt { .. } => Blame::Corrupt,
            StoreError::InUse { .. } | StoreError::Format { .. } => Blame::User,
            StoreError::Io { .. } | StoreError::Index { .. } => Blame::Device,
        };
        let fault = Fault::new(blame, error.to_string());
        match error {
            StoreError::NoSpace { .. } => {
                fault.hint("free space on the medium, or drop a dataset with `pithead sql -c 'DROP TABLE …'`")
            }
            StoreError::InUse { .. } => fault.hint("stop the other process, or give this one another --data directory"),
            _ => fault,
        }
    }
}
