//! [`KeysOfLists`]: a row that is unique is not so beside the values of its list.
//!
//! DataFusion 55.2 says of rows of lists what it knew of the rows with the lists: that a grouped column has each value once, and that the
//! others hang on it. So `SELECT DISTINCT k` was taken for `SELECT k`, and a left join for none.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, FunctionalDependencies, Result};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{LogicalPlan, Unnest};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::TableFactor;

/// The rule, at all of a plan at once. It stands before each rule that goes by such knowledge, since those between make operators anew.
/// As a planner, it sees to it that GROUP BY over a subquery groups by nothing else: there, what hangs on a key is added.
#[derive(Debug)]
pub(crate) struct KeysOfLists;

impl OptimizerRule for KeysOfLists {
    fn name(&self) -> &'static str {
        "pithead_keys_of_lists"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        without_keys_of_lists(plan)
    }
}

thread_local! {
    /// Whether a relation is being planned that was given back to the engine's planner, which asks again.
    static IS_GIVEN_BACK: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for KeysOfLists {
    fn plan_relation(&self, relation: TableFactor, context: &mut dyn RelationPlannerContext) -> Result<RelationPlanning> {
        let is_query = matches!(relation, TableFactor::Derived { .. } | TableFactor::Table { args: None, .. });
        if !is_query || IS_GIVEN_BACK.replace(false) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_GIVEN_BACK.set(true);
        let plan = without_keys_of_lists(context.plan(relation)?)?.data;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

fn without_keys_of_lists(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !plan.exists(|node| Ok(says_too_much(node)))? {
        return Ok(Transformed::no(plan));
    }
    plan.transform_up(|node| {
        let is_over_lists = node.inputs().into_iter().any(has_rows_of_lists);
        match node {
            node if says_too_much(&node) => forgotten(node).map(Transformed::yes),
            LogicalPlan::Unnest(_) => Ok(Transformed::no(node)),
            node if is_over_lists => node.recompute_schema().map(Transformed::yes),
            node => Ok(Transformed::no(node)),
        }
    })
}

fn has_rows_of_lists(plan: &LogicalPlan) -> bool {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Unnest(_)))).unwrap_or(true)
}

fn says_too_much(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Unnest(unnest) if !unnest.schema.functional_dependencies().is_empty())
}

fn forgotten(node: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Unnest(unnest) = node else { return Ok(node) };
    let schema = DFSchema::clone(&unnest.schema).with_functional_dependencies(FunctionalDependencies::empty())?;
    Ok(LogicalPlan::Unnest(Unnest { schema: Arc::new(schema), ..unnest }))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn grouped_rows_are_not_unique_beside_their_lists() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        context.sql("CREATE TABLE t AS VALUES (1, 2), (3, 4), (3, 2), (4, 7)").await.unwrap();
        let lists = "(SELECT column1 % 2 AS k, array_agg(column2) AS l FROM t GROUP BY 1)";
        let rows = format!("(SELECT k, unnest(l) AS x FROM {lists})");
        for (sql, expected) in [
            (format!("SELECT DISTINCT k FROM {rows} ORDER BY 1"), vec![0, 1]),
            (format!("SELECT DISTINCT k FROM {lists} AS q, unnest(q.l) AS u (x) ORDER BY 1"), vec![0, 1]),
            (format!("SELECT count(*) FROM {rows} GROUP BY k, x ORDER BY 1"), vec![1, 1, 2]),
            (format!("SELECT count(*) FROM {rows} GROUP BY k ORDER BY 1"), vec![1, 3]),
            (format!("WITH r AS (SELECT * FROM {rows} AS s) SELECT count(*) FROM r WHERE x < 7 GROUP BY k"), vec![3]),
            (format!("WITH r AS {rows} SELECT count(*) FROM r AS s (a, b) GROUP BY a ORDER BY 1"), vec![1, 3]),
            (format!("SELECT count(*) FROM t LEFT JOIN {rows} AS r ON t.column1 = r.k"), vec![6]),
            (format!("SELECT k FROM {rows} WHERE k = 1"), vec![1, 1, 1]),
            (format!("SELECT k FROM {rows} UNION SELECT 1 ORDER BY 1"), vec![0, 1]),
        ] {
            let found = context.sql(&sql).await.unwrap().collect().await.unwrap();
            let found = found.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
            assert_eq!(found.collect::<Vec<_>>(), expected, "{sql}");
        }
    }
}
