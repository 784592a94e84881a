//! [`Filters`]: which values columns of slices have, as key-values beside the slices. Slices that are read in vain ask for them, and
//! the drive's statistics service makes them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lru::LruCache;
use parking_lot::Mutex;
use pithead_device::Device;
use pithead_exec::SliceRef;
use pithead_model::{Fault, SliceKey};
use pithead_slice::{Predicate, ValueFilter};
use pithead_store::{Durability, Key, Store, Write, each_entry};

use crate::resources::Workers;
use crate::storage::keys::{FILTER_PREFIX, filter_key, parse_filter_key, parse_slice};

/// Columns of slices that are remembered for having been read in vain.
const READ_IN_VAIN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();
/// A filter is made of a column after so many reads in vain: the first may have been the only one.
const READS_IN_VAIN: u32 = 2;
/// Columns of a slice that have a filter, at most: each may have a quarter of the slice's bytes.
const FILTERS_MAX: usize = 4;
/// A column that is worth no filter.
const REFUSED: u32 = u32::MAX;

/// A column of a slice, by its place among those that are stored.
type Place = (SliceKey, usize);

/// The filters of a drive.
#[derive(Debug)]
pub(crate) struct Filters {
    store: Arc<dyn Store>,
    workers: Workers,
    device: Arc<dyn Device>,
    /// Columns that have one, by slice.
    there: Mutex<HashMap<SliceKey, BTreeSet<usize>>>,
    kept: Mutex<Kept>,
    wanted: Mutex<Wanted>,
}

/// Filters in memory.
#[derive(Debug)]
struct Kept {
    filters: LruCache<Place, Arc<ValueFilter>>,
    bytes: u64,
    bytes_max: u64,
}

/// Filters that are to be made.
#[derive(Debug)]
struct Wanted {
    reads_in_vain: LruCache<Place, u32>,
    queue: VecDeque<WantedFilter>,
}

/// A filter that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct WantedFilter {
    pub(crate) slice: SliceKey,
    /// The columns that are stored.
    pub(crate) schema: SchemaRef,
    /// The column's place among them.
    pub(crate) column: usize,
}

impl Filters {
    /// Those that are in a store. Filters in memory may hold `bytes_max`. Blocks.
    pub(crate) fn open(store: Arc<dyn Store>, workers: Workers, device: Arc<dyn Device>, bytes_max: u64) -> Filters {
        let mut there: HashMap<SliceKey, BTreeSet<usize>> = HashMap::new();
        let listed = each_entry(&*store, FILTER_PREFIX, |entry| match parse_filter_key(&entry.key) {
            Some((slice, column)) => drop(there.entry(slice).or_default().insert(column)),
            None => tracing::warn!(key = %entry.key.escape_ascii(), "a key that is no filter's"),
        });
        if let Err(error) = listed {
            tracing::warn!(%error, "filters of columns cannot be listed, and are not used");
        }
        let kept = Kept { filters: LruCache::unbounded(), bytes: 0, bytes_max };
        let wanted = Wanted { reads_in_vain: LruCache::new(READ_IN_VAIN_MAX), queue: VecDeque::new() };
        Filters { store, workers, device, there: Mutex::new(there), kept: Mutex::new(kept), wanted: Mutex::new(wanted) }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.there.lock().values().map(|columns| columns.len() as u64).sum()
    }

    /// Whether a slice may have a row that satisfies all predicates, by its filters.
    pub(crate) async fn may_match(&self, slice: &SliceRef, predicates: &[Predicate]) -> bool {
        let equated = self.equated(slice, predicates);
        let mut found: Vec<(usize, Arc<ValueFilter>)> = Vec::new();
        for (column, place) in equated {
            if let Some(filter) = self.filter((slice.key.clone(), place)).await {
                found.push((column, filter));
            }
        }
        let of = |column: usize| found.iter().find(|(other, _)| *other == column).map(|(_, filter)| &**filter);
        found.is_empty() || predicates.iter().all(|predicate| predicate.may_hold(&of))
    }

