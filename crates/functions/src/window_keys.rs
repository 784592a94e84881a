//! [`WindowKeys`]: windows over joins are partitioned by columns.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Window};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::kept_names::named;

/// Computes the expressions by which a window over a join is partitioned below it, in columns of their own.
///
/// Of an expression over a key of the join, DataFusion knows too many orders: it finds that the rows are sorted by some of the
/// expressions, and when the window is to run it does not find it again, which fails the query.
#[derive(Debug)]
pub(crate) struct WindowKeys;

/// Names of the columns begin with it, which no SQL text can spell.
const KEY: &str = "\u{0}partition_";

impl OptimizerRule for WindowKeys {
    fn name(&self) -> &'static str {
        "pithead_window_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Window(Window { input, window_expr, .. }) = &plan else { return Ok(Transformed::no(plan)) };
        let mut keys: Vec<Expr> = Vec::new();
        for key in window_expr.iter().flat_map(partition_of).filter(|key| !matches!(key, Expr::Column(_) | Expr::Literal(..))) {
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        if keys.is_empty() || !input.exists(|node| Ok(matches!(node, LogicalPlan::Join(_))))? {
            return Ok(Transformed::no(plan));
        }
        let column = |number: usize| Column::new_unqualified(format!("{KEY}{number}"));
        let own = input.schema().columns().into_iter().map(Expr::Column);
        let computed = keys.iter().enumerate().map(|(number, key)| key.clone().alias(column(number).name));
        let below = Projection::try_new(own.chain(computed).collect(), Arc::clone(input))?;
        let by_column = |expr: Expr| {
            expr.transform_up(|part| match part {
                Expr::WindowFunction(mut function) => {
                    for key in &mut function.params.partition_by {
                        if let Some(number) = keys.iter().position(|known| known == key) {
                            *key = Expr::Column(column(number));
                        }
                    }
                    Ok(Transformed::yes(Expr::WindowFunction(function)))
                }
                other => Ok(Transformed::no(other)),
            })
        };
        let window_expr = window_expr.iter().map(|expr| Ok(named(expr.clone(), by_column)?.data)).collect::<Result<_>>()?;
        let columns = plan.schema().columns().into_iter().map(Expr::Column).collect();
        let window = LogicalPlan::Window(Window::try_new(window_expr, LogicalPlan::Projection(below).into())?);
        Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, window.into())?)))
    }
}

/// What a window function is partitioned by.
fn partition_of(expr: &Expr) -> &[Expr] {
    match expr {
        Expr::WindowFunction(function) => &function.params.partition_by,
        Expr::Alias(alias) => partition_of(&alias.expr),
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn a_window_over_a_join_is_partitioned_by_expressions_of_its_key() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let sql = "WITH a AS (SELECT value AS k, value % 7 AS x FROM range(20)), b AS (SELECT value AS k FROM range(20)) \
                   SELECT sum(r), sum(s) FROM (SELECT row_number() OVER (PARTITION BY a.k + 1, a.x ORDER BY b.k) AS r, \
                   count(*) OVER (PARTITION BY a.k + 1) AS s FROM a JOIN b ON a.k = b.k)";
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        let shown = pretty_format_batches(&batches).unwrap().to_string();
        assert!(shown.contains("| 20     | 20     |"), "{shown}");
    }
}
