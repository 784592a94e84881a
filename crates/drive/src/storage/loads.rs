//! LOAD: rows of one partition become slices, flushed as they are made and named all at once.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use pithead_door::{Batches, LoadRequest, compact, same_columns};
use pithead_model::{
    Blame, COLUMNS_MAX, ColumnSummary, Directory, Fault, FaultKind, Loaded, PARTITIONS_MAX, Run, SliceEntry, SliceKey,
    merge_columns,
};
use pithead_slice::{ColumnSketches, Encoding, SliceError, encode_slice, encoding, encoding_names};
use pithead_store::{Expected, Put, Store, Write};

use crate::resources::Grant;
use crate::resources::Workers;
use crate::storage::Storage;
use crate::storage::claims::unclaimed;
use crate::storage::cut::{Cutter, Piece, halve};
use crate::storage::keys::{check_name, slice_key};
use crate::storage::sorting::sorted;
use crate::storage::staging::{SliceValue, StagedValue};

/// Longest that a load waits for its next rows.
pub(crate) const ROWS_WAIT: Duration = Duration::from_secs(600);
/// Rows of a slice at most.
const SLICE_ROWS_MAX: usize = 1 << 24;

/// How long a load waits for memory, and how often it looks. Less than a host waits for an answer.
const GRANT_WAIT: Duration = Duration::from_secs(15);
const GRANT_RETRY: Duration = Duration::from_millis(10);

impl Storage {
    pub(crate) async fn load_rows(&self, request: LoadRequest, rows: Batches) -> Result<Loaded, Fault> {
        self.shutdown.check()?;
        check(&request)?;
        let grant = self.load_grant(!request.sort.is_empty()).await?;
        self.store_rows(request, rows, grant).await
    }

    /// Writes rows as a run, with this memory.
    pub(crate) async fn store_rows(&self, request: LoadRequest, rows: Batches, grant: Grant) -> Result<Loaded, Fault> {
        let encoding = check(&request)?;
        let run = SliceKey {
            name: request.name.clone(),
            dataset: request.dataset,
            load: request.load,
            partition: request.partition,
            number: None,
        };
        // In-process, a batch's texts may sit in buffers of the whole file that it was cut from.
        let rows = checked(rows, &request).map_ok(|batch| compact(&batch)).boxed();
        let rows = match request.sort.is_empty() {
            true => rows,
            false => sorted(rows, &request.schema, &request.sort, self.resources.runtimes.room(), grant.bytes())?,
        };
        let maker = Maker { store: Arc::clone(&self.store), workers: self.resources.workers.clone(), encoding };
        let threads = self.resources.workers.threads();
        tracing::info!(%run, "loading");
        let made =
            self.resources.workers.run(async move { (maker.load(request, run, rows, threads).await, grant).0 }).await??;
        let Run { load, slices, rows, bytes } = made.run;
        tracing::info!(%load, slices, rows, bytes, "loaded");
        Ok(made)
    }

    /// Memory for rows or stored values on their way through. Where none is free, others' loads end soon; but not for ever: two
    /// loads may each have what the other waits for.
    pub(crate) async fn load_grant(&self, sorts: bool) -> Result<Grant, Fault> {
        let end = tokio::time::Instant::now() + GRANT_WAIT;
        loop {
            self.shutdown.check()?;
            if let Some(grant) = self.resources.budget.reserve_for_load(sorts) {
                return Ok(grant);
            }
            if tokio::time::Instant::now() >= end {
                let what = format!("the drive had no memory free for a load or a copy in {GRANT_WAIT:?}");
                let fault = Fault::new(Blame::Limit, what).of_kind(FaultKind::Memory);
                return Err(fault.hint("try again later, or give the drive more memory"));
            }
            tokio::time::sleep(GRANT_RETRY).await;
        }
    }
}

/// Makes the slices of one load.
struct Maker {
    store: Arc<dyn Store>,
    workers: Workers,
    encoding: Arc<dyn Encoding>,
}

