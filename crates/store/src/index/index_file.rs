//! The index's file, opened by redb.

use std::sync::Arc;

use redb::{Builder, Database, Durability, ReadableDatabase as _, StorageBackend as _, WriteTransaction};

use super::apply;
use super::file::IndexFile;
use super::kept_entries::KeptEntries;
use super::write_behind::WriteBehind;
use super::{COMMIT, FACTS, Failure, Made, caught, corrupt_index};
use crate::StoreError;
use crate::blocks::CheckedFile;
use crate::format::io_error;
use crate::medium::{Medium, MediumFile};

/// An open index. End it by [`OpenIndex::close`] or [`OpenIndex::shut`], since redb may panic when it is dropped.
#[derive(Debug)]
pub(super) struct OpenIndex {
    pub entries: KeptEntries,
    pub database: Database,
    pub file: IndexFile,
    pub behind: Arc<WriteBehind>,
    pub checked: CheckedFile,
}

impl OpenIndex {
    /// Closes the file without another commit.
    pub fn shut(self) {
        self.file.shut();
        self.close();
    }

    /// redb commits once more when it is dropped, and may then meet a damaged page.
    pub fn close(self) {
        let closed = caught(|| {
            drop(self);
            Ok(())
        });
        if closed.is_err() {
            tracing::error!("the index was not closed, for a damaged page; the next open recovers it");
        }
    }
}

/// Repeats the commits that the index has lost, without a flush.
pub(super) fn repeat(database: &Database, commits: &[Made]) -> Result<(), Failure> {
    let last = database.begin_read()?.open_table(FACTS)?.get(COMMIT)?.map_or(0, |commit| commit.value());
    for Made { batches, .. } in commits.iter().filter(|made| made.number > last) {
        let mut transaction = database.begin_write()?;
        set_durability(&mut transaction, false)?;
        apply::apply(&transaction, batches)?;
        transaction.commit()?;
    }
    Ok(())
}

/// A durable commit takes two flushes: of the pages, then of the header that names them. It also stores redb's own
/// account of its pages. With one flush, redb would have to read and verify the whole index after an unclean end, and
/// would refuse all of it for one damaged page.
pub(super) fn set_durability(transaction: &mut WriteTransaction, durable: bool) -> Result<(), Failure> {
    transaction.set_durability(if durable { Durability::Immediate } else { Durability::None })?;
    transaction.set_quick_repair(durable);
    Ok(())
}

pub(super) fn open_file(medium: &dyn Medium, name: &str, create: bool, cache_bytes: usize) -> Result<OpenIndex, StoreError> {
    let failed = |error| io_error(&medium.path().join(name), 0, error);
    let file = medium.open(name, create).map_err(failed)?;
    if !create && file.is_empty().map_err(failed)? {
        return Err(corrupt_index(medium, "it is empty"));
    }
    let behind = Arc::new(WriteBehind::new(file));
    let checked = CheckedFile::open(behind.clone()).map_err(failed)?;
    // redb would make an empty index of it.
    if !create && checked.len().map_err(failed)? == 0 {
        return Err(corrupt_index(medium, "it is cut off"));
    }
    let file = IndexFile::new(checked.clone());
    let opened = caught(|| Ok(Builder::new().set_cache_size(cache_bytes).create_with_backend(file.clone())?));
    let database = opened.map_err(|failure| failure.on(medium.path()))?;
    let opened = OpenIndex { entries: KeptEntries::default(), database, file, behind, checked: checked.clone() };
    if let Err(error) = checked.recovered() {
        opened.shut();
        return Err(failed(error));
    }
    Ok(opened)
}

/// Writes a file over itself, so that a flush also covers data that an earlier flush may have dropped while the kernel
/// still shows it.
pub(super) fn rewrite(file: &dyn MediumFile) -> std::io::Result<()> {
    const STEP: u64 = 4_096;
    let bytes = file.len()?;
    let mut buffer = [0; STEP as usize];
    for offset in (0..bytes).step_by(STEP as usize) {
        let part = &mut buffer[..STEP.min(bytes - offset) as usize];
        file.read(offset, part)?;
        match file.write(offset, part) {
            // A hole has no room to be written to, and needs none.
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull && part.iter().all(|byte| *byte == 0) => {}
            written => written?,
        }
    }
    file.flush()
}
