//! Lists of entries that are longer than fits into memory, or that have holes.

use std::ops::Bound;

use crate::{Entry, Key, KeyRange, Store, StoreError};

/// Entries that are in memory at one time while keys are listed.
const PAGE_KEYS: usize = 4_096;
/// The number of keys that are tried between two keys.
pub(crate) const TRIES: u64 = 256;
/// How often keys are tried in a part of a range that is a quarter as large each time.
const ROUNDS_MAX: u32 = 64;

/// Lists the entries of a range, as [`Store::range`] does.
type ListRange<'a> = &'a dyn Fn(&KeyRange) -> Result<Vec<Entry>, StoreError>;

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
    let list = &|range: &KeyRange| store.range(range);
    let mut range = KeyRange::prefix(prefix.as_bytes());
    let mut is_whole = true;
    while let Listed::Upto(last) = list_readable(list, range.clone(), &mut look)? {
        is_whole = false;
        if let Some(last) = last {
            range.start = Bound::Excluded(last);
        }
        let Some(next) = behind_hole(list, &range)? else { break };
        range.start = Bound::Included(next);
    }
    Ok(is_whole)
}

/// The first entries of a range, as many as its limit says: fewer where some of them cannot be read. None: the first one cannot.
pub(crate) fn first_readable(list: ListRange<'_>, mut range: KeyRange) -> Result<Option<Vec<Entry>>, StoreError> {
    loop {
        match list(&range) {
            Ok(entries) => return Ok(Some(entries)),
            Err(StoreError::Corrupt { .. }) if range.limit > 1 => range.limit /= 2,
            Err(StoreError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// The nearest key that is found behind a hole: a range's first keys cannot be read. None: there is no other in the range.
/// Nothing tells where a damaged page ends, so keys in between are tried. Between two holes that are far apart, a few keys
/// may be overlooked, which then count as a part of the hole.
pub(crate) fn behind_hole(list: ListRange<'_>, range: &KeyRange) -> Result<Option<Key>, StoreError> {
    let start = key_of(&range.start);
    let Some(mut nearest) = any_key(list, range)? else { return Ok(None) };
    for _ in 0..ROUNDS_MAX {
        let Some(nearer) = key_between(list, start.as_ref(), &nearest)? else { break };
        nearest = nearer;
    }
    let before = KeyRange { end: Bound::Excluded(nearest.clone()), reverse: true, ..range.clone() };
    list_readable(list, before, &mut |entry: &Entry| nearest = entry.key.clone())?;
    // Whoever goes on from there must get it.
    let is_there = matches!(look_at(list, nearest.clone(), &range.end)?, Found::Key(_));
    Ok(is_there.then_some(nearest))
}

/// A key that can be read between the start of a hole and the nearest one so far. It tries keys of the whole hole, then
/// of ever smaller parts at its end, and at its start.
fn key_between(list: ListRange<'_>, start: Option<&Key>, nearest: &Key) -> Result<Option<Key>, StoreError> {
    let first_found = |tried: &[Key]| {
        for key in tried {
            match look_at(list, key.clone(), &Bound::Excluded(nearest.clone()))? {
                Found::Hole => {}
                Found::Nothing => break,
                Found::Key(key) => return Ok(Some(key)),
            }
        }
        Ok::<_, StoreError>(None)
    };
    let (mut low, mut high) = (start.cloned(), nearest.clone());
    for _ in 0..ROUNDS_MAX {
        let tried: Vec<Key> = spread(low.as_ref(), Some(nearest)).collect();
        if let Some(found) = first_found(&tried)? {
            return Ok(Some(found));
        }
        let Some(far) = tried.into_iter().nth(TRIES as usize / 4 * 3) else { break };
        low = Some(far);
    }
    for _ in 0..ROUNDS_MAX {
        let tried: Vec<Key> = spread(start, Some(&high)).collect();
        if let Some(found) = first_found(&tried)? {
            return Ok(Some(found));
        }
        let Some(near) = tried.into_iter().nth(TRIES as usize / 4) else { break };
        high = near;
    }
    Ok(None)
}

/// A key that can be read, of a range whose first keys cannot: the last one, or where that is damaged, too, one before it.
fn any_key(list: ListRange<'_>, range: &KeyRange) -> Result<Option<Key>, StoreError> {
    match list(&KeyRange { reverse: true, limit: 1, ..range.clone() }) {
        Ok(mut last) => return Ok(last.pop().map(|entry| entry.key)),
        Err(StoreError::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    let (mut low, mut high) = (key_of(&range.start), key_of(&range.end));
    for _ in 0..ROUNDS_MAX {
        let before = (low.clone(), high.clone());
        for key in spread(low.clone().as_ref(), high.clone().as_ref()) {
            match look_at(list, key.clone(), &range.end)? {
                Found::Key(key) => return Ok(Some(key)),
                Found::Hole => low = Some(key),
                Found::Nothing => {
                    high = Some(key);
                    break;
                }
            }
        }
        if (&low, &high) == (&before.0, &before.1) {
            break;
        }
    }
    // Nothing lies behind `high`.
    high.map_or(Ok(None), |high| key_between(list, key_of(&range.start).as_ref(), &high))
}

/// What lies at a key, or is the next after it.
enum Found {
    Key(Key),
    /// It cannot be read.
    Hole,
    Nothing,
}

fn look_at(list: ListRange<'_>, key: Key, end: &Bound<Key>) -> Result<Found, StoreError> {
    match list(&KeyRange { start: Bound::Included(key), end: end.clone(), reverse: false, limit: 1 }) {
        Ok(mut first) => Ok(first.pop().map_or(Found::Nothing, |entry| Found::Key(entry.key))),
        Err(StoreError::Corrupt { .. }) => Ok(Found::Hole),
        Err(error) => Err(error),
    }
}

fn key_of(bound: &Bound<Key>) -> Option<Key> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    }
}

/// Keys between two keys, spread evenly over the bytes after their common prefix.
pub(crate) fn spread(after: Option<&Key>, before: Option<&Key>) -> impl Iterator<Item = Key> + use<> {
    let low = after.cloned().unwrap_or_default();
    let (shared, high) = match before {
        Some(before) => {
            let shared = low.iter().zip(before).take_while(|(a, b)| a == b).count();
            (shared, number(before.get(shared..).unwrap_or_default()))
        }
        None => (0, u64::MAX),
    };
    let from = number(low.get(shared..).unwrap_or_default());
    let prefix = low.slice(..shared);
    let step = high.saturating_sub(from) / (TRIES + 1);
    (1..=TRIES).filter(move |_| step > 0).map(move |n| [&prefix[..], &(from + step * n).to_be_bytes()].concat().into())
}

/// The first bytes as a number with the same order.
fn number(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(first)
}

/// How far entries could be listed.
enum Listed {
    All,
    /// To this key; none: there was not even a first.
    Upto(Option<Key>),
}

fn list_readable(list: ListRange<'_>, mut range: KeyRange, look: &mut impl FnMut(&Entry)) -> Result<Listed, StoreError> {
    range.limit = PAGE_KEYS;
    let mut last = None;
    loop {
        match list(&range) {
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
        pub(crate) hidden: Vec<std::ops::Range<Key>>,
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
            match page.iter().any(|entry| self.hidden.iter().any(|hidden| hidden.contains(&entry.key))) {
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
        let page = PAGE_KEYS;
        let cases: [&[(usize, usize)]; 10] = [
            &[],
            &[(0, 1)],
            &[(700, 705)],
            &[(page + 10, page + 11)],
            &[(keys - 1, keys)],
            &[(0, keys)],
            &[(3, 5), (700, 705)],
            &[(700, 705), (900, page), (page + 10, page + 11)],
            &[(0, 1), (keys - 1, keys)],
            &[(0, 300), (320, 330), (1_000, 1_010), (keys - 300, keys)],
        ];
        for holes in cases {
            let hidden = holes.iter().map(|hole| key(hole.0)..key(hole.1)).collect();
            let store = Holed { inner: MemoryStore::new(), hidden };
            let puts = (0..keys).map(|number| Write::put(key(number), "v"));
            store.write(puts.chain([Write::put("slicf", "v")]).collect(), Durability::Through).unwrap();
            let mut seen = Vec::new();
            let whole = each_readable_entry(&store, "slice/", |entry| seen.push(entry.key.clone())).unwrap();
            let is_hidden = |number: &usize| holes.iter().any(|hole| (hole.0..hole.1).contains(number));
            let expected: Vec<Key> = (0..keys).filter(|number| !is_hidden(number)).map(key).collect();
            assert!(seen == expected, "{holes:?}: {} of {}", seen.len(), expected.len());
            let is_listed = each_entry(&store, "slice/", |_| ()).is_ok();
            assert_eq!((whole, is_listed), (holes.is_empty(), holes.is_empty()));
        }
    }

    #[test]
    fn keys_are_spread_between_two() {
        let (low, high) = (Key::from_static(b"slice/a"), Key::from_static(b"slice/x"));
        let keys: Vec<Key> = spread(Some(&low), Some(&high)).collect();
        assert_eq!(keys.len(), 256);
        assert!(keys.iter().all(|key| *key > low && *key < high));
        assert!(keys.is_sorted());
        assert_eq!(spread(None, None).count(), 256);
        assert_eq!(spread(Some(&high), Some(&high)).count(), 0);
    }
}
