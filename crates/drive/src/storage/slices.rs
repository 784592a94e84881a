//! [`SliceCache`]: the slices of a drive as its sessions open them. Sessions over the same slices share open readers.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use pithead_device::Device;
use pithead_exec::{SliceRef, SliceSource};
use pithead_model::{Blame, Fault, PageSet, SliceKey, boxed};
use pithead_slice::{AttachedSlice, Predicate, SliceParts, SliceReader, encoding_by_id, open_slice, unseal};
use pithead_store::Store;
use tokio::sync::{OnceCell, Semaphore};

use crate::resources::Workers;
use crate::storage::attached::Attached;
use crate::storage::column_cache::{CachingReader, Room};
use crate::storage::directories::{Directories, gone};
use crate::storage::filters::Filters;
use crate::storage::keys::slice_key;

/// Open readers that are kept at most.
const READERS_MAX: usize = 1_024;
/// Filters in memory may take one part in so many of what open readers may.
const FILTERS_SHARE: u64 = 4;
/// Slices that are remembered after they were opened and not kept.
const SEEN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Filled by the first who wants the slice; others who want it meanwhile wait for the same reader.
type Cell = Arc<OnceCell<Arc<dyn SliceReader>>>;

/// Open slices. As in the store's cache, each is kept while there is room, and once there is none, one that is opened for a second time
/// takes the place of those that were used least recently: a scan of more than fits leaves the others where they are.
#[derive(Debug)]
pub(crate) struct SliceCache {
    store: Arc<dyn Store>,
    device: Arc<dyn Device>,
    workers: Workers,
    directories: Arc<Directories>,
    filters: Arc<Filters>,
    readers: Arc<Mutex<Readers>>,
    bytes_max: u64,
    /// For columns of attached slices that are being encoded.
    encoding: Arc<Semaphore>,
}

#[derive(Debug)]
struct Readers {
    slots: HashMap<SliceKey, Slot>,
    /// Readers that are being opened, and will not be kept.
    passing: HashMap<SliceKey, Weak<OnceCell<Arc<dyn SliceReader>>>>,
    /// Slices whose reader was opened, and not kept.
    seen: LruCache<SliceKey, ()>,
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
        let (readers, encoding) = (Arc::default(), Arc::new(Semaphore::new(1)));
        let filters = Filters::open(Arc::clone(&store), workers.clone(), Arc::clone(&device), bytes_max / FILTERS_SHARE);
        Self { store, device, workers, directories, filters: Arc::new(filters), readers, bytes_max, encoding }
    }

    /// Filters of values.
    pub(crate) fn filters(&self) -> &Arc<Filters> {
        &self.filters
    }

    /// Slices that are kept open, and their bytes.
    pub(crate) fn kept(&self) -> (usize, u64) {
        let readers = self.readers.lock();
        (readers.slots.len(), readers.bytes)
    }

    /// Lets go of the readers of a run that is deleted.
    pub(crate) fn forget(&self, run: &SliceKey) {
        let same = |key: &SliceKey| key.load == run.load && key.partition == run.partition && key.dataset == run.dataset;
        let mut readers = self.readers.lock();
        readers.slots.retain(|key, _| !same(key));
        readers.passing.retain(|key, _| !same(key));
        readers.bytes = readers.slots.values().map(|slot| slot.bytes).sum();
        drop(readers);
        self.filters.forget(run);
    }

    /// A slice as it is stored.
    pub(crate) async fn stored(&self, slice: &SliceRef) -> Result<Bytes, Fault> {
        let (store, key) = (Arc::clone(&self.store), slice.key.clone());
        let bytes = match self.attached(&key) {
            Some((attached, slice)) => attached.stored(slice, key).await?,
            None => {
                let read = move || store.get(&slice_key(&key))?.map(|(value, _)| value).ok_or_else(|| gone(&key));
                self.workers.blocking(read).await??
            }
        };
        if let Some(wait) = self.device.read(bytes.len() as u64) {
            wait.await;
        }
        Ok(bytes)
    }

    fn attached(&self, key: &SliceKey) -> Option<(&Attached, AttachedSlice)> {
        let attached = self.directories.attached.as_deref()?;
        Some((attached, attached.slice(key)?))
    }

    async fn read(&self, slice: &SliceRef) -> Result<Arc<dyn SliceReader>, Fault> {
        let run = SliceKey { number: None, ..slice.key.clone() };
        if let Some((attached, opened)) = self.attached(&slice.key) {
            let file = attached.open_slice(opened, slice.key.clone()).await?;
            let schema = Arc::clone(&self.directories.run(&run).await?.schema);
            let room = SlotRoom { readers: Arc::downgrade(&self.readers), key: slice.key.clone(), bytes_max: self.bytes_max };
            let (workers, turn) = (self.workers.clone(), Arc::clone(&self.encoding));
            return Ok(Arc::new(CachingReader::new(file, schema, Box::new(room), workers, turn)));
        }
        let directory = self.directories.run(&run).await?;
        let (store, key, rows) = (Arc::clone(&self.store), slice.key.clone(), slice.entry.rows);
        let open = move || {
            let Some((value, _)) = store.get(&slice_key(&key))? else { return Err(gone(&key)) };
            if let Ok((header, _)) = unseal(value.clone())
                && let Ok(encoding) = encoding_by_id(header.encoding)
            {
                directory.encoding.get_or_init(|| encoding.name());
            }
            let reader = open_slice(&directory.schema, value).map_err(|error| Fault::from(error).at(&key))?;
            if reader.rows() != rows {
                let what = format!("the directory says {rows} rows, and there are {}", reader.rows());
                return Err(Fault::new(Blame::Corrupt, what).at(&key));
            }
            Ok(reader)
        };
        self.workers.blocking(open).await?
    }
}

