//! Converts redb's errors into those of the store.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use crate::StoreError;
use crate::api::show_key;
use crate::format::io_error;

/// The key in an error about a page, if the key for which it was read is not known yet.
pub(crate) const A_PAGE: &str = "a page of the index";

const NO_SENSE: &str = "it is not what was written";

thread_local! {
    /// Whether panics of this thread are caught and turned into errors.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a piece of work on redb. redb panics over a damaged page, which reads as zeros; here that becomes an error.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                loud(panic);
            }
        }));
    });
    let before = QUIET.replace(true);
    // Only redb's state can be half changed by the closure: after a panic in a write, its file is opened again.
    let done = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    done.unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        tracing::debug!(what = what.unwrap_or("no message"), "redb has met a page that is none");
        Err(Failure::Panicked)
    })
}

/// The reasons for which work on the index ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    Store(StoreError),
    Redb(redb::Error),
    /// redb met a page that is not one.
    Panicked,
}

impl Failure {
    /// The reason as an error of the store at `path`.
    pub fn on(self, path: &Path) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Redb(error) => redb_error(path, error),
            Self::Panicked => StoreError::Corrupt { key: A_PAGE.to_string(), what: NO_SENSE.to_string() },
        }
    }
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

pub(crate) fn redb_error(path: &Path, error: redb::Error) -> StoreError {
    match error {
        redb::Error::Io(error) => io_error(path, 0, error),
        redb::Error::Corrupted(what) => StoreError::Corrupt { key: A_PAGE.to_string(), what },
        redb::Error::DatabaseAlreadyOpen => StoreError::InUse { path: path.to_path_buf() },
        other => StoreError::Index { path: path.to_path_buf(), what: other.to_string() },
    }
}

/// An error of opening a store; if damage is the cause, it says what to do about it.
pub(crate) fn damaged(path: &Path, error: StoreError) -> StoreError {
    use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    let what = match error {
        StoreError::Corrupt { key, what } => format!("{key}: {what}"),
        StoreError::Index { what, .. } => what,
        StoreError::Io { path, source } if matches!(source.kind(), InvalidData | NotFound | UnexpectedEof) => {
            format!("{}: {source}", path.display())
        }
        other => return other,
    };
    StoreError::Damaged { path: path.to_path_buf(), what }
}

pub(crate) fn corrupt(key: &[u8], what: &str) -> StoreError {
    StoreError::Corrupt { key: show_key(key), what: what.to_string() }
}
