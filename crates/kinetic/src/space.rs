//! [`Space`]: the keys that an identity sees, its clients' and those of slices, as one ordered space.

use std::ops::Bound;

use pithead_store::{Entry, Key, Store, StoreError, Value};

use crate::keys;
use crate::slices::{SLICES, Slices, list_stripes, read_stripe};

/// The keys that somebody sees.
pub(crate) struct Space<'a> {
    pub store: &'a dyn Store,
    /// None: slices do not appear.
    pub slices: Option<&'a dyn Slices>,
}

/// Whether a key is that of a slice, which nobody can change.
pub(crate) fn is_slices(key: &[u8]) -> bool {
    key.starts_with(SLICES)
}

impl Space<'_> {
    /// A value and its entry.
    pub fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        match (is_slices(key), self.slices) {
            (true, Some(slices)) => read_stripe(slices, key),
            (true, None) => Ok(None),
            (false, _) => Ok(self.store.get(&keys::stored(key))?.and_then(|(value, entry)| Some((value, shown(entry)?)))),
        }
    }

    /// A client's value and its entry, where the value is in memory: see [`Store::get_resident`].
    pub fn get_resident(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        match is_slices(key) {
            true => Ok(None),
            false => Ok(self.store.get_resident(&keys::stored(key))?.and_then(|(value, entry)| Some((value, shown(entry)?)))),
        }
    }

    /// Reads a value where it is stored, and compares its checksum.
    pub fn check(&self, key: &[u8]) -> Result<(), StoreError> {
        match is_slices(key) {
            true => self.get(key).map(drop),
            false => self.store.check(&keys::stored(key)),
        }
    }

    /// An entry, without its value.
    pub fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        match is_slices(key) {
            true => Ok(self.get(key)?.map(|(_, entry)| entry)),
            false => Ok(self.store.entry(&keys::stored(key))?.and_then(shown)),
        }
    }

    /// Entries of a range, in order.
    pub fn range(&self, start: &Bound<Key>, end: &Bound<Key>, reverse: bool, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let stored = self.store.range(&keys::stored_range(start, end, reverse, limit))?;
        let mut entries: Vec<Entry> = stored.into_iter().filter_map(shown).collect();
        if let Some(slices) = self.slices {
            entries.extend(list_stripes(slices, start, end, reverse, limit)?);
            entries.sort_by(|a, b| if reverse { b.key.cmp(&a.key) } else { a.key.cmp(&b.key) });
            entries.truncate(limit);
        }
        Ok(entries)
    }
}

/// An entry by the name that clients have for it.
fn shown(entry: Entry) -> Option<Entry> {
    Some(Entry { key: keys::of_client(&entry.key)?, ..entry })
}

#[cfg(test)]
mod tests {
    use pithead_store::{Durability, MemoryStore, Write};

    use super::*;
    use crate::slices::tests::MemorySlices;

    #[test]
    fn slices_lie_among_the_keys_of_clients() {
        let store = MemoryStore::new();
        for key in ["a", "pithead/slicd", "pithead/slice0", "z"] {
            store.write(vec![Write::put(keys::stored(key.as_bytes()), key)], Durability::Through).unwrap();
        }
        let slices = MemorySlices([(b"d/t".to_vec(), Value::from_static(b"slice"))].into());
        let with = Space { store: &store, slices: Some(&slices) };
        let without = Space { slices: None, ..with };
        let list = |space: &Space<'_>, reverse, limit| -> Vec<String> {
            let found = space.range(&Bound::Unbounded, &Bound::Unbounded, reverse, limit).unwrap();
            found.iter().map(|entry| entry.key.escape_ascii().to_string()).collect()
        };
        assert_eq!(list(&with, false, 9), ["a", "pithead/slicd", "pithead/slice/d/t.00", "pithead/slice0", "z"]);
        assert_eq!(list(&with, true, 3), ["z", "pithead/slice0", "pithead/slice/d/t.00"]);
        assert_eq!(list(&without, false, 9), ["a", "pithead/slicd", "pithead/slice0", "z"]);
        assert_eq!(with.get(b"pithead/slice/d/t.00").unwrap().unwrap().0, "slice");
        assert_eq!(without.get(b"pithead/slice/d/t.00").unwrap(), None);
        assert_eq!(with.entry(b"a").unwrap().unwrap().key, "a");
    }
}
