//! [`Elsewhere`]: where a super-plan runs that is divided among other machines. This crate knows no engine that does so.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result as EngineResult};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use pithead_model::{Blame, Fault};

/// Machines that run parts of super-plans.
#[async_trait]
pub trait Elsewhere: Debug + Send + Sync {
    /// Divides a plan among them; nothing of it runs before its rows are polled. Fails only by a bug.
    async fn place(&self, plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<Placed, Fault>;
}

/// Where a plan runs.
pub enum Placed {
    /// At other machines.
    There {
        /// Its rows.
        rows: SendableRecordBatchStream,
        /// At which machines, in words.
        told: String,
    },
    /// At this host alone, for this reason.
    Here(String),
}

/// The rows from elsewhere. Where that fails before its first row, this host runs the plan alone; after that, its error is the query's.
pub(crate) fn or_here(
    far: SendableRecordBatchStream,
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    placed: Arc<Mutex<Vec<String>>>,
) -> SendableRecordBatchStream {
    let schema = plan.schema();
    let begin = async move {
        let mut far = far;
        loop {
            match far.next().await {
                None => return Ok(stream::empty().boxed()),
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => return Ok(stream::iter([Ok(batch)]).chain(far.map(named)).boxed()),
                Some(Err(error)) => {
                    drop(far);
                    let told = format!("run again at this host alone, since the workers failed before the first row: {error}");
                    tracing::warn!("{told}");
                    placed.lock().push(told);
                    return Ok::<_, DataFusionError>(execute_stream(plan, context)?.boxed());
                }
            }
        }
    };
    let rows = stream::once(begin).map(|begun| match begun {
        Ok(rows) => rows,
        Err(error) => stream::iter([Err(error)]).boxed(),
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows.flatten()))
}

/// An error after rows were handed on, with what can be done about it.
fn named<T>(row: EngineResult<T>) -> EngineResult<T> {
    row.map_err(|error| {
        let fault = Fault::new(Blame::Device, format!("a worker failed after rows were handed on: {error}"));
        DataFusionError::External(Box::new(
            fault.hint("run the query again; SET pithead.workers = false runs it at this host alone"),
        ))
    })
}
