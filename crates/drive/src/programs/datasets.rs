//! [`StoredDataset`]: a dataset's part on a drive, as an SSDlet reads it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use pithead_door::batch_bytes;
use pithead_exec::{SliceRef, SliceSource};
use pithead_model::lasting::plain_columns;
use pithead_model::{Blame, DatasetName, Fault, FaultKind, SliceKey};
use pithead_program::{ServiceError, to_ipc};
use pithead_slice::ScanRequest;

use super::faults::service_error;
use crate::resources::Resources;
use crate::storage::{Lease, Storage, fit, gone};

/// A batch with more bytes is halved: a guest takes 16 MiB in one call at most.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// The rows of a dataset whose partitions have this drive as their first: so an application that runs on all drives sees each
/// row once, however many copies there are.
pub(super) struct StoredDataset {
    batches: BoxStream<'static, Result<RecordBatch, Fault>>,
    schema: SchemaRef,
    /// What is left of a batch that was halved, in order.
    rest: VecDeque<RecordBatch>,
    /// Bytes of the slice that is being read, as it is stored.
    slice_bytes: Arc<AtomicUsize>,
    resources: Arc<Resources>,
    /// Keeps the runs.
    _lease: Lease,
}

impl StoredDataset {
    /// As the domain's manifest on this drive names it now. `columns`: none for all.
    pub(super) async fn open(
        storage: &Arc<Storage>,
        resources: &Arc<Resources>,
        name: DatasetName,
        columns: &[&str],
    ) -> Result<Self, Fault> {
        let missing = || Fault::invalid(format!("there is no dataset {name} on this drive")).of_kind(FaultKind::NoTable);
        let manifest = storage.read_manifest(name.domain.clone()).await?.ok_or_else(missing)?;
        let dataset = manifest.datasets.get(&name.dataset).ok_or_else(missing)?;
        let columns = chosen(&name, &dataset.schema, columns)?;
        let schema = Arc::new(plain_columns(&dataset.schema).project(&columns).map_err(arrow_fault)?);
        let ours = (0..).zip(&dataset.partitions).filter(|(_, partition)| partition.copies.first() == Some(&storage.id));
        let key = |partition, load| SliceKey { name: name.clone(), dataset: dataset.id, load, partition, number: None };
        let runs: Vec<SliceKey> =
            ours.flat_map(|(number, partition)| partition.runs.iter().map(move |run| key(number, run.load))).collect();
        let lease = storage.leases.lease(runs.clone()).map_err(|run| gone(&run))?;
        let mut slices = Vec::new();
        for run in &runs {
            let directory = storage.directories.run(run).await?;
            let fit = fit(run, &directory.schema, &dataset.schema)?;
            slices.extend(SliceRef::of_run(run, slices.len() as u32, directory.slices.iter().cloned(), &fit));
        }
        let slice_bytes = Arc::new(AtomicUsize::new(0));
        let batches = rows(Arc::clone(storage), slices, columns, Arc::clone(&slice_bytes));
        let schema = Arc::new(plain_schema(&schema));
        Ok(Self { batches, schema, rest: VecDeque::new(), slice_bytes, resources: Arc::clone(resources), _lease: lease })
    }

    async fn next_batch(&mut self) -> Result<Option<RecordBatch>, Fault> {
        loop {
            let batch = match self.rest.pop_front() {
                Some(batch) => batch,
                None => match self.batches.try_next().await? {
                    None => return Ok(None),
                    Some(batch) => plain(&batch, &self.schema)?,
                },
            };
            match batch.num_rows() {
                0 => {}
                rows if rows > 1 && batch_bytes(&batch) > BATCH_BYTES_MAX => {
                    self.rest.push_front(batch.slice(rows / 2, rows - rows / 2));
                    self.rest.push_front(batch.slice(0, rows / 2));
                }
                _ => return Ok(Some(batch)),
            }
        }
    }
}

