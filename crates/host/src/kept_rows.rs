//! [`KeptRows`]: the memory of rows that a statement keeps until it ends, because several of its queries read them.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use pithead_door::batch_bytes;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Fault, SHIPPED_BYTES_MAX};

use crate::query::{Prepared, Query};

/// How much of the memory of the host's statements such rows take. Cheap to clone: all clones are of one statement, and the memory is
/// free once the last of them is gone.
#[derive(Clone, Debug)]
pub(crate) struct KeptRows(Arc<MemoryReservation>);

impl KeptRows {
    /// None yet.
    pub(crate) fn new(state: &SessionState) -> KeptRows {
        KeptRows(Arc::new(MemoryConsumer::new("rows kept for a statement").register(&state.runtime_env().memory_pool)))
    }

    /// Counts a batch. Whether there is memory for it.
    pub(crate) fn add(&self, batch: &RecordBatch) -> bool {
        self.0.try_grow(batch_bytes(batch)).is_ok()
    }

    /// Takes batches out of the count that are kept no longer.
    pub(crate) fn remove(&self, batches: &[RecordBatch]) {
        self.0.shrink(batches.iter().map(batch_bytes).sum());
    }

    /// The rows of a query that reads what is kept: they are counted until it ends, too.
    pub(crate) fn until_end_of(&self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let (schema, kept) = (rows.schema(), self.clone());
        let rows = rows.map(move |batch| {
            // The closure owns it, and so the stream does. A pattern without a name would not take it in.
            let _kept = &kept;
            batch
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

impl Query {
    /// The rows of a prepared query as a table of these columns; none if they are too large to ship, or for the host's memory.
    pub(crate) async fn collect(&self, schema: SchemaRef, prepared: &Prepared) -> Result<Option<Vec<RecordBatch>>, Fault> {
        let mut batches = Vec::new();
        let are_all = self.collect_into(&mut batches, schema, prepared).await;
        if !matches!(are_all, Ok(true)) {
            self.kept.remove(&batches);
        }
        Ok(are_all?.then_some(batches))
    }

    /// Whether there was room for all rows.
    async fn collect_into(
        &self,
        batches: &mut Vec<RecordBatch>,
        schema: SchemaRef,
        prepared: &Prepared,
    ) -> Result<bool, Fault> {
        let mut rows = self.execute(prepared).await?;
        let mut bytes = 0;
        while let Some(batch) = rows.next().await {
            let batch = batch.map_err(fault_from_datafusion)?;
            if batch.num_rows() == 0 {
                continue;
            }
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let renamed = RecordBatch::try_new_with_options(Arc::clone(&schema), batch.columns().to_vec(), &options);
            let renamed = renamed.map_err(|error| Fault::bug(format!("a part has other columns than planned: {error}")))?;
            bytes += batch_bytes(&renamed);
            if bytes > SHIPPED_BYTES_MAX || !self.kept.add(&renamed) {
                return Ok(false);
            }
            batches.push(renamed);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::Schema;
    use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool};
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::EmptyRecordBatchStream;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    #[tokio::test]
    async fn rows_are_counted_until_all_who_read_them_are_gone() {
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(20_000));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc().unwrap();
        let state = SessionContext::new_with_config_rt(SessionConfig::new(), runtime).state();
        let batch = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(0..1000)) as _)]).unwrap();
        let kept = KeptRows::new(&state);
        assert!(kept.add(&batch) && kept.add(&batch));
        assert!(!kept.add(&batch), "the pool is full");
        assert_eq!(pool.reserved(), 16_000);
        kept.remove(std::slice::from_ref(&batch));
        assert_eq!(pool.reserved(), 8_000);
        let mut rows = kept.until_end_of(Box::pin(EmptyRecordBatchStream::new(Arc::new(Schema::empty()))));
        drop(kept);
        assert_eq!(pool.reserved(), 8_000);
        assert!(rows.next().await.is_none());
        drop(rows);
        assert_eq!(pool.reserved(), 0);
    }
}
