//! [`FewerRows`]: the side of a join that is kept in memory is the one with fewer rows.
//!
//! DataFusion 55.2 goes by bytes where it has them, and it has those of each projection over columns of fixed width. What counts is how
//! many rows are hashed, and how many of the other side's rows their keys leave out before they are decoded: 160,000 rows of six
//! columns are less work than 750,000 rows of two.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result, Statistics};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::join_selection::JoinSelection;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

type Plan = Arc<dyn ExecutionPlan>;

/// Takes the place of DataFusion's rule for plans of one partition, as those of drives are. Others, where it also decides whether a
/// join's sides are hashed by key, are left to it.
#[derive(Debug)]
pub(crate) struct FewerRows(JoinSelection);

impl FewerRows {
    pub(crate) fn in_place(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
        for rule in rules.iter_mut().filter(|rule| rule.name() == JoinSelection::new().name()) {
            *rule = Arc::new(FewerRows(JoinSelection::new()));
        }
    }
}

impl PhysicalOptimizerRule for FewerRows {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        match config.execution.target_partitions {
            1 => plan.transform_up(|node| Ok(swapped(&node)?.map_or_else(|| Transformed::no(node), Transformed::yes))).data(),
            _ => self.0.optimize(plan, config),
        }
    }
}

/// The join with its sides in each other's places; none: it is no join, or its left side, which is kept, has no more rows.
fn swapped(node: &Plan) -> Result<Option<Plan>> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        // The sides of `NOT IN` cannot be swapped.
        let may_swap = join.join_type().supports_swap() && !join.null_aware;
        return match may_swap && has_more(join.left(), join.right())? {
            true => join.swap_inputs(PartitionMode::CollectLeft).map(Some),
            false => Ok(None),
        };
    }
    if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
        return match has_more(join.left(), join.right())? {
            true => join.swap_inputs().map(Some),
            false => Ok(None),
        };
    }
    match node.downcast_ref::<NestedLoopJoinExec>() {
        Some(join) if join.join_type().supports_swap() && has_more(join.left(), join.right())? => join.swap_inputs().map(Some),
        _ => Ok(None),
    }
}

/// Whether a side has more rows than the other, if that is known of both.
fn has_more(side: &Plan, other: &Plan) -> Result<bool> {
    Ok(matches!((rows(side)?, rows(other)?), (Some(side), Some(other)) if side > other))
}

/// The rows that are expected. Of a join by several keys, DataFusion takes the one that leaves the fewest rows, as if the others left
/// them all.
fn rows(plan: &Plan) -> Result<Option<f64>> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>()
        && (*join.join_type(), join.on().len() > 1) == (JoinType::Inner, true)
    {
        return joined(join);
    }
    if let ([input], CardinalityEffect::Equal) = (&plan.children()[..], plan.cardinality_effect()) {
        return rows(input);
    }
    Ok(statistics(plan)?.num_rows.get_value().map(|rows| *rows as f64))
}

/// The rows of both sides, over how many keys the one has that has more of them.
fn joined(join: &HashJoinExec) -> Result<Option<f64>> {
    let (Some(left), Some(right)) = (rows(join.left())?, rows(join.right())?) else { return Ok(None) };
    let left_keys = keys(statistics(join.left())?.as_ref(), left, join.on().iter().map(|(key, _)| key));
    let right_keys = keys(statistics(join.right())?.as_ref(), right, join.on().iter().map(|(_, key)| key));
    Ok(Some(left * right / left_keys.max(right_keys).max(1.0)))
}

/// The combinations of keys in so many rows. The values of several columns hang together more often than not: of the second one the
/// root is taken, of the third the fourth root, and so on ("exponential backoff", as Microsoft SQL Server has it since 2014).
fn keys<'a>(side: &Statistics, rows: f64, keys: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>) -> f64 {
    let distinct = |key: &Arc<dyn PhysicalExpr>| {
        let column = side.column_statistics.get(key.downcast_ref::<Column>()?.index())?;
        column.distinct_count.get_value().map(|count| (*count as f64).clamp(1.0, rows.max(1.0)))
    };
    let mut counts: Vec<f64> = keys.map(|key| distinct(key).unwrap_or(rows)).collect();
    counts.sort_unstable_by(|one, other| other.total_cmp(one));
    let combined: f64 = counts.iter().zip(0..).map(|(count, place)| count.powf(0.5_f64.powi(place))).product();
    combined.min(rows)
}