#[boxed]
impl SliceSource for SliceCache {
    async fn open(&self, slice: &SliceRef) -> Result<Arc<dyn SliceReader>, Fault> {
        let cell = self.readers.lock().cell(slice, self.bytes_max);
        if let Some(reader) = cell.get() {
            return Ok(Arc::clone(reader));
        }
        cell.get_or_try_init(|| self.read(slice)).await.cloned()
    }

    async fn parts(&self, reader: &Arc<dyn SliceReader>, columns: &[usize], pages: &PageSet) -> Result<SliceParts, Fault> {
        match self.directories.attached.as_deref() {
            Some(attached) => attached.parts(reader, columns, pages).await,
            None => Ok(reader.parts(columns, pages)?),
        }
    }

    async fn may_match(&self, slice: &SliceRef, predicates: &[Predicate]) -> bool {
        self.filters.may_match(slice, predicates).await
    }

    fn read_in_vain(&self, slice: &SliceRef, part: &SchemaRef, predicates: &[Predicate]) {
        // Files that are read in place are another's, and may have filters of their own.
        if self.attached(&slice.key).is_none() {
            self.filters.read_in_vain(slice, part, predicates);
        }
    }

    fn device(&self) -> &dyn Device {
        &*self.device
    }
}

/// The slot of a slice.
#[derive(Debug)]
struct SlotRoom {
    readers: Weak<Mutex<Readers>>,
    key: SliceKey,
    bytes_max: u64,
}

impl Room for SlotRoom {
    fn is_there(&self) -> bool {
        self.readers.upgrade().is_some_and(|readers| readers.lock().slots.contains_key(&self.key))
    }

    fn take(&self, bytes: u64) -> bool {
        self.readers.upgrade().is_some_and(|readers| readers.lock().resize(&self.key, bytes, self.bytes_max))
    }
}

impl Default for Readers {
    fn default() -> Self {
        let (slots, passing) = (HashMap::new(), HashMap::new());
        Self { slots, passing, seen: LruCache::new(SEEN_MAX), bytes: 0, clock: 0 }
    }
}

impl Readers {
    fn cell(&mut self, slice: &SliceRef, bytes_max: u64) -> Cell {
        self.clock += 1;
        if let Some(slot) = self.slots.get_mut(&slice.key) {
            slot.used = self.clock;
            return Arc::clone(&slot.cell);
        }
        if let Some(cell) = self.passing.get(&slice.key).and_then(Weak::upgrade) {
            return cell;
        }
        let bytes = slice.entry.bytes;
        let has_room = self.slots.len() < READERS_MAX && self.bytes + bytes <= bytes_max;
        if !has_room && self.seen.pop(&slice.key).is_none() {
            return self.pass(&slice.key);
        }
        while !self.slots.is_empty() && (self.slots.len() >= READERS_MAX || self.bytes + bytes > bytes_max) {
            self.evict();
        }
        let cell = Cell::default();
        self.bytes += bytes;
        self.slots.insert(slice.key.clone(), Slot { cell: Arc::clone(&cell), bytes, used: self.clock });
        cell
    }

    /// A reader that those share who open it at one time.
    fn pass(&mut self, key: &SliceKey) -> Cell {
        self.seen.put(key.clone(), ());
        if self.passing.len() >= READERS_MAX {
            self.passing.retain(|_, cell| cell.strong_count() > 0);
        }
        let cell = Cell::default();
        self.passing.insert(key.clone(), Arc::downgrade(&cell));
        cell
    }

