//! [`SliceCache`]: the slices of a drive as its sessions open them. Sessions over the same slices share open readers.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pithead_device::Device;
use pithead_exec::{SliceRef, SliceSource};
use pithead_model::{Blame, Fault, SliceKey};
use pithead_slice::{SliceReader, open_slice};
use pithead_store::Store;
use tokio::sync::OnceCell;

use crate::directories::{Directories, gone};
use crate::work::Workers;

/// Open readers that are kept at most.
const READERS_MAX: usize = 1_024;

/// Filled by the first who wants the slice; others who want it meanwhile wait for the same reader.
type Cell = Arc<OnceCell<Arc<dyn SliceReader>>>;

/// Open slices, least recently used out first.
#[derive(Debug)]
pub(crate) struct SliceCache {
    store: Arc<dyn Store>,
    device: Arc<dyn Device>,
    workers: Workers,
    directories: Arc<Directories>,
    readers: Mutex<Readers>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Readers {
    slots: HashMap<SliceKey, Slot>,
    bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    cell: Cell,
    bytes: u64,
    used: u64,
}

impl SliceCache {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        device: Arc<dyn Device>,
        workers: Workers,
        directories: Arc<Directories>,
        bytes_max: u64,
    ) -> Self {
        Self { store, device, workers, directories, readers: Mutex::default(), bytes_max }
    }

    /// Lets go of the readers of a run that is deleted.
    pub(crate) fn forget(&self, run: &SliceKey) {
        let same = |key: &SliceKey| key.load == run.load && key.partition == run.partition && key.dataset == run.dataset;
        let mut readers = self.readers.lock();
        readers.slots.retain(|key, _| !same(key));
        readers.bytes = readers.slots.values().map(|slot| slot.bytes).sum();
    }

    async fn read(&self, slice: &SliceRef) -> Result<Arc<dyn SliceReader>, Fault> {
        let run = SliceKey { number: None, ..slice.key.clone() };
        let schema = Arc::clone(&self.directories.run(&run).await?.schema);
        let (store, key, rows) = (Arc::clone(&self.store), slice.key.clone(), slice.entry.rows);
        let open = move || {
            let Some((value, _)) = store.get(&key.to_string())? else { return Err(gone(&key)) };
            let reader = open_slice(&schema, value).map_err(|error| Fault::from(error).at(&key))?;
            if reader.rows() != rows {
                let what = format!("the directory says {rows} rows, and there are {}", reader.rows());
                return Err(Fault::new(Blame::Corrupt, what).at(&key));
            }
            Ok(reader)
        };
        self.workers.blocking(open).await?
    }
}

#[async_trait]
impl SliceSource for SliceCache {
    async fn open(&self, slice: &SliceRef) -> Result<Arc<dyn SliceReader>, Fault> {
        let cell = self.readers.lock().cell(slice, self.bytes_max);
        if let Some(reader) = cell.get() {
            return Ok(Arc::clone(reader));
        }
        cell.get_or_try_init(|| self.read(slice)).await.cloned()
    }

    fn device(&self) -> &dyn Device {
        &*self.device
    }
}

impl Readers {
    fn cell(&mut self, slice: &SliceRef, bytes_max: u64) -> Cell {
        self.clock += 1;
        if let Some(slot) = self.slots.get_mut(&slice.key) {
            slot.used = self.clock;
            return Arc::clone(&slot.cell);
        }
        let bytes = slice.entry.bytes;
        while !self.slots.is_empty() && (self.slots.len() >= READERS_MAX || self.bytes + bytes > bytes_max) {
            self.evict();
        }
        let cell = Cell::default();
        self.bytes += bytes;
        self.slots.insert(slice.key.clone(), Slot { cell: Arc::clone(&cell), bytes, used: self.clock });
        cell
    }

    fn evict(&mut self) {
        let oldest = self.slots.iter().min_by_key(|(_, slot)| slot.used).map(|(key, _)| key.clone());
        if let Some(slot) = oldest.and_then(|key| self.slots.remove(&key)) {
            self.bytes -= slot.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::{DatasetId, LoadId, SliceEntry};

    fn slice(number: u32) -> SliceRef {
        let run = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 0, number: None };
        SliceRef {
            ordinal: number,
            key: run.slice(number),
            entry: Arc::new(SliceEntry { rows: 1, bytes: 100, columns: vec![] }),
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut readers = Readers::default();
        let first = readers.cell(&slice(0), 250);
        readers.cell(&slice(1), 250);
        assert!(Arc::ptr_eq(&first, &readers.cell(&slice(0), 250)));
        readers.cell(&slice(2), 250);
        assert_eq!(readers.bytes, 200);
        assert!(readers.slots.contains_key(&slice(0).key) && !readers.slots.contains_key(&slice(1).key));
    }
}
