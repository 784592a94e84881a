//! [`DiskStore`]: a store in a folder.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use pithead_model::DriveId;

use crate::bounds::{SEGMENT_BYTES_MIN, check_batch, check_key};
use crate::format::{free_bytes, io_error, lock, random_drive_id, read_marker, write_marker};
use crate::index::{Change, Found, Index, NewValue};
use crate::segments::{Segments, sync_dir};
use crate::{Entry, Expected, Staged, Store, StoreError, StoreUse, Value, Version, Write};

/// Room on the medium that puts leave free, so that deletes can still be committed.
const RESERVE_BYTES: u64 = 8 << 20;

/// A store in a folder of a file system.
///
/// ```text
/// FORMAT            the format's version, written last when a store is made
/// LOCK              locked by the process that has the store open
/// index.redb        keys, small values, where large values lie, the drive's identity
/// segments/*.seg    large values
/// ```
///
/// A large value is flushed to a segment file of its own before the commit in the index that names it. A file that no
/// key names is deleted when the store is opened.
#[derive(Debug)]
pub struct DiskStore {
    dir: PathBuf,
    drive_id: DriveId,
    index: Index,
    segments: Segments,
    _lock: File,
}

impl DiskStore {
    /// Opens the store in `dir`; makes both if absent. A store that is open already is [`StoreError::InUse`], one of
    /// another format [`StoreError::Format`].
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(|error| io_error(dir, 0, error))?;
        let lock = lock(dir)?;
        let made = read_marker(dir)?;
        let index = Index::open(dir.join("index.redb"), !made)?;
        let drive_id = identity(dir, &index, made)?;
        let files = index.files()?;
        let segments = Segments::open(dir.join("segments"), |file| files.contains(&file))?;
        segments.skip_to(files.iter().copied().max().unwrap_or(0));
        if !made {
            sync_with_parent(dir).map_err(|error| io_error(dir, 0, error))?;
            write_marker(dir)?;
        }
        Ok(Self { dir: dir.to_path_buf(), drive_id, index, segments, _lock: lock })
    }

    /// The drive's identity, chosen when the store was made.
    pub fn drive_id(&self) -> DriveId {
        self.drive_id
    }

    /// Stages the large values of a batch. On an error what was staged is gone again.
    fn prepare(&self, batch: Vec<Write>, changes: &mut Vec<Change>) -> Result<(), StoreError> {
        check_batch(&batch)?;
        for write in batch {
            changes.push(match write {
                Write::Delete { key, expected } => Change { key, expected, new: None },
                Write::Put { key, value, expected } => {
                    let new = self.place(&key, value)?;
                    Change { key, expected, new: Some(new) }
                }
            });
        }
        Ok(())
    }

    fn place(&self, key: &str, value: Value) -> Result<NewValue, StoreError> {
        if value.len() < SEGMENT_BYTES_MIN {
            return Ok(NewValue::Inline(value));
        }
        self.check_room(value.len() as u64)?;
        let staged = self.segments.stage(&format!("{key:?}"), &value)?;
        self.segments.claim(&staged);
        Ok(NewValue::Segment(staged))
    }

    fn commit(&self, changes: &[Change]) -> Result<(), StoreError> {
        let inline_bytes: u64 = changes.iter().map(inline_bytes).sum();
        if inline_bytes > 0 {
            self.check_room(inline_bytes)?;
        }
        let freed = self.index.commit(changes).map_err(|error| match error {
            StoreError::NoSpace { path, .. } => StoreError::NoSpace { path, needed: inline_bytes },
            other => other,
        })?;
        freed.into_iter().for_each(|file| self.segments.delete(file));
        Ok(())
    }

    /// Deletes the segments of changes that were not committed. Where the index cannot say whether they were, they
    /// stay for the next open to judge.
    fn discard(&self, changes: &[Change]) {
        for change in changes {
            if let Some(NewValue::Segment(staged)) = &change.new
                && matches!(self.index.names(staged.file), Ok(false))
            {
                self.segments.delete(staged.file);
            }
        }
    }

    fn check_room(&self, needed: u64) -> Result<(), StoreError> {
        if free_bytes(&self.dir)? >= needed.saturating_add(RESERVE_BYTES) {
            return Ok(());
        }
        Err(StoreError::NoSpace { path: self.dir.clone(), needed })
    }
}

