//! Placeholders in GROUP BY with ROLLUP, CUBE or GROUPING SETS.
//!
//! The engine gives an expression its old name where it puts a value into it, and knows no name of a whole set. So what such sets have of
//! expressions with placeholders is computed before it is grouped by, and the sets have columns.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder};

/// The plan with such expressions computed before.
pub(crate) fn computed_before(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.iter().any(is_set) => with_columns(aggregate),
        node => Ok(Transformed::no(node)),
    })?;
    Ok(changed.data)
}

fn is_set(expr: &Expr) -> bool {
    matches!(expr, Expr::GroupingSet(_))
}

fn with_columns(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let mut computed: Vec<(Expr, String)> = Vec::new();
    for key in aggregate.group_expr.iter().flat_map(keys) {
        if has_placeholder(key)? && !computed.iter().any(|(known, _)| known == key) {
            computed.push((key.clone(), key.schema_name().to_string()));
        }
    }
    if computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let columns = columns.chain(computed.iter().map(|(key, name)| key.clone().alias(name)));
    let input = LogicalPlanBuilder::from(aggregate.input.as_ref().clone()).project(columns.collect::<Vec<_>>())?.build()?;
    let as_column = |part: Expr| match computed.iter().find(|(key, _)| *key == part) {
        Some((_, name)) => Transformed::yes(Expr::Column(Column::new_unqualified(name.clone()))),
        None => Transformed::no(part),
    };
    let keys = aggregate.group_expr.into_iter().map(|key| key.transform_down(|part| Ok(as_column(part))).map(|it| it.data));
    let keys = keys.collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(input.into(), keys, aggregate.aggr_expr)?)))
}

/// What an expression of GROUP BY groups by.
fn keys(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::GroupingSet(GroupingSet::Rollup(keys) | GroupingSet::Cube(keys)) => keys.iter().collect(),
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().flatten().collect(),
        expr => vec![expr],
    }
}

fn has_placeholder(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(matches!(part, Expr::Placeholder(_))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, RecordBatch};
    use arrow::util::display::array_value_to_string;
    use futures::TryStreamExt;
    use pithead_door::Door;
    use pithead_fakes::FakeDoor;

    use crate::{Host, HostOptions, Parameters};

    #[tokio::test]
    async fn sets_have_placeholders() {
        let drive: Arc<dyn Door> = FakeDoor::new(1);
        let session = Host::connect(vec![drive], HostOptions::default()).await.unwrap().session();
        let rows = "(VALUES (1, 2), (1, 3)) AS t(a, b)";
        for (query, expected) in [
            ("SELECT a + $1 AS k, sum(b) FROM t GROUP BY ROLLUP (k)", "2 5, NULL 5"),
            ("SELECT a, sum(b) FROM t GROUP BY ROLLUP (a, b + $1)", "1 2, 1 3, 1 5, NULL 5"),
            ("SELECT a, count(*) FROM t GROUP BY GROUPING SETS ((a), (b > $1), ())", "1 2, NULL 2, NULL 2"),
            ("SELECT a, count(*) FROM t GROUP BY CUBE ($1 IS NULL, a)", "1 2, 1 2, NULL 2, NULL 2"),
            ("SELECT a, sum(b) FROM t GROUP BY ROLLUP (a), b + $1", "1 2, 1 3, NULL 2, NULL 3"),
            ("SELECT a, sum(b + $1) FROM t GROUP BY ROLLUP (a)", "1 7, NULL 7"),
        ] {
            let one = RecordBatch::try_from_iter([("1", Arc::new(Int64Array::from(vec![1])) as _)]).unwrap();
            let sql = query.replace("FROM t", &format!("FROM {rows}"));
            let answer = session.run_with(&sql, &Parameters::by_place(&one).unwrap()).await;
            let batches: Vec<RecordBatch> =
                answer.unwrap_or_else(|fault| panic!("{sql}: {fault}")).rows.try_collect().await.unwrap();
            let mut found = Vec::new();
            for batch in &batches {
                for row in 0..batch.num_rows() {
                    let value = |column: usize| array_value_to_string(batch.column(column), row).unwrap();
                    let [key, count] = [value(0), value(1)].map(|it| if it.is_empty() { "NULL".to_owned() } else { it });
                    found.push(format!("{key} {count}"));
                }
            }
            found.sort();
            assert_eq!(found.join(", "), expected, "{sql}");
        }
    }
}
