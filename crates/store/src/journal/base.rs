//! A base of the journal, before it gets its name.

use std::io;

use pithead_model::DriveId;
use redb::ReadableTable as _;

use super::file::{Account, FRAMES_AT, NEW, NEW_KEYS};
use super::frame::row_bytes;
use super::log::{STEP_BYTES, Writer};
use crate::StoreError;
use crate::format::io_error;
use crate::index::{ENTRIES, Failure, INDEX, Snapshot, caught};
use crate::medium::Medium;

/// Both files of a base together take less than this many times the bytes of the index.
const INDEX_BYTES_TIMES: u64 = 4;

/// Removes a base that has not got its name. What cannot be removed costs room and nothing else.
pub(super) fn discard(medium: &dyn Medium) {
    for name in [NEW, NEW_KEYS] {
        match medium.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(name, %error, "an unfinished base of the journal could not be removed");
            }
            _ => {}
        }
    }
}

/// Fails if a base of the index would leave fewer than `kept` bytes free. Its exact size takes a look at each entry, which
/// is spared where there is plenty of room.
pub(super) fn check_room(medium: &dyn Medium, snapshot: &Snapshot, kept: u64) -> Result<(), Failure> {
    let failed = |error| Failure::Store(io_error(&medium.path().join(NEW), 0, error));
    let free = medium.free_bytes().map_err(failed)?.saturating_sub(kept);
    let index_bytes = medium.open(INDEX, false).and_then(|file| file.len()).map_err(failed)?;
    if free >= index_bytes.saturating_mul(INDEX_BYTES_TIMES) {
        return Ok(());
    }
    let needed = caught(|| {
        // Both files begin with a header, and end with a mark.
        let mut needed = 4 * FRAMES_AT;
        for row in snapshot.read.open_table(ENTRIES)?.iter()? {
            let (key, record) = row?;
            let parts = Account::BOTH.map(|account| row_bytes(key.value(), account.part(record.value())));
            needed += parts.iter().sum::<u64>();
        }
        Ok(needed)
    })?;
    if free >= needed {
        return Ok(());
    }
    Err(Failure::Store(StoreError::NoSpace { path: medium.path().join(NEW), needed }))
}

/// Writes both files, durably. Returns the bytes of the records.
pub(super) fn copy(medium: &dyn Medium, snapshot: &Snapshot, drive: DriveId) -> Result<u64, Failure> {
    let failed = |error| Failure::Store(io_error(&medium.path().join(NEW), STEP_BYTES as u64, error));
    let begun = [(Account::Records, NEW), (Account::Keys, NEW_KEYS)]
        .map(|(account, name)| Writer::begin(medium, name, drive, account).map_err(failed));
    let [records, keys] = begun;
    let mut files = [records?, keys?];
    caught(|| {
        for row in snapshot.read.open_table(ENTRIES)?.iter()? {
            let (key, record) = row?;
            for file in &mut files {
                file.put(snapshot.commit, key.value(), record.value()).map_err(failed)?;
            }
        }
        Ok(())
    })?;
    for file in &mut files {
        file.write().and_then(|()| file.mark(snapshot.commit, true)).and_then(|()| file.flush()).map_err(failed)?;
    }
    Ok(files[0].at)
}
