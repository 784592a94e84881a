//! [`optimize`] and [`lone_leaf`]: plans of few kinds of operators, by the rules that concern these.
//!
//! Most rules are about joins, unions, windows or subqueries. Each goes over a plan, up to three times, to find that there are none, and
//! together they took most of the time in which a lookup is planned.

use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::Optimizer;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_coop::EnsureCooperative;
use datafusion::physical_plan::ExecutionPlan;

use crate::give_way::GiveWay;
use crate::rules::optimizer_rules;

/// Rules that leave every plan as it is that has no join, no union, no window, no UNNEST and no subquery. Others make none of these. A
/// rule that is not named here concerns all plans.
const OF_OTHERS: [&str; 22] = [
    "decorrelate_lateral_join",
    "decorrelate_predicate_subquery",
    "eliminate_cross_join",
    "eliminate_join",
    "eliminate_outer_join",
    "filter_null_join_keys",
    "optimize_unions",
    "pithead_correlated_names",
    "pithead_empty_join",
    "pithead_equal_keys",
    "pithead_exists_limits",
    "pithead_lateral_rows",
    "pithead_named_set_comparisons",
    "pithead_null_keys_apart",
    "pithead_one_row",
    "pithead_subquery_values",
    "pithead_three_valued_in",
    "pithead_unnested",
    "pithead_window_keys",
    "rewrite_set_comparison",
    "scalar_subquery_to_join",
    "unions_to_filter",
];

/// The rules for plans without them.
static SHORT: LazyLock<Optimizer> = LazyLock::new(|| {
    let rules = optimizer_rules().into_iter().filter(|rule| !OF_OTHERS.contains(&rule.name()));
    Optimizer::with_rules(rules.collect())
});

/// Optimises a plan as `state` does, without the rules that can do nothing with its operators.
pub fn optimize(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    if !is_short(plan)? {
        return state.optimize(plan);
    }
    let analyzed = state.analyzer().execute_and_check(plan.clone(), state.config_options(), |_, _| {})?;
    SHORT.optimize(analyzed, state, |_, _| {})
}

