//! Lists of entries that are longer than fits into memory, or that have holes.

use std::ops::Bound;

use crate::{Entry, Key, KeyRange, Store, StoreError};

/// Entries that are in memory at one time while keys are listed.
const PAGE_KEYS: usize = 4_096;

/// Looks at every entry whose key starts with `prefix`, in order. Values are not read, and only a page of entries is in
/// memory.
pub fn each_entry(store: &dyn Store, prefix: &str, mut look: impl FnMut(&Entry)) -> Result<(), StoreError> {
    let mut range = KeyRange { limit: PAGE_KEYS, ..KeyRange::prefix(prefix.as_bytes()) };
    loop {
        let page = store.range(&range)?;
        page.iter().for_each(&mut look);
        match page.last() {
            Some(last) if page.len() == PAGE_KEYS => range.start = Bound::Excluded(last.key.clone()),
            _ => return Ok(()),
        }
    }
}

/// The same around what cannot be read: a damaged page of the index hides the keys that lie there, and no others. Returns
/// whether all could be read.
pub fn each_readable_entry(store: &dyn Store, prefix: &str, mut look: impl FnMut(&Entry)) -> Result<bool, StoreError> {
    let mut range = KeyRange::prefix(prefix.as_bytes());
    let Listed::Upto(last) = list_readable(store, range.clone(), &mut look)? else { return Ok(true) };
    range.reverse = true;
    if let Some(last) = last {
        range.start = Bound::Excluded(last);
    }
    list_readable(store, range, &mut look)?;
    Ok(false)
}

/// At most so many entries from a key on, in order: fewer where some of them cannot be read. None: the first one cannot.
pub(crate) fn readable_from(store: &dyn Store, start: Bound<Key>, most: usize) -> Result<Option<Vec<Entry>>, StoreError> {
    let mut range = KeyRange { start, limit: most.max(1), ..KeyRange::all() };
    loop {
        match store.range(&range) {
            Ok(entries) => return Ok(Some(entries)),
            Err(StoreError::Corrupt { .. }) if range.limit > 1 => range.limit /= 2,
            Err(StoreError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// The first key behind what cannot be read after `start`; none: there is no other.
pub(crate) fn first_behind(store: &dyn Store, start: Bound<Key>) -> Result<Option<Key>, StoreError> {
    let mut first = None;
    let range = KeyRange { start, reverse: true, ..KeyRange::all() };
    list_readable(store, range, &mut |entry: &Entry| first = Some(entry.key.clone()))?;
    Ok(first)
}

/// How far entries could be listed.
enum Listed {
    All,
    /// To this key; none: there was not even a first.
    Upto(Option<Key>),
}

fn list_readable(store: &dyn Store, mut range: KeyRange, look: &mut impl FnMut(&Entry)) -> Result<Listed, StoreError> {
    range.limit = PAGE_KEYS;
    let mut last = None;
    loop {
        match store.range(&range) {
            Ok(page) => {
                page.iter().for_each(&mut *look);
                let Some(entry) = page.last().filter(|_| page.len() == range.limit) else { return Ok(Listed::All) };
                let behind = Bound::Excluded(entry.key.clone());
                if range.reverse {
                    range.end = behind
                } else {
                    range.start = behind
                }
                last = Some(entry.key.clone());
            }
            // Nearer to what is damaged, with ever fewer keys at a time.
            Err(StoreError::Corrupt { .. }) if range.limit > 1 => range.limit /= 2,
            Err(StoreError::Corrupt { .. }) => return Ok(Listed::Upto(last)),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Durability, MemoryStore, Staged, StoreUse, Value, Write};

    #[test]
    fn long_lists_come_page_by_page_and_whole() {
        let store = MemoryStore::new();
        let keys = 2 * PAGE_KEYS;
        let puts = (0..keys).map(|number| Write::put(format!("slice/{number:06}"), "v"));
        store.write(puts.chain([Write::put("slicf", "v")]).collect(), Durability::Through).unwrap();
        let mut seen = Vec::new();
        each_entry(&store, "slice/", |entry| seen.push(entry.key.clone())).unwrap();
        assert!(seen.len() == keys && seen.is_sorted());
        each_entry(&store, "manifest/", |_| panic!("there is none")).unwrap();
    }

    /// A store that cannot list some of its keys, as if they lay on a damaged page of the index.
    #[derive(Debug)]
    pub(crate) struct Holed {
        pub(crate) inner: MemoryStore,
        pub(crate) hidden: std::ops::Range<Key>,
    }

    impl Store for Holed {
        fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
            self.inner.get(key)
        }
        fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
            self.inner.entry(key)
        }
        fn range(&self, range: &KeyRange) -> Result<Vec<Entry>, StoreError> {
            let page = self.inner.range(range)?;
            match page.iter().any(|entry| self.hidden.contains(&entry.key)) {
                true => Err(StoreError::Corrupt { key: "a page".to_owned(), what: "damaged".to_owned() }),
                false => Ok(page),
            }
        }
        fn write(&self, batch: Vec<Write>, durability: Durability) -> Result<(), StoreError> {
            self.inner.write(batch, durability)
        }
        fn flush(&self) -> Result<(), StoreError> {
            self.inner.flush()
        }
        fn stage(&self, value: Value) -> Result<Staged, StoreError> {
            self.inner.stage(value)
        }
        fn adopt(&self, staged: Vec<(Key, Staged)>, batch: Vec<Write>) -> Result<(), StoreError> {
            self.inner.adopt(staged, batch)
        }
        fn unstage(&self, staged: Staged) {
            self.inner.unstage(staged);
        }
        fn usage(&self) -> Result<StoreUse, StoreError> {
            self.inner.usage()
        }
    }

    #[test]
    fn what_cannot_be_read_hides_nothing_else() {
        let key = |number: usize| Key::from(format!("slice/{number:06}"));
        let keys = PAGE_KEYS + 1_000;
        for hidden in [0..1, 700..705, PAGE_KEYS + 10..PAGE_KEYS + 11, keys - 1..keys, 0..keys, 5..5] {
            let store = Holed { inner: MemoryStore::new(), hidden: key(hidden.start)..key(hidden.end) };
            let puts = (0..keys).map(|number| Write::put(key(number), "v"));
            store.write(puts.collect(), Durability::Through).unwrap();
            let mut seen = Vec::new();
            let whole = each_readable_entry(&store, "slice/", |entry| seen.push(entry.key.clone())).unwrap();
            seen.sort();
            let expected: Vec<Key> = (0..keys).filter(|number| !hidden.contains(number)).map(key).collect();
            assert!(seen == expected && whole == hidden.is_empty(), "{hidden:?}: {} of {}", seen.len(), expected.len());
            assert_eq!(each_entry(&store, "slice/", |_| ()).is_err(), !hidden.is_empty());
        }
    }
}
