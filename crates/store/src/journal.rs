//! The journal: a second record of every change of the index, so that an index can be made anew without the old one.
//!
//! ```text
//! journal/<number>.base   all keys as they were at some commit: stands for all logs with numbers up to its own
//! journal/<number>.log    the changes of each commit since, in order
//! ```
//!
//! Beside each of these files there is one with `-keys` at the end of its name. It has the same changes under the same
//! commits, without the inline values. So the journal has two accounts of which keys there are, in which order they
//! changed and where large values lie, and no block that both are in. Where one of them is damaged, the other one says
//! what was deleted or replaced there.
//!
//! Numbers are 16 hexadecimal digits. A complete journal is a base and the logs that follow it without a gap; before
//! the first base it is the logs from number 1 on. After a fault, the next log skips a number, and so stays apart until
//! a base replaces everything before it.
//!
//! Changes are written before the index commits. A durable commit flushes the records of the log, and no more: the
//! index is made durable later, and an open applies what it lacks (`tail`). The log is then the commit point, and a
//! change in it that such a commit has ended is never void. Changes of other commits are not flushed; the store's thread
//! flushes them, and so does closing the store. One that the index does not commit is void: the next commit has the same
//! number. A journal that cannot be written falls behind: commits are durable by the index then, and it is made anew.

mod base;
mod file;
mod frame;
mod log;
mod replay;
mod state;
mod tail;

pub(crate) use self::file::{FOLDER, Header, names};
pub(crate) use self::replay::{Replayed, replay};
pub(crate) use self::state::{Journal, Sealed};
pub(crate) use self::tail::{Unindexed, unindexed};

use crate::Key;

/// A change of the index: a key and its record, or none if the key is deleted.
pub(crate) type Row = (Key, Option<Vec<u8>>);

/// A place in the log of both accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPlace {
    pub number: u64,
    pub records_at: u64,
    pub keys_at: u64,
}

#[cfg(test)]
mod tests;
