//! Reads format 1 and converts it to the present format. Formats 2 and 3 need no more than a new marker, and format 5
//! is what format 4 becomes by its first recipe.
//!
//! In format 1 each segment file has one value, keys are text, the store counts the versions, and the blocks of the
//! index have no checksums. The values stay where they are. A new index is made beside the old one, and the marker says
//! which of them counts:
//!
//! ```text
//! marker 1   index.redb is format 1's      index.building and index.2 are left of an upgrade that was cut short
//! marker 2   index.2, where it is there, is the index: its renaming was cut short; else index.redb is
//! ```

use std::sync::Arc;

use pithead_model::DriveId;
use redb::{Builder, Database, ReadableDatabase as _, ReadableTable as _};

use crate::format::{FORMAT, io_error, write_marker};
use crate::index::{
    Action, Change, DRIVE, Depth, ENTRIES, FACTS, Failure, INDEX, Index, LAST_FILE, NewValue, PlainFile, caught, corrupt,
};
use crate::medium::Medium;
use crate::record::{decode_place, take_u64};
use crate::{Expected, Key, StoreError, Tag, Value, Version};

/// The name of a new index until it is complete.
pub(crate) const BUILDING: &str = "index.building";
pub(crate) const BUILT: &str = "index.2";
/// The number of records that are put into the new index at once.
const STEP_RECORDS: usize = 1_024;
const STEP_BYTES: u64 = 8 << 20;
/// The memory for pages of each index meanwhile.
const CACHE_BYTES: usize = 16 << 20;

/// Brings a store of an older format to this release's, or finishes an upgrade that was cut short. A store of this
/// release's format stays as it is.
pub(crate) fn finish(medium: &Arc<dyn Medium>, format: u32) -> Result<(), StoreError> {
    let failed = |error| io_error(medium.path(), 0, error);
    if medium.is_read_only() {
        let what = "the store has format 1; open it once with this release, or check it with a repair, to upgrade it";
        let path = medium.path().to_path_buf();
        return if format == 1 { Err(StoreError::Index { path, what: what.to_string() }) } else { Ok(()) };
    }
    let names = medium.list("").map_err(failed)?;
    let is_there = |name: &str| names.iter().any(|other| other == name);
    if is_there(BUILDING) {
        medium.remove(BUILDING).map_err(failed)?;
    }
    if format == 1 {
        if is_there(BUILT) {
            medium.remove(BUILT).map_err(failed)?;
        }
        tracing::info!(path = %medium.path().display(), "upgrading the store from format 1");
        let drive = build(medium)?;
        medium.rename(BUILDING, BUILT).map_err(failed)?;
        write_marker(&**medium, FORMAT, drive)?;
    }
    if format == 1 || is_there(BUILT) {
        medium.rename(BUILT, INDEX).and_then(|()| medium.flush_names("")).map_err(failed)?;
    }
    Ok(())
}

/// Keeps the index's file under another name, for those who want to look at it. Returns that name; none if there is no
/// index.
pub(crate) fn put_aside(medium: &dyn Medium) -> std::io::Result<Option<String>> {
    let names = medium.list("")?;
    if !names.iter().any(|name| name == INDEX) {
        return Ok(None);
    }
    let free = (1_u64..).map(|number| format!("index.damaged.{number}")).find(|name| !names.contains(name));
    let Some(aside) = free else { return Ok(None) };
    medium.rename(INDEX, &aside)?;
    medium.flush_names("")?;
    Ok(Some(aside))
}

/// Makes the new index from the old one, durably. Returns the drive's identity.
fn build(medium: &Arc<dyn Medium>) -> Result<DriveId, StoreError> {
    let old = open_old(medium)?;
    let new = Index::open(medium.clone(), BUILDING, true, CACHE_BYTES)?;
    let done = caught(|| copy(&old, &new));
    // redb writes once more when it is dropped, and may then meet a damaged page.
    let closed = caught(|| {
        drop(old);
        Ok(())
    });
    if closed.is_err() {
        tracing::warn!("the index of format 1 was not closed, for a damaged page");
    }
    done.map_err(|failure| failure.on(medium.path()))
}

fn open_old(medium: &Arc<dyn Medium>) -> Result<Database, StoreError> {
    let file = medium.open(INDEX, false).map_err(|error| io_error(&medium.path().join(INDEX), 0, error))?;
    let opened = caught(|| Ok(Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(PlainFile(file))?));
    opened.map_err(|failure| failure.on(medium.path()))
}

fn copy(old: &Database, new: &Index) -> Result<DriveId, Failure> {
    let read = old.begin_read()?;
    let entries = read.open_table(ENTRIES)?;
    let (mut changes, mut bytes, mut last_file) = (Vec::new(), 0, 0);
    for row in entries.iter()? {
        let (key, record) = row?;
        let change = change_of(key.value(), record.value()).map_err(|what| corrupt(key.value(), &what))?;
        if let Action::Put { value: NewValue::Segment { place, .. }, .. } = &change.action {
            last_file = place.file.max(last_file);
        }
        bytes += change.index_bytes();
        changes.push(change);
        if changes.len() >= STEP_RECORDS || bytes >= STEP_BYTES {
            put(new, std::mem::take(&mut changes))?;
            bytes = 0;
        }
    }
    put(new, changes)?;
    let drive = read.open_table(FACTS)?.get(DRIVE)?.map(|id| id.value());
    let drive = drive.ok_or_else(|| corrupt(b"index.redb", "it names no drive"))?;
    new.set_fact(LAST_FILE, last_file)?;
    new.set_fact(DRIVE, drive)?;
    Ok(DriveId(drive))
}

fn put(new: &Index, changes: Vec<Change>) -> Result<(), Failure> {
    let committed = new.commit(vec![changes], Depth::Indexed).map_err(|(error, _)| error)?;
    committed.outcomes.into_iter().collect::<Result<(), StoreError>>()?;
    Ok(())
}

/// A record of format 1:
///
/// ```text
/// byte 0       kind: 0 inline, 1 segment
///      1..9    version              all numbers little-endian
///      9..17   checksum of the value (xxh3)
///      17..    inline: the value
///              segment: file (8), offset (8), bytes (8)
/// ```
///
/// Its version becomes 8 bytes, big-endian.
fn change_of(key: &[u8], record: &[u8]) -> Result<Change, String> {
    let short = || format!("its record of format 1 has {} bytes, too few", record.len());
    let (kind, rest) = record.split_first().ok_or_else(short)?;
    let (version, rest) = take_u64(rest).ok_or_else(short)?;
    let (checksum, rest) = take_u64(rest).ok_or_else(short)?;
    let value = match kind {
        0 if xxhash_rust::xxh3::xxh3_64(rest) != checksum => return Err("the checksum of its value does not hold".to_string()),
        0 => NewValue::Inline(Value::copy_from_slice(rest)),
        1 => {
            let place = decode_place(rest).ok_or_else(|| "its record of format 1 names no place".to_string())?;
            NewValue::Segment { place, checksum }
        }
        other => return Err(format!("its record of format 1 has the unknown kind {other}")),
    };
    let version = Version::copy_from_slice(&version.to_be_bytes());
    let action = Action::Put { version, tag: Tag::default(), value };
    Ok(Change { key: Key::copy_from_slice(key), expected: Expected::Any, action })
}
