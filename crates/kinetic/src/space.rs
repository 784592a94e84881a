//! [`Space`]: the keys that an identity sees, its clients' and those of slices, as one ordered space.

use std::ops::Bound;

use pithead_store::{Entry, Key, KeyRange, Store, StoreError, Value};

use crate::identity::Identity;
use crate::keys;
use crate::slices::{SLICES, Slices, list_stripes, read_stripe, stripe};

/// The keys that somebody sees.
#[derive(Clone, Copy)]
pub(crate) struct Space<'a> {
    pub store: &'a dyn Store,
    pub slices: &'a dyn Slices,
    /// Who sees them: of the slices, only those that its scopes name.
    pub identity: &'a Identity,
    /// Over TLS.
    pub tls: bool,
}

/// Whether a key is that of a slice, which nobody can change.
pub(crate) fn is_slices(key: &[u8]) -> bool {
    key.starts_with(SLICES)
}

impl Space<'_> {
    /// A value and its entry.
    pub fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
        match is_slices(key) {
            true if self.identity.shows(key, self.tls) => read_stripe(self.slices, key),
            true => Ok(None),
            false => Ok(self.store.get(&keys::stored(key))?.and_then(|(value, entry)| Some((value, shown(entry)?)))),
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
            true if self.identity.shows(key, self.tls) => stripe(self.slices, key),
            true => Ok(None),
            false => Ok(self.store.entry(&keys::stored(key))?.and_then(shown)),
        }
    }

    /// Entries of a range, in order.
    pub fn range(&self, start: &Bound<Key>, end: &Bound<Key>, reverse: bool, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let stored = self.store.range(&keys::stored_range(start, end, reverse, limit))?;
        let mut entries: Vec<Entry> = stored.into_iter().filter_map(shown).collect();
        entries.extend(self.stripes(start, end, reverse, limit)?);
        entries.sort_by(|a, b| if reverse { b.key.cmp(&a.key) } else { a.key.cmp(&b.key) });
        entries.truncate(limit);
        Ok(entries)
    }

    /// The first of a range's stripes that the identity sees.
    fn stripes(&self, start: &Bound<Key>, end: &Bound<Key>, reverse: bool, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let mut prefixes = self.identity.slice_prefixes(self.tls);
        if reverse {
            prefixes.reverse();
        }
        let mut found = Vec::new();
        for prefix in prefixes {
            if found.len() >= limit {
                break;
            }
            let (start, end) = within(prefix, start, end);
            found.extend(list_stripes(self.slices, &start, &end, reverse, limit - found.len())?);
        }
        Ok(found)
    }
}

/// What of a range has keys that begin with a prefix.
fn within(prefix: &[u8], start: &Bound<Key>, end: &Bound<Key>) -> (Bound<Key>, Bound<Key>) {
    let all = KeyRange::prefix(prefix);
    let start = match start {
        Bound::Included(key) | Bound::Excluded(key) if key[..] >= *prefix => start.clone(),
        _ => all.start,
    };
    let end = match (end, &all.end) {
        (Bound::Included(key) | Bound::Excluded(key), Bound::Excluded(behind)) if key < behind => end.clone(),
        _ => all.end,
    };
    (start, end)
}

