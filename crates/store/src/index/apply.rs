//! Applies batches to the tables, in one transaction.

use std::collections::{BTreeMap, HashMap};

use redb::{ReadableTable as _, Table, WriteTransaction};
use xxhash_rust::xxh3::xxh3_64;

use super::failure::Failure;
use super::{COMMIT, ENTRIES, FACTS, LAST_FILE, LOG, PLACES, SEGMENTS, VALUE_BYTES};
use crate::api::show_key;
use crate::journal::Row;
use crate::record::{Body, Record, ValueLocation};
use crate::{Expected, Key, StoreError, Tag, Value, Version};

/// What applying a change again may cost, as bytes: so that many small changes wait no longer than a few large ones.
const CHANGE_BYTES: u64 = 512;

/// Changes that are made all or none.
pub(crate) type Batch = Vec<Change>;

/// One change of a key, whose large value was written already.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub key: Key,
    pub expected: Expected,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Put {
        version: Version,
        tag: Tag,
        value: NewValue,
    },
    Delete,
    /// Compaction copied the value. If the key no longer names `from`, nothing is done.
    Move {
        from: ValueLocation,
        to: ValueLocation,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum NewValue {
    Inline(Value),
    Segment { place: ValueLocation, checksum: u64 },
}

/// The effects of a commit.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// The number of the commit; each commit has a larger one.
    pub number: u64,
    /// The outcome of each batch.
    pub outcomes: Vec<Result<(), StoreError>>,
    /// Places that a key names now and did not before.
    pub placed: Vec<ValueLocation>,
    /// Places that no key names any more.
    pub dead: Vec<ValueLocation>,
    /// The bytes of keys and inline values, and something for each change and for the commit.
    pub bytes: u64,
    /// All changes, for the journal.
    pub rows: Vec<Row>,
    /// Whether it is durable in the index, and not by the log alone.
    pub indexed: bool,
}

impl Change {
    /// The approximate number of bytes that it adds to the index.
    pub fn index_bytes(&self) -> u64 {
        let value = match &self.action {
            Action::Put { value: NewValue::Inline(value), version, tag } => value.len() + version.len() + tag.bytes.len(),
            Action::Put { version, tag, .. } => self.key.len() + version.len() + tag.bytes.len(),
            Action::Delete => return 0,
            Action::Move { .. } => self.key.len(),
        };
        (self.key.len() + value) as u64
    }
}

/// The state of a key before a change.
#[derive(Clone, Debug)]
enum Before {
    Absent,
    There {
        version: Version,
        bytes: u64,
        place: Option<ValueLocation>,
    },
    /// Its record cannot be read. Forced writes replace it.
    Damaged(String),
}

