//! [`RemoteScanExec`]: a sub-plan's rows, one stream a partition, each from a session at the partition's drive.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, DataFusionError, Result, Statistics, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use pithead_model::{Blame, Fault, Reply, SessionId};
use pithead_plan::SubPlan;
use pithead_wire::{Door, Event, Events, OpenRequest, Opened};

use crate::admission::Admission;
use crate::fault::{at_drive, bug};
use crate::profile::SubPlanProfile;

/// What each partition's session is opened with.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) door: Arc<dyn Door>,
    pub(crate) request: OpenRequest,
}

/// A sub-plan at its drives.
#[derive(Debug)]
pub(crate) struct RemoteScanExec {
    sub_plan: Arc<SubPlan>,
    targets: Vec<Arc<Target>>,
    busy_wait: Duration,
    profile: Arc<SubPlanProfile>,
    properties: Arc<PlanProperties>,
}

impl RemoteScanExec {
    pub(crate) fn new(
        sub_plan: Arc<SubPlan>,
        schema: SchemaRef,
        targets: Vec<Target>,
        busy_wait: Duration,
        profile: Arc<SubPlanProfile>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(targets.len().max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let targets = targets.into_iter().map(Arc::new).collect();
        Self { sub_plan, targets, busy_wait, profile, properties: Arc::new(properties) }
    }
}

impl DisplayAs for RemoteScanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "RemoteScanExec: sub-plan {}", self.sub_plan.number)
    }
}

impl ExecutionPlan for RemoteScanExec {
    fn name(&self) -> &str {
        "RemoteScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("a remote scan has no children") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.schema();
        let Some(target) = self.targets.get(partition).cloned() else {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::empty())));
        };
        let consumer = MemoryConsumer::new(format!("rounds of sub-plan {}", self.sub_plan.number));
        let session = Session {
            target,
            partition,
            schema: Arc::clone(&schema),
            busy_wait: self.busy_wait,
            profile: Arc::clone(&self.profile),
            admission: Admission::new(consumer.register(context.memory_pool())),
        };
        // OPEN happens on the first poll.
        let rows = stream::once(session.open()).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn statistics_from_inputs(&self, _inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let estimate = &self.sub_plan.estimate;
        let parts = if args.partition().is_some() { self.targets.len().max(1) as f64 } else { 1.0 };
        let number = |value: f64| Precision::Inexact((value / parts).ceil() as usize);
        let columns = (0..self.schema().fields().len()).map(|i| ColumnStatistics {
            distinct_count: estimate
                .columns
                .get(i)
                .map_or(Precision::Absent, |column| Precision::Inexact(column.distinct as usize)),
            ..ColumnStatistics::new_unknown()
        });
        Ok(Arc::new(Statistics {
            num_rows: number(estimate.rows),
            total_byte_size: number(estimate.bytes()),
            column_statistics: columns.collect(),
        }))
    }
}

/// One session on its way.
struct Session {
    target: Arc<Target>,
    partition: usize,
    schema: SchemaRef,
    busy_wait: Duration,
    profile: Arc<SubPlanProfile>,
    admission: Admission,
}

impl Session {
    /// OPEN, then the rows of GET.
    async fn open(self) -> Result<impl Stream<Item = Result<RecordBatch>>> {
        let label = self.target.door.label().to_owned();
        let started = Instant::now();
        let closer = self.granted(started).await.map_err(|fault| external(at_drive(fault, &label)))?;
        self.profile.update(self.partition, |session| session.open_us = started.elapsed().as_micros() as u64);
        let events = self.target.door.get(closer.session).await.map_err(|fault| external(at_drive(fault, &label)))?;
        let reading = Reading { session: self, events, label, started, closer };
        let batches = stream::try_unfold(reading, |mut reading| async move {
            let batches = reading.next().await?;
            Ok::<_, DataFusionError>(batches.map(|batches| (batches, reading)))
        });
        Ok(batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok::<_, DataFusionError>))).try_flatten())
    }

    /// OPEN, again and again while the drive is busy, up to a limit.
    async fn granted(&self, started: Instant) -> Result<Closer, Fault> {
        loop {
            let (opened, closer) = Closer::open(&self.target).await?;
            let label = self.target.door.label().to_owned();
            self.profile.update(self.partition, |session| {
                session.label = label;
                session.link_bytes += opened.link_bytes;
            });
            match (opened.reply, closer) {
                (Reply::Granted(_), Some(closer)) => return Ok(closer),
                (Reply::Granted(_), None) => return Err(bug("a session was granted and is not there")),
                (Reply::Busy { why, retry_after_ms }, _) => {
                    if started.elapsed() > self.busy_wait {
                        let message = format!("busy for {} s: {why}", self.busy_wait.as_secs());
                        return Err(Fault::new(Blame::Limit, message)
                            .hint("try again later, or SET pithead.busy_wait_s to wait longer"));
                    }
                    self.profile.update(self.partition, |session| session.busy += 1);
                    tokio::time::sleep(Duration::from_millis(retry_after_ms.clamp(1, 1000))).await;
                }
            }
        }
    }
}

