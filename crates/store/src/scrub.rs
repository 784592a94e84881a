//! [`Scrub`]: every value is read where it is stored, in small steps.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::api::show_key;
use crate::core::Core;
use crate::index::{PartAt, StoredValue, corrupt};
use crate::listing::{behind_hole, first_readable};
use crate::recipe::is_own;
use crate::sum::Sum;
use crate::{Entry, Key, KeyRange, Store, StoreError, Value};

/// Keys that are listed at once.
const KEYS: usize = 64;
/// Damaged keys that are remembered.
const DAMAGED_MAX: usize = 1_000;

/// A value that is being checked in parts; new for each value.
#[derive(Debug, Default)]
pub struct Checking(Option<Checked>);

#[derive(Debug)]
struct Checked {
    found: StoredValue,
    sum: Sum,
    done: u64,
}

/// A key whose value was found damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedKey {
    /// The key.
    pub key: Key,
    /// The value that was damaged, as [`Store::stamp`] tells it; 0: the key's record could not be read either.
    pub stamp: u64,
}

/// A round over all values of a store.
#[derive(Debug)]
pub struct Scrub {
    store: Arc<dyn Store>,
    /// The last key that was checked.
    after: Option<Key>,
    listed: VecDeque<Entry>,
    checking: Checking,
    done_bytes: u64,
    damaged: Vec<DamagedKey>,
    damaged_more: u64,
    /// Parts of the index that could not be listed.
    holes: u64,
    /// Nothing more of the index can be read.
    has_ended: bool,
}

impl Scrub {
    /// A round that begins at the first key.
    pub fn new(store: Arc<dyn Store>) -> Scrub {
        Scrub {
            store,
            after: None,
            listed: VecDeque::new(),
            checking: Checking::default(),
            done_bytes: 0,
            damaged: Vec::new(),
            damaged_more: 0,
            holes: 0,
            has_ended: false,
        }
    }

    /// Goes on after a key, in a round in which so many bytes were checked before.
    pub fn go_on_after(&mut self, key: Key, done_bytes: u64) {
        *self = Scrub { after: Some(key), done_bytes, ..Scrub::new(Arc::clone(&self.store)) };
    }

    /// The last key that was checked, if the round has begun.
    pub fn after(&self) -> Option<&Key> {
        self.after.as_ref()
    }

    /// Bytes of values that this round has checked.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// Damaged keys that this round has found: their number, and the first of them.
    pub fn damaged(&self) -> (u64, &[DamagedKey]) {
        (self.damaged.len() as u64 + self.damaged_more, &self.damaged)
    }

    /// Parts of the index that this round could not list. Nobody knows which keys lie there, and their values were not
    /// read.
    pub fn holes(&self) -> u64 {
        self.holes
    }

    /// Checks at most so many bytes; how many it was. None: the round is over, and the next step begins another one.
    pub fn step(&mut self, bytes_max: u64) -> Result<Option<u64>, StoreError> {
        let Some(entry) = self.listed.front() else {
            if self.has_ended || !self.list()? {
                *self = Scrub::new(Arc::clone(&self.store));
                return Ok(None);
            }
            return Ok(Some(0));
        };
        let (bytes, is_over) = match self.store.check_part(&entry.key, &mut self.checking, bytes_max) {
            Ok(checked) => checked,
            Err(error @ (StoreError::Corrupt { .. } | StoreError::Io { .. })) => {
                tracing::error!(%error, key = show_key(&entry.key), "a stored value is damaged");
                let key = entry.key.clone();
                self.name_damaged(key);
                (0, true)
            }
            Err(error) => return Err(error),
        };
        self.done_bytes += bytes;
        if is_over {
            self.checking = Checking::default();
            self.after = self.listed.pop_front().map(|entry| entry.key);
        }
        Ok(Some(bytes))
    }

    fn name_damaged(&mut self, key: Key) {
        if self.damaged.len() >= DAMAGED_MAX {
            self.damaged_more += 1;
            return;
        }
        match self.store.stamp(&key) {
            // It was deleted meanwhile.
            Ok(None) => {}
            stamp => self.damaged.push(DamagedKey { key, stamp: stamp.ok().flatten().unwrap_or(0) }),
        }
    }

