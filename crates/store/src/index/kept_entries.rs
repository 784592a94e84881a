//! [`KeptEntries`]: the table of keys as the last commit left it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _};

use super::read::Entries;
use super::{ENTRIES, Failure};

/// The table of keys, open as of the last commit, so that not each look for a key begins a transaction of its own. It is forgotten
/// by the next commit, whose pages it would keep from being used again.
#[derive(Default)]
pub(super) struct KeptEntries(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    commits: u64,
    entries: Option<Arc<Entries>>,
}

impl KeptEntries {
    /// The table as the last commit that returned has left it, or as a later one has.
    pub fn get(&self, database: &Database) -> Result<Arc<Entries>, Failure> {
        let commits = {
            let kept = self.0.lock();
            if let Some(entries) = &kept.entries {
                return Ok(Arc::clone(entries));
            }
            kept.commits
        };
        let entries = Arc::new(database.begin_read()?.open_table(ENTRIES)?);
        let mut kept = self.0.lock();
        // What a commit has replaced meanwhile is for this look only.
        if kept.commits == commits {
            kept.entries = Some(Arc::clone(&entries));
        }
        Ok(entries)
    }

    /// A commit was tried: before it returns, so that whoever looks afterwards sees it.
    pub fn forget(&self) {
        let mut kept = self.0.lock();
        kept.commits += 1;
        let entries = kept.entries.take();
        drop(kept);
        drop(entries);
    }
}

impl fmt::Debug for KeptEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptEntries").field("commits", &self.0.lock().commits).finish_non_exhaustive()
    }
}
