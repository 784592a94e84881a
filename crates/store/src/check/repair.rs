//! A new index from the records that can be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use pithead_model::DriveId;

use super::records::all_places;
use super::sweep::sweep;
use super::{CACHE_BYTES, DRIVE};
use crate::format::io_error;
use crate::index::{COMMIT, INDEX, Index, LAST_FILE, SegmentRow, VALUE_BYTES};
use crate::medium::Medium;
use crate::record::{Place, Record};
use crate::upgrade::BUILDING;
use crate::{Key, StoreError};

/// Records put into the new index at once.
const STEP_RECORDS: usize = 1_024;
const STEP_BYTES: usize = 8 << 20;

/// Makes the new index beside the old one and puts it in its place: a crash leaves either.
pub(super) fn rebuild(medium: &Arc<dyn Medium>, old: Index, drive: DriveId) -> Result<(), StoreError> {
    let failed = |error| io_error(medium.path(), 0, error);
    if medium.list("").map_err(failed)?.iter().any(|name| name == BUILDING) {
        medium.remove(BUILDING).map_err(failed)?;
    }
    let new = Index::open(medium.clone(), BUILDING, true, CACHE_BYTES)?;
    let mut copy = Copy { new: &new, rows: Vec::new(), bytes: 0, value_bytes: 0, segments: BTreeMap::new() };
    let (known, _) = all_places(&old)?;
    let mut known: Vec<Key> = known.into_iter().map(|(_, key)| key).collect();
    known.sort();
    sweep(&old, &known, &mut |key, record| copy.add(key, record))?;
    copy.put()?;
    let (value_bytes, segments) = (copy.value_bytes, copy.segments);
    let last_file = old.fact(LAST_FILE).ok().flatten().unwrap_or(0).max(segments.keys().copied().max().unwrap_or(0));
    new.put_segments(&segments)?;
    let facts = [(DRIVE, drive.0), (VALUE_BYTES, value_bytes), (LAST_FILE, last_file)];
    facts.into_iter().try_for_each(|(name, value)| new.set_fact(name, value))?;
    new.set_fact(COMMIT, old.fact(COMMIT).ok().flatten().unwrap_or(0))?;
    // The old file must not be written by redb once the new one has its name.
    drop(old);
    drop(new);
    medium.rename(BUILDING, INDEX).and_then(|()| medium.flush_names("")).map_err(failed)
}

struct Copy<'a> {
    new: &'a Index,
    rows: Vec<(Key, Vec<u8>, Option<Place>)>,
    bytes: usize,
    value_bytes: u64,
    segments: BTreeMap<u64, SegmentRow>,
}

impl Copy<'_> {
    /// A record that is damaged by itself is taken as it is, so that its key goes on to be refused.
    fn add(&mut self, key: &Key, record: &[u8]) -> Result<(), StoreError> {
        let mut named = None;
        if let Ok(record) = Record::decode(key, record) {
            self.value_bytes = self.value_bytes.saturating_add(record.value_bytes());
            named = record.place();
        }
        if let Some(place) = named {
            let row = self.segments.entry(place.file).or_default();
            row.written = row.written.max(place.end());
            row.live = row.live.saturating_add(place.room());
        }
        self.bytes += key.len() + record.len();
        self.rows.push((key.clone(), record.to_vec(), named));
        if self.rows.len() >= STEP_RECORDS || self.bytes >= STEP_BYTES { self.put() } else { Ok(()) }
    }

    fn put(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        self.new.put_rows(&std::mem::take(&mut self.rows))
    }
}
