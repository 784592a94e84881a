//! [`Shared`] and [`RawSlices`]: what another protocol in the process of a drive is served over.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use pithead_device::Device;
use pithead_sched::Pool;
use pithead_store::{Key, KeyRange, Store, StoreError, Value};

use crate::daemon::Drive;
use crate::storage::SLICE_PREFIX;

/// The store, the threads and the hardware of a drive: what its sessions have, too.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The store. Keys that begin with `kinetic/` belong to the other protocol, and all others to the drive.
    pub store: Arc<dyn Store>,
    /// The reactors and blocking threads.
    pub pool: Arc<Pool>,
    /// The hardware.
    pub device: Arc<dyn Device>,
    /// The drive's folder.
    pub folder: PathBuf,
}

/// The slices of a drive as they are stored, by their keys without `slice/`.
#[derive(Clone, Debug)]
pub struct RawSlices {
    store: Arc<dyn Store>,
}

impl Drive {
    /// What another protocol is served over.
    pub fn shared(&self) -> Shared {
        Shared {
            store: Arc::clone(&self.storage.store),
            pool: Arc::clone(self.resources.workers.pool()),
            device: Arc::clone(&self.resources.device),
            folder: PathBuf::from(&self.label),
        }
    }

    /// The slices as they are stored.
    pub fn raw_slices(&self) -> RawSlices {
        RawSlices { store: Arc::clone(&self.storage.store) }
    }
}

impl RawSlices {
    /// Names and bytes of slices between two names, in order, or from the last to the first. It blocks.
    pub fn list(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(Key, u64)>, StoreError> {
        let all = KeyRange::prefix(SLICE_PREFIX.as_bytes());
        let start = if matches!(start, Bound::Unbounded) { all.start } else { start.map(stored) };
        let end = if matches!(end, Bound::Unbounded) { all.end } else { end.map(stored) };
        let entries = self.store.range(&KeyRange { start, end, reverse, limit })?;
        Ok(entries.into_iter().map(|entry| (entry.key.slice(SLICE_PREFIX.len()..), entry.bytes)).collect())
    }

    /// A slice's bytes; none if there is no such slice. It blocks.
    pub fn read(&self, name: &[u8]) -> Result<Option<Value>, StoreError> {
        Ok(self.store.get(&stored(name))?.map(|(value, _)| value))
    }
}

fn stored(name: &[u8]) -> Key {
    [SLICE_PREFIX.as_bytes(), name].concat().into()
}

#[cfg(test)]
mod tests {
    use pithead_store::{Durability, MemoryStore, Write};

    use super::*;

    #[test]
    fn only_slices_are_seen() {
        let store = MemoryStore::new();
        let keys = ["claim/a", "slice/a", "slice/b", "slice/c", "slicf"].map(|key| Write::put(key, key));
        store.write(keys.into(), Durability::Through).unwrap();
        let slices = RawSlices { store: Arc::new(store) };
        let names = |start, end, reverse, limit| -> Vec<Key> {
            slices.list(start, end, reverse, limit).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(Bound::Unbounded, Bound::Unbounded, false, 9), ["a", "b", "c"]);
        assert_eq!(names(Bound::Unbounded, Bound::Unbounded, true, 2), ["c", "b"]);
        assert_eq!(names(Bound::Excluded(b"a"), Bound::Included(b"b"), false, 9), ["b"]);
        assert_eq!(slices.read(b"b").unwrap().unwrap(), "slice/b");
        assert_eq!(slices.read(b"../claim/a").unwrap(), None);
    }
}
