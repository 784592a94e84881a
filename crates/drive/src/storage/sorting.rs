//! [`sorted`]: the rows of a load in order, within a budget of memory and with spill files beyond it.
//!
//! Rows are gathered up to a share of the budget and sorted as one; what does not fit is spilled as sorted runs, which
//! are merged at the end, and before that where they are many. (DataFusion's own external sort counts each of the many small batches of a load twice while it
//! merges them in memory, and gives up for want of a few bytes.)

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::sorts::streaming_merge::StreamingMergeBuilder;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt, stream};
use pithead_door::{Batches, batch_bytes};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, FaultKind, PAGE_ROWS, SortKey};

use crate::resources::SpillRoom;

/// Sorting holds the rows that were gathered, the same in one piece, and the same in order.
const COPIES: u64 = 3;
/// Runs of one level at most: so many become one of the next, since each holds a file open, and two pages while it is merged.
const RUNS_MAX: usize = 64;
/// Rows of a spilled page at least, however wide.
const SPILLED_ROWS_MIN: usize = 64;

/// A run as it is written.
type RunWriter = StreamWriter<BufWriter<File>>;

/// Rows in the order of `keys`, nulls as the largest values. Nothing is read before the first poll. About `memory` bytes
/// are used; runs beyond that lie in `room` until the stream is dropped.
pub(crate) fn sorted(
    rows: Batches,
    schema: &SchemaRef,
    keys: &[SortKey],
    room: &Arc<SpillRoom>,
    memory: u64,
) -> Result<Batches, Fault> {
    let sorter = Sorter {
        ordering: ordering(schema, keys)?,
        schema: Arc::clone(schema),
        keys: keys.to_vec(),
        room: Arc::clone(room),
        run_bytes: usize::try_from(memory / COPIES).unwrap_or(usize::MAX).max(1),
    };
    Ok(stream::once(sorter.sort(rows)).try_flatten().boxed())
}

struct Sorter {
    ordering: LexOrdering,
    schema: SchemaRef,
    keys: Vec<SortKey>,
    room: Arc<SpillRoom>,
    run_bytes: usize,
}

impl Sorter {
    async fn sort(self, mut rows: Batches) -> Result<Batches, Fault> {
        let sorter = Arc::new(self);
        let mut spilled = Vec::new();
        let (mut held, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            bytes += batch_bytes(&batch);
            held.push(batch);
            if bytes >= sorter.run_bytes {
                let batches = std::mem::take(&mut held);
                let run = sorter.blocking(move |sorter| sorter.spill(&sorter.in_order(&batches)?)).await?;
                sorter.add(&mut spilled, run).await?;
                bytes = 0;
            }
        }
        drop(rows);
        let last = sorter.blocking(move |sorter| sorter.in_order(&held)).await?;
        if spilled.is_empty() {
            return Ok(stream::iter(pages(&last, PAGE_ROWS).map(Ok).collect::<Vec<_>>()).boxed());
        }
        let last = sorter.blocking(move |sorter| sorter.spill(&last)).await?;
        sorter.merge(spilled.into_iter().flatten().chain([last]).collect())
    }

    /// Takes in a run. Where a level has as many as it may, they become a run of the next.
    async fn add(self: &Arc<Self>, levels: &mut Vec<Vec<File>>, mut run: File) -> Result<(), Fault> {
        for level in levels.iter_mut() {
            level.push(run);
            if level.len() < RUNS_MAX {
                return Ok(());
            }
            run = self.as_one(std::mem::take(level)).await?;
        }
        levels.push(vec![run]);
        Ok(())
    }

    /// Runs as one on the medium.
    async fn as_one(self: &Arc<Self>, runs: Vec<File>) -> Result<File, Fault> {
        let mut merged = self.merge(runs)?;
        let mut writer = self.blocking(Sorter::begin).await?;
        while let Some(rows) = merged.next().await {
            let rows = rows?;
            writer = self.blocking(move |sorter| sorter.write(&mut writer, &rows).map(|()| writer)).await?;
        }
        self.blocking(move |_| end(writer)).await
    }

