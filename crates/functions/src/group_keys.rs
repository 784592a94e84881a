//! [`by_group_keys`]: joins with the groups of an aggregate, by its groups alone.
//!
//! `x = (SELECT min(y) … WHERE k = outer.k)` becomes a join with an aggregate on two equalities: its group and its minimum. Of a
//! join's keys the engine makes a filter for the other side's scan, but a filter that names a minimum cannot go below the aggregate.
//! With the minimum compared after the join, the filter on the group goes down to the scan, and only groups that are wanted are
//! computed.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, Join, LogicalPlan};

/// The plan with equalities of aggregates' values as conditions of their joins, where the groups are keys and all of them are.
pub(crate) fn by_group_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up(|node| match node {
        LogicalPlan::Join(join) if is_plain(&join) => match keys_apart(&join)? {
            Some((keys, filter)) => Ok(Transformed::yes(LogicalPlan::Join(Join { on: keys, filter: Some(filter), ..join }))),
            None => Ok(Transformed::no(LogicalPlan::Join(join))),
        },
        node => Ok(Transformed::no(node)),
    });
    Ok(changed?.data)
}

/// Pairs that must be equal: of the left side, and of the right one.
type Keys = Vec<(Expr, Expr)>;

fn is_plain(join: &Join) -> bool {
    let matches_only = matches!(join.join_type, JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi);
    matches_only && join.on.len() > 1 && !join.null_aware && join.null_equality == NullEquality::NullEqualsNothing
}

/// The keys that are left, and the condition that the others become.
fn keys_apart(join: &Join) -> Result<Option<(Keys, Expr)>> {
    let (left, right) = (Groups::of(&join.left), Groups::of(&join.right));
    if left.is_none() && right.is_none() {
        return Ok(None);
    }
    let mut keys = Vec::new();
    let mut conditions = Vec::new();
    for (one, other) in &join.on {
        let is_value = left.as_ref().is_some_and(|groups| groups.is_value(one))
            || right.as_ref().is_some_and(|groups| groups.is_value(other));
        let one_type = one.get_type(join.left.schema())?;
        // Floats have two zeros and many NaNs, which keys and comparisons treat apart.
        if is_value && !one_type.is_floating() && one_type == other.get_type(join.right.schema())? {
            conditions.push(one.clone().eq(other.clone()));
        } else {
            keys.push((one.clone(), other.clone()));
        }
    }
    let covers = |groups: &Option<Groups>, keys: Vec<&Expr>| groups.as_ref().is_none_or(|groups| groups.are_all_in(&keys));
    let all = covers(&left, keys.iter().map(|(one, _)| one).collect())
        && covers(&right, keys.iter().map(|(_, other)| other).collect());
    if !all || keys.is_empty() {
        return Ok(None);
    }
    let apart = !conditions.is_empty();
    Ok(conjunction(join.filter.clone().into_iter().chain(conditions)).filter(|_| apart).map(|filter| (keys, filter)))
}

/// The columns of an aggregate as a relation above it names them.
struct Groups {
    groups: Vec<Column>,
    values: Vec<Column>,
}

impl Groups {
    /// None: the plan is no aggregate, whatever renames its columns.
    fn of(plan: &LogicalPlan) -> Option<Groups> {
        match plan {
            LogicalPlan::Aggregate(aggregate) if is_simple(aggregate) => {
                let mut columns = aggregate.schema.columns();
                let values = columns.split_off(aggregate.group_expr.len());
                Some(Groups { groups: columns, values })
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let below = Groups::of(&alias.input)?;
                let (from, to) = (alias.input.schema().columns(), alias.schema.columns());
                let renamed = |column: &Column| from.iter().position(|known| known == column).map(|at| to[at].clone());
                below.renamed(renamed)
            }
            LogicalPlan::Projection(projection) => {
                let below = Groups::of(&projection.input)?;
                let to = projection.schema.columns();
                let renamed = |column: &Column| {
                    let passed = |expr: &Expr| matches!(expr.clone().unalias(), Expr::Column(known) if known == *column);
                    projection.expr.iter().position(passed).map(|at| to[at].clone())
                };
                below.renamed(renamed)
            }
            _ => None,
        }
    }

