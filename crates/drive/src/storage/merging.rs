//! Merging runs: the rows of several runs of a partition are written once more, as one run.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::{self, StreamExt, TryStreamExt};
use pithead_device::Device;
use pithead_door::{Batches, MERGED_MAX, MergeRuns};
use pithead_exec::SliceRef;
use pithead_model::{Blame, Fault, FaultKind, Loaded, SliceKey};
use pithead_slice::{ScanRequest, open_slice};
use pithead_store::Store;

use crate::resources::Workers;
use crate::storage::Storage;
use crate::storage::directories::{fit, gone};
use crate::storage::keys::{check_name, slice_key};

impl Storage {
    /// Writes the rows of runs that are here as one more run. The runs stay; they are leased meanwhile.
    pub(crate) async fn merge_stored(&self, request: MergeRuns) -> Result<Loaded, Fault> {
        self.shutdown.check()?;
        let MergeRuns { into, loads } = request;
        check_name(&into.name)?;
        if loads.len() > MERGED_MAX {
            return Err(Fault::new(Blame::User, format!("expected at most {MERGED_MAX} runs, got {}", loads.len())));
        }
        // Unlike a load, a merge does not wait for memory: it can be asked for again later.
        let Some(grant) = self.resources.budget.reserve_for_load(!into.sort.is_empty()) else {
            return Err(Fault::new(Blame::Limit, "the drive has no memory free to merge runs").of_kind(FaultKind::Memory));
        };
        let (dataset, partition) = (into.dataset, into.partition);
        let key = |load| SliceKey { name: into.name.clone(), dataset, load, partition, number: None };
        let runs: Vec<SliceKey> = loads.into_iter().map(key).collect();
        let _lease = self.leases.lease(runs.clone()).map_err(|run| gone(&run))?;
        let mut slices = Vec::new();
        for run in &runs {
            let directory = self.directories.run(run).await?;
            let fit = fit(run, &directory.schema, &into.schema)?;
            let own = SliceRef::of_run(run, slices.len() as u32, directory.slices.iter().cloned(), &fit);
            slices.extend(own.into_iter().map(|slice| (slice, Arc::clone(&directory.schema))));
        }
        tracing::info!(run = %key(into.load), runs = runs.len(), slices = slices.len(), "merging runs");
        let reader = Reader {
            store: Arc::clone(&self.store),
            device: Arc::clone(&self.resources.device),
            workers: self.resources.workers.clone(),
        };
        let rows = reader.rows(slices, Arc::clone(&into.schema));
        self.store_rows(into, rows, grant).await
    }
}

/// Reads slices whole.
#[derive(Clone)]
struct Reader {
    store: Arc<dyn Store>,
    device: Arc<dyn Device>,
    workers: Workers,
}

impl Reader {
    /// The rows of slices with the columns that they are stored with, one slice after the other, as rows of `schema`.
    fn rows(self, slices: Vec<(SliceRef, SchemaRef)>, schema: SchemaRef) -> Batches {
        let opened = stream::iter(slices).then(move |(slice, stored)| {
            let (reader, schema) = (self.clone(), Arc::clone(&schema));
            async move { reader.open(slice, stored, schema).await }
        });
        opened.try_flatten().boxed()
    }

    async fn open(self, slice: SliceRef, stored: SchemaRef, schema: SchemaRef) -> Result<Batches, Fault> {
        let (store, columns, key) = (self.store, schema.fields().len(), slice.key.clone());
        let read = move || {
            let Some((value, _)) = store.get(&slice_key(&slice.key))? else { return Err(gone(&slice.key)) };
            let bytes = value.len() as u64;
            let whole = open_slice(&stored, value)
                .and_then(|reader| slice.fitted(reader).scan(ScanRequest::all_rows((0..columns).collect())));
            Ok((whole.map_err(|error| Fault::from(error).at(&slice.key))?.stream, bytes))
        };
        let (rows, bytes) = self.workers.blocking(read).await??;
        if let Some(wait) = self.device.read(bytes) {
            wait.await;
        }
        let named = move |batch: RecordBatch| {
            RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec())
                .map_err(|error| Fault::new(Blame::Corrupt, error.to_string()))
        };
        Ok(rows.map(move |batch| batch.map_err(Fault::from).and_then(&named).map_err(|fault| fault.at(&key))).boxed())
    }
}