    /// Lists the next keys; false: there are none. Where the index cannot be read, those behind it: each damaged part
    /// counts as one key, whose name nobody knows.
    fn list(&mut self) -> Result<bool, StoreError> {
        let list = &|range: &KeyRange| self.store.range(range);
        let from = |start: Bound<Key>| KeyRange { start, limit: KEYS, ..KeyRange::all() };
        let range = from(self.after.clone().map_or(Bound::Unbounded, Bound::Excluded));
        let listed = match first_readable(list, range.clone())? {
            Some(listed) => listed,
            None => {
                let after = self.after.as_deref().map_or("the first key".to_owned(), show_key);
                tracing::error!(after, "a part of the index cannot be read; the values behind it are read all the same");
                (self.damaged_more, self.holes) = (self.damaged_more + 1, self.holes + 1);
                let Some(key) = behind_hole(list, &range)? else {
                    self.has_ended = true;
                    return Ok(true);
                };
                let listed = first_readable(list, from(Bound::Included(key.clone())))?;
                if listed.as_ref().is_none_or(Vec::is_empty) {
                    // It was deleted meanwhile, or is damaged by now: the next step goes on behind it.
                    self.after = Some(key);
                    return Ok(true);
                }
                listed.unwrap_or_default()
            }
        };
        self.listed = listed.into();
        Ok(!self.listed.is_empty())
    }
}

impl Core {
    /// See [`Store::check_part`].
    pub fn check_part(&self, key: &[u8], checking: &mut Checking, bytes_max: u64) -> Result<(u64, bool), StoreError> {
        let found = match self.index.get(key)? {
            None => return Ok((0, true)),
            Some((StoredValue::Inline(value), _)) => return Ok((value.len() as u64, true)),
            Some((found, _)) => found,
        };
        // A value that was moved or replaced meanwhile is checked where it is now.
        if checking.0.as_ref().is_none_or(|checked| checked.found != found) {
            checking.0 = Some(Checked { found, sum: Sum::new(), done: 0 });
        }
        let Some(checked) = &mut checking.0 else { return Ok((0, true)) };
        let is_still_there =
            |there: &StoredValue| Ok::<_, StoreError>(self.index.get(key)?.is_some_and(|(now, _)| now == *there));
        let part = match self.piece(key, &checked.found, checked.done, bytes_max.max(1)) {
            Err(_) if !is_still_there(&checked.found)? => return Ok((0, false)),
            read => read?,
        };
        checked.sum.add(&part);
        checked.done += part.len() as u64;
        let (bytes, checksum) = checked.found.bytes_and_sum();
        let is_over = checked.done >= bytes;
        if is_over && checked.sum.digest() != checksum && is_still_there(&checked.found)? {
            let at = match &checked.found {
                StoredValue::Segment { place, .. } => {
                    format!(" ({} at byte {})", self.segments.path(place.file).display(), place.offset)
                }
                _ => String::new(),
            };
            return Err(corrupt(key, &format!("the checksum of its value does not hold{at}")));
        }
        Ok((part.len() as u64, is_over))
    }

    /// See [`Store::stamp`].
    pub fn stamp(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        if is_own(key) {
            return Ok(None);
        }
        Ok(self.index.get(key)?.map(|(found, _)| found.stamp()))
    }

    /// At most so many bytes of a value, from `done` on.
    fn piece(&self, key: &[u8], found: &StoredValue, done: u64, bytes_max: u64) -> Result<Value, StoreError> {
        let place = match found {
            StoredValue::Inline(value) => return Ok(value.slice(done as usize..)),
            StoredValue::Parts(parts) => return self.segments.piece(key, parts, done, bytes_max),
            StoredValue::Segment { place, .. } => place,
        };
        let upto = done.saturating_add(bytes_max).min(place.bytes);
        match self.segments.read_part(place.file, place.offset + done..place.offset + upto) {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                let path = self.segments.path(place.file);
                Err(corrupt(key, &format!("its value is missing ({} at byte {})", path.display(), place.offset)))
            }
            read => read,
        }
    }
}

