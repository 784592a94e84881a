//! [`ValueCache`]: large values that were read recently, as far as they are worth keeping.
//!
//! As long as there is room, each value is kept. A full cache gives way only to a value that is asked for a second time, within
//! as many other values as it remembers: reading more data than fits then leaves what is kept where it is, and the memory of each
//! value serves the next one. (The admission of 2Q: Johnson and Shasha 1994; see `docs/bibliography.md`.)

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;

use crate::medium::ALIGNMENT;
use crate::{StoreError, Value};

/// The place of a value: the number of its segment file, and its offset there.
pub(crate) type CacheKey = (u64, u64);

/// How long one reader waits for another to load the same value, before it loads the value itself.
const LOAD_WAIT: Duration = Duration::from_secs(60);

/// Values that are remembered after they were read and not kept.
const SEEN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Large values by their places. Of those that are kept, the least recently used are discarded first.
///
/// Readers of one value share one load. Values that readers still use are not counted: the budget bounds what only the
/// cache keeps in memory.
#[derive(Debug)]
pub(crate) struct ValueCache {
    inner: Mutex<Inner>,
    bytes_max: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
}

/// How full a cache is, and its hits and misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// The most bytes that it may keep.
    pub bytes_max: u64,
    /// Bytes that it keeps.
    pub bytes: u64,
    /// Values that it keeps.
    pub values: u64,
    /// Reads that it answered, including those that waited for another reader's load.
    pub hits: u64,
    /// Reads that went to the medium.
    pub misses: u64,
    /// Bytes that these reads brought.
    pub missed_bytes: u64,
}

#[derive(Debug)]
struct Inner {
    slots: LruCache<CacheKey, Slot>,
    /// Places that were read, and not kept.
    seen: LruCache<CacheKey, ()>,
    /// The bytes of all slots that are loaded.
    bytes: u64,
}

#[derive(Debug)]
struct Slot {
    /// 0 until the value is loaded.
    bytes: u64,
    value: Arc<Flight>,
}

/// The reader that loads holds this lock. The others then find the value or, if the load failed, load it themselves.
type Flight = Mutex<Option<Value>>;

impl ValueCache {
    /// A cache that keeps at most `bytes_max` bytes of values. With 0 it keeps none, and readers still share loads.
    pub fn new(bytes_max: u64) -> Self {
        let inner = Mutex::new(Inner { slots: LruCache::unbounded(), seen: LruCache::new(SEEN_MAX), bytes: 0 });
        Self { inner, bytes_max, hits: AtomicU64::new(0), misses: AtomicU64::new(0), missed_bytes: AtomicU64::new(0) }
    }

    /// The value at `place`, loaded by `load` if the cache does not have it. A place must never have another value
    /// later.
    pub fn get(&self, place: CacheKey, load: impl FnOnce() -> Result<Value, StoreError>) -> Result<Value, StoreError> {
        let flight = self.inner.lock().flight(place);
        let Some(mut value) = flight.try_lock_for(LOAD_WAIT) else {
            // This is dropped before the load, so that the other reader, if it fails, sees that nobody waits for it.
            drop(flight);
            return self.missed(load());
        };
        if let Some(value) = &*value {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value.clone());
        }
        let mut landing = Landing { cache: self, place, flight: &flight, value: None };
        let loaded = self.missed(load())?;
        landing.value = Some(loaded.clone());
        *value = Some(loaded.clone());
        Ok(loaded)
    }

    /// The value at `place`, if it is here and nobody loads it.
    pub fn resident(&self, place: CacheKey) -> Option<Value> {
        let flight = Arc::clone(&self.inner.lock().slots.get(&place)?.value);
        let value = flight.try_lock()?.clone()?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    /// Discards one value. Its readers keep it.
    pub fn forget(&self, file: u64, offset: u64) {
        self.inner.lock().remove((file, offset));
    }

    /// Discards all values of a file.
    pub fn forget_file(&self, file: u64) {
        let mut inner = self.inner.lock();
        let places: Vec<CacheKey> = inner.slots.iter().map(|(place, _)| *place).filter(|place| place.0 == file).collect();
        places.into_iter().for_each(|place| inner.remove(place));
    }

    /// How full it is.
    pub fn usage(&self) -> CacheUse {
        let (bytes, values) = {
            let inner = self.inner.lock();
            (inner.bytes, inner.slots.iter().filter(|(_, slot)| slot.bytes > 0).count() as u64)
        };
        let (hits, misses) = (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed));
        let missed_bytes = self.missed_bytes.load(Ordering::Relaxed);
        CacheUse { bytes_max: self.bytes_max, bytes, values, hits, misses, missed_bytes }
    }

    /// Counts a load.
    fn missed(&self, loaded: Result<Value, StoreError>) -> Result<Value, StoreError> {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let bytes = loaded.as_ref().map_or(0, |value| value.len() as u64);
        self.missed_bytes.fetch_add(bytes, Ordering::Relaxed);
        loaded
    }
}