    /// The columns of the predicates that have a filter, each with its place among the stored ones.
    fn equated(&self, slice: &SliceRef, predicates: &[Predicate]) -> Vec<(usize, usize)> {
        let there = self.there.lock();
        let Some(have) = there.get(&slice.key) else { return Vec::new() };
        let places = places(slice, predicates);
        places.into_iter().filter(|(_, place)| have.contains(place)).collect()
    }

    /// A filter that is there. One that cannot be read is none, and may be made anew.
    async fn filter(&self, place: Place) -> Option<Arc<ValueFilter>> {
        if let Some(filter) = self.kept.lock().filters.get(&place) {
            return Some(Arc::clone(filter));
        }
        let (store, key) = (Arc::clone(&self.store), filter_key(&place.0, place.1));
        let read = move || {
            let Some((value, _)) = store.get(&key)? else { return Ok(None) };
            Ok::<_, Fault>(Some((value.len(), ValueFilter::from_bytes(&value)?)))
        };
        match self.workers.blocking(read).await.and_then(|read| read) {
            Ok(Some((bytes, filter))) => {
                if let Some(wait) = self.device.read(bytes as u64) {
                    wait.await;
                }
                let filter = Arc::new(filter);
                self.kept.lock().keep(place, &filter);
                Some(filter)
            }
            Ok(None) => {
                self.lose(&place);
                None
            }
            Err(fault) => {
                tracing::warn!(slice = %place.0, column = place.1, %fault, "a filter of a column is dropped");
                let (store, key) = (Arc::clone(&self.store), filter_key(&place.0, place.1));
                let _ = self.workers.blocking(move || store.write(vec![Write::delete(key)], Durability::Back)).await;
                self.lose(&place);
                None
            }
        }
    }

    fn lose(&self, place: &Place) {
        if let Some(columns) = self.there.lock().get_mut(&place.0) {
            columns.remove(&place.1);
        }
        self.wanted.lock().reads_in_vain.pop(place);
    }

    /// A slice of a part with these columns was read for rows that satisfy these predicates, and has none.
    pub(crate) fn read_in_vain(&self, slice: &SliceRef, part: &SchemaRef, predicates: &[Predicate]) {
        let schema = slice.stored(part);
        let have = self.there.lock().get(&slice.key).cloned().unwrap_or_default();
        let mut wanted = self.wanted.lock();
        for (_, column) in places(slice, predicates) {
            let suits = schema.fields().get(column).is_some_and(|field| ValueFilter::suits(field.data_type()));
            if suits && have.len() < FILTERS_MAX && !have.contains(&column) {
                wanted.count(WantedFilter { slice: slice.key.clone(), schema: Arc::clone(schema), column }, have.len());
            }
        }
    }

    /// What to make next. Where that comes to nothing, the column is asked for again once it was read in vain as often as before.
    pub(crate) fn next_wanted(&self) -> Option<WantedFilter> {
        let mut wanted = self.wanted.lock();
        let next = wanted.queue.pop_front()?;
        wanted.reads_in_vain.pop(&(next.slice.clone(), next.column));
        Some(next)
    }

    /// A filter is not worth its room.
    pub(crate) fn refuse(&self, refused: &WantedFilter) {
        let mut wanted = self.wanted.lock();
        wanted.forget(refused);
        wanted.reads_in_vain.put((refused.slice.clone(), refused.column), REFUSED);
    }

    /// Stores a filter, unless the slice has as many as it may. A crash may lose it, for it is made again. Blocks. The caller has
    /// leased the run.
    pub(crate) fn put(&self, made: &WantedFilter, filter: &ValueFilter) -> Result<(), Fault> {
        let is_full = |columns: &BTreeSet<usize>| columns.len() >= FILTERS_MAX && !columns.contains(&made.column);
        if self.there.lock().get(&made.slice).is_some_and(is_full) {
            return Ok(());
        }
        let write = Write::put(filter_key(&made.slice, made.column), filter.to_bytes());
        self.store.write(vec![write], Durability::Back)?;
        self.there.lock().entry(made.slice.clone()).or_default().insert(made.column);
        self.wanted.lock().forget(made);
        Ok(())
    }

