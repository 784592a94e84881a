//! Keys by which aggregates, windows and DISTINCT ON sort, as DataFusion 55.2 can run them.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, tree_node::TreeNodeRecursion};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan, WindowFrameBound, WindowFrameUnits};
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};

use crate::kept_names::map_named;

/// Leaves out keys that come again, of sorts and of a window's partitions: they decide nothing, and DataFusion loses count of their
/// columns.
#[derive(Debug)]
pub(crate) struct EachKeyOnce;

impl OptimizerRule for EachKeyOnce {
    fn name(&self) -> &'static str {
        "pithead_each_key_once"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            found = found || has_repeats(node)?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !found {
            return Ok(Transformed::no(plan));
        }
        plan.transform_down_with_subqueries(|node| match node {
            LogicalPlan::Distinct(Distinct::On(mut on)) => {
                on.sort_expr = on.sort_expr.map(once);
                Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
            }
            LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => map_named(node, |expr| expr.transform_down(with_each_once)),
            node => Ok(Transformed::no(node)),
        })
    }
}

fn has_repeats(node: &LogicalPlan) -> Result<bool> {
    match node {
        LogicalPlan::Distinct(Distinct::On(on)) => Ok(on.sort_expr.as_deref().is_some_and(repeats)),
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => {
            let mut found = false;
            node.apply_expressions(|expr| {
                found = found || expr.exists(|part| Ok(has_repeated_keys(part)))?;
                Ok(TreeNodeRecursion::Continue)
            })?;
            Ok(found)
        }
        _ => Ok(false),
    }
}

fn has_repeated_keys(expr: &Expr) -> bool {
    match expr {
        Expr::AggregateFunction(function) => repeats(&function.params.order_by),
        Expr::WindowFunction(function) => repeats(&function.params.order_by) || repeats_any(&function.params.partition_by),
        _ => false,
    }
}

fn repeats_any(keys: &[Expr]) -> bool {
    keys.iter().enumerate().any(|(index, key)| keys[..index].contains(key))
}

fn repeats(keys: &[Sort]) -> bool {
    keys.iter().enumerate().any(|(index, key)| keys[..index].iter().any(|before| before.expr == key.expr))
}

fn once(keys: Vec<Sort>) -> Vec<Sort> {
    keys.into_iter().fold(Vec::new(), |mut kept: Vec<Sort>, key| {
        if kept.iter().all(|before| before.expr != key.expr) {
            kept.push(key);
        }
        kept
    })
}

fn with_each_once(expr: Expr) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::AggregateFunction(mut function) if repeats(&function.params.order_by) => {
            function.params.order_by = once(function.params.order_by);
            Transformed::yes(Expr::AggregateFunction(function))
        }
        Expr::WindowFunction(mut function)
            if repeats(&function.params.order_by) || repeats_any(&function.params.partition_by) =>
        {
            let params = &mut function.params;
            params.order_by = once(std::mem::take(&mut params.order_by));
            let mut seen = Vec::new();
            params.partition_by.retain(|key| {
                let is_new = !seen.contains(key);
                seen.push(key.clone());
                is_new
            });
            Transformed::yes(Expr::WindowFunction(function))
        }
        expr => Transformed::no(expr),
    })
}

/// Windows by a struct: a frame from the first row to the current one's peers is one of groups of peers. DataFusion takes the one that
/// SQL gives where nothing is said for one of values, and can add no values to structs.
#[derive(Debug)]
pub(crate) struct GroupsOfPeers;

impl AnalyzerRule for GroupsOfPeers {
    fn name(&self) -> &'static str {
        "pithead_groups_of_peers"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|node| {
            let LogicalPlan::Window(_) = &node else { return Ok(Transformed::no(node)) };
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| {
                expr.transform_down(|expr| match expr {
                    Expr::WindowFunction(mut function) => {
                        let is_struct = |key: &Sort| key.expr.get_type(&schema).is_ok_and(|of| of.is_nested());
                        let frame = &function.params.window_frame;
                        let is_by_peers = frame.units == WindowFrameUnits::Range
                            && function.params.order_by.iter().any(is_struct)
                            && [&frame.start_bound, &frame.end_bound].into_iter().all(is_whole);
                        if is_by_peers {
                            function.params.window_frame.units = WindowFrameUnits::Groups;
                        }
                        Ok(Transformed::new_transformed(Expr::WindowFunction(function), is_by_peers))
                    }
                    expr => Ok(Transformed::no(expr)),
                })
            })
        })?;
        Ok(changed.data)
    }
}

/// Whether a bound is the current row, or all rows.
fn is_whole(bound: &WindowFrameBound) -> bool {
    match bound {
        WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => by.is_null(),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn rows(sql: &str) -> Vec<String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let shown = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
        shown.lines().skip(3).filter(|line| line.starts_with('|')).map(|line| line.replace(['|', ' '], "")).collect()
    }

    #[tokio::test]
    async fn keys_that_come_again_decide_nothing() {
        let t = "(VALUES (1, 2, 30), (1, 1, 20), (2, 5, 10)) AS t(k, id, v)";
        for (sql, expected) in [
            (format!("SELECT DISTINCT ON (k) v FROM {t} ORDER BY k, id, id"), vec!["20", "10"]),
            (format!("SELECT first_value(v ORDER BY id, v, id) FROM {t} GROUP BY k ORDER BY 1"), vec!["10", "20"]),
            (format!("SELECT last_value(v ORDER BY id, id DESC) FROM {t}"), vec!["10"]),
            (format!("SELECT array_agg(v ORDER BY id, id) FROM {t}"), vec!["[20,30,10]"]),
        ] {
            assert_eq!(rows(&sql).await, expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn structs_have_ranks() {
        let t = "(VALUES (named_struct('a', 2)), (named_struct('a', 1)), (named_struct('a', 1))) AS t(s)";
        let sql = format!("SELECT rank() OVER (ORDER BY s) AS r, count(*) OVER (ORDER BY s) FROM {t} ORDER BY r");
        assert_eq!(rows(&sql).await, ["12", "12", "33"]);
    }
}