    /// Counts so many bytes for a slice that is kept open, for which others go. False: it is not, or there is no room.
    fn resize(&mut self, key: &SliceKey, bytes: u64, bytes_max: u64) -> bool {
        let Some(slot) = self.slots.get_mut(key).filter(|_| bytes <= bytes_max) else { return false };
        self.clock += 1;
        slot.used = self.clock;
        self.bytes = self.bytes - slot.bytes + bytes;
        slot.bytes = bytes;
        while self.bytes > bytes_max {
            self.evict();
        }
        true
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
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use pithead_device::Native;
    use pithead_model::{DatasetId, Directory, LoadId, SliceEntry};
    use pithead_sched::{Pool, PoolOptions};
    use pithead_slice::{encode_slice, encoding};
    use pithead_store::{Durability, Entry, Key, KeyRange, MemoryStore, Staged, StoreError, StoreUse, Value, Write};

    /// Counts reads of slices.
    #[derive(Debug)]
    struct Counting {
        inner: MemoryStore,
        reads: AtomicUsize,
    }

    impl Store for Counting {
        fn get(&self, key: &[u8]) -> Result<Option<(Value, Entry)>, StoreError> {
            self.reads.fetch_add(usize::from(!key.ends_with(b"meta")), Ordering::Relaxed);
            self.inner.get(key)
        }
        fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
            self.inner.entry(key)
        }
        fn range(&self, range: &KeyRange) -> Result<Vec<Entry>, StoreError> {
            self.inner.range(range)
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

    /// A cache over one stored slice.
    fn cache_of_one() -> (Arc<Counting>, SliceCache, SliceRef) {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let encoded = encode_slice(&*encoding("arrow").unwrap(), &batch.schema(), std::slice::from_ref(&batch)).unwrap();
        let directory = Directory {
            schema: batch.schema(),
            metadata: BTreeMap::new(),
            slices: vec![encoded.entry.clone()],
            columns: encoded.entry.columns.clone(),
        };
        let store = Arc::new(Counting { inner: MemoryStore::new(), reads: AtomicUsize::new(0) });
        let slice = SliceRef { entry: Arc::new(encoded.entry), ..slice(0) };
        let meta = slice_key(&SliceKey { number: None, ..slice.key.clone() });
        for (key, value) in [(slice_key(&slice.key), encoded.bytes), (meta, serde_json::to_vec(&directory).unwrap().into())] {
            store.write(vec![Write::put(key, value)], Durability::Through).unwrap();
        }
        let options = PoolOptions { name: "test".into(), cores: None, reactors: 1, blocking_threads_max: 4 };
        let workers = Workers::new(Arc::new(Pool::new(options).unwrap()));
        let directories = Arc::new(Directories::new(Arc::clone(&store) as Arc<dyn Store>, workers.clone(), None));
        let cache =
            SliceCache::new(Arc::clone(&store) as Arc<dyn Store>, Arc::new(Native::new()), workers, directories, 1 << 20);
        (store, cache, slice)
    }

    #[tokio::test]
    async fn those_who_want_a_slice_share_one_read() {
        let (store, cache, slice) = cache_of_one();
        let readers = futures::future::join_all((0..8).map(|_| cache.open(&slice))).await;
        assert!(readers.iter().all(|reader| reader.as_ref().is_ok_and(|reader| reader.rows() == 3)));
        assert_eq!(store.reads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_damaged_slice_is_a_fault_and_read_again() {
        let (store, cache, slice) = cache_of_one();
        let key = slice_key(&slice.key);
        let (value, _) = store.get(&key).unwrap().unwrap();
        let mut damaged = value.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        store.write(vec![Write::put(key.clone(), damaged)], Durability::Through).unwrap();
        assert_eq!(cache.open(&slice).await.unwrap_err().blame, Blame::Corrupt);
        store.write(vec![Write::put(key, value)], Durability::Through).unwrap();
        assert!(cache.open(&slice).await.is_ok());
    }

    fn slice(number: u32) -> SliceRef {
        let run = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 0, number: None };
        SliceRef {
            ordinal: number,
            key: run.slice(number),
            entry: Arc::new(SliceEntry { rows: 1, bytes: 100, columns: vec![] }),
            fit: None,
            filtered: None,
            came: None,
        }
    }

    #[test]
    fn the_least_recently_used_goes_first_to_what_is_opened_again() {
        let mut readers = Readers::default();
        let first = readers.cell(&slice(0), 250);
        readers.cell(&slice(1), 250);
        assert!(Arc::ptr_eq(&first, &readers.cell(&slice(0), 250)));
        let passing = readers.cell(&slice(2), 250);
        assert!(Arc::ptr_eq(&passing, &readers.cell(&slice(2), 250)), "whoever opens it meanwhile shares it");
        drop(passing);
        let kept =
            |readers: &Readers| (0..4).filter(|number| readers.slots.contains_key(&slice(*number).key)).collect::<Vec<_>>();
        assert_eq!(kept(&readers), [0, 1], "it was opened once");
        readers.cell(&slice(2), 250);
        assert_eq!((kept(&readers), readers.bytes), (vec![0, 2], 200));
        readers.cell(&slice(3), 250);
        assert_eq!(kept(&readers), [0, 2]);
    }

    #[test]
    fn a_slice_that_grows_lets_others_go() {
        let mut readers = Readers::default();
        (0..2).for_each(|number| drop(readers.cell(&slice(number), 250)));
        assert!(readers.resize(&slice(0).key, 140, 250));
        assert_eq!((readers.slots.len(), readers.bytes), (2, 240));
        assert!(readers.resize(&slice(0).key, 160, 250), "the other one goes");
        assert_eq!((readers.slots.len(), readers.bytes), (1, 160));
        assert!(!readers.resize(&slice(0).key, 251, 250), "more than there is");
        assert!(!readers.resize(&slice(1).key, 1, 250), "not open any longer");
        assert_eq!((readers.slots.len(), readers.bytes), (1, 160));
    }
}