    /// Runs a step that takes long on the reactor's pool of blocking threads.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        step: impl FnOnce(&Sorter) -> Result<T, ArrowError> + Send + 'static,
    ) -> Result<T, Fault> {
        let sorter = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || step(&sorter)).await;
        done.map_err(|error| Fault::new(Blame::Bug, format!("sorting gave up: {error}")))?.map_err(|error| self.fault(&error))
    }

    fn fault(&self, error: &ArrowError) -> Fault {
        if let ArrowError::ExternalError(inner) = error
            && let Some(fault) = inner.downcast_ref::<Fault>()
        {
            return fault.clone();
        }
        let blame = if matches!(error, ArrowError::IoError(..)) { Blame::Device } else { Blame::Bug };
        Fault::new(blame, format!("sorting in {}: {error}", self.room.directory().display()))
    }

    /// All rows as one batch, in order.
    fn in_order(&self, batches: &[RecordBatch]) -> Result<RecordBatch, ArrowError> {
        let whole = concat_batches(&self.schema, batches)?;
        let column = |key: &SortKey| {
            let values = Arc::clone(whole.column(self.schema.index_of(&key.column)?));
            Ok(SortColumn { values, options: Some(options(key)) })
        };
        let columns = self.keys.iter().map(column).collect::<Result<Vec<_>, ArrowError>>()?;
        take_record_batch(&whole, &lexsort_to_indices(&columns, None)?)
    }

    /// A run on the medium.
    fn spill(&self, run: &RecordBatch) -> Result<File, ArrowError> {
        let mut writer = self.begin()?;
        self.write(&mut writer, run)?;
        end(writer)
    }

    /// A run without a name, so that it goes with its last reader.
    fn begin(&self) -> Result<RunWriter, ArrowError> {
        StreamWriter::try_new(BufWriter::new(tempfile::tempfile_in(self.room.directory())?), &self.schema)
    }

    /// More rows of a run, in pages of which two of each run fit into memory.
    fn write(&self, writer: &mut RunWriter, rows: &RecordBatch) -> Result<(), ArrowError> {
        let bytes = batch_bytes(rows);
        self.room.take(bytes as u64).map_err(|fault| ArrowError::ExternalError(Box::new(fault)))?;
        let row_bytes = (bytes / rows.num_rows().max(1)).max(1);
        let page_rows = (self.run_bytes / (2 * RUNS_MAX) / row_bytes).clamp(SPILLED_ROWS_MIN, PAGE_ROWS);
        pages(rows, page_rows).try_for_each(|page| writer.write(&pithead_door::compact(&page)))
    }

    /// The runs as one stream.
    fn merge(&self, runs: Vec<File>) -> Result<Batches, Fault> {
        let streams = runs
            .into_iter()
            .map(|run| self.read(run))
            .collect::<Result<_, ArrowError>>()
            .map_err(|error| self.fault(&error))?;
        // A page of each run is held: no need to count it against the rows that were let go.
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let merged = StreamingMergeBuilder::new()
            .with_streams(streams)
            .with_schema(Arc::clone(&self.schema))
            .with_expressions(&self.ordering)
            .with_metrics(BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0))
            .with_batch_size(PAGE_ROWS)
            .with_reservation(MemoryConsumer::new("merging runs").register(&pool))
            .build()
            .map_err(fault_from_datafusion)?;
        Ok(merged.map_err(fault_from_datafusion).boxed())
    }

    /// A run's pages, each read on a blocking thread.
    fn read(&self, run: File) -> Result<SendableRecordBatchStream, ArrowError> {
        let reader = StreamReader::try_new(BufReader::new(run), None)?;
        let pages = stream::try_unfold(reader, |mut reader| async move {
            let next = tokio::task::spawn_blocking(move || (reader.next(), reader)).await;
            let (page, reader) = next.map_err(|error| DataFusionError::External(Box::new(error)))?;
            Ok(page.transpose()?.map(|page| (page, reader)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), pages)))
    }
}

/// Ends a run, which is read from its start.
fn end(writer: RunWriter) -> Result<File, ArrowError> {
    let mut file = writer.into_inner()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file)
}

/// Batches of a page's rows.
fn pages(batch: &RecordBatch, page_rows: usize) -> impl Iterator<Item = RecordBatch> + '_ {
    let rows = batch.num_rows();
    (0..rows).step_by(page_rows).map(move |start| batch.slice(start, page_rows.min(rows - start)))
}

fn ordering(schema: &SchemaRef, keys: &[SortKey]) -> Result<LexOrdering, Fault> {
    let mut expressions = Vec::with_capacity(keys.len());
    for key in keys {
        let lacking = || Fault::invalid(format!("no column {:?} to sort by", key.column)).of_kind(FaultKind::NoColumn);
        let expression = col(&key.column, schema).map_err(|_| lacking())?;
        expressions.push(PhysicalSortExpr { expr: expression, options: options(key) });
    }
    LexOrdering::new(expressions).ok_or_else(|| Fault::new(Blame::User, "expected at least one column to sort by"))
}

