//! [`sorted`]: the rows of a load in order, within a budget of memory and with spill files beyond it.

use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, PAGE_ROWS, SortKey};
use pithead_wire::Batches;

/// Part of the memory that a sort sets aside for merging what it spilled.
const MERGE_SHARE: u64 = 8;
/// No more than DataFusion sets aside on its own.
const MERGE_BYTES_MAX: u64 = 10 << 20;

/// Rows in the order of `keys`, nulls as the largest values. Nothing is read before the first poll.
pub(crate) fn sorted(
    rows: Batches,
    schema: &SchemaRef,
    keys: &[SortKey],
    runtime: Arc<RuntimeEnv>,
    memory: u64,
) -> Result<Batches, Fault> {
    let ordering = ordering(schema, keys)?;
    let merge_bytes = (memory / MERGE_SHARE).min(MERGE_BYTES_MAX) as usize;
    let config = SessionConfig::new()
        .with_batch_size(PAGE_ROWS)
        .with_target_partitions(1)
        .with_sort_spill_reservation_bytes(merge_bytes);
    let context = TaskContext::default().with_session_config(config).with_runtime(runtime);
    let input: Arc<dyn PartitionStream> = Arc::new(Rows { schema: Arc::clone(schema), rows: Mutex::new(Some(rows)) });
    let scan =
        StreamingTableExec::try_new(Arc::clone(schema), vec![input], None, [], false, None).map_err(fault_from_datafusion)?;
    let sort = SortExec::new(ordering, Arc::new(scan));
    let sorted = sort.execute(0, Arc::new(context)).map_err(fault_from_datafusion)?;
    Ok(sorted.map_err(fault_from_datafusion).boxed())
}

fn ordering(schema: &SchemaRef, keys: &[SortKey]) -> Result<LexOrdering, Fault> {
    let mut expressions = Vec::with_capacity(keys.len());
    for key in keys {
        let expression =
            col(&key.column, schema).map_err(|_| Fault::new(Blame::User, format!("no column {:?} to sort by", key.column)))?;
        expressions.push(PhysicalSortExpr { expr: expression, options: options(key) });
    }
    LexOrdering::new(expressions).ok_or_else(|| Fault::new(Blame::User, "expected at least one column to sort by"))
}

/// NULL is the largest value.
fn options(key: &SortKey) -> SortOptions {
    SortOptions { descending: key.descending, nulls_first: key.descending }
}

/// A load's rows, to be executed once.
struct Rows {
    schema: SchemaRef,
    rows: Mutex<Option<Batches>>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = self.rows.lock().take();
        let once = || DataFusionError::Internal("a load's rows are read once".to_owned());
        let rows = match rows {
            Some(rows) => rows.map_err(|fault| DataFusionError::External(Box::new(fault))).boxed(),
            None => futures::stream::once(async move { Err(once()) }).boxed(),
        };
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::Int64Type;

    fn batches(values: Vec<Option<i64>>) -> (SchemaRef, Batches) {
        let column: ArrayRef = Arc::new(Int64Array::from(values));
        let batch = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap();
        (batch.schema(), futures::stream::iter([Ok(batch)]).boxed())
    }

    async fn sort(descending: bool) -> Vec<Option<i64>> {
        let (schema, rows) = batches(vec![Some(2), None, Some(9), Some(1)]);
        let key = SortKey { column: "a".into(), descending };
        let rows = sorted(rows, &schema, &[key], Arc::default(), 1 << 20).unwrap();
        let rows: Vec<RecordBatch> = rows.try_collect().await.unwrap();
        rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter()).collect()
    }

    #[tokio::test]
    async fn nulls_are_the_largest_values() {
        assert_eq!(sort(false).await, [Some(1), Some(2), Some(9), None]);
        assert_eq!(sort(true).await, [None, Some(9), Some(2), Some(1)]);
    }

    #[test]
    fn an_unknown_key_is_the_users_fault() {
        let (schema, rows) = batches(vec![]);
        let key = SortKey { column: "b".into(), descending: false };
        let fault = sorted(rows, &schema, &[key], Arc::default(), 1 << 20).err().unwrap();
        assert_eq!(fault.blame, Blame::User);
    }
}
