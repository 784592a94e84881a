//! [`AnyOrder`]: hides what some operators claim about the order of their rows, because the claim can be wrong.
//!
//! DataFusion takes order, constants and uniqueness of the keys from below an aggregate. With grouping sets, a key is
//! NULL in some groups, even a constant key, and several sets may have a group with the same keys. DataFusion would
//! then leave a sort above out, or would sort by too few columns.
//!
//! DataFusion also moves a sort from above a UNION ALL to each of its inputs, and there leaves out a key that equals
//! another one. It can then no longer show that all inputs are in order, and refuses the plan.
//!
//! The rule comes first, before any other rule asks for an order.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// The rule.
#[derive(Debug)]
pub(crate) struct AnyOrder;

impl PhysicalOptimizerRule for AnyOrder {
    fn name(&self) -> &str {
        "pithead_any_order"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let apart = plan.transform_up(|node| {
            let has_sets = node.downcast_ref::<AggregateExec>().is_some_and(|it| it.group_expr().has_grouping_set());
            let is_doubtful = has_sets || node.is::<UnionExec>();
            Ok(if is_doubtful { Transformed::yes(Arc::new(AnyOrderExec::new(node))) } else { Transformed::no(node) })
        })?;
        Ok(apart.data)
    }
}

/// Hands on its input's rows, and claims nothing about their order and values.
#[derive(Clone, Debug)]
struct AnyOrderExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl AnyOrderExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let unknown = EquivalenceProperties::new(input.schema());
        let properties = Arc::new(PlanProperties::clone(input.properties()).with_eq_properties(unknown));
        Self { input, properties }
    }
}

impl DisplayAs for AnyOrderExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("AnyOrderExec")
    }
}

impl ExecutionPlan for AnyOrderExec {
    fn name(&self) -> &str {
        "AnyOrderExec"
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
        let Ok([input]) = <[_; 1]>::try_from(children) else { return internal_err!("AnyOrderExec has one child") };
        Ok(Arc::new(Self::new(input)))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, input_stats: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&input_stats[0]))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