/// NULL is the largest value.
fn options(key: &SortKey) -> SortOptions {
    SortOptions { descending: key.descending, nulls_first: key.descending }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use std::path::Path;

    fn batches(values: Vec<Option<i64>>, rows: usize) -> (SchemaRef, Batches) {
        let parts: Vec<RecordBatch> = values
            .chunks(rows.max(1))
            .map(|part| {
                let column: ArrayRef = Arc::new(Int64Array::from(part.to_vec()));
                RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap()
            })
            .collect();
        let schema = parts.first().map_or_else(
            || {
                Arc::new(arrow::datatypes::Schema::new(vec![arrow::datatypes::Field::new(
                    "a",
                    arrow::datatypes::DataType::Int64,
                    true,
                )]))
            },
            RecordBatch::schema,
        );
        (schema, stream::iter(parts.into_iter().map(Ok)).boxed())
    }

    fn room(free: Option<u64>) -> Arc<SpillRoom> {
        Arc::new(SpillRoom::new(Path::new("/"), move || free))
    }

    async fn sort(values: Vec<Option<i64>>, descending: bool, memory: u64) -> Vec<Option<i64>> {
        let directory = tempfile::tempdir().unwrap();
        let (schema, rows) = batches(values, 100);
        let key = SortKey { column: "a".into(), descending };
        let rows: Vec<RecordBatch> =
            sorted(rows, &schema, &[key], &Arc::new(SpillRoom::new(directory.path(), || None)), memory)
                .unwrap()
                .try_collect()
                .await
                .unwrap();
        rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter()).collect()
    }

    #[tokio::test]
    async fn nulls_are_the_largest_values() {
        let values = vec![Some(2), None, Some(9), Some(1)];
        assert_eq!(sort(values.clone(), false, 1 << 20).await, [Some(1), Some(2), Some(9), None]);
        assert_eq!(sort(values, true, 1 << 20).await, [None, Some(9), Some(2), Some(1)]);
        assert_eq!(sort(vec![], false, 1 << 20).await, []);
    }

    #[tokio::test]
    async fn a_budget_far_too_small_spills_and_gives_the_same() {
        let values: Vec<Option<i64>> = (0..20_000_i64).map(|i| Some(i * 7_919 % 20_011)).collect();
        let mut expected = values.clone();
        expected.sort();
        assert_eq!(sort(values, false, 10_000).await, expected);
    }

    /// Open files in a directory, without a name as they are.
    fn files_in(directory: &Path) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|file| file.path().read_link().is_ok_and(|target| target.starts_with(directory))).count()
    }

    /// A regression: each run kept a file open until the end, and a large load failed there.
    #[tokio::test]
    async fn many_runs_are_merged_on_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let values: Vec<Option<i64>> = (0..5_000_i64).map(|i| Some(i * 7_919 % 5_003)).collect();
        let (schema, rows) = batches(values.clone(), 1);
        let path = directory.path().canonicalize().unwrap();
        let most = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let seen = Arc::clone(&most);
        let look = move || seen.fetch_max(files_in(&path), std::sync::atomic::Ordering::Relaxed);
        let looked = rows.enumerate().map(move |(number, rows)| {
            if number % 50 == 0 {
                look();
            }
            rows
        });
        let key = SortKey { column: "a".into(), descending: false };
        let room = Arc::new(SpillRoom::new(directory.path(), || None));
        let sorted: Vec<RecordBatch> = sorted(looked.boxed(), &schema, &[key], &room, 1).unwrap().try_collect().await.unwrap();
        let found: Vec<Option<i64>> =
            sorted.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter()).collect();
        let mut expected = values;
        expected.sort();
        assert_eq!(found, expected);
        let most = most.load(std::sync::atomic::Ordering::Relaxed);
        assert!((50..=3 * RUNS_MAX).contains(&most), "{most}");
    }

    #[tokio::test]
    async fn a_full_medium_ends_the_load() {
        let (schema, rows) = batches((0..3 << 20).map(Some).collect(), 1 << 20);
        let key = SortKey { column: "a".into(), descending: false };
        let sorted = sorted(rows, &schema, &[key], &room(Some(0)), 64 << 20).unwrap();
        assert_eq!(sorted.try_collect::<Vec<_>>().await.unwrap_err().blame, Blame::Limit);
    }

    #[test]
    fn an_unknown_key_is_the_users_fault() {
        let (schema, rows) = batches(vec![], 1);
        let key = SortKey { column: "b".into(), descending: false };
        let fault = sorted(rows, &schema, &[key], &room(None), 1 << 20).err().unwrap();
        assert_eq!(fault.blame, Blame::User);
    }
}