type Entries<'t> = Table<'t, &'static [u8], &'static [u8]>;
type Places<'t> = Table<'t, (u64, u64), (u64, &'static [u8])>;

/// Applies each batch whose conditions hold; each sees those before it.
pub(super) fn apply(transaction: &WriteTransaction, batches: &[Batch]) -> Result<Committed, Failure> {
    let mut entries = transaction.open_table(ENTRIES)?;
    let mut places = transaction.open_table(PLACES)?;
    let mut facts = transaction.open_table(FACTS)?;
    let value_bytes = facts.get(VALUE_BYTES)?.map_or(0, |bytes| bytes.value());
    let mut ledger = Ledger { value_bytes, ..Ledger::default() };
    ledger.done.number = facts.get(COMMIT)?.map_or(0, |commit| commit.value()).saturating_add(1);
    ledger.done.bytes = CHANGE_BYTES;
    for batch in batches {
        let outcome = match check(&entries, batch)? {
            Ok(before) => {
                for (change, before) in batch.iter().zip(before) {
                    ledger.apply(change, before, &mut entries, &mut places)?;
                }
                Ok(())
            }
            Err(conflict) => Err(conflict),
        };
        ledger.done.outcomes.push(outcome);
    }
    ledger.keep(transaction, &mut facts)?;
    Ok(ledger.done)
}

/// Applies changes that the log has and the index lacks, up to a commit. No log has more then.
pub(super) fn take(transaction: &WriteTransaction, rows: &[Row], commit: u64) -> Result<(), Failure> {
    let mut entries = transaction.open_table(ENTRIES)?;
    let mut places = transaction.open_table(PLACES)?;
    let mut facts = transaction.open_table(FACTS)?;
    let value_bytes = facts.get(VALUE_BYTES)?.map_or(0, |bytes| bytes.value());
    let mut ledger = Ledger { value_bytes, ..Ledger::default() };
    ledger.done.number = facts.get(COMMIT)?.map_or(0, |commit| commit.value()).max(commit);
    for (key, record) in rows {
        let before = read(&entries, key)?;
        let encoded = match record {
            None => None,
            Some(record) => {
                let decoded = super::decode(key, record)?;
                ledger.value_bytes = ledger.value_bytes.saturating_add(decoded.value_bytes());
                Some((record.clone(), decoded.place()))
            }
        };
        ledger.put(key, before, encoded, &mut entries, &mut places)?;
    }
    facts.insert(LOG, 0)?;
    ledger.keep(transaction, &mut facts)
}

/// The state that each change of the batch finds when those before it are applied; or the first condition that does not
/// hold.
fn check(entries: &Entries, batch: &[Change]) -> Result<Result<Vec<Before>, StoreError>, Failure> {
    let mut seen: HashMap<&[u8], Before> = HashMap::new();
    let mut all = Vec::with_capacity(batch.len());
    for change in batch {
        let before = match seen.get(&change.key[..]) {
            Some(before) => before.clone(),
            None => read(entries, &change.key)?,
        };
        if let Err(refused) = meets(change, &before) {
            return Ok(Err(refused));
        }
        seen.insert(&change.key, after(change, &before));
        all.push(before);
    }
    Ok(Ok(all))
}

fn read(entries: &Entries, key: &[u8]) -> Result<Before, Failure> {
    let Some(row) = entries.get(key)? else { return Ok(Before::Absent) };
    Ok(match Record::decode(key, row.value()) {
        Ok(record) => {
            let version = Version::copy_from_slice(record.version);
            Before::There { version, bytes: record.value_bytes(), place: record.place() }
        }
        Err(what) => Before::Damaged(what),
    })
}

fn meets(change: &Change, before: &Before) -> Result<(), StoreError> {
    let holds = match (&change.action, &change.expected, before) {
        (Action::Move { .. }, ..) => true,
        (_, Expected::Any, _) | (_, Expected::Absent, Before::Absent) => true,
        (_, Expected::Version(wanted), Before::There { version, .. }) => wanted == version,
        (_, Expected::Unversioned, Before::Absent) => true,
        (_, Expected::Unversioned, Before::There { version, .. }) => version.is_empty(),
        (_, _, Before::Damaged(what)) => return Err(super::corrupt(&change.key, what)),
        _ => false,
    };
    if holds { Ok(()) } else { Err(StoreError::Conflict { key: show_key(&change.key) }) }
}

fn after(change: &Change, before: &Before) -> Before {
    match (&change.action, before) {
        (Action::Delete, _) => Before::Absent,
        (Action::Put { version, value, .. }, _) => {
            let (bytes, place) = match value {
                NewValue::Inline(value) => (value.len() as u64, None),
                NewValue::Segment { place, .. } => (place.bytes, Some(*place)),
            };
            Before::There { version: version.clone(), bytes, place }
        }
        (Action::Move { from, to }, Before::There { version, bytes, place }) if *place == Some(*from) => {
            Before::There { version: version.clone(), bytes: *bytes, place: Some(*to) }
        }
        (Action::Move { .. }, other) => other.clone(),
    }
}

/// Running totals of a commit.
#[derive(Default)]
struct Ledger {
    value_bytes: u64,
    /// For each segment file: the end of the last value that was put, and how many bytes came alive and died.
    segments: BTreeMap<u64, (u64, u64, u64)>,
    done: Committed,
}

impl Ledger {
    fn apply(&mut self, change: &Change, before: Before, entries: &mut Entries, places: &mut Places) -> Result<(), Failure> {
        let key = &change.key[..];
        let mut encoded = None;
        match &change.action {
            Action::Delete => {}
            Action::Put { version, tag, value } => {
                let (checksum, body) = match value {
                    NewValue::Inline(value) => (xxh3_64(value), Body::Inline(value)),
                    NewValue::Segment { place, checksum } => (*checksum, Body::Segment(*place)),
                };
                let record = Record { version, tag_algorithm: tag.algorithm, tag: &tag.bytes, checksum, body };
                encoded = Some((record.encode(key), record.place()));
                self.value_bytes = self.value_bytes.saturating_add(record.value_bytes());
            }
            Action::Move { from, .. } if !matches!(before, Before::There { place: Some(place), .. } if place == *from) => {
                return Ok(());
            }
            Action::Move { to, .. } => {
                let moved = match entries.get(key)? {
                    Some(row) => {
                        let record = super::decode(key, row.value())?;
                        Record { body: Body::Segment(*to), ..record }.encode(key)
                    }
                    None => return Err(super::corrupt(key, "its record went while it was moved").into()),
                };
                self.value_bytes = self.value_bytes.saturating_add(to.bytes);
                encoded = Some((moved, Some(*to)));
            }
        }
        self.done.bytes += change.key.len() as u64 + change.index_bytes() + CHANGE_BYTES;
        self.put(&change.key, before, encoded, entries, places)
    }

    /// Puts a record and the place that it names, or deletes a key.
    fn put(
        &mut self,
        key: &Key,
        before: Before,
        encoded: Option<(Vec<u8>, Option<ValueLocation>)>,
        entries: &mut Entries,
        places: &mut Places,
    ) -> Result<(), Failure> {
        if let Before::There { bytes, place, .. } = before {
            self.value_bytes = self.value_bytes.saturating_sub(bytes);
            place.map_or(Ok(()), |place| self.leave(place, places))?;
        }
        match encoded {
            None => {
                drop(entries.remove(&key[..])?);
                self.done.rows.push((key.clone(), None));
            }
            Some((record, place)) => {
                entries.insert(&key[..], record.as_slice())?;
                place.map_or(Ok(()), |place| self.take(place, key, places))?;
                self.done.rows.push((key.clone(), Some(record)));
            }
        }
        Ok(())
    }

    /// Writes down the number of the commit, and all totals.
    fn keep(&self, transaction: &WriteTransaction, facts: &mut Table<&'static str, u64>) -> Result<(), Failure> {
        facts.insert(COMMIT, self.done.number)?;
        facts.insert(VALUE_BYTES, self.value_bytes)?;
        let last_file = facts.get(LAST_FILE)?.map_or(0, |file| file.value());
        if let Some((file, _)) = self.segments.last_key_value().filter(|(file, _)| **file > last_file) {
            facts.insert(LAST_FILE, *file)?;
        }
        self.keep_segments(&mut transaction.open_table(SEGMENTS)?)
    }

    fn leave(&mut self, place: ValueLocation, places: &mut Places) -> Result<(), Failure> {
        places.remove((place.file, place.offset))?;
        self.segments.entry(place.file).or_default().2 += place.room();
        self.done.dead.push(place);
        Ok(())
    }

    fn take(&mut self, place: ValueLocation, key: &[u8], places: &mut Places) -> Result<(), Failure> {
        places.insert((place.file, place.offset), (place.bytes, key))?;
        let (end, came, _) = self.segments.entry(place.file).or_default();
        *end = place.end().max(*end);
        *came += place.room();
        self.done.placed.push(place);
        Ok(())
    }

    /// A segment without a live byte has no row.
    fn keep_segments(&self, segments: &mut Table<u64, (u64, u64, u64)>) -> Result<(), Failure> {
        for (file, (end, came, went)) in &self.segments {
            let (written, live, punched) = segments.get(file)?.map_or((0, 0, 0), |row| row.value());
            let live = live.saturating_add(*came).saturating_sub(*went);
            if live == 0 {
                segments.remove(file)?;
            } else {
                segments.insert(file, (written.max(*end), live, punched))?;
            }
        }
        Ok(())
    }
}
