//! [`ReplanExec`]: the rows of a plan, and where it was stopped those of the plan that follows it.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_expr::{Partitioning, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use pithead_model::Fault;
use tokio::sync::{OnceCell, watch};

use super::Anew;

/// Hands on the rows of its input, and then, where the input was stopped, those of the plan for what is left.
pub(crate) struct ReplanExec {
    input: Arc<dyn ExecutionPlan>,
    shared: Arc<Shared>,
    properties: Arc<PlanProperties>,
}

/// What the partitions share.
struct Shared {
    anew: Arc<Anew>,
    /// How the second plan's rows are divided.
    partitioning: Partitioning,
    turn: Arc<Turn>,
    watching: Mutex<Option<SpawnedTask<()>>>,
    second: OnceCell<Option<Arc<dyn ExecutionPlan>>>,
}

/// Which plan's turn it is.
#[derive(Default)]
struct Turn(watch::Sender<Turns>);

#[derive(Clone, Copy, Default)]
struct Turns {
    /// Partitions of the first plan that began, and of them those that ended.
    begun: usize,
    ended: usize,
    /// The first plan was stopped: each of its partitions goes on with the second one.
    is_stopped: bool,
    /// A partition has ended for good, so that it is too late for another plan.
    is_late: bool,
}

impl Turn {
    fn begin(self: &Arc<Self>) -> First {
        self.0.send_modify(|turns| turns.begun += 1);
        First { turn: Arc::clone(self), has_ended: false }
    }

    /// Whether the first plan may be stopped. From now on it is.
    fn stop(&self) -> bool {
        self.0.send_if_modified(|turns| {
            turns.is_stopped |= !turns.is_late;
            turns.is_stopped
        })
    }

    /// Waits until no partition of the first plan runs.
    async fn all_ended(&self) {
        let mut turns = self.0.subscribe();
        // The sender is here, so there is no error.
        drop(turns.wait_for(|turns| turns.ended >= turns.begun).await);
    }
}

/// A partition of the first plan that runs.
struct First {
    turn: Arc<Turn>,
    has_ended: bool,
}

impl First {
    /// The partition has ended. Whether the second plan follows.
    fn end(&mut self) -> bool {
        self.has_ended = true;
        let mut follows = false;
        self.turn.0.send_modify(|turns| {
            turns.ended += 1;
            turns.is_late |= !turns.is_stopped;
            follows = turns.is_stopped;
        });
        follows
    }
}

impl Drop for First {
    /// Nobody needs more of its rows, nor does anybody wait for them.
    fn drop(&mut self) {
        if !self.has_ended {
            self.turn.0.send_modify(|turns| turns.ended += 1);
        }
    }
}

impl ReplanExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, anew: Arc<Anew>) -> ReplanExec {
        let partitioning = can_be_made(input.output_partitioning());
        // Rows of the second plan are equal in what the plan says of them, and in no order.
        let mut equal = input.equivalence_properties().clone();
        equal.clear_orderings();
        let properties = PlanProperties::new(equal, partitioning.clone(), input.pipeline_behavior(), input.boundedness());
        let (turn, watching, second) = (Arc::default(), Mutex::default(), OnceCell::new());
        let shared = Arc::new(Shared { anew, partitioning, turn, watching, second });
        ReplanExec { input, shared, properties: Arc::new(properties) }
    }
}

impl Shared {
    /// Begins to look at the first plan.
    fn watch(&self) {
        let mut watching = self.watching.lock();
        if watching.is_none() {
            let (anew, turn) = (Arc::clone(&self.anew), Arc::clone(&self.turn));
            *watching = Some(SpawnedTask::spawn(async move {
                anew.watch().await;
                if turn.stop() {
                    anew.brake.stop();
                }
            }));
        }
    }

    /// A partition of the second plan's rows; none where nothing is left.
    async fn second(&self, partition: usize, context: Arc<TaskContext>) -> Result<Option<SendableRecordBatchStream>> {
        self.turn.all_ended().await;
        let plan = self.second.get_or_try_init(|| async {
            let plan = self.anew.plan().await.map_err(external)?;
            plan.map(|plan| divided(plan, &self.partitioning)).transpose()
        });
        plan.await?.as_ref().map(|plan| plan.execute(partition, context)).transpose()
    }
}