/// Whether a plan has none of the operators and expressions that the rules left out are about.
fn is_short(plan: &LogicalPlan) -> Result<bool> {
    let mut is_short = true;
    plan.apply(|node| {
        is_short = match node {
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::TableScan(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Aggregate(_) => !has_others(node)?,
            _ => false,
        };
        Ok(if is_short { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_short)
}

fn has_others(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found = expr.exists(|part| {
            Ok(matches!(
                part,
                Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::ScalarSubquery(_)
                    | Expr::SetComparison(_)
                    | Expr::OuterReferenceColumn(..)
                    | Expr::Unnest(_)
                    | Expr::WindowFunction(_)
            ))
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// What runs of a plan that is one leaf. Of all physical rules these two concern it: they have it give way to other tasks.
pub fn lone_leaf(leaf: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
    GiveWay.optimize(EnsureCooperative::new().optimize(leaf, config)?, config)
}

#[cfg(test)]
mod tests {
    use datafusion::execution::context::SessionContext;
    use datafusion::physical_plan::displayable;

    use super::*;
    use crate::{EngineOptions, session_state};

    fn context() -> SessionContext {
        SessionContext::new_with_state(session_state(&EngineOptions::default()))
    }

    async fn with_tables() -> SessionContext {
        let context = context();
        for table in [
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, 1.5::double, 'a', NULL::int), (2, 'NaN', 'b', 3)) AS v(k, f, s, n)",
            "CREATE TABLE d AS SELECT arrow_cast(1.25, 'Decimal128(10, 2)') AS m, date '2024-01-01' AS day, now() AS at",
        ] {
            context.sql(table).await.unwrap().collect().await.unwrap();
        }
        context
    }

    const SHORT_ONES: [&str; 32] = [
        "SELECT * FROM t WHERE k = 1",
        "SELECT k + 1, s || 'x' FROM t WHERE 1 = k AND f > 0.0 AND 5 < k",
        "SELECT s FROM (SELECT * FROM t WHERE k > 0) AS x WHERE x.f < 2.5 OR x.n IS NULL",
        "SELECT * FROM t WHERE false",
        "SELECT * FROM t WHERE k = 1 AND k = 2",
        "SELECT * FROM t WHERE NULL",
        "SELECT * FROM t WHERE s LIKE 'a%' AND s NOT IN ('b', 'c') AND k BETWEEN 1 AND 3",
        "SELECT * FROM t WHERE CAST(k AS bigint) = 1 AND CAST(s AS int) = 7",
        "SELECT * FROM t WHERE f IN (0.0, -0.0) AND f = 0.0 AND f = -0.0",
        "SELECT k, k * 2 AS l, (k * 2) + (k * 2) FROM t WHERE k * 2 > 3",
        "SELECT * FROM t ORDER BY s, k LIMIT 3",
        "SELECT * FROM t WHERE k > 0 ORDER BY s, s DESC, k LIMIT 3 OFFSET 2",
        "SELECT * FROM t LIMIT 0",
        "SELECT * FROM (SELECT * FROM t LIMIT 5) AS x LIMIT 3 OFFSET 1",
        "SELECT k FROM (SELECT * FROM t ORDER BY f) AS x WHERE k = 1",
        "SELECT count(*), sum(k), avg(f), min(s) FROM t WHERE k > 0",
        "SELECT s, count(*) FROM t GROUP BY s HAVING count(*) > 1 ORDER BY 2 DESC LIMIT 2",
        "SELECT s, 1, count(DISTINCT k) FROM t GROUP BY s, 1",
        "SELECT s, sum(DISTINCT n), count(*) FROM t GROUP BY s",
        "SELECT DISTINCT s FROM t WHERE k = 1",
        "SELECT s, CAST(k AS text), count(*) FROM t GROUP BY s, k, CAST(k AS text)",
        "SELECT s, k, count(*) FROM t GROUP BY GROUPING SETS ((s), (k), ()) HAVING s = 'a'",
        "SELECT sum(x) FROM (SELECT sum(k) AS x FROM t WHERE s = 'a') AS y WHERE NULL",
        "SELECT string_agg(s, ',' ORDER BY k, k) FROM t",
        "SELECT string_agg(s, ',') FROM (SELECT s FROM t ORDER BY k) AS x",
        "SELECT CASE WHEN k = 1 THEN n / 0 ELSE k END FROM t",
        "SELECT m * 2, m / 3, m + 1.5 FROM d WHERE m > 1",
        "SELECT day + interval '1 day', day - date '2023-01-01' FROM d WHERE day = '2024-01-01'",
        "SELECT date_trunc('day', at) FROM d WHERE at > date '2020-01-01'",
        "SELECT md5(s), upper(s) FROM t WHERE length(s) = 1",
        "SELECT k FROM t WHERE k NOT IN (1, NULL)",
        "SELECT x.k FROM t AS x WHERE NOT (x.k = 1 OR x.s = 'b')",
    ];

    const LONG_ONES: [&str; 7] = [
        "SELECT * FROM t JOIN t AS u ON t.k = u.k",
        "SELECT * FROM t WHERE k IN (SELECT n FROM t)",
        "SELECT (SELECT max(k) FROM t) FROM t",
        "SELECT k FROM t UNION ALL SELECT n FROM t",
        "SELECT row_number() OVER (ORDER BY k) FROM t",
        "SELECT unnest([k, n]) FROM t",
        "SELECT * FROM t WHERE k > ANY (SELECT n FROM t)",
    ];

    #[tokio::test]
    async fn a_plan_is_the_same_by_the_rules_that_concern_it() {
        let mut short = 0;
        for sql in SHORT_ONES {
            // Each counts the names that it makes up.
            let (one, other) = (with_tables().await.state(), with_tables().await.state());
            let plan = one.create_logical_plan(sql).await.unwrap();
            short += usize::from(is_short(&plan).unwrap());
            let (all, concerned) = (one.optimize(&plan).unwrap(), optimize(&other, &plan).unwrap());
            assert_eq!(all, concerned, "{sql}");
            // And with the types of all columns.
            assert_eq!(all.display_indent_schema().to_string(), concerned.display_indent_schema().to_string(), "{sql}");
        }
        assert!(short >= SHORT_ONES.len() - 1, "{short} of {}; DISTINCT is none", SHORT_ONES.len());
    }

    #[tokio::test]
    async fn others_take_all_rules() {
        let context = with_tables().await;
        for sql in LONG_ONES {
            let plan = context.state().create_logical_plan(sql).await.unwrap();
            assert!(!is_short(&plan).unwrap(), "{sql}");
            assert!(optimize(&context.state(), &plan).is_ok(), "{sql}");
        }
    }

    #[test]
    fn all_rules_that_are_left_out_are_there() {
        let rules = optimizer_rules();
        let missing: Vec<_> = OF_OTHERS.iter().filter(|name| !rules.iter().any(|rule| rule.name() == **name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(SHORT.rules.len(), rules.iter().filter(|rule| !OF_OTHERS.contains(&rule.name())).count());
        assert!(SHORT.rules.len() < rules.len() / 2 + 2, "{} of {}", SHORT.rules.len(), rules.len());
    }

    #[tokio::test]
    async fn a_leaf_is_planned_as_by_all_rules() {
        let context = with_tables().await;
        let scan = context.table("t").await.unwrap().into_unoptimized_plan();
        let state = context.state();
        let by_all = state.create_physical_plan(&scan).await.unwrap();
        let LogicalPlan::TableScan(scan) = &scan else { panic!("a scan") };
        let source = datafusion::datasource::source_as_provider(&scan.source).unwrap();
        let leaf = source.scan(&state, scan.projection.as_ref(), &[], None).await.unwrap();
        let by_two = lone_leaf(leaf, state.config_options()).unwrap();
        let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
        assert_eq!(shown(&by_all), shown(&by_two));
    }
}
