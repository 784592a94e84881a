//! A new index, made from the records that can be read, and from the journal where they cannot.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pithead_model::DriveId;

use super::records::all_places;
use super::sweep::{Hole, sweep};
use super::{CACHE_BYTES, CheckReport, DRIVE, Finding, FindingKind};
use crate::api::show_key;
use crate::format::{MarkerState, find_marker, format_needed, io_error, write_marker};
use crate::index::{COMMIT, INDEX, Index, LAST_FILE, LAST_NUMBER, Named, SegmentRow, Totals};
use crate::journal::{Journal, Replayed, Row};
use crate::medium::Medium;
use crate::recipe::is_own;
use crate::record::{Body, Record};
use crate::segments::{FOLDER, file_number};
use crate::upgrade::{BUILDING, BUILT, put_aside};
use crate::{Key, StoreError};

/// The number of records that are put into the new index at once.
const STEP_RECORDS: usize = 1_024;
const STEP_BYTES: usize = 8 << 20;

/// The sources of a new index.
pub(super) struct Sources<'a> {
    /// The old index, as far as it can be read. It has precedence.
    pub old: Option<Index>,
    /// The journal's records of keys that the old index cannot show.
    pub replayed: Option<&'a Replayed>,
    /// Changes that are newer than the old index.
    pub newer: Vec<Row>,
    /// Whether the old file is kept under another name.
    pub keep: bool,
}

/// What a new index has from the journal.
#[derive(Debug, Default)]
pub(super) struct Restored {
    /// How many keys.
    pub keys: u64,
    /// Keys that it lacks, since only older values are left.
    outdated: Vec<Key>,
}

/// Makes the new index beside the old one and puts it in the old one's place. A crash leaves one or the other. Returns
/// the new index, and what it has from the journal.
pub(super) fn rebuild(medium: &Arc<dyn Medium>, sources: Sources<'_>, drive: DriveId) -> Result<(Index, Restored), StoreError> {
    let failed = |error| io_error(medium.path(), 0, error);
    if medium.list("").map_err(failed)?.iter().any(|name| name == BUILDING) {
        medium.remove(BUILDING).map_err(failed)?;
    }
    let Sources { old, replayed, newer, keep } = sources;
    let new = Index::open(medium.clone(), BUILDING, true, CACHE_BYTES)?;
    let (totals, segments) = (Totals::default(), BTreeMap::new());
    let mut copy = Copy { new: &new, rows: Vec::new(), bytes: 0, totals, segments, seen: HashSet::new() };
    let holes = match &old {
        Some(old) => copy.take_old(old, replayed)?,
        None => vec![Hole { after: None, before: None, why: String::new() }],
    };
    let restored = match replayed {
        Some(replayed) => copy.take_journal(replayed, &holes).map_err(failed)??,
        None => Restored::default(),
    };
    copy.put()?;
    let (mut totals, segments) = (copy.totals, copy.segments);
    let fact = |name| old.as_ref().and_then(|old| old.fact(name).ok().flatten()).unwrap_or(0);
    let there = medium.list(FOLDER).map_err(failed)?.iter().filter_map(|name| file_number(name)).max().unwrap_or(0);
    let last_file = fact(LAST_FILE).max(segments.keys().copied().max().unwrap_or(0)).max(there);
    // This number is above all numbers in the journal, so that the journal is made anew.
    let commit = fact(COMMIT).max(replayed.map_or(0, |replayed| replayed.commit.max(replayed.marked))).saturating_add(1);
    new.put_segments(&segments)?;
    totals.last_number = totals.last_number.max(fact(LAST_NUMBER));
    let facts = [(DRIVE, drive.0), (LAST_FILE, last_file), (COMMIT, commit)].into_iter().chain(totals.facts());
    facts.into_iter().try_for_each(|(name, value)| new.set_fact(name, value))?;
    new.take_rows(&newer, commit)?;
    // While keys are missing, what they were made of must not be taken for leftovers.
    if holes.is_empty() && !keep {
        new.sweep_packs()?;
    }
    // redb must not write the old file once the new file has its name.
    drop(old);
    drop(new);
    // An open that finds the new file under this name finishes what is begun here.
    medium.rename(BUILDING, BUILT).and_then(|()| medium.flush_names("")).map_err(failed)?;
    if keep {
        put_aside(&**medium).map_err(failed)?;
    }
    medium.rename(BUILT, INDEX).and_then(|()| medium.flush_names("")).map_err(failed)?;
    Ok((Index::open(medium.clone(), INDEX, false, CACHE_BYTES)?, restored))
}

/// Names the keys that are lost although older values are left.
pub(super) fn tell_outdated(report: &mut CheckReport, restored: &Restored) {
    for key in &restored.outdated {
        let what = "its last value was where the index and the journal are damaged; an older one is not put in its place";
        report.findings.push(Finding {
            kind: FindingKind::LostKey,
            key: Some(show_key(key)),
            file: Some(crate::journal::FOLDER.to_string()),
            what: what.to_string(),
            repaired: false,
        });
    }
}

