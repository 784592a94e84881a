//! `EXISTS` and `IN (subquery)` as values: in SELECT, GROUP BY, and within aggregates and window functions.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, LogicalPlanBuilder, Projection, lit};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::kept_names::map_named;
use crate::subqueries::{Context, is_predicate};

/// Computes such a value by a mark join below, whose mark takes its place. DataFusion makes mark joins of parts of conditions alone, so
/// the rule has it do so for a condition that has all of them, and takes the join without the condition.
#[derive(Debug, Default)]
pub(crate) struct SubqueryValues(DecorrelatePredicateSubquery);

impl OptimizerRule for SubqueryValues {
    fn name(&self) -> &'static str {
        "pithead_subquery_values"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if predicates(&plan)?.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let (input, columns) = (plan.inputs()[0].clone(), plan.schema().columns());
        let context = Context { schema: Arc::clone(input.schema()), names: config.alias_generator() };
        let plan = map_named(plan, |expr| {
            expr.transform_down(|part| match part {
                Expr::InSubquery(query) => Ok(Transformed::new(context.case(query)?, true, TreeNodeRecursion::Jump)),
                part => Ok(Transformed::no(part)),
            })
        })?;
        let found = predicates(&plan.data)?;
        let Some((joined, marks)) = self.marked(&found, input, config)? else { return Ok(plan) };
        let plan = map_named(plan.data, |expr| {
            expr.transform_down(|part| match found.iter().position(|predicate| *predicate == part) {
                Some(place) => Ok(Transformed::new(marks[place].clone(), true, TreeNodeRecursion::Jump)),
                None => Ok(Transformed::no(part)),
            })
        })?;
        let exprs = plan.data.expressions();
        let plan = plan.data.with_new_exprs(exprs, vec![joined])?;
        Ok(Transformed::yes(match plan {
            // It has all columns of its input, and what is above knows those that were there.
            LogicalPlan::Window(_) => LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column))?.build()?,
            plan => plan,
        }))
    }
}

impl SubqueryValues {
    /// The input joined with all subqueries, and the mark of each; none: they make no joins.
    fn marked(
        &self,
        predicates: &[Expr],
        input: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
        let when_then_expr = predicates.iter().map(|predicate| (Box::new(predicate.clone()), Box::new(lit(true)))).collect();
        let all = Expr::Case(Case { expr: None, when_then_expr, else_expr: None });
        let condition = LogicalPlan::Filter(Filter::try_new(all, Arc::new(input))?);
        let LogicalPlan::Projection(Projection { input, .. }) = self.0.rewrite(condition, config)?.data else {
            return Ok(None);
        };
        let LogicalPlan::Filter(Filter { predicate: Expr::Case(all), input, .. }) = Arc::unwrap_or_clone(input) else {
            return Ok(None);
        };
        let marks = all.when_then_expr.into_iter().map(|(mark, _)| *mark).collect();
        Ok(Some((Arc::unwrap_or_clone(input), marks)))
    }
}

/// The predicates over subqueries of a node's own expressions, each once, where the node is one that computes values.
fn predicates(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut found: Vec<Expr> = Vec::new();
    if !matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)) {
        return Ok(found);
    }
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            if !is_predicate(part) {
                return Ok(TreeNodeRecursion::Continue);
            }
            if !found.contains(part) {
                found.push(part.clone());
            }
            Ok(TreeNodeRecursion::Jump)
        })
    })?;
    Ok(found)
}
