//! [`ExistsLimits`]: LIMIT and OFFSET in EXISTS over a subquery that refers to the query around it.
//!
//! DataFusion 55.2 makes a join of it, and leaves out every limit that stands above a condition by which the subquery refers to the
//! query around it, also one that is not at its top, or has an OFFSET.

use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, not_impl_err};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::{Distinct, Expr, FetchType, Limit, LogicalPlan, LogicalPlanBuilder, SkipType, Subquery, lit};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::kept_names::map_named;

/// Says how many rows there must be, where a limit is all that comes after them, and refuses other limits that would be left out.
#[derive(Debug)]
pub(crate) struct ExistsLimits;

impl OptimizerRule for ExistsLimits {
    fn name(&self) -> &'static str {
        "pithead_exists_limits"
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut found = false;
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                found =
                    found || expr.exists(|part| Ok(matches!(part, Expr::Exists(exists) if is_limited(&exists.subquery)?)))?;
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        if !found {
            return Ok(Transformed::no(plan));
        }
        let names = config.alias_generator();
        plan.transform_down_with_subqueries(|node| map_named(node, |expr| expr.transform_down(|part| counted(part, names))))
    }
}

/// An error if a limit of the subquery would be left out in an EXISTS over its rows.
pub(crate) fn refuse_lost_limits(subquery: &Subquery) -> Result<()> {
    match is_lost(&subquery.subquery, &mut false) {
        true => not_impl_err!(
            "LIMIT and OFFSET in a subquery of EXISTS, IN, ANY or ALL that refers to the query around it are supported at the end of \
             EXISTS alone; number the rows by row_number(), or compare with the first of them, (SELECT … LIMIT 1)"
        ),
        false => Ok(()),
    }
}

/// Whether a limit is above a condition that refers to the query around. `is_correlated`: whether there was such a condition yet, from
/// below and from the left, which is the way that the engine goes.
fn is_lost(plan: &LogicalPlan, is_correlated: &mut bool) -> bool {
    match plan {
        // It is a subquery by itself.
        LogicalPlan::Subquery(_) => return false,
        plan if plan.inputs().into_iter().any(|input| is_lost(input, is_correlated)) => return true,
        LogicalPlan::Filter(filter) => *is_correlated |= filter.predicate.contains_outer(),
        LogicalPlan::Limit(_) => return *is_correlated,
        _ => {}
    }
    false
}

fn is_limited(subquery: &Subquery) -> Result<bool> {
    Ok(!subquery.outer_ref_columns.is_empty() && subquery.subquery.exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))?)
}

/// EXISTS without the limits at the end of its subquery.
fn counted(expr: Expr, names: &AliasGenerator) -> Result<Transformed<Expr>> {
    let Expr::Exists(Exists { subquery, negated }) = &expr else { return Ok(Transformed::no(expr)) };
    if !is_limited(subquery)? {
        return Ok(Transformed::no(expr));
    }
    let Some((rows, more_than)) = before_limits(&subquery.subquery) else { return Ok(Transformed::yes(lit(*negated))) };
    let within = |plan: LogicalPlanBuilder| {
        let subquery = Subquery { subquery: Arc::new(plan.build()?), ..subquery.clone() };
        refuse_lost_limits(&subquery).map(|()| subquery)
    };
    let rows = LogicalPlanBuilder::from(Arc::unwrap_or_clone(rows));
    Ok(Transformed::yes(match more_than {
        0 => Expr::Exists(Exists { subquery: within(rows.project([lit(1_i64)])?)?, negated: *negated }),
        more_than => {
            let counted = rows.aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?;
            // The query around it may count, too.
            let name = |column| Expr::Column(column).alias(names.next("__counted"));
            let columns: Vec<Expr> = counted.schema().columns().into_iter().map(name).collect();
            let count = Expr::ScalarSubquery(within(counted.project(columns)?)?);
            if *negated { count.lt_eq(lit(more_than)) } else { count.gt(lit(more_than)) }
        }
    }))
}

