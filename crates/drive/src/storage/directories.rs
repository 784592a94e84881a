//! [`Directories`]: the metadata slices of runs, parsed and cached.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use pithead_model::{Blame, Directory, Fault, SliceKey};
use pithead_slice::Fit;
use pithead_store::Store;

use crate::resources::Workers;
use crate::storage::attached::Attached;
use crate::storage::keys::slice_key;
use crate::storage::run_directory::RunDirectory;

/// Slice entries that are cached at most, over all runs.
const ENTRIES_MAX: usize = 1 << 18;

/// Runs, each by the key of its metadata slice.
#[derive(Debug)]
pub(crate) struct Directories {
    store: Arc<dyn Store>,
    workers: Workers,
    pub(crate) attached: Option<Arc<Attached>>,
    cached: Mutex<HashMap<SliceKey, Arc<RunDirectory>>>,
}

impl Directories {
    pub(crate) fn new(store: Arc<dyn Store>, workers: Workers, attached: Option<Arc<Attached>>) -> Self {
        Self { store, workers, attached, cached: Mutex::default() }
    }

    /// A run's directory; [`Blame::Conflict`] if the run is not here.
    pub(crate) async fn run(&self, key: &SliceKey) -> Result<Arc<RunDirectory>, Fault> {
        if let Some(found) = self.attached.as_ref().and_then(|attached| attached.directory(key)) {
            return Ok(found);
        }
        if let Some(found) = self.cached.lock().get(key) {
            return Ok(Arc::clone(found));
        }
        let Directory { schema, slices, .. } = self.read(key).await?;
        let found =
            Arc::new(RunDirectory { schema, slices: slices.into_iter().map(Arc::new).collect(), encoding: OnceLock::new() });
        self.keep(key, &found);
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
        self.cached.lock().remove(key);
    }

    fn keep(&self, key: &SliceKey, found: &Arc<RunDirectory>) {
        let mut cached = self.cached.lock();
        let entries: usize = cached.values().map(|run| run.slices.len()).sum();
        if entries + found.slices.len() > ENTRIES_MAX {
            cached.clear();
        }
        cached.insert(key.clone(), Arc::clone(found));
    }
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
    use pithead_model::SliceEntry;

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
