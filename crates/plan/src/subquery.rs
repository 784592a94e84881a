//! Uncorrelated scalar subqueries: each runs first, as a query of its own, and its value becomes a literal.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, not_impl_err};
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
                if let Some(column) = read_two_levels_down(node, expr)? {
                    return not_impl_err!(
                        "a subquery within a subquery reads {column}, a column of the query around both; join with it in FROM instead"
                    );
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

/// The columns that subqueries of a plan read of queries around the plan. The engine's planner finds these columns, but leaves them out
/// where it says what the plan is correlated by.
pub fn columns_around(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = Vec::new();
    plan.apply(|node| {
        node.apply_subqueries(|subquery| {
            found.extend(outer_columns(subquery)?.into_iter().filter(|column| !is_below(node, column)));
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// The columns that a subquery and those within it read of queries around it.
fn outer_columns(subquery: &LogicalPlan) -> Result<Vec<Column>> {
    let (mut found, mut beside) = (columns_around(subquery)?, Vec::new());
    subquery.apply(|node| {
        if let LogicalPlan::Join(join) = node {
            beside.push(Arc::clone(join.left.schema()));
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::OuterReferenceColumn(_, column) = part {
                    found.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    // What LATERAL reads of a table beside it is of the subquery itself.
    found.retain(|column| !beside.iter().any(|schema| schema.has_column(column)));
    Ok(found)
}

/// A column of a node's rows that a subquery within one of its subqueries reads.
fn read_two_levels_down(node: &LogicalPlan, expr: &Expr) -> Result<Option<Column>> {
    let Some(subquery) = subquery_of(expr) else { return Ok(None) };
    Ok(columns_around(subquery)?.into_iter().find(|column| is_below(node, column)))
}

fn is_below(node: &LogicalPlan, column: &Column) -> bool {
    node.inputs().iter().any(|input| input.schema().has_column(column))
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

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn queries(sql: &str) -> Result<Vec<ScalarQuery>> {
        let context = SessionContext::new();
        context.sql("CREATE TABLE t (k BIGINT, v BIGINT)").await?;
        context.sql("CREATE TABLE u (k BIGINT, v BIGINT)").await?;
        context.sql("CREATE TABLE w (v BIGINT, x BIGINT)").await?;
        scalar_queries(&context.state().create_logical_plan(sql).await?)
    }

    #[tokio::test]
    async fn a_column_two_queries_further_out_is_refused_by_its_name() {
        for sql in [
            "SELECT k FROM t AS a WHERE NOT EXISTS (SELECT 1 FROM w WHERE NOT EXISTS (SELECT 1 FROM t AS b WHERE b.k = a.k AND b.v = w.v))",
            "SELECT (SELECT max(u.v) FROM u WHERE u.k = (SELECT min(w.x) FROM w WHERE w.v >= a.k)) FROM t AS a",
            "SELECT k FROM t AS a WHERE k IN (SELECT u.k FROM u WHERE u.k = a.v AND u.v IN (SELECT w.v FROM w WHERE w.x = a.k))",
            "SELECT 1 FROM t AS a WHERE EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM w WHERE EXISTS (SELECT a.k)))",
        ] {
            let error = queries(sql).await.unwrap_err().to_string();
            assert!(error.contains("reads a.k, a column of the query around both"), "{sql}: {error}");
        }
    }

    #[tokio::test]
    async fn columns_of_the_next_query_are_no_others() {
        for (sql, expected) in [
            ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND EXISTS (SELECT 1 FROM w WHERE w.v = u.v))", 0),
            ("SELECT k FROM t WHERE v = (SELECT max(v) FROM u WHERE EXISTS (SELECT 1 FROM w WHERE w.v = u.v))", 1),
            ("SELECT k FROM t WHERE v = (SELECT max(b.v) FROM t AS b WHERE b.k IN (SELECT t.k FROM t WHERE t.v = b.v))", 1),
            (
                "SELECT k FROM t WHERE k IN (SELECT u.k FROM u WHERE v IN (SELECT y.q FROM w, LATERAL (SELECT w.v AS q) AS y))",
                0,
            ),
            ("SELECT (SELECT max(z) FROM (SELECT u.v + t.v AS z FROM u WHERE u.k = t.k) AS q) FROM t", 0),
        ] {
            assert_eq!(queries(sql).await.unwrap().len(), expected, "{sql}");
        }
    }
}
