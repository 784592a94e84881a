//! [`Ledger`]: what a commit changes in the tables, and the totals that follow from it.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadableTable as _, Table, WriteTransaction};

use super::apply::{Before, Committed, Named, read};
use super::failure::Failure;
use super::{
    COMMIT, ENTRIES, FACTS, LAST_FILE, LAST_NUMBER, PACK_BYTES, PACKS, PLACES, RECIPE_BYTES, SEGMENTS, USES, VALUE_BYTES,
};
use crate::Key;
use crate::recipe::{OWN, pack_key, pack_of};

/// The tables of a write transaction.
pub(super) struct Tables<'t> {
    pub entries: Table<'t, &'static [u8], &'static [u8]>,
    pub places: Table<'t, (u64, u64), (u64, &'static [u8])>,
    pub segments: Table<'t, u64, (u64, u64, u64)>,
    pub uses: Table<'t, (u64, &'static [u8]), ()>,
    pub facts: Table<'t, &'static str, u64>,
}

impl<'t> Tables<'t> {
    pub fn open(transaction: &'t WriteTransaction) -> Result<Self, Failure> {
        Ok(Self {
            entries: transaction.open_table(ENTRIES)?,
            places: transaction.open_table(PLACES)?,
            segments: transaction.open_table(SEGMENTS)?,
            uses: transaction.open_table(USES)?,
            facts: transaction.open_table(FACTS)?,
        })
    }
}

/// The totals that the facts keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes of the values that keys have.
    pub value_bytes: u64,
    pub packs: u64,
    pub pack_bytes: u64,
    /// Those of `value_bytes` whose value has a recipe.
    pub recipe_bytes: u64,
    /// The last number that a pack or a recipe has got.
    pub last_number: u64,
}

impl Totals {
    /// Each total with the name of its fact.
    pub fn facts(&self) -> [(&'static str, u64); 5] {
        [
            (VALUE_BYTES, self.value_bytes),
            (PACKS, self.packs),
            (PACK_BYTES, self.pack_bytes),
            (RECIPE_BYTES, self.recipe_bytes),
            (LAST_NUMBER, self.last_number),
        ]
    }

    /// Adds a record of a key.
    pub fn add(&mut self, key: &[u8], named: &Named) {
        match (pack_of(key), &named.recipe) {
            (Some(pack), _) => {
                self.packs += 1;
                self.pack_bytes = self.pack_bytes.saturating_add(named.bytes);
                self.last_number = self.last_number.max(pack);
            }
            (None, recipe) => {
                self.value_bytes = self.value_bytes.saturating_add(named.bytes);
                if let Some((number, _)) = recipe {
                    self.recipe_bytes = self.recipe_bytes.saturating_add(named.bytes);
                    self.last_number = self.last_number.max(*number);
                }
            }
        }
    }

    fn remove(&mut self, key: &[u8], named: &Named) {
        if pack_of(key).is_some() {
            self.packs = self.packs.saturating_sub(1);
            self.pack_bytes = self.pack_bytes.saturating_sub(named.bytes);
        } else {
            self.value_bytes = self.value_bytes.saturating_sub(named.bytes);
            if named.recipe.is_some() {
                self.recipe_bytes = self.recipe_bytes.saturating_sub(named.bytes);
            }
        }
    }
}

/// Running totals of a commit.
#[derive(Default)]
pub(super) struct Ledger {
    totals: Totals,
    /// For each segment file: the end of the last value that was put, and how many bytes came alive and died.
    segments: BTreeMap<u64, (u64, u64, u64)>,
    /// Packs that are new, or that a recipe names no more.
    touched: BTreeSet<u64>,
    pub done: Committed,
}

impl Ledger {
    /// The totals so far, and the number of the last commit.
    pub fn new(tables: &Tables<'_>) -> Result<Self, Failure> {
        let fact = |name| Ok::<_, Failure>(tables.facts.get(name)?.map_or(0, |fact| fact.value()));
        let totals = Totals {
            value_bytes: fact(VALUE_BYTES)?,
            packs: fact(PACKS)?,
            pack_bytes: fact(PACK_BYTES)?,
            recipe_bytes: fact(RECIPE_BYTES)?,
            last_number: fact(LAST_NUMBER)?,
        };
        let done = Committed { number: fact(COMMIT)?, ..Committed::default() };
        Ok(Self { totals, done, ..Self::default() })
    }

