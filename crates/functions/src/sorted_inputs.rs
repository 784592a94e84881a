//! Subqueries that say an order: where it is kept, where it counts, and where it goes.
//!
//! `SELECT string_agg(name, ', ') FROM (SELECT name FROM t ORDER BY rank)` puts its names in the subquery's order in DuckDB, and
//! usually in PostgreSQL; `row_number() OVER ()` counts in it, and `SELECT * FROM (… ORDER BY …)` gives rows in it. To the planner a
//! subquery's rows have no order. So what hangs on the order of its rows gets the ORDER BY of its input here, and its answer is the
//! same wherever it is computed; and an order that nobody sees is dropped, so that drives need not sort.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{AggregateFunction, Sort as SortExpr};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Limit, LogicalPlan, Projection, SubqueryAlias, Window, WindowFrameBound, WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;

use crate::kept_names::map_named;

/// Names of the columns by which a subquery sorts and that it does not give begin with it, which no SQL text can spell.
const KEY: &str = "\u{0}sorted by ";

/// The aggregates whose answer hangs on the order of their rows.
const AGGREGATES: [&str; 5] = ["array_agg", "first_value", "last_value", "nth_value", "string_agg"];
/// The same of functions over windows.
const OVER_WINDOWS: [&str; 8] = ["array_agg", "first_value", "lag", "last_value", "lead", "nth_value", "ntile", "row_number"];

/// Gives what hangs on the order of its rows the order of the subquery that it is computed over, and drops orders that nobody sees.
#[derive(Debug)]
pub(crate) struct SortedInputs;

