//! [`QueryPlan`]: the plan of a query, and what it hangs on.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};
use pithead_fleet::{Snapshot, VersionedDataset};
use pithead_functions::{Registry, fault_from_datafusion, optimize};
use pithead_model::{DatasetName, Fault, View};
use pithead_pg_catalog::is_of_snapshot;

use crate::Parameters;
use crate::repeated::Names;
use crate::table::DatasetTable;
use crate::views::refuse_broken;

/// A statement's plan, not optimised, and what it hangs on.
#[derive(Clone)]
pub(crate) struct QueryPlan {
    pub(crate) plan: LogicalPlan,
    /// The same with placeholders, where it has values in their places.
    unbound: Option<Arc<LogicalPlan>>,
    /// The plan, optimised, where that was done and does not hang on when it runs.
    pub(crate) optimised: Option<Arc<LogicalPlan>>,
    pub(crate) names: Names,
    /// The datasets that it reads; none: it reads something else beside them, such as the list of tables, or a function of PostgreSQL's
    /// catalogue does.
    datasets: Option<Vec<Arc<VersionedDataset>>>,
    /// The session and its settings, by [`Session::change`].
    change: u64,
    /// The functions that there were.
    functions: Arc<Registry>,
    /// The views that it reads, as they were.
    views: Vec<(DatasetName, View)>,
}

impl QueryPlan {
    pub(crate) fn new(
        plan: LogicalPlan,
        names: Names,
        change: u64,
        functions: Arc<Registry>,
        views: Vec<(DatasetName, View)>,
    ) -> Result<Self, Fault> {
        refuse_broken(&plan)?;
        let mut datasets = Some(Vec::new());
        each_scan(&plan, |scan| match (found_by(scan), &mut datasets) {
            (Some(found), Some(datasets)) => datasets.push(found),
            _ => datasets = None,
        })?;
        let reads_catalogue = calls(&plan, |part| matches!(part, Expr::ScalarFunction(call) if is_of_snapshot(&call.func)))?;
        let datasets = datasets.filter(|_| !reads_catalogue);
        Ok(Self { plan, unbound: None, optimised: None, names, datasets, change, functions, views })
    }

    /// The same, which can have other values in the places of the placeholders of `unbound`.
    pub(crate) fn of_unbound(self, unbound: LogicalPlan) -> Self {
        Self { unbound: Some(Arc::new(unbound)), ..self }
    }

    /// The same with other values; none: it has no placeholders.
    pub(crate) fn bound(&self, parameters: &Parameters) -> Result<Option<Self>, Fault> {
        let Some(unbound) = &self.unbound else { return Ok(None) };
        let plan = parameters.put_into(LogicalPlan::clone(unbound))?;
        Ok(Some(Self {
            plan,
            unbound: Some(Arc::clone(unbound)),
            optimised: None,
            names: self.names.clone(),
            datasets: self.datasets.clone(),
            change: self.change,
            functions: Arc::clone(&self.functions),
            views: self.views.clone(),
        }))
    }

    /// Whether planning again would give the same.
    pub(crate) fn holds(&self, snapshot: &Snapshot, change: u64, functions: &Registry) -> bool {
        let is_same =
            |known: &Arc<VersionedDataset>| snapshot.readable(known.name()).is_ok_and(|found| Arc::ptr_eq(&found, known));
        self.change == change
            && *self.functions == *functions
            && self.views.iter().all(|(name, view)| snapshot.view(name) == Some(view))
            && self.datasets.as_ref().is_some_and(|datasets| datasets.iter().all(is_same))
    }

    /// Bytes that its plans take, about.
    pub(crate) fn bytes(&self) -> usize {
        plan_bytes(&self.plan)
            + [&self.unbound, &self.optimised].into_iter().flatten().map(|plan| plan_bytes(plan)).sum::<usize>()
    }

