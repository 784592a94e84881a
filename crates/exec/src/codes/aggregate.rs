//! [`CodedAggregateExec`]: the engine's aggregates, over groups that have codes.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, stream};

use super::combinations::Codes;

/// All rows of its input in groups, with the engine's accumulators.
#[derive(Clone, Debug)]
pub(super) struct CodedAggregateExec {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    aggregates: Vec<Aggregate>,
    properties: Arc<PlanProperties>,
    statistics: Arc<Statistics>,
}

#[derive(Clone, Debug)]
struct Aggregate {
    function: Arc<AggregateFunctionExpr>,
    filter: Option<Arc<dyn PhysicalExpr>>,
}

impl CodedAggregateExec {
    /// In the place of an aggregate that does no more.
    pub(super) fn try_new(aggregate: &AggregateExec) -> Result<Self> {
        let functions = aggregate.aggr_expr().iter().zip(aggregate.filter_expr());
        let functions =
            functions.map(|(function, filter)| Aggregate { function: Arc::clone(function), filter: filter.clone() });
        Ok(Self {
            input: Arc::clone(aggregate.input()),
            keys: aggregate.group_expr().expr().iter().map(|(key, _)| Arc::clone(key)).collect(),
            aggregates: functions.collect(),
            properties: Arc::clone(aggregate.properties()),
            statistics: Arc::new(Statistics::new_unknown(&aggregate.schema())),
        })
    }
}

impl DisplayAs for CodedAggregateExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        let functions: Vec<&str> = self.aggregates.iter().map(|aggregate| aggregate.function.name()).collect();
        write!(f, "CodedAggregateExec: gby=[{}], aggr=[{}]", keys.join(", "), functions.join(", "))
    }
}

impl ExecutionPlan for CodedAggregateExec {
    fn name(&self) -> &str {
        "CodedAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else { return internal_err!("CodedAggregateExec has one child") };
        Ok(Arc::new(Self { input, ..Self::clone(&self) }))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("CodedAggregateExec has one partition, not {partition}");
        }
        let schema = self.schema();
        let reservation = MemoryConsumer::new("groups by codes").register(context.memory_pool());
        let mut groups = Groups::new(self, reservation)?;
        let mut rows = self.input.execute(0, Arc::clone(&context))?;
        let (output, batch_rows) = (Arc::clone(&schema), context.session_config().batch_size());
        let made = async move {
            while let Some(batch) = rows.next().await {
                groups.add(&batch?)?;
            }
            let all = groups.finish(&output)?;
            let pieces = (0..all.num_rows()).step_by(batch_rows.max(1));
            let pieces: Vec<RecordBatch> = pieces.map(|at| all.slice(at, batch_rows.min(all.num_rows() - at))).collect();
            Ok(stream::iter(pieces.into_iter().map(Ok)))
        };
        let rows = stream::once(made).flat_map(|made: Result<_>| match made {
            Ok(pieces) => pieces.left_stream(),
            Err(error) => stream::once(async { Err(error) }).right_stream(),
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn statistics_from_inputs(&self, _input_stats: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&self.statistics))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }
}

/// The groups so far.
struct Groups {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    codes: Codes,
    /// The group of each row of a batch.
    rows: Vec<usize>,
    sums: Vec<(Aggregate, Box<dyn GroupsAccumulator>)>,
    reservation: MemoryReservation,
}

impl Groups {
    fn new(plan: &CodedAggregateExec, reservation: MemoryReservation) -> Result<Self> {
        let schema = plan.schema();
        let types: Vec<DataType> =
            schema.fields().iter().take(plan.keys.len()).map(|field| field.data_type().clone()).collect();
        let accumulator = |aggregate: &Aggregate| Ok((aggregate.clone(), aggregate.function.create_groups_accumulator()?));
        Ok(Self {
            keys: plan.keys.clone(),
            codes: Codes::new(types),
            rows: Vec::new(),
            sums: plan.aggregates.iter().map(accumulator).collect::<Result<_>>()?,
            reservation,
        })
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let keys = self.keys.iter().map(|key| values(key, batch)).collect::<Result<Vec<_>>>()?;
        self.codes.of(&keys, &mut self.rows)?;
        let count = self.codes.len();
        for (aggregate, accumulator) in &mut self.sums {
            let arguments = aggregate.function.expressions();
            let arguments = arguments.iter().map(|argument| values(argument, batch)).collect::<Result<Vec<_>>>()?;
            let filter = aggregate.filter.as_ref().map(|filter| values(filter, batch)).transpose()?;
            let filter: Option<&BooleanArray> = filter.as_ref().map(|filter| filter.as_boolean());
            accumulator.update_batch(&arguments, &self.rows, filter, count)?;
        }
        let sums: usize = self.sums.iter().map(|(_, accumulator)| accumulator.size()).sum();
        self.reservation.try_resize(sums + self.codes.bytes())
    }

    fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch> {
        if self.codes.len() == 0 {
            return Ok(RecordBatch::new_empty(Arc::clone(schema)));
        }
        let mut columns = self.codes.values()?;
        for (_, accumulator) in &mut self.sums {
            columns.push(accumulator.evaluate(EmitTo::All)?);
        }
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

fn values(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}
