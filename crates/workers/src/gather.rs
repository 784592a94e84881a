//! Rows from workers, and then what drives reported to them, for EXPLAIN ANALYZE.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion_distributed::{DistributedMetricsFormat, rewrite_distributed_plan_with_metrics};
use futures::{StreamExt, stream};
use pithead_remote::{REPORT_LABEL, RemoteScanExec, Report, SessionLog};

/// How long an answer waits for workers to say what it cost.
const REPORTS_WAIT: Duration = Duration::from_secs(2);

/// Where the scans of a plan report to, by number.
pub(crate) type Logs = HashMap<u64, Arc<SessionLog>>;

/// The logs of all remote scans of a plan.
pub(crate) fn logs(plan: &Arc<dyn ExecutionPlan>) -> Result<Logs> {
    let mut logs = Logs::new();
    plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<RemoteScanExec>() {
            logs.insert(scan.log().id(), Arc::clone(scan.log()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(logs)
}

/// The rows of a divided plan. Nothing runs before they are polled, and before they end, the logs are complete.
pub(crate) fn rows(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>, logs: Logs) -> SendableRecordBatchStream {
    let schema = plan.schema();
    let begun = (None, Some((plan, context, logs)));
    let rows = stream::try_unfold(begun, |(rows, end)| async move {
        let Some((plan, context, logs)) = end else { return Ok(None) };
        let mut rows: SendableRecordBatchStream = match rows {
            Some(rows) => rows,
            None => execute_stream(Arc::clone(&plan), Arc::clone(&context))?,
        };
        match rows.next().await {
            Some(batch) => Ok::<_, DataFusionError>(Some((batch?, (Some(rows), Some((plan, context, logs)))))),
            None => {
                // Workers report once nobody reads any more.
                drop(rows);
                match tokio::time::timeout(REPORTS_WAIT, gather(plan, &logs)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "what drives reported to workers is not known"),
                    Err(_) => tracing::warn!("workers did not say in time what drives reported"),
                }
                Ok(None)
            }
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// Puts what workers report into the logs.
async fn gather(plan: Arc<dyn ExecutionPlan>, logs: &Logs) -> Result<()> {
    let reported = rewrite_distributed_plan_with_metrics(plan, DistributedMetricsFormat::PerTask).await?;
    let mut seen = HashSet::new();
    reported.apply(|node| {
        for metric in node.metrics().iter().flat_map(|metrics| metrics.iter()) {
            let labels = metric.labels().iter().filter(|label| label.name() == REPORT_LABEL);
            for report in labels.filter_map(|label| serde_json::from_str::<Report>(label.value()).ok()) {
                if let Some(log) = logs.get(&report.log).filter(|_| seen.insert((report.log, report.partition))) {
                    log.note(report.partition, report.session);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}