impl AnalyzerRule for SortedInputs {
    fn name(&self) -> &'static str {
        "pithead_sorted_inputs"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let mut sorts = false;
        plan.apply_with_subqueries(|node| {
            sorts = sorts || matches!(node, LogicalPlan::Sort(_));
            Ok(if sorts { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        // The order of a statement's rows is seen.
        if sorts { Ok(with_orders(plan, true)?.data) } else { Ok(plan) }
    }
}

/// The plan, where `is_seen` tells whether somebody sees the order of its rows.
fn with_orders(plan: LogicalPlan, is_seen: bool) -> Result<Transformed<LogicalPlan>> {
    let plan = match plan {
        LogicalPlan::Sort(sort) if !is_seen && sort.fetch.is_none() => {
            let input = with_orders(Arc::unwrap_or_clone(sort.input), false)?;
            return Ok(Transformed::yes(input.data));
        }
        LogicalPlan::Aggregate(aggregate) if has(&aggregate.aggr_expr, is_unordered)? => in_order_of_input(aggregate)?,
        LogicalPlan::Window(window) if has(&window.window_expr, is_unordered)? => window_in_order_of_input(window)?,
        plan => Transformed::no(plan),
    };
    let is_seen = match &plan.data {
        LogicalPlan::Limit(_) => true,
        LogicalPlan::Sort(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::RecursiveQuery(_) => false,
        _ => is_seen,
    };
    let plan = plan.transform_data(|plan| plan.map_subqueries(|subquery| with_orders(subquery, false)))?;
    plan.transform_data(|plan| plan.map_children(|input| with_orders(input, is_seen)))
}

fn has(exprs: &[Expr], is_it: fn(&Expr) -> bool) -> Result<bool> {
    for expr in exprs {
        if expr.exists(|part| Ok(is_it(part)))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a function hangs on the order of its rows, and says none itself.
fn is_unordered(expr: &Expr) -> bool {
    match expr {
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            // DISTINCT values have no order of rows.
            params.order_by.is_empty() && !params.distinct && AGGREGATES.contains(&func.name())
        }
        Expr::WindowFunction(function) => {
            let frame = &function.params.window_frame;
            let is_whole = |bound: &WindowFrameBound| match bound {
                WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => by.is_null(),
                WindowFrameBound::CurrentRow => false,
            };
            let counts_rows =
                frame.units == WindowFrameUnits::Rows && !(is_whole(&frame.start_bound) && is_whole(&frame.end_bound));
            function.params.order_by.is_empty() && (counts_rows || OVER_WINDOWS.contains(&function.fun.name()))
        }
        _ => false,
    }
}

fn in_order_of_input(mut aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let Some(Sorted { plan, keys }) = sorted(&aggregate.input)? else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    aggregate.input = Arc::new(plan);
    ordered(LogicalPlan::Aggregate(aggregate), &keys)
}

/// The same of windows, which give the columns of their input, too: those of the keys go again.
fn window_in_order_of_input(window: Window) -> Result<Transformed<LogicalPlan>> {
    let Some(Sorted { plan, keys }) = sorted(&window.input)? else {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    };
    let given = window.schema.columns();
    let window = ordered(LogicalPlan::Window(Window::try_new(window.window_expr, Arc::new(plan))?), &keys)?;
    let exprs = given.into_iter().map(Expr::Column).collect();
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(window.data))?)))
}

/// A node whose functions that hang on the order of rows have this one.
fn ordered(node: LogicalPlan, keys: &[SortExpr]) -> Result<Transformed<LogicalPlan>> {
    map_named(node, |expr| {
        expr.transform_up(|part| match part {
            part if !is_unordered(&part) => Ok(Transformed::no(part)),
            Expr::AggregateFunction(mut function) => {
                function.params.order_by = keys.to_vec();
                Ok(Transformed::yes(Expr::AggregateFunction(function)))
            }
            Expr::WindowFunction(mut function) => {
                function.params.order_by = keys.to_vec();
                Ok(Transformed::yes(Expr::WindowFunction(function)))
            }
            part => Ok(Transformed::no(part)),
        })
    })
}

/// A plan whose rows are sorted, with the keys among its columns.
struct Sorted {
    plan: LogicalPlan,
    keys: Vec<SortExpr>,
}

/// The same rows with the keys that they are sorted by; none: they have no order.
fn sorted(plan: &LogicalPlan) -> Result<Option<Sorted>> {
    match plan {
        LogicalPlan::Sort(sort) if sort.expr.iter().any(|key| key.expr.is_volatile()) => Ok(None),
        LogicalPlan::Sort(sort) => Ok(Some(Sorted { plan: plan.clone(), keys: sort.expr.clone() })),
        LogicalPlan::Filter(filter) => {
            above(&filter.input, |input| Filter::try_new(filter.predicate.clone(), input).map(LogicalPlan::Filter))
        }
        LogicalPlan::Limit(limit) => above(&limit.input, |input| Ok(LogicalPlan::Limit(Limit { input, ..limit.clone() }))),
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(Sorted { plan, keys }) = sorted(&alias.input)? else { return Ok(None) };
            let within = Arc::clone(plan.schema());
            let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?);
            let keys = renamed(keys, |column| {
                let index = within.index_of_column(column)?;
                Ok(Column::from(plan.schema().qualified_field(index)))
            })?;
            Ok(Some(Sorted { plan, keys }))
        }
        LogicalPlan::Projection(projection) => projected(projection),
        _ => Ok(None),
    }
}

fn above(input: &LogicalPlan, node: impl FnOnce(Arc<LogicalPlan>) -> Result<LogicalPlan>) -> Result<Option<Sorted>> {
    let Some(Sorted { plan, keys }) = sorted(input)? else { return Ok(None) };
    Ok(Some(Sorted { plan: node(Arc::new(plan))?, keys }))
}

/// A projection, with further columns for the keys that it leaves out.
fn projected(projection: &Projection) -> Result<Option<Sorted>> {
    let Some(Sorted { plan, keys }) = sorted(&projection.input)? else { return Ok(None) };
    let mut exprs = projection.expr.clone();
    let mut places = Vec::new();
    renamed(keys.clone(), |column| {
        let is_column = |expr: &Expr| matches!(expr.clone().unalias(), Expr::Column(given) if given == *column);
        let place = exprs.iter().position(is_column).unwrap_or_else(|| {
            exprs.push(Expr::Column(column.clone()).alias(format!("{KEY}{}", exprs.len())));
            exprs.len() - 1
        });
        places.push(place);
        Ok(column.clone())
    })?;
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
    let mut places = places.into_iter();
    let keys = renamed(keys, |_| Ok(Column::from(plan.schema().qualified_field(places.next().unwrap_or_default()))))?;
    Ok(Some(Sorted { plan, keys }))
}