impl StoredValue {
    /// Bytes of the value, and its checksum.
    fn bytes_and_sum(&self) -> (u64, u64) {
        match self {
            StoredValue::Inline(value) => (value.len() as u64, xxh3_64(value)),
            StoredValue::Segment { place, checksum } => (place.bytes, *checksum),
            StoredValue::Parts(parts) => (parts.bytes, parts.checksum),
        }
    }

    /// By the value's checksum and all its places. A value that becomes a part of itself, for others to share it, stays where
    /// it is.
    fn stamp(&self) -> u64 {
        let mut stamp = Xxh3::new();
        let mut add = |numbers: [u64; 2]| numbers.iter().for_each(|number| stamp.update(&number.to_le_bytes()));
        let (bytes, checksum) = self.bytes_and_sum();
        add([bytes, checksum]);
        match self {
            StoredValue::Inline(_) => {}
            StoredValue::Segment { place, .. } => add([place.file, place.offset]),
            StoredValue::Parts(parts) => parts.parts.iter().for_each(|part| match &part.at {
                PartAt::Inline(bytes) => add([u64::MAX, xxh3_64(bytes)]),
                PartAt::Segment { file, offset } => add([*file, *offset]),
            }),
        }
        stamp.digest().max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::listing::tests::Holed;
    use crate::{DiskStore, MemoryStore, StoreOptions, Write};

    const LARGE: usize = 300_000;

    fn options() -> StoreOptions {
        StoreOptions {
            cache_bytes: 8 << 20,
            index_cache_bytes: 4 << 20,
            segment_bytes: 4 << 20,
            background: false,
            ..Default::default()
        }
    }

    fn value(number: u8) -> Vec<u8> {
        (0..LARGE).map(|at| (at as u8).wrapping_mul(31).wrapping_add(number)).collect()
    }

    fn filled(store: &dyn Store) {
        let large = (0..20_u8).map(|number| Write::put(vec![b'l', number], value(number)));
        let small = (0..200_u8).map(|number| Write::put(vec![b's', number], vec![number; 100]));
        store.write(large.chain(small).collect(), crate::Durability::Through).unwrap();
    }

    /// A whole round: the bytes that were checked, and the damaged keys.
    fn round(scrub: &mut Scrub) -> (u64, Vec<Key>) {
        let mut bytes = 0;
        let mut damaged = Vec::new();
        while let Some(step) = scrub.step(64 << 10).unwrap() {
            assert!(step <= 64 << 10);
            bytes += step;
            damaged = scrub.damaged().1.iter().map(|damaged| damaged.key.clone()).collect();
        }
        (bytes, damaged)
    }

    #[test]
    fn every_value_is_read_once_in_small_steps() {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Store> = Arc::new(DiskStore::open(folder.path(), options()).unwrap());
        for store in [&disk, &memory] {
            filled(&**store);
        }
        let mut scrub = Scrub::new(disk);
        for _ in 0..2 {
            assert_eq!(round(&mut scrub), (20 * LARGE as u64 + 200 * 100, vec![]));
        }
        let mut scrub = Scrub::new(memory);
        let mut bytes = 0;
        while let Some(step) = scrub.step(64 << 10).unwrap() {
            bytes += step;
        }
        assert_eq!(bytes, 20 * LARGE as u64 + 200 * 100);
    }

    #[test]
    fn a_damaged_value_is_found_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(DiskStore::open(folder.path(), options()).unwrap());
        filled(&*store);
        let (place, _) = store.core().index.place(b"l\x07").unwrap().unwrap();
        let file = OpenOptions::new().write(true).open(store.core().segments.path(place.file)).unwrap();
        file.write_all_at(&[0xff; 3], place.offset + 200_001).unwrap();
        let mut scrub = Scrub::new(store);
        let (bytes, damaged) = round(&mut scrub);
        assert_eq!(damaged, [Key::from_static(b"l\x07")]);
        assert!(bytes >= 19 * LARGE as u64, "{bytes}");
    }