/// The number of owners of a flight that nobody waits for. It cannot rise while `Inner` is locked.
const SLOT_AND_READER: usize = 2;

/// Settles a slot when its load is over, whether it succeeded or failed.
struct Landing<'a> {
    cache: &'a ValueCache,
    place: CacheKey,
    flight: &'a Arc<Flight>,
    value: Option<Value>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let bytes = self.value.as_ref().map(|value| (value.len() as u64).next_multiple_of(ALIGNMENT).max(ALIGNMENT));
        let mut inner = self.cache.inner.lock();
        // The place was removed while it was loaded, and must not come back.
        if !inner.slots.peek(&self.place).is_some_and(|slot| Arc::ptr_eq(&slot.value, self.flight)) {
            return;
        }
        match bytes {
            Some(bytes) if bytes <= self.cache.bytes_max / 2 && inner.admits(self.place, bytes, self.cache.bytes_max) => {
                inner.keep(self.place, bytes);
                inner.shrink(self.cache.bytes_max);
            }
            // The load failed, with an error or a panic. The next waiting reader loads the value, and settles the slot.
            None if Arc::strong_count(self.flight) > SLOT_AND_READER => {}
            // Nobody waits, or the value would drive out others that are worth more: it is returned and not kept.
            _ => inner.remove(self.place),
        }
    }
}

impl Inner {
    fn flight(&mut self, place: CacheKey) -> Arc<Flight> {
        let slot = self.slots.get_or_insert_mut(place, || Slot { bytes: 0, value: Arc::default() });
        Arc::clone(&slot.value)
    }

    /// Whether a value that was just read is kept: there is room, or it was read not long ago.
    fn admits(&mut self, place: CacheKey, bytes: u64, bytes_max: u64) -> bool {
        let admits = self.bytes + bytes <= bytes_max || self.seen.pop(&place).is_some();
        if !admits {
            self.seen.put(place, ());
        }
        admits
    }

    fn keep(&mut self, place: CacheKey, bytes: u64) {
        if let Some(slot) = self.slots.peek_mut(&place) {
            slot.bytes = bytes;
            self.bytes += bytes;
        }
    }