    /// Puts a record with all that it names, or deletes a key.
    pub fn put(
        &mut self,
        key: &Key,
        before: Before,
        encoded: Option<(Vec<u8>, Named)>,
        tables: &mut Tables<'_>,
    ) -> Result<(), Failure> {
        if let Before::There { named, .. } = before {
            self.leave(key, named, tables)?;
        }
        match encoded {
            None => {
                drop(tables.entries.remove(&key[..])?);
                self.done.rows.push((key.clone(), None));
            }
            Some((record, named)) => {
                tables.entries.insert(&key[..], record.as_slice())?;
                self.take(key, &named, tables)?;
                self.done.rows.push((key.clone(), Some(record)));
            }
        }
        Ok(())
    }

    /// Deletes the packs among those that were touched that no recipe names: those whose last one is gone, and new ones
    /// whose recipe did not come to be.
    pub fn drop_unused(&mut self, tables: &mut Tables<'_>) -> Result<(), Failure> {
        for pack in std::mem::take(&mut self.touched) {
            let is_used = match tables.uses.range((pack, &[][..])..)?.next() {
                None => false,
                Some(row) => row?.0.value().0 == pack,
            };
            if is_used {
                continue;
            }
            let key = pack_key(pack);
            match read(&tables.entries, &key)? {
                Before::Absent => {}
                before => self.put(&key, before, None, tables)?,
            }
        }
        self.touched.clear();
        Ok(())
    }

    /// All packs count as touched.
    pub fn touch_all(&mut self, tables: &Tables<'_>) -> Result<(), Failure> {
        for row in tables.entries.range(&OWN[..]..)? {
            self.touched.extend(pack_of(row?.0.value()));
        }
        Ok(())
    }

    /// Writes down the number of the commit, and all totals.
    pub fn keep(&self, tables: &mut Tables<'_>) -> Result<(), Failure> {
        let facts = &mut tables.facts;
        facts.insert(COMMIT, self.done.number)?;
        for (name, total) in self.totals.facts() {
            // A store that never had a recipe has nothing of them.
            if total > 0 || name == VALUE_BYTES || facts.get(name)?.is_some() {
                facts.insert(name, total)?;
            }
        }
        let last_file = facts.get(LAST_FILE)?.map_or(0, |file| file.value());
        if let Some((file, _)) = self.segments.last_key_value().filter(|(file, _)| **file > last_file) {
            facts.insert(LAST_FILE, *file)?;
        }
        self.keep_segments(&mut tables.segments)
    }

    fn leave(&mut self, key: &[u8], named: Named, tables: &mut Tables<'_>) -> Result<(), Failure> {
        self.totals.remove(key, &named);
        if let Some(place) = named.place {
            tables.places.remove((place.file, place.offset))?;
            self.segments.entry(place.file).or_default().2 += place.room();
            self.done.dead.push(place);
        }
        if let Some((number, packs)) = named.recipe {
            for pack in packs {
                tables.uses.remove((pack, key))?;
                self.touched.insert(pack);
            }
            self.done.unshared.push(number);
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], named: &Named, tables: &mut Tables<'_>) -> Result<(), Failure> {
        self.totals.add(key, named);
        if let Some(place) = named.place {
            tables.places.insert((place.file, place.offset), (place.bytes, key))?;
            let (end, came, _) = self.segments.entry(place.file).or_default();
            *end = place.end().max(*end);
            *came += place.room();
            self.done.placed.push(place);
        }
        for pack in named.recipe.iter().flat_map(|(_, packs)| packs) {
            tables.uses.insert((*pack, key), ())?;
        }
        self.touched.extend(pack_of(key));
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
