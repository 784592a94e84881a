//! [`ReplanPoint`]: where a plan may be changed while it runs (progressive optimization: Markl et al. 2004; the third pass of Montana
//! et al. 2023, Skytether; see `docs/bibliography.md`).
//!
//! Below it, rows of some slices of one dataset and rows of the others are rows of the result, each once. So the slices that are
//! not done may be had by another plan: another order of joins, and another cut.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, JoinType, Result};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use pithead_functions::Registry;
use pithead_model::{DatasetName, Level};

use crate::combine::{ResultShape, shape};
use crate::expression::any_stays;
use crate::recursion::stands_alone;
use crate::{Catalogue, RemoteScan, SubPlan};

/// An operator that only hands on rows. The plan below it may be changed while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplanPoint {
    /// The plan below.
    pub input: LogicalPlan,
    /// The plan below as it was before its joins were ordered: what is planned anew.
    pub region: Arc<LogicalPlan>,
}

impl PartialOrd for ReplanPoint {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl ReplanPoint {
    /// The point above `region`.
    pub fn above(region: LogicalPlan) -> LogicalPlan {
        ReplanPoint { region: Arc::new(region.clone()), input: region }.node()
    }

    /// The point, as a node of a plan.
    pub(crate) fn node(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// The node's point, if it is one.
    pub fn of(plan: &LogicalPlan) -> Option<&ReplanPoint> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// The sub-plan below the point, in a plan that was cut, that may be stopped between its rounds: the one over the most rows of
    /// those that read a dataset of `datasets` slice by slice, as rows.
    pub fn stoppable(&self, datasets: &[DatasetName], functions: &Registry) -> Option<Arc<SubPlan>> {
        let mut found: Option<Arc<SubPlan>> = None;
        let rows = |sub_plan: &Arc<SubPlan>| sub_plan.datasets[0].dataset.rows();
        let looked = self.input.apply(|node| {
            if let Some(scan) = RemoteScan::of(node) {
                let sub_plan = &scan.sub_plan;
                let may = datasets.contains(sub_plan.driving())
                    && sub_plan.level_max == Level::Whole
                    && !sub_plan.whole_partition
                    && shape(&sub_plan.plan, functions) == ResultShape::Rows;
                if may && found.as_ref().is_none_or(|best| rows(best) < rows(sub_plan)) {
                    found = Some(Arc::clone(sub_plan));
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
        found.filter(|_| looked.is_ok())
    }

    /// The joins of the plan below that are at the host.
    pub fn host_joins(&self) -> usize {
        let mut joins = 0;
        let looked = self.input.apply(|node| {
            joins += usize::from(matches!(node, LogicalPlan::Join(_)));
            Ok(TreeNodeRecursion::Continue)
        });
        if looked.is_ok() { joins } else { 0 }
    }
}

impl UserDefinedLogicalNodeCore for ReplanPoint {
    fn name(&self) -> &str {
        "ReplanPoint"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ReplanPoint")
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let input = inputs.pop().unwrap_or_else(|| self.input.clone());
        Ok(ReplanPoint { input, region: Arc::clone(&self.region) })
    }
}

/// The plan with a point above the highest part of it that joins, where one of its datasets has `slices_min` slices or more. None if
/// there is no such part.
pub fn with_replan_point(plan: &LogicalPlan, catalogue: &dyn Catalogue, slices_min: u64) -> Option<LogicalPlan> {
    let inputs = plan.inputs();
    if !replannable(plan, catalogue, slices_min).is_empty() {
        return Some(ReplanPoint::above(plan.clone()));
    }
    // What is above must see all rows, and has one input.
    let [input] = inputs.as_slice() else { return None };
    let changed = with_replan_point(input, catalogue, slices_min)?;
    plan.with_new_exprs(plan.expressions(), vec![changed]).ok()
}

/// The datasets of a plan of which some slices may be read by it and the others by another plan, with at least `slices_min` slices
/// each: those that occur once, and only below operators that keep or drop each of their rows for itself. None where the plan does not
/// join, or where it would not give the same rows again.
pub fn replannable(plan: &LogicalPlan, catalogue: &dyn Catalogue, slices_min: u64) -> Vec<DatasetName> {
    let mut scans: BTreeMap<DatasetName, usize> = BTreeMap::new();
    let (mut joins, mut is_steady) = (false, true);
    let looked = plan.apply(|node| {
        match node {
            LogicalPlan::Join(_) => joins = true,
            LogicalPlan::TableScan(scan) => {
                if let Some(facts) = catalogue.facts(scan) {
                    *scans.entry(facts.name.clone()).or_default() += 1;
                }
            }
            LogicalPlan::Extension(_) => is_steady = false,
            _ => {}
        }
        is_steady &=
            any_stays(&node.expressions()).is_none() || matches!(node, LogicalPlan::Window(_) | LogicalPlan::Aggregate(_));
        is_steady &= !node.expressions().iter().any(Expr::is_volatile);
        Ok(TreeNodeRecursion::Continue)
    });
    if looked.is_err() || !joins || !is_steady || !stands_alone(plan) {
        return vec![];
    }
    let mut found = Vec::new();
    row_by_row(plan, catalogue, slices_min, &mut found);
    found.retain(|name| scans.get(name) == Some(&1));
    found
}

/// The datasets whose rows each count for themselves.
fn row_by_row(plan: &LogicalPlan, catalogue: &dyn Catalogue, slices_min: u64, found: &mut Vec<DatasetName>) {
    match plan {
        LogicalPlan::TableScan(scan) if scan.fetch.is_none() => {
            let facts = catalogue.facts(scan).filter(|facts| facts.dataset.slices() >= slices_min.max(1));
            found.extend(facts.map(|facts| facts.name.clone()));
        }
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().into_iter().for_each(|input| row_by_row(input, catalogue, slices_min, found));
        }
        LogicalPlan::Join(join) => {
            let (left, right) = match join.join_type {
                JoinType::Inner => (true, true),
                JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => (true, false),
                JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => (false, true),
                JoinType::Full => (false, false),
            };
            for (input, _) in [(&join.left, left), (&join.right, right)].into_iter().filter(|(_, counts)| *counts) {
                row_by_row(input, catalogue, slices_min, found);
            }
        }
        _ => {}
    }
}
