//! How a plan's leaves are divided: each partition of a remote scan is in exactly one task. Stages with other leaves, such as rows that
//! are in the plan, have one task.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedLeafExec, ScaleUpLeafNodeEvent,
    ScaleUpLeafNodeEventResponse,
};
use pithead_remote::RemoteScanExec;

/// How many tasks a leaf is worth: as many as there are workers for a scan, so that what is above it is divided as widely.
///
/// A scan of one partition has one task. Operators that need all rows together, or all rows of a group, stand right above it, since one
/// stream has them all; in several tasks each of them would give a result of its own.
pub(crate) fn tasks(event: &DesiredTaskCountEvent<'_>, workers: usize) -> Option<Result<DesiredTaskCountEventResponse>> {
    event.plan.downcast_ref::<RemoteScanExec>()?;
    Some(Ok(match event.plan.output_partitioning().partition_count() {
        0 | 1 => DesiredTaskCountEventResponse::maximum(1),
        _ => DesiredTaskCountEventResponse::desired(workers),
    }))
}

/// A scan in parts, one for each task.
pub(crate) fn divided(event: ScaleUpLeafNodeEvent<'_>) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let scan = event.plan.downcast_ref::<RemoteScanExec>()?;
    let parts = scan.dealt(event.task_count).into_iter().map(|part| Arc::new(part) as Arc<dyn ExecutionPlan>);
    let leaf = DistributedLeafExec::try_new(Arc::clone(event.plan), parts);
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}
