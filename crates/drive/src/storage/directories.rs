//! [`Directories`]: the metadata slices of runs, parsed and cached.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use lru::LruCache;
use parking_lot::Mutex;
use pithead_model::{Blame, Directory, Fault, SliceKey};
use pithead_slice::Fit;
use pithead_store::Store;

use crate::resources::Workers;
use crate::storage::attached::Attached;
use crate::storage::keys::slice_key;
use crate::storage::run_directory::RunDirectory;

/// What is cached takes so much at most, counted in summaries of columns: some hundred bytes each.
const WEIGHT_MAX: usize = 1 << 22;
/// What a run takes besides its columns and slices, counted so.
const RUN_WEIGHT: usize = 8;

/// Runs, each by the key of its metadata slice.
#[derive(Debug)]
pub(crate) struct Directories {
    store: Arc<dyn Store>,
    workers: Workers,
    pub(crate) attached: Option<Arc<Attached>>,
    cached: Mutex<Cached>,
}

impl Directories {
    pub(crate) fn new(store: Arc<dyn Store>, workers: Workers, attached: Option<Arc<Attached>>) -> Self {
        Self { store, workers, attached, cached: Mutex::new(Cached::new(WEIGHT_MAX)) }
    }

    /// A run's directory; [`Blame::Conflict`] if the run is not here.
    pub(crate) async fn run(&self, key: &SliceKey) -> Result<Arc<RunDirectory>, Fault> {
        if let Some(found) = self.attached.as_ref().and_then(|attached| attached.directory(key)) {
            return Ok(found);
        }
        if let Some(found) = self.cached.lock().runs.get(key) {
            return Ok(Arc::clone(found));
        }
        let Directory { schema, slices, .. } = self.read(key).await?;
        let found =
            Arc::new(RunDirectory { schema, slices: slices.into_iter().map(Arc::new).collect(), encoding: OnceLock::new() });
        self.cached.lock().keep(key, &found);
        Ok(found)
    }

    /// A run's metadata slice as it is stored.
    pub(crate) async fn read(&self, key: &SliceKey) -> Result<Directory, Fault> {
        let (store, name) = (Arc::clone(&self.store), slice_key(key));
        let value = self.workers.blocking(move || store.get(&name)).await??;
        let Some((bytes, _)) = value else { return Err(gone(key)) };
        parse(&bytes).map_err(|fault| fault.at(key))
    }

    pub(crate) fn forget(&self, key: &SliceKey) {
        self.cached.lock().forget(key);
    }
}

/// Directories, least recently used out first. The last one stays, however large.
#[derive(Debug)]
struct Cached {
    runs: LruCache<SliceKey, Arc<RunDirectory>>,
    weight: usize,
    weight_max: usize,
}

impl Cached {
    fn new(weight_max: usize) -> Cached {
        Cached { runs: LruCache::unbounded(), weight: 0, weight_max }
    }

    fn keep(&mut self, key: &SliceKey, found: &Arc<RunDirectory>) {
        self.forget(key);
        self.weight += weight(found);
        self.runs.put(key.clone(), Arc::clone(found));
        while self.weight > self.weight_max && self.runs.len() > 1 {
            let Some((_, gone)) = self.runs.pop_lru() else { return };
            self.weight -= weight(&gone);
        }
    }

    fn forget(&mut self, key: &SliceKey) {
        if let Some(gone) = self.runs.pop(key) {
            self.weight -= weight(&gone);
        }
    }
}

fn weight(run: &RunDirectory) -> usize {
    let columns = run.schema.fields().len();
    RUN_WEIGHT + columns + run.slices.len() * (columns + 1)
}

/// The fault of a run that is not, or no longer, on this drive.
pub(crate) fn gone(run: &SliceKey) -> Fault {
    let what = format!("load {} of {}, partition {}, is not on this drive", run.load, run.name, run.partition);
    Fault::new(Blame::Conflict, what).hint("the dataset was replaced or dropped meanwhile: run the query again")
}

/// How a dataset's columns are found in a run of it; none: it is stored with just these.
pub(crate) fn fit(run: &SliceKey, stored: &SchemaRef, wanted: &SchemaRef) -> Result<Option<Arc<Fit>>, Fault> {
    let other = |why| Fault::new(Blame::User, format!("{run} has other columns than the request says: {why}"));
    Fit::of(stored, wanted).map_err(other)
}

/// Reads a metadata slice. Every slice it names has rows and one summary a column.
pub(crate) fn parse(bytes: &[u8]) -> Result<Directory, Fault> {
    let damaged = |what: String| Fault::new(Blame::Corrupt, format!("damaged metadata slice: {what}"));
    let directory: Directory = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    let columns = directory.schema.fields().len();
    for (number, slice) in directory.slices.iter().enumerate() {
        if slice.columns.len() != columns || slice.rows == 0 {
            return Err(damaged(format!(
                "slice {number} has {} summaries for {columns} columns, {} rows",
                slice.columns.len(),
                slice.rows
            )));
        }
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};
    use pithead_model::{DatasetId, LoadId, SliceEntry};

    /// A regression: only slices counted, and where they were too many all runs went.
    #[test]
    fn what_is_cached_counts_with_its_columns() {
        let fields = |count: usize| (0..count).map(|i| Field::new(format!("c{i}"), DataType::Int64, true)).collect::<Vec<_>>();
        let directory = |columns: usize, slices: usize| {
            let entry = Arc::new(SliceEntry { rows: 1, bytes: 1, columns: vec![] });
            let schema = Arc::new(Schema::new(fields(columns)));
            Arc::new(RunDirectory { schema, slices: vec![entry; slices], encoding: OnceLock::new() })
        };
        let key = |load: u64| SliceKey {
            name: "t".parse().unwrap(),
            dataset: DatasetId(1),
            load: LoadId(load),
            partition: 0,
            number: None,
        };
        let mut cached = Cached::new(35_000);
        let wide = directory(100, 100);
        (0..10).for_each(|load| cached.keep(&key(load), &wide));
        assert_eq!(cached.runs.iter().map(|(key, _)| key.load.0).collect::<Vec<_>>(), [9, 8, 7]);
        // One that was asked for stays longer; one that was kept again takes no more room.
        assert!(cached.runs.get(&key(7)).is_some());
        cached.keep(&key(9), &wide);
        cached.keep(&key(10), &wide);
        assert!(cached.runs.contains(&key(7)) && !cached.runs.contains(&key(8)));
        // Runs without slices take room, too.
        let empty = directory(1, 0);
        (100..9_000).for_each(|load| cached.keep(&key(load), &empty));
        assert_eq!(cached.runs.len(), 35_000 / 9);
        (0..9_000).for_each(|load| cached.forget(&key(load)));
        assert_eq!((cached.runs.len(), cached.weight), (0, 0));
    }

    #[test]
    fn a_directory_that_lies_is_refused() {
        assert!(parse(b"{").is_err());
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let entry = SliceEntry { rows: 1, bytes: 1, columns: vec![] };
        let directory = Directory { schema, metadata: Default::default(), slices: vec![entry], columns: vec![] };
        let fault = parse(&serde_json::to_vec(&directory).unwrap()).unwrap_err();
        assert_eq!(fault.blame, Blame::Corrupt);
    }
}
