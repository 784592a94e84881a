//! Keys of a drive's store: how they are made, read and listed.

use pithead_model::{DatasetId, LoadId, SliceKey};
use pithead_store::{Entry, Key, KeyRange, Store, StoreError};
use std::ops::Bound;

/// Manifests, by domain.
pub(crate) const MANIFEST_PREFIX: &str = "manifest/";
/// Slices and metadata slices, as [`SliceKey`] shows them.
pub(crate) const SLICE_PREFIX: &str = "slice/";
/// Runs that wait for their last reader, so that they go after a restart, too. The value is the run's key as JSON.
pub(crate) const CONDEMNED_PREFIX: &str = "condemned/";
/// Up to which version of its manifest each run is claimed, eight bytes, big end first.
pub(crate) const CLAIM_PREFIX: &str = "claim/";
/// Manifests of a home that another drive took the place of, while it had changes that the other one did not know.
pub(crate) const ASIDE_PREFIX: &str = "manifest-aside/";
/// Entries that are in memory at one time while keys are listed.
const PAGE_KEYS: usize = 4_096;

/// What the key of a slice or a metadata slice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredSlice<'a> {
    pub(crate) domain: &'a str,
    pub(crate) dataset_name: &'a str,
    pub(crate) dataset: DatasetId,
    pub(crate) load: LoadId,
    pub(crate) partition: u32,
    /// Not the metadata slice.
    pub(crate) is_slice: bool,
}

pub(crate) fn manifest_key(domain: &str) -> Key {
    format!("{MANIFEST_PREFIX}{domain}").into()
}

pub(crate) fn slice_key(key: &SliceKey) -> Key {
    key.to_string().into()
}

pub(crate) fn condemned_key(run: &SliceKey) -> Key {
    format!("{CONDEMNED_PREFIX}{run}").into()
}

pub(crate) fn claim_key(run: &SliceKey) -> Key {
    format!("{CLAIM_PREFIX}{run}").into()
}

pub(crate) fn aside_key(domain: &str) -> Key {
    format!("{ASIDE_PREFIX}{domain}").into()
}

/// Reads `slice/domain/dataset@incarnation/load/partition.number`, or `.meta`. None: another key.
pub(crate) fn parse_slice_key(key: &[u8]) -> Option<StoredSlice<'_>> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(SLICE_PREFIX)?;
    let (domain, rest) = rest.split_once('/')?;
    let (dataset, rest) = rest.split_once('/')?;
    let (dataset_name, dataset) = dataset.rsplit_once('@')?;
    let (load, rest) = rest.split_once('/')?;
    let (partition, number) = rest.split_once('.')?;
    Some(StoredSlice {
        domain,
        dataset_name,
        dataset: dataset.parse().ok()?,
        load: load.parse().ok()?,
        partition: partition.parse().ok()?,
        is_slice: number != "meta",
    })
}

/// Looks at every entry whose key starts with `prefix`, in order. Values are not read, and only a page of entries is in
/// memory.
pub(crate) fn each_entry(store: &dyn Store, prefix: &str, mut look: impl FnMut(&Entry)) -> Result<(), StoreError> {
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
pub(crate) fn each_readable_entry(store: &dyn Store, prefix: &str, mut look: impl FnMut(&Entry)) -> Result<bool, StoreError> {
    let mut range = KeyRange::prefix(prefix.as_bytes());
    let Listed::Upto(last) = list_readable(store, range.clone(), &mut look)? else { return Ok(true) };
    range.reverse = true;
    if let Some(last) = last {
        range.start = Bound::Excluded(last);
    }
    list_readable(store, range, &mut look)?;
    Ok(false)
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
mod tests {
    use super::*;
    use pithead_model::DatasetName;
    use pithead_store::{Durability, MemoryStore, Staged, StoreUse, Value, Write};

    #[test]
    fn keys_of_slices_are_read_back() {
        let name = DatasetName::new("lab", "a.b@c").unwrap();
        let run = SliceKey { name, dataset: DatasetId(1), load: LoadId(2), partition: 3, number: None };
        for (key, is_slice) in [(run.clone(), false), (run.slice(7), true)] {
            let expected = StoredSlice {
                domain: "lab",
                dataset_name: "a.b@c",
                dataset: DatasetId(1),
                load: LoadId(2),
                partition: 3,
                is_slice,
            };
            assert_eq!(parse_slice_key(&slice_key(&key)), Some(expected));
        }
    }

    #[test]
    fn foreign_keys_are_no_slices() {
        for key in [&b""[..], b"slice/", b"slice/a/b/c", b"slice/a/b@1/2/x.meta", b"slice/\xff/b@1/2/3.meta", b"manifest/main"]
        {
            assert_eq!(parse_slice_key(key), None, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn long_lists_come_page_by_page_and_whole() {
        let store = MemoryStore::new();
        let keys = 2 * PAGE_KEYS;
        let puts = (0..keys).map(|number| Write::put(format!("slice/{number:06}"), "v"));
        store.write(puts.chain([Write::put("slicf", "v")]).collect(), Durability::Through).unwrap();
        let mut seen = Vec::new();
        each_entry(&store, SLICE_PREFIX, |entry| seen.push(entry.key.clone())).unwrap();
        assert!(seen.len() == keys && seen.is_sorted());
        each_entry(&store, MANIFEST_PREFIX, |_| panic!("there is none")).unwrap();
    }

    /// A store that cannot list some of its keys, as if they lay on a damaged page of the index.
    #[derive(Debug)]
    struct Holed {
        inner: MemoryStore,
        hidden: std::ops::Range<Key>,
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
            let whole = each_readable_entry(&store, SLICE_PREFIX, |entry| seen.push(entry.key.clone())).unwrap();
            seen.sort();
            let expected: Vec<Key> = (0..keys).filter(|number| !hidden.contains(number)).map(key).collect();
            assert!(seen == expected && whole == hidden.is_empty(), "{hidden:?}: {} of {}", seen.len(), expected.len());
            assert_eq!(each_entry(&store, SLICE_PREFIX, |_| ()).is_err(), !hidden.is_empty());
        }
    }
}
