//! [`GiveWay`]: lets other tasks on a thread run while an operator works for a long time within one poll.
//!
//! DataFusion's operators yield when a leaf has handed on many batches. But a join may go over billions of pairs
//! between two batches of a leaf. Meanwhile its thread does nothing else: no other query runs there, and nothing can
//! cancel this one. So joins hand on their rows through a [`GiveWayExec`], which yields by time, and receive the rows
//! of their probe side through another one, which cuts batches into pieces: the first one by the rows of the build side,
//! which a third one counts, and the others by how long the join took for the last piece. Operators whose expressions
//! make much data of each row receive their rows in small pieces, too ([`rows_at_once`]), and those that make rows of
//! lists receive long lists in parts.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary};

use crate::bounded::rows_at_once;
use crate::give_way_exec::{GiveWayExec, Times};
use crate::long_lists::lists_in_parts;

/// The most rows of a piece for a join that may look at many pairs before it has a row to hand on.
const FILTERED_PIECE_ROWS_MAX: usize = 1_024;
/// The rows of the first piece for a hash join, which compares each row with few rows of the build side. Small inputs
/// fit in one piece.
const HASHED_PIECE_ROWS: usize = 256;
/// The rows of the first piece for a join that compares each row with all rows of the build side.
const LOOPED_PIECE_ROWS: usize = 16;

/// The rule. It runs last: it looks for operators by their types, and other rules would not find theirs below the
/// operators that it adds.
#[derive(Debug)]
pub(crate) struct GiveWay;

impl PhysicalOptimizerRule for GiveWay {
    fn name(&self) -> &str {
        "pithead_give_way"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(giving_way).map(|transformed| transformed.data)
    }
}

/// An operator with what lets other tasks run in between, above it and below it, where it needs that. What is above it has it as its
/// only child.
pub fn giving_way(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if node.is::<UnnestExec>() {
        return Ok(Transformed::yes(above(with_lists_in_parts(node)?)));
    }
    if node.is::<CooperativeExec>() || node.is::<CrossJoinExec>() {
        return Ok(Transformed::yes(above(node)));
    }
    if let Some(rows) = piece_rows(&node) {
        return with_probe_in_pieces(node, rows).map(Transformed::yes);
    }
    if let Some(rows) = small_pieces(&node)? {
        return with_small_pieces(node, rows).map(Transformed::yes);
    }
    Ok(if node.is::<HashJoinExec>() { Transformed::yes(above(node)) } else { Transformed::no(node) })
}

fn above(node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let times = Times::of(&node);
    Arc::new(GiveWayExec::above(node, times))
}

/// The rows of the first piece and the most rows of any piece, for a join that takes its probe side in pieces: one that
/// may go over many pairs without a row to hand on. Other joins end their poll with each batch of pairs.
fn piece_rows(node: &Arc<dyn ExecutionPlan>) -> Option<(usize, usize)> {
    if node.is::<NestedLoopJoinExec>() {
        return Some((LOOPED_PIECE_ROWS, usize::MAX));
    }
    let join = node.downcast_ref::<HashJoinExec>()?;
    let is_outer = matches!(join.join_type(), JoinType::Left | JoinType::Right | JoinType::Full);
    match join.filter() {
        Some(_) if !is_outer => Some((HASHED_PIECE_ROWS, FILTERED_PIECE_ROWS_MAX)),
        Some(_) => Some((HASHED_PIECE_ROWS, usize::MAX)),
        None if is_outer || *join.join_type() == JoinType::Inner => None,
        None => Some((HASHED_PIECE_ROWS, usize::MAX)),
    }
}

/// A join of a build side and a probe side, in this order.
fn with_probe_in_pieces(join: Arc<dyn ExecutionPlan>, rows: (usize, usize)) -> Result<Arc<dyn ExecutionPlan>> {
    let [build, probe] = join.children()[..] else { return Ok(join) };
    if probe.output_partitioning().partition_count() != join.output_partitioning().partition_count() {
        return Ok(above(join));
    }
    let times = Times::of(&join);
    let pieces = GiveWayExec::below(Arc::clone(probe), Arc::clone(&times), rows);
    let build = GiveWayExec::build(Arc::clone(build), Arc::clone(&times));
    let children: Vec<Arc<dyn ExecutionPlan>> = vec![Arc::new(build), Arc::new(pieces)];
    let join = replace_children_if_necessary(join, children)?;
    Ok(Arc::new(GiveWayExec::above(join, times)))
}