/// A division of rows that those of another plan can be given, too. A projection may have left out what its input was divided by.
fn can_be_made(partitioning: &Partitioning) -> Partitioning {
    match partitioning {
        Partitioning::Hash(keys, _) if keys.iter().all(is_computed) => partitioning.clone(),
        others => Partitioning::UnknownPartitioning(others.partition_count()),
    }
}

/// Whether an expression has columns only that are there.
fn is_computed(key: &Arc<dyn PhysicalExpr>) -> bool {
    // The closure gives no error.
    !key.exists(|part| Ok(part.downcast_ref::<UnKnownColumn>().is_some())).unwrap_or(true)
}

/// A plan's rows in these partitions.
fn divided(plan: Arc<dyn ExecutionPlan>, partitioning: &Partitioning) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(match partitioning {
        partitioning if partitioning.partition_count() == 1 => Arc::new(CoalescePartitionsExec::new(plan)),
        Partitioning::UnknownPartitioning(count) => {
            Arc::new(RepartitionExec::try_new(plan, Partitioning::RoundRobinBatch(*count))?)
        }
        partitioning => Arc::new(RepartitionExec::try_new(plan, partitioning.clone())?),
    })
}

/// One partition on its way.
struct Rows {
    shared: Arc<Shared>,
    partition: usize,
    context: Arc<TaskContext>,
    schema: SchemaRef,
    now: SendableRecordBatchStream,
    /// While it is the first plan's.
    first: Option<First>,
}

impl Rows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.now.next().await {
                return Ok(Some(conform(&batch?, &self.schema)?));
            }
            let Some(mut first) = self.first.take() else { return Ok(None) };
            // Its sessions end here, whatever they were about to do.
            self.now = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::empty()));
            if !first.end() {
                return Ok(None);
            }
            let Some(second) = self.shared.second(self.partition, Arc::clone(&self.context)).await? else { return Ok(None) };
            self.now = second;
        }
    }
}

/// Rows of either plan in the first one's columns: plans of one meaning may differ in what they know of NULLs.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)?)
}

fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

impl fmt::Debug for ReplanExec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("ReplanExec").field("input", &self.input).finish_non_exhaustive()
    }
}

impl DisplayAs for ReplanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ReplanExec: watches sub-plan {}", self.shared.anew.sub_plan.number)
    }
}

impl ExecutionPlan for ReplanExec {
    fn name(&self) -> &str {
        "ReplanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(ReplanExec::new(input, Arc::clone(&self.shared.anew)))),
            _ => internal_err!("a point to plan anew at has one input"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let now = self.input.execute(partition, Arc::clone(&context))?;
        self.shared.watch();
        let (shared, schema) = (Arc::clone(&self.shared), self.schema());
        let first = Some(self.shared.turn.begin());
        let rows = Rows { shared, partition, context, schema: Arc::clone(&schema), now, first };
        let rows = stream::try_unfold(rows, |mut rows| async move {
            Ok::<_, DataFusionError>(rows.next().await?.map(|batch| (batch, rows)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("a point to plan anew at has one input"),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::projection::ProjectionExec;

    use super::*;

    /// A plan whose rows are divided by `a`, of which a column is left.
    fn projected(column: &str) -> Arc<dyn ExecutionPlan> {
        let field = |name| Field::new(name, DataType::Int64, false);
        let schema = Arc::new(Schema::new(vec![field("a"), field("b")]));
        let by = Partitioning::Hash(vec![col("a", &schema).unwrap()], 3);
        let rows = RepartitionExec::try_new(Arc::new(EmptyExec::new(Arc::clone(&schema))), by).unwrap();
        let columns = vec![(col(column, &schema).unwrap(), column.to_owned())];
        Arc::new(ProjectionExec::try_new(columns, Arc::new(rows)).unwrap())
    }

    #[test]
    fn rows_are_divided_by_what_is_there() {
        let by_key = projected("a");
        assert!(matches!(can_be_made(by_key.output_partitioning()), Partitioning::Hash(keys, 3) if keys.len() == 1));
        let without = projected("b");
        assert!(matches!(without.output_partitioning(), Partitioning::Hash(..)), "else this tests nothing");
        assert!(matches!(can_be_made(without.output_partitioning()), Partitioning::UnknownPartitioning(3)));
    }
}
