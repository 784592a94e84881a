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
//! Changes are written before the index commits, and are not flushed at that time, so the journal costs a commit one
//! write through the kernel's cache. The store's thread flushes the journal, and so does closing the store. A change
//! that the index does not commit is void: the next commit has the same number. A journal that cannot be written falls
//! behind; it delays nobody, and is made anew.

mod file;
mod frame;
mod replay;
mod state;

pub(crate) use self::file::{FOLDER, Header, names};
pub(crate) use self::replay::{Replayed, replay};
pub(crate) use self::state::Journal;

use crate::Key;

/// A change of the index: a key and its record, or none if the key is deleted.
pub(crate) type Row = (Key, Option<Vec<u8>>);

#[cfg(test)]
mod tests;
