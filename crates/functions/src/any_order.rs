//! [`AnyOrder`]: hides what some operators claim about the order of their rows, because the claim can be wrong.
//!
//! DataFusion takes order, constants and uniqueness of the keys from below an aggregate. With grouping sets, a key is
//! NULL in some groups, even a constant key, and several sets may have a group with the same keys. DataFusion would
//! then leave a sort above out, or would sort by too few columns.
//!
//! DataFusion also moves a sort from above a UNION ALL to each of its inputs, and there leaves out a key that equals
//! another one. It can then no longer show that all inputs are in order, and refuses the plan.
//!
//! Of an outer join's side that may be missing, DataFusion keeps what columns are equal to: a constant, or an expression. In
//! rows that have no match they are NULL, and the expression need not be. DataFusion would then leave a sort or a partition by
//! such a column out.
//!
//! Of a filter `CAST(x AS date) = …`, DataFusion works out that `x` has one value, by the cast turned round; but a cast to a coarser
//! type makes one value of many.
//!
//! Of a filter `lower(k) = k`, DataFusion takes a column and what is computed of it for one, and plans windows by `k` over rows that are
//! not in the order which these then expect.
//!
//! The rule comes first, before any other rule asks for an order.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{CastExpr, Column, TryCastExpr};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, replace_children_if_necessary,
};

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
            match has_sets || node.is::<UnionExec>() || turns_casts(&node) || equals_itself(&node) {
                true => Ok(Transformed::yes(Arc::new(AnyOrderExec::new(node)) as Arc<dyn ExecutionPlan>)),
                false => below_outer(node),
            }
        })?;
        Ok(apart.data)
    }
}

/// Whether it is a filter that claims values, and has a cast in its condition.
fn turns_casts(node: &Arc<dyn ExecutionPlan>) -> bool {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return false };
    let has_cast = filter.predicate().exists(|part| Ok(part.is::<CastExpr>() || part.is::<TryCastExpr>()));
    has_cast.unwrap_or(true) && claims_values(node)
}

/// Whether it is a filter that claims that a column equals what is computed of it.
fn equals_itself(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<FilterExec>()
        && node.equivalence_properties().eq_group().iter().any(|class| {
            let computed_of = |column: &Arc<dyn PhysicalExpr>| {
                class.iter().any(|expr| !expr.is::<Column>() && expr.exists(|part| Ok(part == column)).unwrap_or(true))
            };
            class.iter().any(|expr| expr.is::<Column>() && computed_of(expr))
        })
}

/// Hides what is claimed of the sides of an outer join that may be missing.
fn below_outer(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let doubtful: Vec<bool> = match join_type(&node) {
        Some(kind) => {
            let may_be_missing =
                [kind == JoinType::Right || kind == JoinType::Full, kind == JoinType::Left || kind == JoinType::Full];
            node.children().into_iter().zip(may_be_missing).map(|(child, may)| may && claims_values(child)).collect()
        }
        None => vec![],
    };
    if !doubtful.contains(&true) {
        return Ok(Transformed::no(node));
    }
    let hidden = |(child, is_doubtful): (&Arc<dyn ExecutionPlan>, bool)| match is_doubtful {
        true => Arc::new(AnyOrderExec::new(Arc::clone(child))) as _,
        false => Arc::clone(child),
    };
    let children = node.children().into_iter().zip(doubtful).map(hidden).collect();
    Ok(Transformed::yes(replace_children_if_necessary(node, children)?))
}

fn join_type(node: &Arc<dyn ExecutionPlan>) -> Option<JoinType> {
    let hash = node.downcast_ref::<HashJoinExec>().map(HashJoinExec::join_type).copied();
    let nested = || node.downcast_ref::<NestedLoopJoinExec>().map(NestedLoopJoinExec::join_type).copied();
    let merge = || node.downcast_ref::<SortMergeJoinExec>().map(SortMergeJoinExec::join_type);
    hash.or_else(nested).or_else(merge)
}

/// Whether a column is claimed to be a constant, or to equal more than other columns, which are NULL where it is.
fn claims_values(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let properties = plan.equivalence_properties();
    let mut classes = properties.eq_group().iter();
    !properties.constants().is_empty() || classes.any(|class| class.iter().any(|expr| !expr.is::<Column>()))
}

/// Hands on its input's rows, and claims nothing about their order and values.
#[derive(Clone, Debug)]
pub(crate) struct AnyOrderExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl AnyOrderExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
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

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn windows_by_what_equals_itself_have_rows_in_order() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let first =
            "(SELECT column1 AS m, column2 AS k FROM (VALUES (3, 'a'), (1, 'b'), (2, 'a'), (4, 'B')) ORDER BY m LIMIT 9) AS t";
        let sql = format!("SELECT m, count(*) OVER (PARTITION BY k ORDER BY m) FROM {first} WHERE lower(k) = k ORDER BY m");
        let found = context.sql(&sql).await.unwrap().collect().await.unwrap();
        let row = |row| [0, 1].map(|column| array_value_to_string(found[0].column(column), row).unwrap()).join(" ");
        assert_eq!([row(0), row(1), row(2)], ["1 1", "2 1", "3 2"]);
    }
}