/// A session whose events arrive.
struct Reading {
    session: Session,
    events: Events,
    label: String,
    started: Instant,
    closer: Closer,
}

impl Reading {
    /// The rows of the next round that closes; none at the end.
    async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        loop {
            let event = match self.events.next().await {
                Some(event) => event.map_err(|fault| self.fault(fault))?,
                None => return Err(self.fault(Fault::new(Blame::Device, "the session ended before its work was done"))),
            };
            let Session { profile, partition, admission, schema, .. } = &mut self.session;
            match event {
                Event::Rows { round, batch, link_bytes } => {
                    profile.update(*partition, |session| session.link_bytes += link_bytes);
                    let batch = conform(batch, schema).map_err(|fault| external(at_drive(fault, &self.label)))?;
                    admission.hold(round, batch)?;
                }
                Event::Closed { annotation, link_bytes } => {
                    let batches = admission.close(&annotation).map_err(|fault| external(at_drive(fault, &self.label)))?;
                    profile.update(*partition, |session| {
                        session.link_bytes += link_bytes;
                        session.annotations.push(annotation);
                    });
                    if !batches.is_empty() {
                        return Ok(Some(batches));
                    }
                }
                Event::Finished { profile: report, link_bytes } => {
                    admission.finish(&report).map_err(|fault| external(at_drive(fault, &self.label)))?;
                    profile.update(*partition, |session| {
                        session.link_bytes += link_bytes;
                        session.session = Some(report);
                        session.wall_us = self.started.elapsed().as_micros() as u64;
                    });
                    self.closer.close().await;
                    return Ok(None);
                }
            }
        }
    }

    fn fault(&self, fault: Fault) -> DataFusionError {
        external(at_drive(fault, &self.label))
    }
}

/// Closes the session: at its end, or else when it is dropped, however that comes.
struct Closer {
    door: Arc<dyn Door>,
    session: SessionId,
    runtime: tokio::runtime::Handle,
    closed: bool,
}

impl Closer {
    /// OPEN. It goes on when its caller does not wait for it any more, so that a session that is granted late is closed.
    async fn open(target: &Arc<Target>) -> Result<(Opened, Option<Closer>), Fault> {
        let target = Arc::clone(target);
        let opening = tokio::spawn(async move {
            let opened = target.door.open(target.request.clone()).await?;
            let closer = match &opened.reply {
                Reply::Granted(granted) => Some(Closer {
                    door: Arc::clone(&target.door),
                    session: granted.session,
                    runtime: tokio::runtime::Handle::current(),
                    closed: false,
                }),
                Reply::Busy { .. } => None,
            };
            Ok((opened, closer))
        });
        opening.await.map_err(bug)?
    }

    /// At the end of its work, before the caller hears of it: a process may end right after.
    async fn close(&mut self) {
        self.closed = true;
        close(&*self.door, self.session).await;
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        if !self.closed {
            let (door, session) = (Arc::clone(&self.door), self.session);
            self.runtime.spawn(async move { close(&*door, session).await });
        }
    }
}

async fn close(door: &dyn Door, session: SessionId) {
    if let Err(fault) = door.close(session).await {
        tracing::debug!(%session, %fault, "a session could not be closed; its idle limit will");
    }
}

/// The batch under the names of `schema`; its types must be the same.
fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Fault::new(Blame::Bug, format!("the drive sent other columns than asked for: {error}")))
}

fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}