/// An entry by the name that clients have for it.
fn shown(entry: Entry) -> Option<Entry> {
    Some(Entry { key: keys::of_client(&entry.key)?, ..entry })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use pithead_store::{Durability, MemoryStore, Write};

    use super::*;
    use crate::identity::Scope;
    use crate::slices::StoredSlice;
    use crate::slices::tests::MemorySlices;

    #[test]
    fn slices_lie_among_the_keys_of_clients() {
        let store = MemoryStore::new();
        for key in ["a", "pithead/slicd", "pithead/slice0", "z"] {
            store.write(vec![Write::put(keys::stored(key.as_bytes()), key)], Durability::Through).unwrap();
        }
        let slices = ["d/t", "other/t"].map(|name| (name.as_bytes().to_vec(), Value::from_static(b"slice")));
        let slices = MemorySlices(slices.into());
        let of = |tls_required| {
            let d = Scope { value: b"pithead/slice/d/".to_vec(), tls_required, ..Scope::everything() };
            Identity { scopes: vec![Scope::everything(), d.clone(), d], ..Identity::factory() }
        };
        let (always, only_tls) = (of(false), of(true));
        let with = Space { store: &store, slices: &slices, identity: &always, tls: false };
        let without = Space { identity: &only_tls, ..with };
        let list = |space: &Space<'_>, reverse, limit| -> Vec<String> {
            let found = space.range(&Bound::Unbounded, &Bound::Unbounded, reverse, limit).unwrap();
            found.iter().map(|entry| entry.key.escape_ascii().to_string()).collect()
        };
        assert_eq!(list(&with, false, 9), ["a", "pithead/slicd", "pithead/slice/d/t.00", "pithead/slice0", "z"]);
        assert_eq!(list(&with, true, 3), ["z", "pithead/slice0", "pithead/slice/d/t.00"]);
        assert_eq!(list(&without, false, 9), ["a", "pithead/slicd", "pithead/slice0", "z"]);
        assert_eq!(with.get(b"pithead/slice/d/t.00").unwrap().unwrap().0, "slice");
        assert_eq!(without.get(b"pithead/slice/d/t.00").unwrap(), None);
        assert_eq!(with.get(b"pithead/slice/other/t.00").unwrap(), None);
        assert_eq!(list(&Space { tls: true, ..without }, false, 9), list(&with, false, 9));
        assert_eq!(with.entry(b"a").unwrap().unwrap().key, "a");
    }

    /// Slices in memory, and how often they were listed.
    #[derive(Debug)]
    struct Counted(MemorySlices, AtomicUsize);

    impl Slices for Counted {
        fn list(
            &self,
            start: Bound<&[u8]>,
            end: Bound<&[u8]>,
            reverse: bool,
            limit: usize,
        ) -> Result<Vec<StoredSlice>, StoreError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.list(start, end, reverse, limit)
        }

        fn read(&self, name: &[u8]) -> Result<Option<Value>, StoreError> {
            self.0.read(name)
        }
    }

    /// Each scope that named a slice listed it again.
    #[test]
    fn slices_are_listed_once_however_many_scopes_name_them() {
        let names = ["a/t", "b/t", "b/u", "c/t"].map(|name| (name.as_bytes().to_vec(), Value::from_static(b"slice")));
        let slices = Counted(MemorySlices(names.into()), AtomicUsize::new(0));
        let values = ["b/", "a/", "a/t", "b/", "b/u", "b/", "c/"].map(|value| [SLICES, value.as_bytes()].concat());
        let scopes = values.map(|value| Scope { value, ..Scope::everything() }).into();
        let identity = Identity { scopes, ..Identity::factory() };
        let store = MemoryStore::new();
        let space = Space { store: &store, slices: &slices, identity: &identity, tls: false };
        for (reverse, limit, listed, expected) in [
            (false, 9, 3, &["a/t.00", "b/t.00", "b/u.00", "c/t.00"][..]),
            (true, 9, 3, &["c/t.00", "b/u.00", "b/t.00", "a/t.00"]),
            (false, 2, 2, &["a/t.00", "b/t.00"]),
            (true, 1, 1, &["c/t.00"]),
        ] {
            slices.1.store(0, Ordering::Relaxed);
            let found = space.range(&Bound::Unbounded, &Bound::Unbounded, reverse, limit).unwrap();
            let found: Vec<_> = found.iter().map(|entry| entry.key[SLICES.len()..].escape_ascii().to_string()).collect();
            assert_eq!(found, expected, "{reverse} {limit}");
            assert_eq!(slices.1.load(Ordering::Relaxed), listed, "{reverse} {limit}");
        }
    }
}
