//! Subqueries that give one row for each row of the query around them, whatever rows there are: an aggregate without GROUP BY.
//!
//! DataFusion 55.2 makes joins of EXISTS, IN, ANY and ALL over them, in which a row without a partner finds nothing.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Distinct, Expr, Limit, LogicalPlan, Subquery, binary_expr, lit, not};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::exists_limits::skip_and_fetch;
use crate::kept_names::map_named;
use crate::subqueries::has_part;

/// Compares with the one row, and finds it where it only has to be there.
#[derive(Debug)]
pub(crate) struct OneRow;

impl OptimizerRule for OneRow {
    fn name(&self) -> &'static str {
        "pithead_one_row"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match has_part(&plan, is_changed)? {
            true => plan.transform_down_with_subqueries(|node| map_named(node, |expr| expr.transform_down(compared))),
            false => Ok(Transformed::no(plan)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    One,
    /// One, or none where a condition does not hold.
    OneIf,
    Any,
}

fn is_changed(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarSubquery(subquery) => is_wrapped(subquery),
        expr => subquery_of(expr).is_some_and(|subquery| rows(subquery) != Rows::Any),
    }
}

fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Exists(Exists { subquery, .. }) | Expr::InSubquery(InSubquery { subquery, .. }) => Some(subquery),
        Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// How many rows a subquery has for each row of the query around it.
fn rows(subquery: &Subquery) -> Rows {
    match subquery.outer_ref_columns.is_empty() {
        // It runs once, and its rows are there to be compared.
        true => Rows::Any,
        false => rows_of(&subquery.subquery),
    }
}

fn rows_of(plan: &LogicalPlan) -> Rows {
    match plan {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => Rows::One,
        LogicalPlan::Projection(projection) => rows_of(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => rows_of(&alias.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => rows_of(&sort.input),
        LogicalPlan::Filter(filter) if rows_of(&filter.input) != Rows::Any => Rows::OneIf,
        LogicalPlan::Limit(limit) if has_the_first(limit) => rows_of(&limit.input),
        LogicalPlan::Distinct(Distinct::All(input)) => rows_of(input),
        _ => Rows::Any,
    }
}

/// Whether a subquery of one row has a LIMIT or a DISTINCT, which the engine would take for one of rows that there may not be.
fn is_wrapped(subquery: &Subquery) -> bool {
    let is_wrapping = |node: &LogicalPlan| matches!(node, LogicalPlan::Limit(_) | LogicalPlan::Distinct(_));
    rows(subquery) == Rows::One
        && subquery.subquery.exists(|node| Ok(is_wrapping(node) && rows_of(node) == Rows::One)).unwrap_or(true)
}

fn has_the_first(limit: &Limit) -> bool {
    matches!(skip_and_fetch(limit), Some((0, fetch)) if fetch != Some(0))
}

/// The subquery without what changes nothing of one row, but is in the engine's way.
fn as_it_is(subquery: Subquery) -> Result<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery).transform_up(|node| match node {
        LogicalPlan::Limit(Limit { ref input, .. }) | LogicalPlan::Distinct(Distinct::All(ref input))
            if rows_of(&node) == Rows::One =>
        {
            Ok(Transformed::yes(input.as_ref().clone()))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(Subquery { subquery: Arc::new(plan.data), ..subquery })
}

fn compared(expr: Expr) -> Result<Transformed<Expr>> {
    if let Expr::ScalarSubquery(subquery) = &expr
        && is_wrapped(subquery)
    {
        return Ok(Transformed::yes(Expr::ScalarSubquery(as_it_is(subquery.clone())?)));
    }
    match subquery_of(&expr).map_or(Rows::Any, rows) {
        Rows::Any => return Ok(Transformed::no(expr)),
        Rows::OneIf => {
            return not_impl_err!(
                "HAVING without GROUP BY in a subquery that refers to the query around it; compare with the aggregate instead"
            );
        }
        Rows::One => {}
    }
    Ok(Transformed::yes(match expr {
        Expr::Exists(exists) => lit(!exists.negated),
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            let equal = (*expr).eq(Expr::ScalarSubquery(as_it_is(subquery)?));
            if negated { not(equal) } else { equal }
        }
        Expr::SetComparison(SetComparison { expr, subquery, op, .. }) => {
            binary_expr(*expr, op, Expr::ScalarSubquery(as_it_is(subquery)?))
        }
        expr => return Ok(Transformed::no(expr)),
    }))
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn an_aggregate_is_there_for_every_row() {
        let outer = "(VALUES (1), (2), (3), (4)) AS o(id)";
        let inner = "(VALUES (1, NULL), (2, 7), (2, 0)) AS n(a, x)";
        for (condition, expected) in [
            (format!("EXISTS (SELECT max(n.a) FROM {inner} WHERE n.a = o.id)"), 4),
            (format!("NOT EXISTS (SELECT max(n.a) FROM {inner} WHERE n.a = o.id)"), 0),
            (format!("0 IN (SELECT count(*) FROM {inner} WHERE n.a = o.id)"), 2),
            (format!("0 NOT IN (SELECT count(*) FROM {inner} WHERE n.a = o.id)"), 2),
            (format!("1 < ANY (SELECT count(*) FROM {inner} WHERE n.a = o.id)"), 1),
            (format!("1 >= ALL (SELECT count(*) FROM {inner} WHERE n.a = o.id)"), 3),
            (format!("EXISTS (SELECT n.a FROM {inner} WHERE n.a = o.id)"), 2),
            (format!("EXISTS (SELECT count(*) FROM {inner} WHERE n.a = o.id LIMIT 1)"), 4),
            (format!("EXISTS (SELECT DISTINCT count(*) FROM {inner} WHERE n.a = o.id)"), 4),
            (format!("EXISTS (SELECT count(*) FROM {inner} WHERE n.a = o.id OFFSET 1)"), 0),
            (format!("0 IN (SELECT DISTINCT count(*) FROM {inner} WHERE n.a = o.id LIMIT 1)"), 2),
            (format!("0 NOT IN (SELECT count(*) FROM {inner} WHERE n.a = o.id LIMIT 2)"), 2),
            (format!("1 >= ALL (SELECT count(*) FROM {inner} WHERE n.a = o.id LIMIT 1)"), 3),
            (format!("(SELECT DISTINCT count(*) FROM {inner} WHERE n.a = o.id) = 0"), 2),
            (format!("(SELECT count(*) FROM {inner} WHERE n.a > o.id LIMIT 1) = 0"), 3),
        ] {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            let found = context.sql(&format!("SELECT 1 FROM {outer} WHERE {condition}")).await.unwrap().collect().await;
            let found = found.unwrap_or_else(|error| panic!("{condition}: {error}"));
            assert_eq!(found.iter().map(|batch| batch.num_rows()).sum::<usize>(), expected, "{condition}");
        }
    }
}