/// A slice that has no name yet.
pub(super) struct StagedSlice {
    pub(super) value: SliceValue,
    pub(super) entry: SliceEntry,
    /// Of its columns; none where the slice was not made of rows now.
    pub(super) sketches: Option<ColumnSketches>,
}

impl Maker {
    async fn load(&self, request: LoadRequest, run: SliceKey, rows: Batches, threads: usize) -> Result<Loaded, Fault> {
        let making = pieces(rows, Cutter::new(request.slice_rows, request.slice_bytes))
            .map_ok(|piece| self.make(&request, piece))
            .try_buffered(threads);
        let slices: Vec<StagedSlice> =
            making.map_ok(|made| stream::iter(made).map(Ok::<_, Fault>)).try_flatten().try_collect().await?;
        let mut columns = summaries(&slices, &request.schema);
        let mut sketches = ColumnSketches::new(request.schema.fields().len());
        slices.iter().filter_map(|slice| slice.sketches.as_ref()).for_each(|one| sketches.merge(one));
        for (column, distinct) in columns.iter_mut().zip(sketches.estimates()) {
            column.distinct = distinct;
        }
        adopt(&self.store, &self.workers, request, run, slices, columns).await
    }

    /// Encodes and stages a piece, on a thread that may block.
    async fn make(&self, request: &LoadRequest, piece: Piece) -> Result<Vec<StagedSlice>, Fault> {
        let (store, encoding, schema) = (Arc::clone(&self.store), Arc::clone(&self.encoding), Arc::clone(&request.schema));
        let make = move || {
            let mut made = Vec::new();
            stage_rows(&store, &*encoding, &schema, piece, &mut made).map(|()| made)
        };
        self.workers.blocking(make).await?
    }
}

/// What is known of all rows of a run from its slices. Distinct counts are the largest of any slice's.
pub(super) fn summaries(slices: &[StagedSlice], schema: &SchemaRef) -> Vec<ColumnSummary> {
    match slices.is_empty() {
        // Of no rows, too, there is one summary a column.
        true => vec![ColumnSummary { exact: true, ..ColumnSummary::default() }; schema.fields().len()],
        false => merge_columns(slices.iter().map(|slice| slice.entry.columns.as_slice())),
    }
}

/// Names all slices, and the metadata slice with them.
pub(super) async fn adopt(
    store: &Arc<dyn Store>,
    workers: &Workers,
    request: LoadRequest,
    run: SliceKey,
    slices: Vec<StagedSlice>,
    columns: Vec<ColumnSummary>,
) -> Result<Loaded, Fault> {
    let entries: Vec<SliceEntry> = slices.iter().map(|slice| slice.entry.clone()).collect();
    let directory = Directory { schema: request.schema, metadata: request.metadata, slices: entries, columns: columns.clone() };
    let made = Run { load: run.load, slices: directory.slices.len() as u32, rows: directory.rows(), bytes: directory.bytes() };
    let json = serde_json::to_vec(&directory)
        .map_err(|error| Fault::new(Blame::Bug, format!("a directory that is no JSON: {error}")))?;
    let meta = Write::Put(Put { expected: Expected::Absent, ..Put::forced(slice_key(&run), json) });
    let (mut staged, mut copies) = (Vec::new(), Vec::new());
    for (number, slice) in (0..).zip(slices) {
        let to = slice_key(&run.slice(number));
        match slice.value {
            SliceValue::New(value) => staged.extend(value.named(to)),
            SliceValue::Copied { from, splice } => copies.push(Write::Copy { from, to, splice }),
        }
    }
    let store = Arc::clone(store);
    let adopt = move || {
        let batch = copies.into_iter().chain([meta]).chain(unclaimed(&*store, &run)?).collect();
        Ok::<_, Fault>(store.adopt(staged, batch)?)
    };
    workers.blocking(adopt).await??;
    Ok(Loaded { run: made, columns })
}

