//! Reads every record and every value.

use std::collections::BTreeSet;

use super::sweep::{Hole, sweep};
use super::{Check, CheckProgress, CheckStep, FindingKind, Named};
use crate::api::show_key;
use crate::index::{INDEX, Index, StoredValue, Totals};
use crate::recipe::{is_own, pack_of};
use crate::record::{Body, Record, ValueLocation};
use crate::segments::{Segments, file_name};
use crate::{Key, StoreError};

/// The number of rows of the table of places that are read at once.
const PLACES_MAX: usize = 1_024;

/// A large value's place, and its key.
type Placed = (ValueLocation, Key);

impl Check<'_> {
    /// Reads all records and their values.
    pub(super) fn records(&mut self, segments: &Segments) -> Result<Named, StoreError> {
        let totals = self.index.totals().map(|(_, totals)| totals).unwrap_or_default();
        let total = totals.value_bytes;
        let (known, unread) = all_places(self.index)?;
        if let Some(what) = unread {
            self.account(format!("the table of places cannot be read to its end: {what}"));
        }
        let told = self.replayed.into_iter().flat_map(crate::journal::Replayed::keys).cloned();
        let mut known: Vec<Key> = known.into_iter().map(|(_, key)| key).chain(told).collect();
        known.sort();
        known.dedup();
        let mut named = Named::default();
        let index = self.index;
        let holes = sweep(index, &known, &mut |key, record| {
            self.record(key, record, segments, &mut named)?;
            (self.progress)(CheckProgress { step: CheckStep::Values, done: self.report.value_bytes, total });
            Ok(())
        })?;
        for Hole { after, before, why } in &holes {
            let name = |key: &Option<Key>, none: &str| key.as_ref().map_or(none.to_string(), |key| show_key(key));
            let what = format!(
                "records between {} and {} cannot be read: {why}",
                name(after, "the first key"),
                name(before, "the last key")
            );
            self.find(FindingKind::LostKey, None, Some(INDEX.to_string()), what);
            self.rebuild = true;
        }
        named.holes = holes;
        if named.holes.is_empty() && total != self.report.value_bytes {
            self.account(format!("values have {} bytes; the index says {total}", self.report.value_bytes));
        }
        self.packs(&named, &totals)?;
        Ok(named)
    }

    fn record(&mut self, key: &Key, record: &[u8], segments: &Segments, named: &mut Named) -> Result<(), StoreError> {
        let record = match Record::decode(key, record) {
            Ok(record) => record,
            Err(what) => {
                self.find(FindingKind::Record, Some(show_key(key)), Some(INDEX.to_string()), what);
                return Ok(());
            }
        };
        named.totals.add(key, &crate::index::Named::of(&record));
        named.packs.extend(pack_of(key));
        if !is_own(key) {
            self.report.keys += 1;
            self.report.value_bytes = self.report.value_bytes.saturating_add(record.value_bytes());
        }
        match record.body {
            Body::Inline(value) => {
                if xxhash_rust::xxh3::xxh3_64(value) != record.checksum {
                    let what = "the checksum of its value does not hold".to_string();
                    self.find(FindingKind::Value, Some(show_key(key)), Some(INDEX.to_string()), what);
                }
            }
            Body::Segment(place) => {
                let row = named.rows.entry(place.file).or_default();
                row.written = row.written.max(place.end());
                row.live = row.live.saturating_add(place.room());
                named.values += 1;
                self.placed(key, place);
                match segments.read(key, place, record.checksum) {
                    Ok(_) => {}
                    Err(StoreError::Corrupt { what, .. }) => {
                        self.find(FindingKind::Value, Some(show_key(key)), Some(file_name(place.file)), what);
                    }
                    Err(error) => {
                        self.find(FindingKind::Value, Some(show_key(key)), Some(file_name(place.file)), error.to_string());
                    }
                }
            }
            Body::Recipe(recipe) => {
                named.uses.extend(recipe.packs().into_iter().map(|pack| (pack, key.clone())));
                self.made_of(key, segments)?;
            }
        }
        Ok(())
    }

    /// Reads a value that has a recipe.
    fn made_of(&mut self, key: &Key, segments: &Segments) -> Result<(), StoreError> {
        let read = match self.index.get(key) {
            Ok(Some((StoredValue::Parts(parts), _))) => segments.assemble(key, &parts).map(drop),
            Ok(Some((StoredValue::Segment { place, checksum }, _))) => segments.read(key, place, checksum).map(drop),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        let what = match read {
            Ok(()) => return Ok(()),
            Err(StoreError::Corrupt { what, .. }) => what,
            Err(error @ StoreError::Io { .. }) => error.to_string(),
            Err(error) => return Err(error),
        };
        self.find(FindingKind::Value, Some(show_key(key)), None, what);
        Ok(())
    }

    /// Compares the account of packs with the recipes.
    fn packs(&mut self, named: &Named, totals: &Totals) -> Result<(), StoreError> {
        let known = match self.index.uses() {
            Ok(known) => known,
            Err(StoreError::Corrupt { what, .. }) => {
                self.account(format!("the table of uses cannot be read: {what}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if !named.holes.is_empty() {
            return Ok(());
        }
        let known: BTreeSet<(u64, Key)> = known.into_iter().collect();
        for (pack, key) in known.symmetric_difference(&named.uses) {
            let what = if named.uses.contains(&(*pack, key.clone())) { "does not know" } else { "is wrong in" };
            self.account(format!("the table of uses {what} that {} has a part of pack {pack}", show_key(key)));
        }
        let used: BTreeSet<u64> = named.uses.iter().map(|(pack, _)| *pack).collect();
        let unused = named.packs.difference(&used).count();
        if unused > 0 {
            self.account(format!("no key has a part of {unused} packs"));
        }
        let found = Totals { value_bytes: totals.value_bytes, last_number: totals.last_number, ..named.totals };
        if found != *totals || named.totals.last_number > totals.last_number {
            self.account(format!("packs and recipes are {found:?}; the index says {totals:?}"));
        }
        Ok(())
    }

    fn placed(&mut self, key: &Key, place: ValueLocation) {
        match self.index.places(place.file, place.offset, 1) {
            Ok(rows) if rows.first().is_some_and(|(at, named)| *at == place && named == key) => {}
            _ => self.account(format!("the table of places does not know {}", show_key(key))),
        }
    }

    /// Finds places whose key has no record that can be read, and values that overlap.
    pub(super) fn lost_keys(&mut self, named: &Named) -> Result<(), StoreError> {
        let (places, _) = all_places(self.index)?;
        let mut before: Option<Placed> = None;
        for (place, key) in places {
            match self.index.place(&key) {
                Ok(Some((there, _))) if there == place => {}
                Ok(_) if named.holes.is_empty() => {
                    self.account(format!("the table of places names {}, which does not lie there", show_key(&key)));
                }
                Err(StoreError::Corrupt { .. }) if self.is_damaged_record(&key) => {}
                Ok(_) | Err(StoreError::Corrupt { .. }) => {
                    let what = format!("its record is lost; its value was at byte {}", place.offset);
                    self.find(FindingKind::LostKey, Some(show_key(&key)), Some(file_name(place.file)), what);
                }
                Err(error) => return Err(error),
            }
            if let Some((other, other_key)) = before.take().filter(|(other, _)| other.file == place.file)
                && other.end() > place.offset
            {
                self.account(format!("the values of {} and {} lie over one another", show_key(&other_key), show_key(&key)));
            }
            before = Some((place, key));
        }
        Ok(())
    }

    /// Whether the record was read, and found to be damaged itself.
    fn is_damaged_record(&self, key: &Key) -> bool {
        let shown = show_key(key);
        self.report.findings.iter().any(|finding| finding.kind == FindingKind::Record && finding.key.as_deref() == Some(&shown))
    }
}

/// The table of places as far as it can be read, and why it cannot be read further.
pub(super) fn all_places(index: &Index) -> Result<(Vec<Placed>, Option<String>), StoreError> {
    let mut all: Vec<Placed> = Vec::new();
    loop {
        let (file, offset) = all.last().map_or((0, 0), |(place, _)| (place.file, place.offset + 1));
        match index.places_from(file, offset, PLACES_MAX) {
            Ok(rows) => {
                let full = rows.len() == PLACES_MAX;
                all.extend(rows);
                if !full {
                    return Ok((all, None));
                }
            }
            Err(StoreError::Corrupt { what, .. }) => return Ok((all, Some(what))),
            Err(error) => return Err(error),
        }
    }
}
