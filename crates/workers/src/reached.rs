//! [`Reached`]: a worker as those see it who call it. Its errors say who is to blame.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse, SetPlanRequest, WorkerChannel,
    WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::HeaderMap;
use pithead_model::{Blame, boxed};
use pithead_wire::Trouble;

use crate::task_faults::{call_error, fault_of, of_worker};

/// A worker's address, and what the link to it knows where a call fails.
#[derive(Clone)]
pub(crate) struct At {
    pub(crate) address: Arc<str>,
    pub(crate) trouble: Trouble,
}

impl At {
    /// An error of a call, by who is to blame.
    fn failed(&self, error: DataFusionError) -> DataFusionError {
        let fault = fault_of(&self.address, error);
        let known = if fault.blame == Blame::Device { self.trouble.take() } else { None };
        call_error(known.map_or(fault, of_worker))
    }
}

/// The channel to a worker.
pub(crate) struct Reached {
    pub(crate) at: At,
    pub(crate) channel: Box<dyn WorkerChannel>,
}

impl Reached {
    fn named<T: 'static>(&self, rows: BoxStream<'static, Result<T>>) -> BoxStream<'static, Result<T>> {
        let at = self.at.clone();
        rows.map_err(move |error| at.failed(error)).boxed()
    }
}

#[boxed]
impl WorkerChannel for Reached {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let answers = self.channel.coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx).await;
        answers.map(|answers| self.named(answers)).map_err(|error| self.at.failed(error))
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let streams = self.channel.execute_task(headers, request, metrics, task_ctx).await;
        let streams = streams.map_err(|error| self.at.failed(error))?;
        Ok(streams.into_iter().map(|rows| self.named(rows)).collect())
    }

    async fn get_worker_info(&mut self, request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        self.channel.get_worker_info(request).await.map_err(|error| self.at.failed(error))
    }
}