fn renamed(keys: Vec<SortExpr>, mut name: impl FnMut(&Column) -> Result<Column>) -> Result<Vec<SortExpr>> {
    let mut all = Vec::with_capacity(keys.len());
    for key in keys {
        let expr = key.expr.transform_up(|part| match part {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(name(&column)?))),
            part => Ok(Transformed::no(part)),
        })?;
        all.push(SortExpr { expr: expr.data, ..key });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn rows_of_a_sorted_subquery_come_in_its_order() {
        let rows = "(VALUES (2, 'b'), (1, 'c'), (3, 'a'), (4, NULL)) AS t(k, x)";
        for (query, expected) in [
            (format!("SELECT string_agg(x, '') FROM (SELECT x FROM {rows} ORDER BY k)"), "cba"),
            (format!("SELECT string_agg(x, '') FROM (SELECT x, k FROM {rows} ORDER BY k DESC) AS s"), "abc"),
            (format!("SELECT string_agg(y, '') FROM (SELECT x AS y FROM {rows} ORDER BY -k, x) AS s WHERE y < 'c'"), "ab"),
            (
                format!("WITH s AS (SELECT * FROM {rows} ORDER BY x DESC NULLS LAST LIMIT 2) SELECT array_agg(k) FROM s"),
                "[1, 2]",
            ),
            (format!("SELECT first_value(x) FROM (SELECT x || x AS x FROM {rows} ORDER BY k)"), "cc"),
            (format!("SELECT last_value(k) FROM (SELECT * FROM {rows} ORDER BY x NULLS FIRST) GROUP BY k > 9"), "1"),
            (format!("SELECT (SELECT string_agg(x, '') FROM (SELECT x FROM {rows} ORDER BY k))"), "cba"),
            (
                format!(
                    "SELECT max(r * 10 + k) FROM (SELECT k, row_number() OVER () AS r FROM (SELECT k FROM {rows} ORDER BY x)) WHERE k < 3"
                ),
                "31",
            ),
            (
                format!(
                    "SELECT max(s) FROM (SELECT sum(k) OVER (ROWS 1 PRECEDING) AS s FROM (SELECT * FROM {rows} ORDER BY x))"
                ),
                "5",
            ),
            (format!("SELECT x FROM (SELECT x FROM {rows} ORDER BY k DESC) WHERE x IS NOT NULL"), "a"),
            (format!("SELECT string_agg(x, '' ORDER BY x) FROM (SELECT x FROM {rows} ORDER BY k)"), "abc"),
        ] {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            let batches = context.sql(&query).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{query}: {error}"));
            let shown = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
            let value = shown.lines().nth(3).unwrap().trim_matches(['|', ' ']).to_owned();
            assert_eq!(value, expected, "{query}");
        }
    }

    #[tokio::test]
    async fn an_order_that_nobody_sees_is_dropped() {
        let rows = "(VALUES (2, 'b'), (1, 'c')) AS t(k, x)";
        let sorted = format!("(SELECT * FROM {rows} ORDER BY k)");
        for (query, sorts) in [
            (format!("SELECT count(*) FROM {sorted}"), 0),
            (format!("SELECT a.x FROM {sorted} AS a JOIN {sorted} AS b ON a.k = b.k"), 0),
            (format!("SELECT x FROM {rows} WHERE k IN (SELECT k FROM {sorted})"), 0),
            (format!("SELECT x, sum(k) FROM {sorted} GROUP BY x ORDER BY x"), 1),
            (format!("SELECT x FROM {sorted}"), 1),
            (format!("SELECT count(*) FROM (SELECT * FROM {sorted} LIMIT 1)"), 1),
        ] {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            let plan = context.sql(&query).await.unwrap().into_optimized_plan().unwrap().to_string();
            assert_eq!(plan.matches("Sort: ").count(), sorts, "{query}: {plan}");
        }
    }
}
