//! [`Services`]: all that a guest can reach beside its own memory and its ports.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::future::BoxFuture;

/// Why a service was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// There is no such thing; guests can ask for it and go on.
    #[error("{0}")]
    NotFound(String),
    /// The caller of the application may not read it.
    #[error("{0}")]
    Denied(String),
    /// It could not be read, or is not offered here.
    #[error("{0}")]
    Failed(String),
}

/// What the caller of an application may have of the drive. All names and offsets come from guests and are hostile.
pub trait Services: Send + Sync + 'static {
    /// Opens a file for reads.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn File>, ServiceError>>;

    /// The value of a key.
    fn value<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Bytes>, ServiceError>>;

    /// The named columns of a dataset's part on this drive, all columns if none is named.
    fn dataset<'a>(&'a self, name: &'a str, columns: &'a [&'a str]) -> BoxFuture<'a, Result<Box<dyn Dataset>, ServiceError>>;

    /// Takes a line of a guest's log.
    fn log(&self, line: LogLine<'_>);

    /// The time of day, in nanoseconds since 1970.
    fn now_ns(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    }
}

/// A file that is open.
pub trait File: Send + Sync {
    /// Its size in bytes.
    fn size(&self) -> u64;

    /// Reads from `offset` into `into`. Returns the bytes read, fewer than asked for only at the end of the file.
    fn read<'a>(&'a self, offset: u64, into: &'a mut [u8]) -> BoxFuture<'a, Result<usize, ServiceError>>;

    /// Says that `bytes` from `offset` will be read next.
    fn ahead(&self, offset: u64, bytes: u64);

    /// The bytes of memory that it takes while it is open. They count for the application that has opened it.
    fn held_bytes(&self) -> usize {
        0
    }
}

/// A dataset that is being read.
pub trait Dataset: Send {
    /// The next record batch as an Arrow IPC stream of its own, None at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, ServiceError>>;

    /// Bytes of memory that it takes until the next batch is asked for.
    fn held_bytes(&self) -> usize;
}

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warning,
    Error,
}

/// A line of the log, from a guest.
#[derive(Clone, Copy, Debug)]
pub struct LogLine<'a> {
    pub application: &'a str,
    pub module: &'a str,
    pub ssdlet: &'a str,
    pub level: Level,
    /// One line without control characters.
    pub text: &'a str,
}
