//! [`StandIn`]: an operator of a task that the engine around the task takes for another one.
//!
//! Coordinators tell what operators measured by their order in the plan that they sent, so a worker can add none. It can run another one
//! in the place of one of them.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions,
};
use futures::TryStreamExt;
use pithead_functions::giving_way;

use crate::task_faults::told;

/// Runs an operator in the place of another one, as which it is seen.
pub(crate) struct StandIn {
    seen: Arc<dyn ExecutionPlan>,
    /// What the same operator is within `run`.
    measured: Arc<dyn ExecutionPlan>,
    run: Arc<dyn ExecutionPlan>,
    role: Role,
}

#[derive(Clone, Copy, Debug)]
enum Role {
    /// The outermost operator of a task, whose errors travel.
    Task,
    /// An operator that lets other tasks run in between.
    GivesWay,
}

impl StandIn {
    /// The outermost operator of a task: the operator itself, but for its errors.
    pub(crate) fn of_task(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let (seen, measured) = (Arc::clone(&plan), Arc::clone(&plan));
        Arc::new(Self { seen, measured, run: plan, role: Role::Task })
    }

    /// The plan of a task whose operators let other tasks run in between, as those of a host do.
    pub(crate) fn giving_way(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(gives_way)?.data)
    }
}

fn gives_way(seen: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let run = giving_way(Arc::clone(&seen))?;
    let (true, [measured]) = (run.transformed, &run.data.children()[..]) else { return Ok(Transformed::no(seen)) };
    let measured = Arc::clone(measured);
    Ok(Transformed::yes(Arc::new(StandIn { seen, measured, run: run.data, role: Role::GivesWay })))
}

impl DisplayAs for StandIn {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seen.fmt_as(kind, f)
    }
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StandIn({:?}, {:?})", self.role, self.seen)
    }
}

impl ExecutionPlan for StandIn {
    fn name(&self) -> &str {
        self.seen.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.seen.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.seen.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.seen.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.seen.apply_expressions(f)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let seen = Arc::clone(&self.seen).replace_children(children, options)?;
        match self.role {
            Role::Task => Ok(Self::of_task(seen)),
            Role::GivesWay => Ok(gives_way(seen)?.data),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        match self.role {
            Role::GivesWay => self.run.execute(partition, context),
            Role::Task => {
                let rows = self.run.execute(partition, context).map_err(told)?;
                Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.map_err(told))))
            }
        }
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.measured.metrics()
    }
}
