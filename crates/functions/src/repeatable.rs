//! Plans that have the same rows each time they are computed.

use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan};

use crate::subqueries::is_subquery;

/// Aggregates that give the same in whatever order their rows come.
const EXACT: [&str; 15] = [
    "count",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "median",
    "percentile_cont",
    "percentile_disc",
    "mad",
    "mode",
    "entropy",
    "histogram",
];

/// Whether a plan that is computed twice has the same rows both times, and stands for itself.
pub(crate) fn is_the_same_again(plan: &LogicalPlan) -> Result<bool> {
    let changes = plan.exists(|node| {
        let is_any = match node {
            LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::RecursiveQuery(_) => true,
            LogicalPlan::Distinct(Distinct::On(_)) => true,
            LogicalPlan::Sort(sort) => sort.fetch.is_some(),
            LogicalPlan::Aggregate(Aggregate { input, aggr_expr, .. }) => {
                !aggr_expr.iter().all(|expr| is_exact(expr, input.schema()))
            }
            _ => false,
        };
        Ok(is_any || node.expressions().iter().any(|expr| expr.is_volatile() || reads_rows(expr)))
    })?;
    Ok(!changes)
}

/// Whether an aggregate gives the same in whatever order its rows come. Sums and means of floats differ by rounding.
fn is_exact(aggregate: &Expr, rows: &DFSchema) -> bool {
    let depends = aggregate.exists(|part| {
        let Expr::AggregateFunction(call) = part else { return Ok(false) };
        Ok(match call.func.name() {
            "sum" | "avg" => part.get_type(rows)?.is_floating(),
            name => !EXACT.contains(&name),
        })
    });
    !depends.unwrap_or(true)
}

fn reads_rows(expr: &Expr) -> bool {
    expr.exists(|part| Ok(is_subquery(part))).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    /// The rows around that are computed twice, once for their values, must be the same: a mean that differs by rounding had no partner,
    /// and its row no count.
    #[tokio::test]
    async fn what_rounding_may_change_is_computed_once() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let table =
            "CREATE TABLE t AS SELECT column1 AS k, column2 AS x, CAST(column2 AS DOUBLE) AS f FROM (VALUES (1, 2), (1, 3))";
        context.sql(table).await.unwrap().collect().await.unwrap();
        // Once around, and once in the subquery.
        let scans = async |sql: &str| {
            let plan = context.sql(sql).await.unwrap().into_optimized_plan().unwrap().to_string();
            (plan.matches("TableScan: t ").count(), plan)
        };
        for aggregate in ["sum(f)", "avg(f)", "stddev(x)", "first_value(x)"] {
            let around = format!("(SELECT k, {aggregate} AS s FROM t GROUP BY k) AS a");
            let (scans, plan) = scans(&format!("SELECT k, (SELECT count(*) FROM t WHERE t.x > a.s) FROM {around}")).await;
            assert_eq!(scans, 2, "{aggregate}: {plan}");
        }
        let (scans, plan) =
            scans("SELECT a.x, (SELECT count(*) FROM t WHERE t.x > a.x) FROM (SELECT DISTINCT ON (k) k, x FROM t) AS a").await;
        assert_eq!(scans, 2, "{plan}");
    }
}