    /// Slices that have no other values than some that are stored have the same filters, each slice that of the key beside it. Blocks.
    /// The caller has leased the latter's run.
    pub(crate) fn inherit(&self, slices: &[(SliceKey, Key)]) -> Result<(), Fault> {
        let from = |key: &Key| {
            let from = parse_slice(key)?;
            let columns = self.there.lock().get(&from)?.clone();
            Some((from, columns))
        };
        let heirs: Vec<_> = slices.iter().filter_map(|(to, key)| Some((to, from(key)?))).collect();
        let copy = |from: &SliceKey, to: &SliceKey, column| Write::Copy {
            from: filter_key(from, column),
            to: filter_key(to, column),
            splice: None,
        };
        let copies: Vec<Write> =
            heirs.iter().flat_map(|(to, (from, columns))| columns.iter().map(move |column| copy(from, to, *column))).collect();
        if !copies.is_empty() {
            self.store.write(copies, Durability::Back)?;
            let mut there = self.there.lock();
            heirs.into_iter().for_each(|(to, (_, columns))| drop(there.insert(to.clone(), columns)));
        }
        Ok(())
    }

    /// Lets go of the filters of a run that is deleted.
    pub(crate) fn forget(&self, run: &SliceKey) {
        let same = |key: &SliceKey| key.load == run.load && key.partition == run.partition && key.dataset == run.dataset;
        self.there.lock().retain(|key, _| !same(key));
        self.wanted.lock().queue.retain(|wanted| !same(&wanted.slice));
        let mut kept = self.kept.lock();
        let going: Vec<Place> = kept.filters.iter().map(|(place, _)| place).filter(|(key, _)| same(key)).cloned().collect();
        going.iter().for_each(|place| kept.forget(place));
    }
}

/// The columns that predicates want to equal something, each with its place among the stored ones.
fn places(slice: &SliceRef, predicates: &[Predicate]) -> Vec<(usize, usize)> {
    let mut columns = Vec::new();
    predicates.iter().for_each(|predicate| predicate.equated(&mut columns));
    columns.sort_unstable();
    columns.dedup();
    let place = |column| slice.fit.as_ref().map_or(Some(column), |fit| fit.place(column));
    columns.into_iter().filter_map(|column| Some((column, place(column)?))).collect()
}

impl Kept {
    fn keep(&mut self, place: Place, filter: &Arc<ValueFilter>) {
        self.forget(&place);
        self.bytes += filter.bytes();
        self.filters.put(place, Arc::clone(filter));
        while self.bytes > self.bytes_max
            && let Some((_, filter)) = self.filters.pop_lru()
        {
            self.bytes -= filter.bytes();
        }
    }

    fn forget(&mut self, place: &Place) {
        if let Some(filter) = self.filters.pop(place) {
            self.bytes -= filter.bytes();
        }
    }
}

impl Wanted {
    /// `have`: how many filters the slice has.
    fn count(&mut self, filter: WantedFilter, have: usize) {
        let reads = self.reads_in_vain.get_or_insert_mut((filter.slice.clone(), filter.column), || 0);
        if *reads == REFUSED {
            return;
        }
        *reads += 1;
        // Once, so that it is queued once.
        if *reads == READS_IN_VAIN {
            let queued = self.queue.iter().filter(|other| other.slice == filter.slice).count();
            if have + queued < FILTERS_MAX {
                self.queue.push_back(filter);
            } else {
                // One of these may come to nothing.
                *reads -= 1;
            }
        }
    }

    /// A filter was made, or will not be. While it was being made, it may have been asked for again.
    fn forget(&mut self, filter: &WantedFilter) {
        self.queue.retain(|other| (&other.slice, other.column) != (&filter.slice, filter.column));
        self.reads_in_vain.pop(&(filter.slice.clone(), filter.column));
    }
}

#[cfg(test)]
mod tests;
