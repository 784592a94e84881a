//! Uncorrelated scalar subqueries: each runs first, as a query of its own, and its value becomes a literal.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, not_impl_err};
use datafusion::logical_expr::{Expr, LogicalPlan};
use pithead_functions::map_named;

use crate::recursion::stands_alone;

/// A query whose single value another query needs before it can be planned.
#[derive(Clone, Debug)]
pub struct ScalarQuery {
    /// The query: one column.
    pub plan: LogicalPlan,
}

/// The outermost uncorrelated scalar subqueries of a plan that is not optimised yet, in the order in which
/// [`replace_scalar_queries`] expects their values. Those inside them are found when they are planned themselves.
pub fn scalar_queries(plan: &LogicalPlan) -> Result<Vec<ScalarQuery>> {
    let mut found = Vec::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if subquery_of(expr).is_some_and(|plan| !stands_alone(plan)) {
                    return not_impl_err!("a subquery that reads the recursive query around it; join it in FROM instead");
                }
                if let Some(plan) = uncorrelated(expr) {
                    found.push(ScalarQuery { plan: plan.clone() });
                    return Ok(TreeNodeRecursion::Jump);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    distinct(found)
}

/// The plan with each query of `values` replaced by its value.
pub fn replace_scalar_queries(plan: LogicalPlan, values: &[(ScalarQuery, ScalarValue)]) -> Result<LogicalPlan> {
    let mut is_used = vec![false; values.len()];
    let mut value_of = |plan: &LogicalPlan| {
        let mut equal = (0..values.len()).filter(|place| values[*place].0.plan == *plan);
        let first = equal.next()?;
        // Those that are there twice are others each time.
        let place = std::iter::once(first).chain(equal).find(|place| !is_used[*place]).unwrap_or(first);
        is_used[place] = true;
        Some(values[place].1.clone())
    };
    let replaced = plan.transform_down_with_subqueries(|node| {
        map_named(node, |expr| {
            expr.transform_down(|expr| {
                Ok(match uncorrelated(&expr).and_then(&mut value_of) {
                    Some(value) => Transformed::yes(Expr::Literal(value, None)),
                    None => Transformed::no(expr),
                })
            })
        })
    })?;
    replaced.data.recompute_schema()
}

/// Whether a plan that is computed twice may have other rows each time.
pub fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = node.expressions().iter().any(Expr::is_volatile);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn uncorrelated(expr: &Expr) -> Option<&LogicalPlan> {
    match expr {
        Expr::ScalarSubquery(subquery) if subquery.outer_ref_columns.is_empty() => Some(&subquery.subquery),
        _ => None,
    }
}

fn subquery_of(expr: &Expr) -> Option<&LogicalPlan> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some(&subquery.subquery),
        Expr::InSubquery(query) => Some(&query.subquery.subquery),
        Expr::Exists(exists) => Some(&exists.subquery.subquery),
        Expr::SetComparison(comparison) => Some(&comparison.subquery.subquery),
        _ => None,
    }
}

/// Each query once. One whose rows are others each time is another one each time.
fn distinct(queries: Vec<ScalarQuery>) -> Result<Vec<ScalarQuery>> {
    let mut distinct: Vec<ScalarQuery> = Vec::new();
    for query in queries {
        if is_volatile(&query.plan)? || !distinct.iter().any(|known| known.plan == query.plan) {
            distinct.push(query);
        }
    }
    Ok(distinct)
}