/// Notes in each finding what a repair has done. Keys were lost unless the journal has everything that the index had.
pub(super) fn tell(report: &mut CheckReport, restored: &Restored, knows_all: bool) {
    report.restored_keys += restored.keys;
    for finding in &mut report.findings {
        match finding.kind {
            FindingKind::Index | FindingKind::Account => finding.repaired = true,
            FindingKind::LostKey | FindingKind::Record if knows_all => {
                finding.what += "; the journal knew what was there";
                finding.repaired = true;
            }
            _ => {}
        }
    }
    tell_outdated(report, restored);
}

/// The last step of a repair: a complete journal, and the marker.
pub(super) fn finish(
    medium: &Arc<dyn Medium>,
    index: Index,
    drive: DriveId,
    report: &mut CheckReport,
) -> Result<(), StoreError> {
    let format = format_needed(&index)?;
    if !matches!(find_marker(&**medium)?, MarkerState::Whole(marker) if marker.format >= format) {
        write_marker(&**medium, format, drive)?;
    }
    let bad = report.findings.iter().any(|finding| finding.kind == FindingKind::Journal);
    let commit = index.fact(COMMIT)?.unwrap_or(0);
    let journal = Arc::new(Journal::open(medium.clone(), drive, commit)?);
    index.set_journal(journal.clone())?;
    if bad || journal.wants_base() {
        journal.tend(0, |between| index.durable_snapshot(between))?;
    }
    index.end_log()?;
    journal.close(index.durable_commit());
    let put_right = |kind| matches!(kind, FindingKind::Journal | FindingKind::Format);
    report.findings.iter_mut().filter(|finding| put_right(finding.kind)).for_each(|finding| finding.repaired = true);
    Ok(())
}

struct Copy<'a> {
    new: &'a Index,
    rows: Vec<(Key, Vec<u8>, Named)>,
    bytes: usize,
    totals: Totals,
    segments: BTreeMap<u64, SegmentRow>,
    /// Keys that the old index has shown.
    seen: HashSet<Key>,
}

impl Copy<'_> {
    /// Adds what the old index shows. A record that is damaged itself is taken from the journal. If the journal does
    /// not have it, it is taken as it is, so that reading its key goes on to fail.
    fn take_old(&mut self, old: &Index, replayed: Option<&Replayed>) -> Result<Vec<Hole>, StoreError> {
        let (known, _) = all_places(old)?;
        let mut known: Vec<Key> =
            known.into_iter().map(|(_, key)| key).chain(replayed.into_iter().flat_map(Replayed::keys).cloned()).collect();
        known.sort();
        known.dedup();
        sweep(old, &known, &mut |key, record| {
            self.seen.insert(key.clone());
            let again = replayed.filter(|_| !is_whole(key, record)).and_then(|replayed| replayed.record(key).ok().flatten());
            match again.filter(|record| is_whole(key, record)) {
                Some(again) => self.add(key, &again),
                None => self.add(key, record),
            }
        })
    }

    /// Adds those keys of the journal that the old index cannot show.
    fn take_journal(&mut self, replayed: &Replayed, holes: &[Hole]) -> std::io::Result<Result<Restored, StoreError>> {
        let is_hidden = |seen: &HashSet<Key>, key: &Key| !seen.contains(key) && holes.iter().any(|hole| hole.holds(key));
        let outdated = replayed.outdated.iter().map(|(key, _)| key).filter(|key| is_hidden(&self.seen, key)).cloned().collect();
        let mut restored = Restored { keys: 0, outdated };
        for key in replayed.keys() {
            if !is_hidden(&self.seen, key) {
                continue;
            }
            let Some(record) = replayed.record(key)? else { continue };
            if is_whole(key, &record) {
                if let Err(error) = self.add(key, &record) {
                    return Ok(Err(error));
                }
                restored.keys += u64::from(!is_own(key));
            }
        }
        Ok(Ok(restored))
    }

    fn add(&mut self, key: &Key, record: &[u8]) -> Result<(), StoreError> {
        let mut named = Named::default();
        if let Ok(record) = Record::decode(key, record) {
            named = Named::of(&record);
            self.totals.add(key, &named);
        }
        if let Some(place) = named.place {
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

/// Whether a record is undamaged, including its value if that is inline.
fn is_whole(key: &[u8], record: &[u8]) -> bool {
    match Record::decode(key, record) {
        Ok(Record { body: Body::Inline(value), checksum, .. }) => xxhash_rust::xxh3::xxh3_64(value) == checksum,
        Ok(_) => true,
        Err(_) => false,
    }
}