    fn shrink(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let oldest = self.slots.iter().rev().find(|(_, slot)| slot.bytes > 0).map(|(place, _)| *place);
            match oldest {
                Some(place) => self.remove(place),
                None => return,
            }
        }
    }

    fn remove(&mut self, place: CacheKey) {
        if let Some(slot) = self.slots.pop(&place) {
            self.bytes -= slot.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    const KB: u64 = 1 << 10;

    fn value(bytes: u64) -> Result<Value, StoreError> {
        Ok(Value::from(vec![7; bytes as usize]))
    }

    fn failed() -> Result<Value, StoreError> {
        Err(StoreError::Corrupt { key: "k".to_string(), what: "its checksum does not hold".to_string() })
    }

    fn kept(cache: &ValueCache, place: CacheKey) -> bool {
        cache.inner.lock().slots.contains(&place)
    }

    #[test]
    fn the_second_read_is_answered_here() {
        let cache = ValueCache::new(1 << 20);
        let first = cache.get((1, 0), || value(64 * KB)).unwrap();
        let second = cache.get((1, 0), || panic!("it is here")).unwrap();
        assert_eq!(first.as_ptr(), second.as_ptr());
        let usage = CacheUse { bytes_max: 1 << 20, bytes: 64 * KB, values: 1, hits: 1, misses: 1, missed_bytes: 64 * KB };
        assert_eq!(cache.usage(), usage);
    }

    #[test]
    fn what_is_resident_is_given_and_nothing_is_loaded_for_it() {
        let cache = ValueCache::new(1 << 20);
        assert_eq!(cache.resident((1, 0)), None);
        assert!(!kept(&cache, (1, 0)));
        cache
            .get((1, 0), || {
                // Whoever loads it holds it.
                assert_eq!(cache.resident((1, 0)), None);
                value(KB)
            })
            .unwrap();
        assert_eq!(cache.resident((1, 0)).map(|value| value.len() as u64), Some(KB));
        assert_eq!((cache.usage().hits, cache.usage().misses), (1, 1));
    }

    #[test]
    fn the_least_recently_used_goes_first_and_the_budget_holds() {
        let cache = ValueCache::new(4 * 64 * KB);
        for offset in 0..4 {
            cache.get((1, offset), || value(64 * KB)).unwrap();
        }
        cache.get((1, 0), || panic!("it is here")).unwrap();
        cache.get((1, 4), || value(60 * KB + 1)).unwrap();
        assert!(kept(&cache, (1, 1)) && !kept(&cache, (1, 4)), "a full cache does not give way to what was read once");
        cache.get((1, 4), || value(60 * KB + 1)).unwrap();
        assert!(kept(&cache, (1, 0)) && !kept(&cache, (1, 1)) && kept(&cache, (1, 2)) && kept(&cache, (1, 4)));
        for offset in 10..100 {
            cache.get((2, offset), || value(offset % 3 * 64 * KB)).unwrap();
            assert!(cache.usage().bytes <= cache.bytes_max);
        }
        assert!(cache.usage().values > 1);
    }

    #[test]
    fn reading_more_than_fits_again_and_again_finds_a_part_here() {
        let cache = ValueCache::new(16 * 64 * KB);
        let read_all = || (0..32).for_each(|offset| drop(cache.get((1, offset), || value(64 * KB)).unwrap()));
        read_all();
        assert_eq!(cache.usage().hits, 0);
        read_all();
        assert!(cache.usage().hits >= 15, "{:?}", cache.usage());
    }

    #[test]
    fn values_over_half_the_budget_are_not_kept() {
        let cache = ValueCache::new(128 * KB);
        cache.get((1, 0), || value(64 * KB)).unwrap();
        assert_eq!(cache.get((1, 1), || value(68 * KB)).unwrap().len() as u64, 68 * KB);
        assert!(kept(&cache, (1, 0)) && !kept(&cache, (1, 1)));
        let none = ValueCache::new(0);
        none.get((1, 0), || value(0)).unwrap();
        assert_eq!(none.usage(), CacheUse { misses: 1, ..CacheUse::default() });
    }

    #[test]
    fn readers_share_a_load() {
        const READERS: usize = 8;
        // One budget is large enough to keep the value, the other is not.
        for bytes_max in [1 << 20, 0] {
            let (cache, loads, start) = (ValueCache::new(bytes_max), AtomicUsize::new(0), Barrier::new(READERS));
            let load = || {
                // The other readers arrive while this one loads: they share the flight before it ends.
                while Arc::strong_count(&cache.inner.lock().flight((1, 0))) < READERS + 2 {
                    thread::yield_now();
                }
                loads.fetch_add(1, Ordering::Relaxed);
                value(64 * KB)
            };
            thread::scope(|scope| {
                for _ in 0..READERS {
                    scope.spawn(|| {
                        start.wait();
                        cache.get((1, 0), load).unwrap();
                    });
                }
            });
            assert_eq!((loads.load(Ordering::Relaxed), cache.usage().hits), (1, READERS as u64 - 1));
        }
    }

    #[test]
    fn when_a_load_fails_the_next_reader_loads() {
        let cache = ValueCache::new(1 << 20);
        assert!(cache.get((1, 0), failed).is_err());
        assert!(!kept(&cache, (1, 0)));
        let (loading, fail) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let load = || {
                    loading.wait();
                    fail.wait();
                    failed()
                };
                assert!(cache.get((1, 0), load).is_err());
            });
            loading.wait();
            let second = scope.spawn(|| cache.get((1, 0), || value(KB)).unwrap());
            while Arc::strong_count(&cache.inner.lock().flight((1, 0))) < 4 {
                thread::yield_now();
            }
            fail.wait();
            assert_eq!(second.join().unwrap().len() as u64, KB);
        });
        assert!(kept(&cache, (1, 0)));
        let panics = thread::scope(|scope| scope.spawn(|| cache.get((2, 0), || panic!("on purpose"))).join().is_err());
        assert!(panics && !kept(&cache, (2, 0)));
        cache.get((2, 0), || value(KB)).unwrap();
    }

    #[test]
    fn what_is_forgotten_stays_forgotten() {
        let cache = ValueCache::new(1 << 20);
        for place in [(1, 0), (1, 1), (2, 0), (3, 0)] {
            cache.get(place, || value(KB)).unwrap();
        }
        cache.forget_file(1);
        cache.forget(2, 0);
        assert_eq!(cache.usage().bytes, 4 * KB);
        let load = || {
            cache.forget(4, 0);
            value(KB)
        };
        cache.get((4, 0), load).unwrap();
        assert_eq!((cache.usage().values, kept(&cache, (3, 0))), (1, true));
    }
}
