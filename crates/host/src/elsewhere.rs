//! [`Elsewhere`]: where a super-plan runs that is divided among other machines. This crate knows no engine that does so.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::{DataFusionError, Result as EngineResult};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use pithead_functions::fault_from_datafusion;
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
        /// Its rows. Where they end with an error, its blame says whether the query or a machine failed: see [`is_of_query`].
        rows: SendableRecordBatchStream,
        /// At which machines, in words.
        told: String,
    },
    /// At this host alone, for this reason.
    Here(String),
}

/// What has this host run all of a query: its plan is made only then.
pub(crate) type Alone = Box<dyn FnOnce() -> BoxFuture<'static, Result<SendableRecordBatchStream, Fault>> + Send>;

/// Whether a query itself is to blame, so that it would fail wherever it ran.
pub fn is_of_query(fault: &Fault) -> bool {
    matches!(fault.blame, Blame::User | Blame::Limit | Blame::Conflict | Blame::Corrupt)
}

/// The rows from elsewhere. What the query itself is to blame for comes out as it is. Where something else fails before the first row,
/// this host runs the query alone; after that, the query ends with what failed.
pub(crate) fn or_here(
    far: SendableRecordBatchStream,
    alone: Alone,
    placed: Arc<Mutex<Vec<String>>>,
) -> SendableRecordBatchStream {
    let schema = far.schema();
    let begin = async move {
        let mut far = far;
        loop {
            match far.next().await {
                None => return Ok(stream::empty().boxed()),
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => return Ok(stream::iter([Ok(batch)]).chain(far.map(named)).boxed()),
                Some(Err(error)) => {
                    drop(far);
                    let fault = fault_from_datafusion(error);
                    if is_of_query(&fault) {
                        return Err(external(fault));
                    }
                    let message = &fault.message;
                    let told =
                        format!("run again at this host alone, since the workers failed before the first row: {message}");
                    tracing::warn!("{told}");
                    placed.lock().push(told);
                    return Ok::<_, DataFusionError>(alone().await.map_err(external)?.boxed());
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

fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}

/// An error after rows were handed on; where a machine is to blame for it, with what can be done about it.
fn named<T>(row: EngineResult<T>) -> EngineResult<T> {
    row.map_err(|error| {
        let fault = fault_from_datafusion(error);
        if is_of_query(&fault) {
            return external(fault);
        }
        let fault = Fault::new(Blame::Device, format!("a worker failed after rows were handed on: {}", fault.message));
        external(fault.hint("run the query again; SET pithead.workers = false runs it at this host alone"))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{Int32Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use arrow::error::ArrowError;
    use futures::FutureExt;
    use pithead_model::FaultKind;

    use super::*;

    fn batch(values: std::ops::Range<i32>) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int32Array::from_iter_values(values))]).unwrap()
    }

    fn rows(batches: Vec<EngineResult<RecordBatch>>) -> SendableRecordBatchStream {
        Box::pin(RecordBatchStreamAdapter::new(batch(0..0).schema(), stream::iter(batches)))
    }

    /// The rows that come, the fault that ends them, how often this host has run the query, and what EXPLAIN ANALYZE tells.
    async fn outcome(far: Vec<EngineResult<RecordBatch>>) -> (usize, Option<Fault>, usize, Vec<String>) {
        let runs = Arc::new(AtomicUsize::new(0));
        let (counted, placed) = (Arc::clone(&runs), Arc::default());
        let alone: Alone = Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok(rows(vec![Ok(batch(0..7))])) }.boxed()
        });
        let (mut count, mut fault) = (0, None);
        let mut all = or_here(rows(far), alone, Arc::clone(&placed));
        while let Some(batch) = all.next().await {
            match batch {
                Ok(batch) => count += batch.num_rows(),
                Err(error) => fault = Some(fault_from_datafusion(error)),
            }
        }
        (count, fault, runs.load(Ordering::Relaxed), placed.lock().clone())
    }

    fn by_zero() -> DataFusionError {
        DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None)
    }

    fn lost() -> DataFusionError {
        external(Fault::new(Blame::Device, "worker b:1: connection refused"))
    }

    #[tokio::test]
    async fn what_a_query_is_to_blame_for_is_told_as_at_one_host() {
        let of_query = [
            (by_zero(), Blame::User, FaultKind::DivideByZero),
            (DataFusionError::ResourcesExhausted("no memory".into()), Blame::Limit, FaultKind::Memory),
            (external(Fault::new(Blame::Corrupt, "damaged")), Blame::Corrupt, FaultKind::Other),
        ];
        for (error, blame, kind) in of_query {
            let alone = fault_from_datafusion(DataFusionError::Shared(Arc::new(error)));
            let error = || external(alone.clone());
            for (before, came) in [(vec![], 0), (vec![Ok(batch(0..0))], 0), (vec![Ok(batch(0..3))], 3)] {
                let far = before.into_iter().chain([Err(error())]).collect();
                assert_eq!(outcome(far).await, (came, Some(alone.clone()), 0, vec![]), "{blame:?}");
            }
            assert_eq!((alone.blame, alone.kind), (blame, kind));
        }
        let (rows, fault, runs, _) = outcome(vec![Ok(batch(0..2)), Err(by_zero())]).await;
        assert_eq!((rows, fault.map(|fault| fault.kind), runs), (2, Some(FaultKind::DivideByZero), 0));
    }

    #[tokio::test]
    async fn without_its_workers_a_query_runs_once_here_and_never_after_its_first_row() {
        let (rows, fault, runs, placed) = outcome(vec![Ok(batch(0..0)), Err(lost())]).await;
        assert_eq!((rows, fault, runs), (7, None, 1));
        assert!(placed[0].contains("run again") && placed[0].contains("connection refused"), "{placed:?}");
        let (rows, fault, runs, _) = outcome(vec![Ok(batch(0..2)), Err(lost())]).await;
        let fault = fault.unwrap();
        assert_eq!((rows, fault.blame, runs), (2, Blame::Device, 0));
        assert!(fault.message.contains("after rows were handed on: worker b:1"), "{fault}");
        assert!(fault.hint.is_some_and(|hint| hint.contains("pithead.workers")));
    }

    #[tokio::test]
    async fn nothing_is_planned_here_where_the_workers_answer() {
        for (far, count) in [(vec![], 0), (vec![Ok(batch(0..0))], 0), (vec![Ok(batch(0..4)), Ok(batch(0..5))], 9)] {
            assert_eq!(outcome(far).await, (count, None, 0, vec![]));
        }
    }
}
