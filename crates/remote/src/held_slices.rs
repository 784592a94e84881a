//! [`HeldSlices`]: slices that came back to the host as they are stored, cached for the next query, just as Do et al.
//! 2013 (Smart SSDs; see `docs/bibliography.md`) do not ask the device for pages in the buffer pool. Slices never
//! change, so a cached slice stays right for as long as queries ask for it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pithead_model::SliceKey;
use pithead_slice::SliceReader;

/// Slices that are held at most, however small.
const SLICES_MAX: usize = 65_536;

/// Open slices, least recently used out first.
#[derive(Debug, Default)]
pub(crate) struct HeldSlices(Mutex<Slots>);

#[derive(Debug, Default)]
struct Slots {
    slots: HashMap<SliceKey, Slot>,
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
        slots.clock += 1;
        let now = slots.clock;
        let slot = slots.slots.get_mut(key)?;
        slot.used = now;
        Some(Arc::clone(&slot.reader))
    }

    /// Keeps a slice of so many bytes, within `budget` bytes for all of them.
    pub(crate) fn keep(&self, key: SliceKey, reader: Arc<dyn SliceReader>, bytes: u64, budget: u64) {
        if bytes > budget {
            return;
        }
        let mut slots = self.0.lock();
        slots.clock += 1;
        let slot = Slot { reader, bytes, used: slots.clock };
        slots.bytes += bytes;
        if let Some(before) = slots.slots.insert(key, slot) {
            slots.bytes -= before.bytes;
        }
        slots.shrink(budget);
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
            let oldest = self.slots.iter().min_by_key(|(_, slot)| slot.used).map(|(key, _)| key.clone());
            let Some(slot) = oldest.and_then(|key| self.slots.remove(&key)) else { return };
            self.bytes -= slot.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
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
        // A smaller budget holds for those that are there, too.
        held.keep(key(4), Arc::new(Nothing), 50, 60);
        assert_eq!(held.size(), (1, 50));
    }
}