fn statistics(plan: &Plan) -> Result<Arc<Statistics>> {
    StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::ColumnStatistics;
    use datafusion::common::stats::Precision;
    use datafusion::execution::context::SessionContext;
    use datafusion::physical_plan::displayable;

    use super::*;
    use crate::{EngineOptions, session_state};

    fn batch(columns: &[&str], rows: i64) -> RecordBatch {
        let fields: Vec<Field> = columns.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
        let values = columns.iter().map(|_| Arc::new(Int64Array::from_iter_values(0..rows)) as _).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), values).unwrap()
    }

    #[tokio::test]
    async fn fewer_rows_are_kept_whatever_their_width() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        context.register_batch("wide", batch(&["a", "b", "c", "d"], 90)).unwrap();
        context.register_batch("narrow", batch(&["n"], 150)).unwrap();
        // Projections, whose bytes are known: 2,880 of the wide one, and 1,200 of the other.
        let (wide, narrow) = ("(SELECT a + 0 AS a, b + 0 AS b, c, d FROM wide)", "(SELECT n + 0 AS n FROM narrow)");
        for (kind, rows) in [("JOIN", [90, 90]), ("FULL JOIN", [150, 150]), ("LEFT JOIN", [90, 150]), ("RIGHT JOIN", [150, 90])]
        {
            for ((left, right), rows) in [(wide, narrow), (narrow, wide)].into_iter().zip(rows) {
                let sql = format!("SELECT a, b, c, d, n FROM {left} AS l {kind} {right} AS r ON n = a");
                let query = context.sql(&sql).await.unwrap();
                let plan = query.clone().create_physical_plan().await.unwrap();
                let text = displayable(plan.as_ref()).indent(false).to_string();
                let kept = text.lines().skip_while(|line| !line.contains("HashJoinExec")).nth(1).unwrap_or_default();
                assert!(kept.contains(" as a,"), "{sql}: {text}");
                assert_eq!(query.count().await.unwrap(), rows, "{sql}");
            }
        }
    }

    #[test]
    fn several_keys_have_more_combinations_than_one() {
        let column = |distinct| ColumnStatistics { distinct_count: distinct, ..ColumnStatistics::new_unknown() };
        let columns = vec![column(Precision::Exact(100)), column(Precision::Inexact(2_500)), column(Precision::Absent)];
        let side = Statistics { column_statistics: columns, ..Statistics::default() };
        let of = |rows: f64, indices: &[usize]| {
            let keys: Vec<Arc<dyn PhysicalExpr>> =
                indices.iter().map(|index| Arc::new(Column::new("k", *index)) as _).collect();
            super::keys(&side, rows, keys.iter())
        };
        assert_eq!(of(1e6, &[0, 1]), 25_000.0);
        assert_eq!(of(1e6, &[1, 0]), 25_000.0);
        assert_eq!(of(1e4, &[0, 1]), 1e4, "no more than there are rows");
        assert_eq!(of(50.0, &[0]), 50.0);
        assert_eq!(of(1e6, &[0, 2]), 1e6, "nothing is known of one");
    }

    #[tokio::test]
    async fn crossed_rows_keep_their_columns() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        context.register_batch("many", batch(&["m"], 7)).unwrap();
        context.register_batch("few", batch(&["f", "g"], 2)).unwrap();
        for from in ["many, few", "few, many", "many JOIN few ON m < f + 9", "few JOIN many ON m < f + 9"] {
            let query = context.sql(&format!("SELECT m, f FROM {from} WHERE m > 4 AND f = 1")).await.unwrap();
            let plan = query.clone().create_physical_plan().await.unwrap();
            let text = displayable(plan.as_ref()).indent(false).to_string();
            assert!(text.contains("CrossJoinExec") || text.contains("NestedLoopJoinExec"), "{text}");
            let shown = query.to_string().await.unwrap();
            assert!(
                shown.contains("| 5 | 1 |") && shown.contains("| 6 | 1 |") && shown.lines().count() == 6,
                "{from}: {shown}"
            );
        }
    }
}