    /// Under other names; none: a group has none. Values that are left out are not missed.
    fn renamed(self, renamed: impl Fn(&Column) -> Option<Column>) -> Option<Groups> {
        let groups = self.groups.iter().map(&renamed).collect::<Option<_>>()?;
        Some(Groups { groups, values: self.values.iter().filter_map(&renamed).collect() })
    }

    fn is_value(&self, key: &Expr) -> bool {
        matches!(key, Expr::Column(column) if self.values.contains(column))
    }

    fn are_all_in(&self, keys: &[&Expr]) -> bool {
        self.groups.iter().all(|group| keys.iter().any(|key| matches!(key, Expr::Column(column) if column == group)))
    }
}

fn is_simple(aggregate: &Aggregate) -> bool {
    !aggregate.group_expr.is_empty() && !aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)))
}

#[cfg(test)]
mod tests {
    use datafusion::execution::context::SessionContext;
    use datafusion::physical_plan::displayable;

    use crate::{EngineOptions, session_state};

    fn context() -> SessionContext {
        SessionContext::new_with_state(session_state(&EngineOptions::default()))
    }

    const ROWS: &str = "(SELECT value % 50 AS k, value % 3 AS h, value * 7 % 13 AS v FROM generate_series(1, 1000))";

    async fn joins(sql: &str) -> Vec<String> {
        let plan = context().sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let text = displayable(plan.as_ref()).indent(false).to_string();
        text.lines().filter(|line| line.contains("HashJoinExec")).map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn a_value_of_groups_is_compared_after_the_join() {
        let sql = format!("SELECT a.k, a.v FROM {ROWS} a WHERE a.v = (SELECT min(b.v) FROM {ROWS} b WHERE b.k = a.k)");
        let joins = joins(&sql).await;
        assert!(joins[0].contains("filter="), "{joins:?}");
        assert!(joins[0].contains("on=[(k@"), "{joins:?}");
    }

    #[tokio::test]
    async fn groups_of_which_not_all_are_keys_stay_as_they_are() {
        let grouped = format!("SELECT k, h, min(v) AS m FROM {ROWS} GROUP BY k, h");
        let sql = format!("SELECT count(*) FROM {ROWS} a JOIN ({grouped}) b ON a.k = b.k AND a.v = b.m");
        assert!(!joins(&sql).await[0].contains("filter="));
    }

    /// Beside the same with the join's equalities as comparisons of pairs, which no rule looks into.
    #[tokio::test]
    async fn rows_are_the_same() {
        let grouped = format!("SELECT k, min(v) AS m, max(v) AS x, count(*) AS n FROM {ROWS} WHERE h > 0 GROUP BY k");
        for (condition, plain) in [
            ("a.k = b.k AND a.v = b.m", "a.k - b.k = 0 AND a.v - b.m = 0"),
            ("a.k = b.k AND a.v = b.m AND a.h < b.x", "a.k - b.k = 0 AND a.v - b.m = 0 AND a.h < b.x"),
            ("b.k = a.k AND b.x = a.v AND b.n <> 7", "a.k - b.k = 0 AND a.v - b.x = 0 AND b.n <> 7"),
        ] {
            for kind in ["JOIN", "LEFT SEMI JOIN", "RIGHT SEMI JOIN", "LEFT JOIN", "LEFT ANTI JOIN"] {
                let ask = async |on: &str| {
                    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {ROWS} a {kind} ({grouped}) b ON {on}) AS t");
                    let batches = context().sql(&sql).await.unwrap().collect().await.unwrap();
                    datafusion::common::ScalarValue::try_from_array(batches[0].column(0), 0).unwrap()
                };
                assert_eq!(ask(condition).await, ask(plain).await, "{kind} ON {condition}");
            }
        }
    }
}
