//! The journal: every change of the index once more, so that an index can be made anew without the old one.
//!
//! ```text
//! journal/<number>.base   all keys as they were at some commit: stands for all logs with numbers up to its own
//! journal/<number>.log    the changes of each commit since, in order
//! ```
//!
//! Numbers are 16 hexadecimal digits. A whole journal is a base and the logs that follow it without a gap; before the first base
//! that is log 1 and on. Where something is amiss, the next log leaves a number out, and so stays apart until a base stands
//! for all that came before it.
//!
//! Changes are written before the index commits and are not flushed then: the journal costs a commit one write through the
//! kernel's cache. The store's thread flushes it, and so does closing the store. What the index does not commit is void: the
//! next commit has the same number. A journal that cannot be written is behind; it holds up nobody, and is made anew.

mod file;
mod frame;
mod replay;
mod state;

pub(crate) use self::file::{FOLDER, Header, names};
pub(crate) use self::replay::{Replayed, replay};
pub(crate) use self::state::Journal;

use crate::Key;

/// A change of the index: a key and its record, none where the key is deleted.
pub(crate) type Row = (Key, Option<Vec<u8>>);

#[cfg(test)]
mod tests;
