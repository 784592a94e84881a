//! [`Overflow`]: groups that do not fit into memory.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use super::groups::{Groups, pieces};

/// What merges states of groups, of which each may come more than once: the engine's aggregate, which spills.
#[derive(Clone, Debug)]
pub(super) struct Overflow {
    /// Keys and states.
    schema: SchemaRef,
    /// The schema of the rows.
    input: SchemaRef,
    groups: PhysicalGroupBy,
    functions: Vec<Arc<AggregateFunctionExpr>>,
}

impl Overflow {
    /// For the groups of an aggregate over all rows.
    pub(super) fn of(aggregate: &AggregateExec) -> Result<Self> {
        let (groups, functions) = (aggregate.group_expr().clone(), aggregate.aggr_expr().to_vec());
        let rows = Arc::new(EmptyExec::new(aggregate.input().schema()));
        let filters = aggregate.filter_expr().to_vec();
        let input = aggregate.input_schema();
        let parts =
            AggregateExec::try_new(AggregateMode::Partial, groups, functions.clone(), filters, rows, Arc::clone(&input))?;
        Ok(Self { schema: parts.schema(), input, groups: aggregate.group_expr().as_final(), functions })
    }

    /// The rows of the result, from the groups so far and the rows that are left.
    pub(super) fn rows(
        &self,
        groups: Groups,
        rows: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let states = self.states(groups, rows, context.session_config().batch_size());
        let states = Once { schema: Arc::clone(&self.schema), stream: Mutex::new(Some(states)) };
        let states = StreamingTableExec::try_new(Arc::clone(&self.schema), vec![Arc::new(states)], None, [], false, None)?;
        let merged = AggregateExec::try_new(
            AggregateMode::Final,
            self.groups.clone(),
            self.functions.clone(),
            vec![None; self.functions.len()],
            Arc::new(states),
            Arc::clone(&self.input),
        )?;
        Ok(merged.execute(0, Arc::clone(context))?.boxed())
    }

    /// The states of the groups so far, and each time when those of the rows that are left have become too many, and at the end.
    fn states(&self, groups: Groups, rows: SendableRecordBatchStream, batch_rows: usize) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let all = stream::try_unfold((groups, Some(rows), true), move |(mut groups, mut rows, mut are_too_many)| {
            let schema = Arc::clone(&schema);
            async move {
                while let (false, Some(more)) = (are_too_many, rows.as_mut()) {
                    match more.next().await {
                        Some(batch) => {
                            groups.add(&batch?)?;
                            are_too_many = groups.are_too_many()?;
                        }
                        None => rows = None,
                    }
                }
                let states = groups.take_states(&schema)?;
                Ok::<_, DataFusionError>(states.map(|states| (pieces(&states, batch_rows), (groups, rows, false))))
            }
        });
        // The first states are there: the stream ends when there are none, which is when the rows have ended.
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), all.try_flatten()))
    }
}

/// A stream that is read once.
struct Once {
    schema: SchemaRef,
    stream: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("groups that did not fit")
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = self.stream.lock().take();
        stream.unwrap_or_else(|| Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::empty())))
    }
}