/// The rows to which the limits at the end of a plan apply, and how many of them must be exceeded for the plan to have one; none: it
/// never has one.
fn before_limits(plan: &Arc<LogicalPlan>) -> Option<(Arc<LogicalPlan>, i64)> {
    let (mut rows, mut more_than) = (plan, 0_i64);
    loop {
        rows = match rows.as_ref() {
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
            LogicalPlan::Distinct(Distinct::All(input)) if more_than == 0 => input,
            LogicalPlan::Limit(limit) => {
                let Some((skip, fetch)) = skip_and_fetch(limit) else { return Some((Arc::clone(rows), more_than)) };
                if fetch.is_some_and(|fetch| fetch <= more_than) {
                    return None;
                }
                more_than = more_than.saturating_add(skip);
                &limit.input
            }
            _ => return Some((Arc::clone(rows), more_than)),
        };
    }
}

/// OFFSET, and LIMIT if there is one; none: they are computed.
pub(crate) fn skip_and_fetch(limit: &Limit) -> Option<(i64, Option<i64>)> {
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    match (limit.get_skip_type().ok()?, limit.get_fetch_type().ok()?) {
        (SkipType::Literal(skip), FetchType::Literal(fetch)) => Some((number(skip), fetch.map(number))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    const INNER: &str = "(VALUES (1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)) AS n(a, x)";

    /// How many of 1, 2, 3 and 4 fulfil a condition.
    async fn rows_where(condition: &str) -> Result<usize, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let sql = format!("SELECT 1 FROM (VALUES (1), (2), (3), (4)) AS o(id) WHERE {condition}");
        let found = match context.sql(&sql).await {
            Ok(frame) => frame.collect().await,
            Err(error) => Err(error),
        };
        Ok(found.map_err(|error| error.to_string())?.iter().map(|batch| batch.num_rows()).sum())
    }

    /// Every limit was left out: `OFFSET 2` found what has one row.
    #[tokio::test]
    async fn limits_at_the_end_say_how_many_rows_there_must_be() {
        for (end, expected) in [
            ("OFFSET 2", 1),
            ("LIMIT 1", 3),
            ("LIMIT 1 OFFSET 1", 2),
            ("LIMIT 0 OFFSET 1", 0),
            ("ORDER BY x DESC LIMIT 1", 3),
            ("ORDER BY x OFFSET 1", 2),
        ] {
            for (condition, id) in [("n.a = o.id", "equal"), ("n.a >= o.id AND n.a <= o.id", "within bounds")] {
                let exists = format!("EXISTS (SELECT x FROM {INNER} WHERE {condition} {end})");
                assert_eq!(rows_where(&exists).await, Ok(expected), "{end}, {id}");
                assert_eq!(rows_where(&format!("NOT {exists}")).await, Ok(4 - expected), "NOT, {end}, {id}");
            }
        }
        let twice = format!("EXISTS (SELECT x FROM (SELECT x FROM {INNER} WHERE n.a = o.id LIMIT 2) OFFSET 1)");
        assert_eq!(rows_where(&twice).await, Ok(2));
        let never = format!("EXISTS (SELECT x FROM (SELECT x FROM {INNER} WHERE n.a = o.id LIMIT 2) OFFSET 2)");
        assert_eq!(rows_where(&never).await, Ok(0));
        let different = format!("EXISTS (SELECT DISTINCT x % 2 FROM {INNER} WHERE n.a = o.id OFFSET 1)");
        assert_eq!(rows_where(&different).await, Ok(2));
        let grouped =
            format!("true GROUP BY o.id HAVING count(1) = 1 AND EXISTS (SELECT x FROM {INNER} WHERE n.a = o.id OFFSET 1)");
        assert_eq!(rows_where(&grouped).await, Ok(2));
        let of_all = format!("EXISTS (SELECT 1 FROM (SELECT x FROM {INNER} ORDER BY x DESC LIMIT 1) AS m WHERE m.x = o.id)");
        assert_eq!(rows_where(&of_all).await, Ok(1));
    }

    #[tokio::test]
    async fn limits_that_would_be_left_out_are_refused() {
        let last = format!("SELECT x FROM {INNER} WHERE n.a = o.id ORDER BY x DESC LIMIT 1");
        let refused = rows_where(&format!("o.id > ALL ({last})")).await.unwrap_err();
        assert!(refused.contains("at the end of EXISTS alone"), "{refused}");
        for condition in [
            format!("EXISTS (SELECT 1 FROM ({last}) AS m WHERE m.x = 2)"),
            format!("o.id NOT IN ({last})"),
            format!("(o.id IN ({last})) IS NOT TRUE"),
        ] {
            assert_eq!(rows_where(&condition).await, Ok(1), "{condition}");
        }
    }
}