impl Store for DiskStore {
    fn get(&self, key: &str) -> Result<Option<(Value, Version)>, StoreError> {
        loop {
            let Some((found, version)) = self.index.get(key)? else { return Ok(None) };
            let (place, checksum) = match found {
                Found::Inline(value) => return Ok(Some((value, version))),
                Found::Segment { place, checksum } => (place, checksum),
            };
            match self.segments.read(key, place, checksum) {
                Ok(value) => return Ok(Some((value, version))),
                // A put or delete since the look into the index may have unlinked the file.
                Err(_) if self.index.entry(key)?.is_none_or(|entry| entry.version != version) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn entry(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        self.index.entry(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        self.index.list(prefix)
    }

    fn write(&self, batch: Vec<Write>) -> Result<(), StoreError> {
        self.adopt(Vec::new(), batch)
    }

    fn stage(&self, value: &[u8]) -> Result<Staged, StoreError> {
        self.check_room(value.len() as u64)?;
        self.segments.stage("a staged put", value)
    }

    fn adopt(&self, staged: Vec<(String, Staged)>, batch: Vec<Write>) -> Result<(), StoreError> {
        let mut changes = Vec::with_capacity(staged.len() + batch.len());
        let mut claimed = Ok(());
        for (key, staged) in staged {
            claimed = claimed.and_then(|()| check_key(&key));
            if self.segments.claim(&staged) {
                changes.push(Change { key, expected: Expected::Any, new: Some(NewValue::Segment(staged)) });
            } else {
                let what = format!("segment {:x} is not staged in this store", staged.file);
                claimed = claimed.and(Err(StoreError::Corrupt { key, what }));
            }
        }
        let done = claimed.and_then(|()| self.prepare(batch, &mut changes)).and_then(|()| self.commit(&changes));
        if done.is_err() {
            self.discard(&changes);
        }
        done
    }

    fn unstage(&self, staged: Staged) {
        if self.segments.claim(&staged) {
            self.segments.delete(staged.file);
        }
    }

    fn usage(&self) -> Result<StoreUse, StoreError> {
        let (keys, value_bytes) = self.index.totals()?;
        Ok(StoreUse { keys, value_bytes, free_bytes: free_bytes(&self.dir)? })
    }
}

fn sync_with_parent(dir: &Path) -> io::Result<()> {
    sync_dir(dir)?;
    fs::canonicalize(dir)?.parent().map_or(Ok(()), sync_dir)
}

/// Bytes that a change adds to the index.
fn inline_bytes(change: &Change) -> u64 {
    match &change.new {
        Some(NewValue::Inline(value)) => (change.key.len() + value.len()) as u64,
        Some(NewValue::Segment(_)) => change.key.len() as u64,
        None => 0,
    }
}

/// The drive's identity: read from a store that is made, else chosen now. A folder that holds segments but has lost its
/// index is not made anew, since that would delete them.
fn identity(dir: &Path, index: &Index, made: bool) -> Result<DriveId, StoreError> {
    if let Some(id) = index.drive_id()? {
        return Ok(id);
    }
    let orphaned = fs::read_dir(dir.join("segments")).is_ok_and(|mut entries| entries.next().is_some());
    if made || orphaned {
        return Err(StoreError::Corrupt {
            key: format!("the index of {}", dir.display()),
            what: "it names no drive".to_string(),
        });
    }
    let id = random_drive_id()?;
    index.set_drive_id(id)?;
    Ok(id)
}

#[cfg(test)]
mod tests;