    #[test]
    fn a_stamp_tells_a_value_from_those_after_it_wherever_it_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskStore::open(folder.path(), options()).unwrap();
        let memory = MemoryStore::new();
        let put = |store: &dyn Store, key: &'static str, value: Vec<u8>| {
            store.write(vec![Write::put(key, value)], crate::Durability::Through).unwrap();
            store.stamp(key.as_bytes()).unwrap().unwrap()
        };
        for store in [&disk as &dyn Store, &memory] {
            assert_eq!(store.stamp(b"k").unwrap(), None);
            assert_ne!(put(store, "k", b"one".to_vec()), put(store, "k", b"three".to_vec()));
            assert!(store.stamp(b"k").unwrap() > Some(0));
        }
        let large = put(&disk, "l", value(1));
        // It becomes one that is shared, and stays where it is.
        let copy = Write::Copy { from: "l".into(), to: "copy".into(), splice: None };
        disk.write(vec![copy], crate::Durability::Through).unwrap();
        assert_eq!(disk.stamp(b"l").unwrap(), Some(large));
        assert_ne!(put(&disk, "l", value(1)), large, "the same bytes in another place");
    }

    #[test]
    fn a_value_is_read_where_it_is_stored_whatever_is_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let store = DiskStore::open(folder.path(), options()).unwrap();
        filled(&store);
        assert_eq!(store.get_stored(b"l\x03").unwrap().unwrap().0, value(3));
        assert_eq!(store.get(b"l\x07").unwrap().unwrap().0, value(7));
        let (place, _) = store.core().index.place(b"l\x07").unwrap().unwrap();
        let file = OpenOptions::new().write(true).open(store.core().segments.path(place.file)).unwrap();
        file.write_all_at(&[0xff; 3], place.offset + 200_001).unwrap();
        assert_eq!(store.get(b"l\x07").unwrap().unwrap().0, value(7), "it is in memory");
        assert!(matches!(store.get_stored(b"l\x07"), Err(StoreError::Corrupt { .. })));
        assert!(store.get_stored(b"none").unwrap().is_none());
    }

    #[test]
    fn a_hole_in_the_index_is_told_and_ends_no_round() {
        let cases: [(&[(u8, u8)], u64); 6] = [
            (&[(10, 12)], 198),
            (&[(0, 1)], 199),
            (&[(199, 200)], 199),
            (&[(0, 200)], 0),
            (&[(10, 12), (150, 151)], 197),
            (&[(0, 2), (3, 4), (100, 120), (198, 200)], 175),
        ];
        for (holes, read) in cases {
            let hidden = holes.iter().map(|hole| vec![b's', hole.0].into()..vec![b's', hole.1].into()).collect();
            let store = Holed { inner: MemoryStore::new(), hidden };
            let small = (0..200_u8).map(|number| Write::put(vec![b's', number], vec![number; 100]));
            store.write(small.collect(), crate::Durability::Through).unwrap();
            let mut scrub = Scrub::new(Arc::new(store));
            let (mut bytes, mut damaged) = (0, (0, 0));
            while let Some(step) = scrub.step(64 << 10).unwrap() {
                bytes += step;
                damaged = (scrub.damaged().0, scrub.holes());
            }
            let count = holes.len() as u64;
            assert_eq!((bytes, damaged), (read * 100, (count, count)), "{holes:?}");
        }
    }

    #[test]
    fn a_round_goes_on_after_a_key_and_follows_values_that_change() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(DiskStore::open(folder.path(), options()).unwrap());
        filled(&*store);
        let mut scrub = Scrub::new(Arc::clone(&store) as Arc<dyn Store>);
        scrub.go_on_after(Key::from_static(b"l\x11"), 7);
        // In the middle of a value, it is replaced, and another one is deleted.
        for _ in 0..3 {
            scrub.step(64 << 10).unwrap();
        }
        store
            .write(vec![Write::put(b"l\x12".to_vec(), value(99)), Write::delete(b"l\x13".to_vec())], crate::Durability::Through)
            .unwrap();
        store.compact_now().unwrap();
        let mut done = 0;
        while scrub.step(64 << 10).unwrap().is_some() {
            assert_eq!(scrub.damaged().0, 0);
            done = done.max(scrub.done_bytes());
        }
        assert!(done >= 7 + LARGE as u64 + 200 * 100, "{done}");
    }
}