    /// The columns of its rows. Types of some are known only once literals are folded, so the plan is optimised, and that is kept for the
    /// next time that the statement runs.
    pub(crate) fn columns(&mut self, state: &SessionState) -> Result<SchemaRef, Fault> {
        let plan = self.optimise(state)?;
        Ok(self.names.schema(plan.schema().inner()))
    }

    fn optimise(&mut self, state: &SessionState) -> Result<Arc<LogicalPlan>, Fault> {
        let optimised = Arc::new(optimize(state, &self.plan).map_err(fault_from_datafusion)?);
        if !hangs_on_time(&self.plan)? {
            self.optimised = Some(Arc::clone(&optimised));
        }
        Ok(optimised)
    }
}

/// Bytes that a plan takes, about: its nodes, their columns, and the parts of their expressions.
fn plan_bytes(plan: &LogicalPlan) -> usize {
    const NODE_BYTES: usize = 1_000;
    const COLUMN_BYTES: usize = 150;
    const PART_BYTES: usize = 300;
    let mut bytes = 0;
    let _ = plan.apply_with_subqueries(|node| {
        bytes += NODE_BYTES + COLUMN_BYTES * node.schema().fields().len();
        node.apply_expressions(|expr| {
            expr.apply(|_| {
                bytes += PART_BYTES;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    bytes
}

/// Whether a plan has functions whose value is one for a statement, and another one for the next, such as `now()`.
fn hangs_on_time(plan: &LogicalPlan) -> Result<bool, Fault> {
    calls(plan, is_stable_call)
}

/// Whether an expression of a plan has such a part.
fn calls(plan: &LogicalPlan, is_such: impl Fn(&Expr) -> bool) -> Result<bool, Fault> {
    let mut found = false;
    let looked = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found || expr.exists(|part| Ok(is_such(part)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    });
    looked.map_err(fault_from_datafusion)?;
    Ok(found)
}

/// Looks at each scan of a plan.
fn each_scan(plan: &LogicalPlan, mut look: impl FnMut(&TableScan)) -> Result<(), Fault> {
    let looked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            look(scan);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    looked.map(drop).map_err(fault_from_datafusion)
}

/// The datasets that a plan reads, as often as it scans them.
pub(crate) fn datasets_of(plan: &LogicalPlan) -> Result<Vec<Arc<VersionedDataset>>, Fault> {
    let mut datasets = Vec::new();
    each_scan(plan, |scan| datasets.extend(found_by(scan)))?;
    Ok(datasets)
}

fn is_stable_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable)
}

/// The dataset that a scan reads; none: it reads something else.
fn found_by(scan: &TableScan) -> Option<Arc<VersionedDataset>> {
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<DatasetTable>().map(|table| Arc::clone(table.found()))
}

#[cfg(test)]
mod tests {
    use pithead_door::Door;
    use pithead_fakes::FakeDoor;

    use super::*;
    use crate::{Host, HostOptions, Parameters};

    #[tokio::test]
    async fn what_a_plan_takes_grows_with_its_columns_and_its_parts() {
        let drive: Arc<dyn Door> = FakeDoor::new(1);
        let session = Host::connect(vec![drive], HostOptions::default()).await.unwrap().session();
        let columns: Vec<String> = (0..1_000).map(|number| format!("c{number} BIGINT")).collect();
        session.run(&format!("CREATE TABLE wide ({})", columns.join(", "))).await.unwrap();
        let bytes = async |sql: &str| session.prepare(sql, &Parameters::default()).await.unwrap().bytes();
        let [one, wide] = [bytes("SELECT 1").await, bytes("SELECT * FROM wide").await];
        assert!(one < 20_000 && wide > 100_000, "{one} {wide}");
        assert!(bytes("SELECT count(*) FROM wide").await > 100_000, "columns that no result has");
        let sums = |parts: usize| format!("SELECT 1{}", " + c0".repeat(parts)) + " FROM wide";
        assert!(bytes(&sums(50)).await > bytes(&sums(1)).await + 50 * 300);
    }
}