/// An operator that makes rows of lists, over rows whose lists are not too long for it.
fn with_lists_in_parts(unnest: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let (Some(columns), [input]) = (unnest.downcast_ref::<UnnestExec>().and_then(lists_in_parts), &unnest.children()[..])
    else {
        return Ok(unnest);
    };
    let parts = GiveWayExec::lists(Arc::clone(input), columns);
    replace_children_if_necessary(unnest, vec![Arc::new(parts)])
}

/// How many rows an operator should receive at a time, since it makes much data of each; none: as many as there are.
fn small_pieces(node: &Arc<dyn ExecutionPlan>) -> Result<Option<usize>> {
    let mut rows: Option<usize> = None;
    node.apply_expressions(&mut |expr| {
        rows = rows.into_iter().chain(rows_at_once(expr)).min();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(rows)
}

/// An operator that receives its rows in pieces of at most this many.
fn with_small_pieces(node: Arc<dyn ExecutionPlan>, rows: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let times = Times::of(&node);
    let in_pieces = |child: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
        Arc::new(GiveWayExec::below(Arc::clone(child), Times::of(child), (rows, rows)))
    };
    let children = node.children().into_iter().map(in_pieces).collect();
    Ok(Arc::new(GiveWayExec::above(replace_children_if_necessary(node, children)?, times)))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use datafusion::common::ScalarValue;
    use datafusion::execution::context::SessionContext;

    use crate::{EngineOptions, session_state};

    fn context() -> SessionContext {
        SessionContext::new_with_state(session_state(&EngineOptions::default()))
    }

    /// One thread, on which the query and a timer run.
    async fn seconds_until_cancelled(sql: &str) -> f64 {
        let frame = context().sql(sql).await.unwrap();
        let start = Instant::now();
        let ended = tokio::time::timeout(Duration::from_millis(300), frame.collect()).await;
        assert!(ended.is_err(), "{sql} ended by itself");
        start.elapsed().as_secs_f64()
    }

    /// A regression: a query over 200,000 rows, joined three times with itself, kept a drive from all other work for
    /// minutes.
    #[tokio::test]
    async fn joins_of_many_pairs_can_be_cancelled() {
        let rows = "(SELECT value AS id, value % 2 AS k, value::text AS s FROM generate_series(1, 100000))";
        for sql in [
            format!("SELECT count(*) FROM {rows} a, {rows} b, {rows} c WHERE a.id + b.id + c.id = -1"),
            format!("SELECT count(*) FROM {rows} a JOIN {rows} b ON a.id + b.id < -1"),
            format!("SELECT count(*) FROM {rows} a LEFT JOIN {rows} b ON a.s LIKE '%' || b.s || 'x%'"),
            format!("SELECT count(*) FROM {rows} a JOIN {rows} b ON a.k = b.k AND a.id + b.id = -1"),
            format!("SELECT count(*) FROM {rows} a JOIN {rows} b ON a.k = b.k"),
            format!("SELECT max(a.id + b.id) FROM {rows} a, {rows} b"),
            format!("SELECT count(*) FROM {rows} a WHERE EXISTS (SELECT 1 FROM {rows} b WHERE a.k = b.k AND a.id + b.id = -1)"),
        ] {
            let seconds = seconds_until_cancelled(&sql).await;
            assert!(seconds < 10.0, "{sql}: {seconds} s");
        }
    }

    #[tokio::test]
    async fn joins_in_pieces_have_the_same_rows() {
        let side = |from: usize, to: usize| format!("(SELECT value AS id, value % 7 AS k FROM generate_series({from}, {to}))");
        for (kind, rows) in [("JOIN", 200), ("LEFT JOIN", 3_000), ("RIGHT JOIN", 20_000), ("FULL JOIN", 22_800)] {
            for on in ["a.id = b.id + 2800 AND a.k >= 0", "a.id - b.id - 2800 = 0 AND a.k + b.k >= 0"] {
                let sql = format!("SELECT count(*) FROM {} a {kind} {} b ON {on}", side(1, 3_000), side(1, 20_000));
                let batches = context().sql(&sql).await.unwrap().collect().await.unwrap();
                let count = ScalarValue::try_from_array(batches[0].column(0), 0).unwrap().to_string();
                assert_eq!(count, rows.to_string(), "{kind} ON {on}");
            }
        }
    }
}
