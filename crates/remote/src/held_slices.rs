//! [`HeldSlices`]: slices that came back to the host as they are stored, cached for the next query, just as Do et al.
//! 2013 (Smart SSDs; see `docs/bibliography.md`) do not ask the device for pages in the buffer pool. Slices never
//! change, so a cached slice stays right for as long as queries ask for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use parking_lot::Mutex;
use pithead_model::SliceKey;
use pithead_slice::SliceReader;

/// Slices that are held at most, however small.
const SLICES_MAX: usize = 65_536;
/// Bytes that are held at most where the host's memory has no limit.
const UNLIMITED_BYTES_MAX: u64 = 256 << 20;

/// Open slices, least recently used out first.
#[derive(Debug, Default)]
pub(crate) struct HeldSlices(Mutex<Slots>);

/// Bytes that one session's setting may let all of them grow to: a quarter of the host's memory at most.
pub(crate) fn budget(asked: u64, host: &dyn MemoryPool) -> u64 {
    match host.memory_limit() {
        MemoryLimit::Finite(bytes) => asked.min(bytes as u64 / 4),
        MemoryLimit::Infinite | MemoryLimit::Unknown => asked.min(UNLIMITED_BYTES_MAX),
    }
}

#[derive(Debug, Default)]
struct Slots {
    slots: HashMap<SliceKey, Slot>,
    /// The key of each by when it was used last, which no two share.
    by_use: BTreeMap<u64, SliceKey>,
    bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    reader: Arc<dyn SliceReader>,
    bytes: u64,
    used: u64,
}

impl HeldSlices {
    /// A slice, if it is held.
    pub(crate) fn get(&self, key: &SliceKey) -> Option<Arc<dyn SliceReader>> {
        let mut slots = self.0.lock();
        let Slots { slots, by_use, clock, .. } = &mut *slots;
        let slot = slots.get_mut(key)?;
        *clock += 1;
        if let Some(key) = by_use.remove(&slot.used) {
            by_use.insert(*clock, key);
        }
        slot.used = *clock;
        Some(Arc::clone(&slot.reader))
    }

    /// Keeps a slice of so many bytes. All of them may grow to `budget` by it; where they are beyond that already, because others have
    /// larger budgets, they do not grow.
    pub(crate) fn keep(&self, key: SliceKey, reader: Arc<dyn SliceReader>, bytes: u64, budget: u64) {
        if bytes > budget {
            return;
        }
        let mut slots = self.0.lock();
        let limit = slots.bytes.max(budget);
        slots.clock += 1;
        let used = slots.clock;
        slots.bytes += bytes;
        slots.by_use.insert(used, key.clone());
        if let Some(before) = slots.slots.insert(key, Slot { reader, bytes, used }) {
            slots.bytes -= before.bytes;
            slots.by_use.remove(&before.used);
        }
        slots.shrink(limit);
    }

    /// How many are held, and their bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        let slots = self.0.lock();
        (slots.slots.len(), slots.bytes)
    }
}

impl Slots {
    fn shrink(&mut self, budget: u64) {
        while self.bytes > budget || self.slots.len() > SLICES_MAX {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            self.bytes -= self.slots.remove(&oldest).map_or(0, |slot| slot.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::{FairSpillPool, UnboundedMemoryPool};
    use pithead_model::{DatasetId, LoadId, PageSet};
    use pithead_slice::{Predicate, Scan, ScanRequest, Search, SliceError, SliceParts};

    use super::*;

    #[derive(Debug)]
    struct Nothing;

    impl SliceReader for Nothing {
        fn rows(&self) -> u64 {
            0
        }
        fn scan(&self, _request: ScanRequest) -> Result<Scan, SliceError> {
            Err(SliceError::Corrupt("nothing".into()))
        }
        fn may_match(&self, _predicates: &[Predicate]) -> Result<PageSet, SliceError> {
            Ok(PageSet::none(0))
        }
        fn rows_of(&self, _pages: &PageSet) -> u64 {
            0
        }
        fn search(&self, _request: ScanRequest) -> Result<Search, SliceError> {
            Err(SliceError::Corrupt("nothing".into()))
        }
        fn parts(&self, _columns: &[usize], _pages: &PageSet) -> Result<SliceParts, SliceError> {
            Err(SliceError::Corrupt("nothing".into()))
        }
    }

    fn key(number: u32) -> SliceKey {
        let (dataset, load) = (DatasetId(1), LoadId(2));
        SliceKey { name: "t".parse().unwrap(), dataset, load, partition: 0, number: Some(number) }
    }

    #[test]
    fn the_least_recently_used_goes_first_and_large_ones_do_not_come_in() {
        let held = HeldSlices::default();
        for number in 0..2 {
            held.keep(key(number), Arc::new(Nothing), 100, 250);
        }
        assert!(held.get(&key(0)).is_some());
        held.keep(key(2), Arc::new(Nothing), 100, 250);
        held.keep(key(3), Arc::new(Nothing), 300, 250);
        assert_eq!(held.size(), (2, 200));
        assert!(held.get(&key(0)).is_some() && held.get(&key(1)).is_none() && held.get(&key(2)).is_some());
        // The same slice again takes no more room.
        held.keep(key(2), Arc::new(Nothing), 100, 250);
        assert_eq!(held.size(), (2, 200));
    }

    /// A regression: a session with a small budget threw out what all others had brought.
    #[test]
    fn a_small_budget_lets_nothing_grow_and_leaves_what_others_brought() {
        let held = HeldSlices::default();
        for number in 0..3 {
            held.keep(key(number), Arc::new(Nothing), 100, 250);
        }
        held.keep(key(4), Arc::new(Nothing), 50, 60);
        assert_eq!(held.size(), (2, 150));
        assert!(held.get(&key(2)).is_some() && held.get(&key(4)).is_some());
        // It grows again for those who may let it.
        held.keep(key(5), Arc::new(Nothing), 100, 250);
        assert_eq!(held.size(), (3, 250));
    }

    /// A regression: one session's setting was all that bounded what the host holds.
    #[test]
    fn a_setting_goes_as_far_as_the_hosts_memory() {
        let memory = FairSpillPool::new(1_000);
        assert_eq!((budget(u64::MAX, &memory), budget(60, &memory), budget(0, &memory)), (250, 60, 0));
        assert_eq!(budget(u64::MAX, &UnboundedMemoryPool::default()), 256 << 20);
    }
}