/// Stages a piece as one slice, or as several where one would be too large.
pub(super) fn stage_rows(
    store: &Arc<dyn Store>,
    encoding: &dyn Encoding,
    schema: &SchemaRef,
    piece: Piece,
    made: &mut Vec<StagedSlice>,
) -> Result<(), Fault> {
    let encoded = match encode_slice(encoding, schema, &piece) {
        Err(SliceError::TooLarge { bytes, max }) => {
            let Some((first, second)) = halve(&piece) else { return Err(SliceError::TooLarge { bytes, max }.into()) };
            stage_rows(store, encoding, schema, first, made)?;
            return stage_rows(store, encoding, schema, second, made);
        }
        other => other?,
    };
    let value = StagedValue::stage(store, encoded.bytes)?;
    made.push(StagedSlice { value: SliceValue::New(value), entry: encoded.entry, sketches: Some(encoded.sketches) });
    Ok(())
}

/// Cuts rows into slices' worth.
fn pieces(rows: Batches, cutter: Cutter) -> impl Stream<Item = Result<Piece, Fault>> + Send {
    let cut = stream::unfold(Some((rows, cutter)), |state| async move {
        let (mut rows, mut cutter) = state?;
        match rows.next().await {
            Some(Ok(batch)) => Some((cutter.push(batch).into_iter().map(Ok).collect(), Some((rows, cutter)))),
            Some(Err(fault)) => Some((vec![Err(fault)], None)),
            None => Some((cutter.finish().into_iter().map(Ok).collect::<Vec<_>>(), None)),
        }
    });
    cut.flat_map(stream::iter)
}

/// Rows with exactly the dataset's columns, or a fault; also when none come for too long.
fn checked(rows: Batches, request: &LoadRequest) -> BoxStream<'static, Result<RecordBatch, Fault>> {
    let (schema, name) = (Arc::clone(&request.schema), request.name.clone());
    let check = move |batch: RecordBatch| {
        if !same_columns(batch.schema_ref(), &schema) {
            let what = format!("rows of {name} have columns ({}), not ({})", columns(batch.schema_ref()), columns(&schema));
            return Err(Fault::new(Blame::User, what));
        }
        batch.with_schema(Arc::clone(&schema)).map_err(|error| Fault::new(Blame::User, error.to_string()))
    };
    let waited = stream::unfold(rows, |mut rows| async move {
        match tokio::time::timeout(ROWS_WAIT, rows.next()).await {
            Ok(batch) => Some((batch?, rows)),
            Err(_) => Some((Err(Fault::new(Blame::Limit, format!("the load sent no rows for {ROWS_WAIT:?}"))), rows)),
        }
    });
    waited.map(move |batch| batch.and_then(&check)).boxed()
}

fn columns(schema: &arrow::datatypes::Schema) -> String {
    let named: Vec<String> =
        schema.fields().iter().take(8).map(|field| format!("{} {}", field.name(), field.data_type())).collect();
    let more = if schema.fields().len() > named.len() { ", …" } else { "" };
    format!("{}{more}", named.join(", "))
}

/// Checks what a load asks for. The encoding that it names.
pub(super) fn check(request: &LoadRequest) -> Result<Arc<dyn Encoding>, Fault> {
    let user = |what: String| Err(Fault::new(Blame::User, what));
    check_name(&request.name)?;
    if request.slice_rows == 0 || request.slice_rows > SLICE_ROWS_MAX {
        return user(format!("expected slices of 1 to {SLICE_ROWS_MAX} rows, got {}", request.slice_rows));
    }
    if request.schema.fields().is_empty() || request.schema.fields().len() > COLUMNS_MAX {
        return user(format!("expected 1 to {COLUMNS_MAX} columns, got {}", request.schema.fields().len()));
    }
    if request.partition as usize >= PARTITIONS_MAX {
        return user(format!("expected a partition below {PARTITIONS_MAX}, got {}", request.partition));
    }
    let Some(encoding) = encoding(&request.encoding) else {
        return user(format!("no encoding {:?}; the encodings are {}", request.encoding, encoding_names().join(", ")));
    };
    encoding.supports(&request.schema)?;
    Ok(encoding)
}
