//! [`CodedAggregateExec`]: the engine's aggregates, over groups that have codes.
//!
//! It does not spill. Where memory is short, what there is of the groups goes on as an operator of the engine would have it that sees a
//! part of the rows ([`super::overflow`]), and the engine merges it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use super::groups::{Aggregate, Groups};
use super::overflow::Overflow;

/// All rows of its input in groups, with the engine's accumulators.
#[derive(Clone, Debug)]
pub(super) struct CodedAggregateExec {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    aggregates: Vec<Aggregate>,
    properties: Arc<PlanProperties>,
    statistics: Arc<Statistics>,
    overflow: Overflow,
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
            overflow: Overflow::of(aggregate)?,
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
        // What it keeps can go elsewhere when others need it, as what spills can.
        let reservation = MemoryConsumer::new("groups by codes").with_can_spill(true).register(context.memory_pool());
        let mut groups = Groups::new(&schema, &self.keys, &self.aggregates, reservation)?;
        let mut rows = self.input.execute(0, Arc::clone(&context))?;
        let (output, overflow) = (Arc::clone(&schema), self.overflow.clone());
        let made = async move {
            while let Some(batch) = rows.next().await {
                groups.add(&batch?)?;
                if groups.are_too_many()? {
                    return overflow.rows(groups, rows, &context);
                }
            }
            Ok(groups.finish(&output, context.session_config().batch_size())?.boxed())
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::once(made).try_flatten())))
    }

    fn statistics_from_inputs(&self, _input_stats: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&self.statistics))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }
}
