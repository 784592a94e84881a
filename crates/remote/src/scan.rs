//! [`RemoteScanExec`]: a sub-plan's rows, one stream a partition, each from sessions at the partition's drives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result, Statistics, internal_err};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::stream;
use pithead_plan::SubPlan;

use crate::profile::{SessionLog, SubPlanProfile};
use crate::report::{Expected, reports};
use crate::session::{Session, Target};

/// A sub-plan at its drives.
#[derive(Debug)]
pub struct RemoteScanExec {
    pub(crate) number: usize,
    pub(crate) expected: Expected,
    /// `None` for a stream without rows.
    pub(crate) asked: Vec<Option<AskedPartition>>,
    pub(crate) busy_wait: Duration,
    pub(crate) log: Arc<SessionLog>,
    properties: Arc<PlanProperties>,
}

/// A partition whose drives are asked.
#[derive(Clone, Debug)]
pub(crate) struct AskedPartition {
    /// Its number among all partitions of the dataset.
    pub(crate) partition: usize,
    pub(crate) target: Arc<Target>,
}

impl RemoteScanExec {
    /// Asks the drives of partitions, which come with their numbers, for its rows; where all are busy, for `busy_wait` at most.
    pub fn new(
        sub_plan: &SubPlan,
        schema: SchemaRef,
        targets: Vec<(usize, Target)>,
        busy_wait: Duration,
        profile: &SubPlanProfile,
    ) -> Self {
        let (log, expected) = (Arc::clone(profile.log()), Expected::of(&sub_plan.estimate));
        Self::of(sub_plan.number, schema, worth_asking(targets), busy_wait, log, expected)
    }

    pub(crate) fn of(
        number: usize,
        schema: SchemaRef,
        asked: Vec<Option<AskedPartition>>,
        busy_wait: Duration,
        log: Arc<SessionLog>,
        expected: Expected,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(asked.len().max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { number, expected, asked, busy_wait, log, properties: Arc::new(properties) }
    }
}

/// Leaves out the partitions without slices. Of no rows comes at most what an aggregate without groups says of none, and
/// one such answer is enough.
fn worth_asking(mut targets: Vec<(usize, Target)>) -> Vec<Option<AskedPartition>> {
    match targets.iter().any(|(_, target)| target.request.has_slices()) {
        true => targets.retain(|(_, target)| target.request.has_slices()),
        false => targets.truncate(1),
    }
    let asked = |(partition, target)| Some(AskedPartition { partition, target: Arc::new(target) });
    targets.into_iter().map(asked).collect()
}

impl DisplayAs for RemoteScanExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "RemoteScanExec: sub-plan {}", self.number)
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
        let Some(AskedPartition { partition, target }) = self.asked.get(partition).cloned().flatten() else {
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::empty())));
        };
        let consumer = MemoryConsumer::new(format!("rounds of sub-plan {}", self.number));
        let reservation = consumer.register(context.memory_pool());
        let session = Session::new(target, partition, &schema, self.busy_wait, &self.log, reservation);
        // OPEN happens on the first poll.
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, session.rows())))
    }

    fn statistics_from_inputs(&self, _inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let expected = &self.expected;
        let parts = if args.partition().is_some() { self.asked.len().max(1) as f64 } else { 1.0 };
        let number = |value: f64| Precision::Inexact((value / parts).ceil() as usize);
        let columns = (0..self.schema().fields().len()).map(|i| ColumnStatistics {
            distinct_count: expected.distinct.get(i).map_or(Precision::Absent, |it| Precision::Inexact(*it as usize)),
            ..ColumnStatistics::new_unknown()
        });
        Ok(Arc::new(Statistics {
            num_rows: number(expected.rows),
            total_byte_size: number(expected.bytes),
            column_statistics: columns.collect(),
        }))
    }

    /// What its sessions reported, in the form in which it reaches another machine.
    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = MetricsSet::new();
        for metric in reports(&self.log) {
            metrics.push(Arc::new(metric));
        }
        Some(metrics)
    }
}