impl pithead_program::Dataset for StoredDataset {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, ServiceError>> {
        async move {
            let Some(batch) = self.next_batch().await.map_err(service_error)? else { return Ok(None) };
            if let Some(wait) = self.resources.device.read(batch_bytes(&batch) as u64) {
                wait.await;
            }
            to_ipc(&batch).map(Some).map_err(|error| service_error(arrow_fault(error)))
        }
        .boxed()
    }

    fn held_bytes(&self) -> usize {
        // Its halves share one batch's memory.
        let rest = self.rest.iter().map(RecordBatch::get_array_memory_size).max().unwrap_or(0);
        self.slice_bytes.load(Ordering::Relaxed).saturating_add(rest)
    }
}

/// The places of columns that were named; of all, if none was.
fn chosen(name: &DatasetName, schema: &Schema, columns: &[&str]) -> Result<Vec<usize>, Fault> {
    if columns.is_empty() {
        return Ok((0..schema.fields().len()).collect());
    }
    let place = |column: &&str| {
        schema.index_of(column).map_err(|_| {
            let there: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            let what = format!("the dataset {name} has no column {column}; the columns are {}", there.join(", "));
            Fault::invalid(what).of_kind(FaultKind::NoColumn)
        })
    };
    columns.iter().map(place).collect()
}

/// Columns of slices, one slice after the other. `slice_bytes` gets the bytes of each.
fn rows(
    storage: Arc<Storage>,
    slices: Vec<SliceRef>,
    columns: Vec<usize>,
    slice_bytes: Arc<AtomicUsize>,
) -> BoxStream<'static, Result<RecordBatch, Fault>> {
    let opened = stream::iter(slices).then(move |slice| {
        let (storage, columns) = (Arc::clone(&storage), columns.clone());
        slice_bytes.store(usize::try_from(slice.entry.bytes).unwrap_or(usize::MAX), Ordering::Relaxed);
        async move {
            let reader = slice.fitted(storage.slices.open(&slice).await?);
            let request = ScanRequest::all_rows(columns);
            Ok::<_, Fault>(reader.scan(request)?.stream.map(|batch| batch.map_err(Fault::from)))
        }
    });
    opened.try_flatten().boxed()
}

/// Columns as guests and clients get them: texts and binaries not as views, which few of their libraries read.
pub(crate) fn plain_schema(schema: &Schema) -> Schema {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8View => Field::new(field.name(), DataType::Utf8, field.is_nullable()),
        DataType::BinaryView => Field::new(field.name(), DataType::Binary, field.is_nullable()),
        _ => field.as_ref().clone(),
    };
    Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>())
}

/// Rows with such columns.
pub(crate) fn plain(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>().map_err(arrow_fault)?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(arrow_fault)
}

fn arrow_fault(error: ArrowError) -> Fault {
    Fault::new(Blame::Bug, format!("rows cannot be given as plain columns: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray, StringViewArray};

    fn batch() -> RecordBatch {
        let columns: [(&str, ArrayRef); 2] = [
            ("n", Arc::new(Int64Array::from(vec![1, 2]))),
            ("t", Arc::new(StringViewArray::from(vec![Some("a text that is not inline"), None]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn guests_get_texts_without_views() {
        let schema = Arc::new(plain_schema(&batch().schema()));
        let plain = plain(&batch(), &schema).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a text that is not inline"), None]));
        assert_eq!((plain.column(0), plain.column(1)), (batch().column(0), &texts));
    }

    #[test]
    fn columns_are_found_by_name() {
        let (name, schema) = ("lab.t".parse().unwrap(), batch().schema());
        assert_eq!(chosen(&name, &schema, &[]).unwrap(), [0, 1]);
        assert_eq!(chosen(&name, &schema, &["t", "n"]).unwrap(), [1, 0]);
        let fault = chosen(&name, &schema, &["t", "x"]).unwrap_err();
        assert!(fault.blame == Blame::User && fault.message.contains("no column x; the columns are n, t"), "{fault}");
    }
}
