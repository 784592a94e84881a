//! What the index says about keys and segments.

use std::ops::Bound;

use bytes::Bytes;
use redb::{
    AccessGuard, ReadOnlyTable, ReadTransaction, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    StorageError,
};
use xxhash_rust::xxh3::xxh3_64;

use super::dedup_parts::find;
use super::failure::{A_PAGE, Failure, caught, corrupt};
use super::ledger::Totals;
use super::{
    ENTRIES, FACTS, Index, LAST_NUMBER, PACK_BYTES, PACKS, PLACES, RECIPE_BYTES, SEGMENTS, SegmentRow, Snapshot, StoredValue,
    VALUE_BYTES,
};
use crate::api::show_key;
use crate::recipe::OWN;
use crate::record::{Body, Record, ValueLocation};
use crate::{Entry, Key, KeyRange, StoreError, Value, Version};

pub(super) type Entries = ReadOnlyTable<&'static [u8], &'static [u8]>;

impl Index {
    /// All segment files that records name.
    pub fn segments(&self) -> Result<Vec<(u64, SegmentRow)>, StoreError> {
        self.run(|database| {
            let segments = database.begin_read()?.open_table(SEGMENTS)?;
            let row = |row: Result<_, StorageError>| {
                let (file, row): (AccessGuard<u64>, AccessGuard<(u64, u64, u64)>) = row?;
                let (written, live, punched) = row.value();
                Ok((file.value(), SegmentRow { written, live, punched }))
            };
            segments.iter()?.map(row).collect()
        })
    }

    /// Whether a key names the segment file.
    pub fn names(&self, file: u64) -> Result<bool, StoreError> {
        self.run(|database| Ok(database.begin_read()?.open_table(SEGMENTS)?.get(file)?.is_some()))
    }

    /// At most `limit` values of a segment file in order, from `offset` on: the place of each, and its key.
    pub fn places(&self, file: u64, offset: u64, limit: usize) -> Result<Vec<(ValueLocation, Key)>, StoreError> {
        self.run(|database| places(&database.begin_read()?, file, offset, limit))
    }

    /// As [`Index::places`], by a snapshot.
    pub fn places_of(
        &self,
        snapshot: &Snapshot,
        file: u64,
        offset: u64,
        limit: usize,
    ) -> Result<Vec<(ValueLocation, Key)>, StoreError> {
        caught(|| places(&snapshot.read, file, offset, limit)).map_err(|failure| self.failed(failure))
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<(StoredValue, Entry)>, StoreError> {
        self.look(key, |key, record, entries| {
            let found = match record.body {
                Body::Segment(place) => StoredValue::Segment { place, checksum: record.checksum },
                Body::Inline(value) if xxh3_64(value) == record.checksum => StoredValue::Inline(Value::copy_from_slice(value)),
                Body::Inline(_) => return Err(corrupt(key, "its checksum does not hold").into()),
                Body::Recipe(recipe) => find(key, &recipe, record.checksum, entries)?,
            };
            Ok((found, entry_of(key, &record)))
        })
    }

    pub fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        self.look(key, |key, record, _| Ok(entry_of(key, &record)))
    }

    /// The place of a key's value, if it is in a segment.
    pub fn place(&self, key: &[u8]) -> Result<Option<(ValueLocation, u64)>, StoreError> {
        let found = self.look(key, |_, record, _| Ok(record.place().map(|place| (place, record.checksum))))?;
        Ok(found.flatten())
    }

    /// The entries of a range, without what is the store's own.
    pub fn range(&self, range: &KeyRange) -> Result<Vec<Entry>, StoreError> {
        let range = &without_own(range);
        if range.is_empty() || range.limit == 0 {
            return Ok(Vec::new());
        }
        let bounds = (range.start.as_ref().map(AsRef::as_ref), range.end.as_ref().map(AsRef::as_ref));
        self.run(|database| {
            let entries = database.begin_read()?.open_table(ENTRIES)?;
            let read = |row: Result<_, StorageError>| {
                let (key, record): (AccessGuard<&[u8]>, AccessGuard<&[u8]>) = row?;
                Ok(entry_of(key.value(), &decode(key.value(), record.value())?))
            };
            let rows = entries.range::<&[u8]>(bounds)?;
            if range.reverse {
                rows.rev().take(range.limit).map(read).collect()
            } else {
                rows.take(range.limit).map(read).collect()
            }
        })
    }

    /// The number of keys, and the totals of their values.
    pub fn totals(&self) -> Result<(u64, Totals), StoreError> {
        self.run(|database| {
            let read = database.begin_read()?;
            let facts = read.open_table(FACTS)?;
            let fact = |name| Ok::<_, Failure>(facts.get(name)?.map_or(0, |fact| fact.value()));
            let totals = Totals {
                value_bytes: fact(VALUE_BYTES)?,
                packs: fact(PACKS)?,
                pack_bytes: fact(PACK_BYTES)?,
                recipe_bytes: fact(RECIPE_BYTES)?,
                last_number: fact(LAST_NUMBER)?,
            };
            Ok((read.open_table(ENTRIES)?.len()?.saturating_sub(totals.packs), totals))
        })
    }

    pub(super) fn look<T>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8], Record, &Entries) -> Result<T, Failure>,
    ) -> Result<Option<T>, StoreError> {
        let found = self.run_open(|opened| {
            let entries = opened.entries.get(&opened.database)?;
            let Some(row) = entries.get(key)? else { return Ok(None) };
            read(key, decode(key, row.value())?, &entries).map(Some)
        });
        found.map_err(|error| name_key(error, key))
    }
}

fn places(read: &ReadTransaction, file: u64, offset: u64, limit: usize) -> Result<Vec<(ValueLocation, Key)>, Failure> {
    let places = read.open_table(PLACES)?;
    let rows = places.range((file, offset)..=(file, u64::MAX))?.take(limit);
    rows.map(|row| {
        let (at, held) = row?;
        let (bytes, key) = held.value();
        let offset = at.value().1;
        Ok((ValueLocation { file, offset, bytes }, Key::copy_from_slice(key)))
    })
    .collect()
}

/// The part of a range in which clients have keys.
fn without_own(range: &KeyRange) -> KeyRange {
    let end = match &range.end {
        Bound::Included(key) | Bound::Excluded(key) if key[..] < OWN[..] => range.end.clone(),
        _ => Bound::Excluded(Key::from_static(&OWN)),
    };
    KeyRange { end, ..range.clone() }
}

/// redb does not know for which key it met a damaged page.
fn name_key(error: StoreError, key: &[u8]) -> StoreError {
    match error {
        StoreError::Corrupt { key: named, what } if named == A_PAGE => {
            StoreError::Corrupt { key: show_key(key), what: format!("a page of the index does not hold: {what}") }
        }
        other => other,
    }
}

pub(crate) fn decode<'a>(key: &[u8], record: &'a [u8]) -> Result<Record<'a>, Failure> {
    Record::decode(key, record).map_err(|what| corrupt(key, &what).into())
}

fn entry_of(key: &[u8], record: &Record) -> Entry {
    Entry {
        key: Bytes::copy_from_slice(key),
        version: Version::copy_from_slice(record.version),
        tag: record.tag(),
        bytes: record.value_bytes(),
    }
}
