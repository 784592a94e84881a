//! From a cut to what runs: each [`RemoteScan`] becomes a [`RemoteScanExec`] with what OPEN says to each partition's drives.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::Session as EngineSession;
use datafusion::common::{DataFusionError, Result as EngineResult};
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use pithead_door::{OpenRequest, PlanBytes, SessionOptions, ShippedInput, SlicePart};
use pithead_fleet::{ConnectedDrive, Drives};
use pithead_functions::{Registry, fault_from_datafusion, lone_leaf, measured_calls, ready_to_run};
use pithead_load::Partitioner;
use pithead_model::{Adapt, DatasetName, DriveId, Fault, Level, Partitioning, SliceSpan, boxed};
use pithead_plan::{Input, RemoteScan, ReplanPoint, ResultShape, RollUp, SubPlan, Travelling, shape};
use pithead_remote::{RemoteScanExec, SubPlanProfile, Target, here};

use crate::aside::{aside_waiting, is_large};
use crate::query::{Prepared, Query};
use crate::replan::{Anew, ReplanExec};
use crate::sampler::SampledPages;
use crate::sub_plans::FromAbove;
use crate::{Host, Settings};

/// Bytes that a batch is to have at most, by what is expected of its columns.
const BATCH_BYTES: f64 = 8e6;
/// Rows that a batch may have however wide they are.
const BATCH_ROWS_MIN: usize = 256;

/// Rows of a batch: fewer where rows are wide, so that a batch stays a small part of a session's memory.
fn batch_rows(sub_plan: &SubPlan, most: usize) -> usize {
    let width: f64 = sub_plan.estimate.columns.iter().map(|column| column.bytes).sum();
    ((BATCH_BYTES / width.max(1.0)) as usize).clamp(BATCH_ROWS_MIN.min(most), most)
}

/// The connected drives that hold a copy of a partition. Any drive can answer for a partition without rows, so one of them stands in
/// where no copy is reached.
fn reached(drives: &Drives, ids: &[DriveId], request: &OpenRequest) -> Result<Vec<ConnectedDrive>, Fault> {
    let reached: Vec<ConnectedDrive> = ids.iter().filter_map(|id| drives.find(*id).cloned()).collect();
    if !reached.is_empty() {
        return Ok(reached);
    }
    match drives.all().first().filter(|_| request.parts.iter().all(|part| part.runs.is_empty())) {
        Some(any) => Ok(vec![any.clone()]),
        None => Err(drives.not_connected(ids)),
    }
}

/// A table on its way to the partitions of a sub-plan.
struct Shipment {
    name: String,
    schema: SchemaRef,
    /// Rows for each partition, or the same for all.
    rows: Vec<Vec<RecordBatch>>,
}

impl Shipment {
    fn new(input: &Input, batches: &[RecordBatch], partitions: usize) -> Result<Self, Fault> {
        let schema: SchemaRef = Arc::new(input.schema());
        let rows = match &input.spread {
            None => vec![batches.to_vec()],
            Some(columns) => {
                let columns = columns.iter().map(|index| schema.field(*index).name().clone()).collect();
                let partitioner = Partitioner::new(&Partitioning::Hash { columns }, &schema, partitions)?;
                let mut rows = vec![vec![]; partitions];
                for batch in batches {
                    for (partition, part) in partitioner.split(batch)? {
                        rows[partition].push(part);
                    }
                }
                rows
            }
        };
        Ok(Self { name: input.name.clone(), schema, rows })
    }

    fn to(&self, partition: usize) -> ShippedInput {
        let batches = self.rows.get(partition).or(self.rows.first()).cloned().unwrap_or_default();
        ShippedInput { name: self.name.clone(), schema: Arc::clone(&self.schema), batches }
    }
}

/// What runs of a super-plan.
pub(crate) async fn physical_plan(
    super_plan: &LogicalPlan,
    remote: RemotePlanner,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>, Fault> {
    let started = std::time::Instant::now();
    let super_plan = ready_to_run(super_plan.clone()).map_err(fault_from_datafusion)?;
    let plan = match RemoteScan::of(&super_plan) {
        Some(scan) => lone_leaf(remote.remote_scan(scan)?, state.config_options()),
        None => {
            let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(remote)]);
            aside_waiting(is_large(&super_plan), planner.create_physical_plan(&super_plan, state)).await
        }
    };
    let plan = plan.map_err(fault_from_datafusion)?;
    tracing::debug!(us = started.elapsed().as_micros(), "planned what the host runs");
    tracing::debug!(plan = %datafusion::physical_plan::displayable(plan.as_ref()).indent(false), "the host's plan");
    Ok(plan)
}

/// Turns [`RemoteScan`] into [`RemoteScanExec`].
#[derive(Clone)]
pub(crate) struct RemotePlanner {
    host: Host,
    settings: Settings,
    time_zone: Option<String>,
    batch_rows: usize,
    now_ns: i64,
    runtime: Arc<RuntimeEnv>,
    /// What sub-plans may call.
    functions: Arc<Registry>,
    from_above: Option<FromAbove>,
    pages: Option<SampledPages>,
    sub_plans: Arc<[(Arc<SubPlanProfile>, Vec<Shipment>)]>,
    anew: Option<Arc<Anew>>,
}

impl RemotePlanner {
    pub(crate) fn new(query: &Query, prepared: &Prepared) -> Result<Self, Fault> {
        Self::for_workers(query, prepared)?.replannable(query, prepared)
    }

    /// The same, whose plans may change while they run.
    pub(crate) fn replannable(self, query: &Query, prepared: &Prepared) -> Result<Self, Fault> {
        Ok(Self { anew: Anew::new(query, prepared)?.map(Arc::new), ..self })
    }

    /// One whose plans stay as they are while they run.
    pub(crate) fn for_workers(query: &Query, prepared: &Prepared) -> Result<Self, Fault> {
        let mut sub_plans = Vec::new();
        for profile in &prepared.profiles {
            let sub_plan = &profile.sub_plan;
            let shipments = sub_plan.inputs.iter().map(|input| {
                let batches = prepared.table(input).map(|table| table.batches.as_slice()).unwrap_or_default();
                Shipment::new(input, batches, sub_plan.copies.len())
            });
            sub_plans.push((Arc::clone(profile), shipments.collect::<Result<Vec<_>, Fault>>()?));
        }
        let config = query.state.config_options();
        let now = query.state.execution_props().query_execution_start_time;
        Ok(Self {
            host: query.host.clone(),
            settings: query.settings.clone(),
            time_zone: config.execution.time_zone.clone(),
            batch_rows: config.execution.batch_size.get(),
            runtime: Arc::clone(query.state.runtime_env()),
            functions: Registry::of(&query.state),
            from_above: query.from_above.clone(),
            pages: query.pages,
            now_ns: now.and_then(|now| now.timestamp_nanos_opt()).unwrap_or_default(),
            sub_plans: sub_plans.into(),
            anew: None,
        })
    }

    /// OPEN for one partition.
    fn request(&self, sub_plan: &SubPlan, shipments: &[Shipment], partition: usize) -> Result<OpenRequest, Fault> {
        let above = self.from_above.as_ref();
        let number = |name: &DatasetName| above.and_then(|above| above.number(name)).unwrap_or(partition as u32);
        let part = |(place, facts): (usize, &Arc<pithead_plan::DatasetFacts>)| SlicePart {
            name: facts.name.clone(),
            dataset: facts.dataset.id,
            schema: Arc::clone(&facts.dataset.schema),
            partition: number(&facts.name),
            runs: facts.dataset.partitions[partition].runs.iter().map(|run| (run.load, run.slices)).collect(),
            sort: facts.dataset.sort.clone(),
            passing: sub_plan.passing.get(place).copied().flatten(),
        };
        let plan = match &sub_plan.travelling {
            Travelling::Substrait(bytes) => PlanBytes::Substrait(bytes.clone().into()),
            Travelling::Scan(columns) => PlanBytes::Scan { dataset: sub_plan.driving().clone(), columns: columns.clone() },
        };
        let mut request = OpenRequest {
            plan,
            manifest_version: sub_plan.datasets[0].manifest_version,
            parts: sub_plan.datasets.iter().enumerate().map(part).collect(),
            inputs: shipments.iter().map(|shipment| shipment.to(partition)).collect(),
            done: self.done(sub_plan, partition),
            schema: Arc::clone(&sub_plan.schema),
            whole_partition: sub_plan.whole_partition,
            options: SessionOptions {
                threads: self.settings.drive_threads as u32,
                memory: self.settings.drive_memory as u64,
                batch_rows: batch_rows(sub_plan, self.batch_rows),
                level_max: sub_plan.level_max,
                zone_maps: self.settings.zone_maps,
                sample: above.and_then(|above| above.sample),
                time_zone: self.time_zone.clone(),
                now_ns: self.now_ns,
                extensions: sub_plan.extensions.clone(),
                host: self.host.remote().number(),
                adapt: self.adapt(sub_plan)?,
            },
        };
        if let Some(pages) = self.pages {
            let slices = request.parts.first().map_or(0, |part| part.runs.iter().map(|(_, slices)| slices).sum());
            let (left_out, sample) = pages.of_partition(slices, sub_plan.copies.len());
            (request.done, request.options.sample) = (left_out, Some(sample));
        }
        request.options.adapt.costs = self.host.remote().costs_of(&request);
        Ok(request)
    }

    /// The slices that a session over a partition leaves out.
    fn done(&self, sub_plan: &SubPlan, partition: usize) -> Vec<SliceSpan> {
        if let Some(rest) = &sub_plan.datasets[0].rest {
            return rest.done.get(partition).cloned().unwrap_or_default();
        }
        self.from_above.as_ref().map(|above| above.done(sub_plan.driving(), partition)).unwrap_or_default()
    }

    /// A sub-plan's rows.
    fn remote_scan(&self, scan: &RemoteScan) -> Result<Arc<dyn ExecutionPlan>, Fault> {
        let sub_plan = &scan.sub_plan;
        let known = sub_plan.number.checked_sub(1).and_then(|index| self.sub_plans.get(index));
        let (profile, shipments) = known.ok_or_else(|| Fault::bug("a sub-plan was not prepared"))?;
        if sub_plan.datasets.iter().skip(1).any(|facts| facts.rest.is_some()) {
            return Err(Fault::bug("a dataset whose slices are done in part does not drive its sub-plan"));
        }
        let drives = self.host.fleet().connected();
        let functions = &self.host.options().functions;
        let is_part = self.from_above.is_some() || sub_plan.datasets[0].rest.is_some();
        let kept =
            sub_plan.whole_partition || matches!(shape(&sub_plan.plan, functions), ResultShape::Partials | ResultShape::TopK);
        // Under an array, drives have slices of the same versions that are not the same: each keeps results of its own.
        let summaries = kept && self.settings.takes_summaries() && !is_part;
        let roll_up = RollUp::of(&sub_plan.plan, functions).filter(|_| summaries).map(Arc::new);
        let mut targets = Vec::new();
        let left = |partition: &usize| profile.partitions_left.get(*partition).copied().unwrap_or(true);
        for (partition, ids) in sub_plan.copies.iter().enumerate().filter(|(partition, _)| left(partition)) {
            let request = self.request(sub_plan, shipments, partition)?;
            let copies = reached(&drives, ids, &request)?;
            let (context, runtime) = (Arc::clone(self.host.remote()), Arc::clone(&self.runtime));
            let slice_cache = self.settings.slice_cache as u64;
            let (roll_up, brake) = (roll_up.clone(), self.anew.as_ref().and_then(|anew| anew.brake_of(sub_plan.number)));
            let functions = Arc::clone(&self.functions);
            let target = Target { context, functions, copies, request, runtime, slice_cache, summaries, roll_up, brake };
            targets.push((partition, target));
        }
        let schema = Arc::new(scan.schema.as_arrow().clone());
        let busy_wait = Duration::from_secs(self.settings.busy_wait_s as u64);
        Ok(Arc::new(RemoteScanExec::new(sub_plan, schema, targets, busy_wait, profile)))
    }

    /// What the drives of a sub-plan need to know to choose levels.
    fn adapt(&self, sub_plan: &SubPlan) -> Result<Adapt, Fault> {
        if sub_plan.level_max < Level::Whole {
            return Ok(Adapt::default());
        }
        let partitions = sub_plan.copies.len().max(1) as f64;
        Ok(Adapt {
            level: self.settings.level_rule()?,
            cores: here(),
            expected: Some((sub_plan.estimate.rows / partitions, sub_plan.estimate.bytes() / partitions)),
            summaries: self.settings.takes_summaries() && sub_plan.datasets[0].rest.is_none(),
            calls: measured_calls(&sub_plan.plan),
            ..Adapt::default()
        })
    }
}

#[boxed]
impl ExtensionPlanner for RemotePlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn EngineSession,
        _context: &PhysicalPlanningContext,
    ) -> EngineResult<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(scan) = node.as_any().downcast_ref::<RemoteScan>() {
            return Ok(Some(self.remote_scan(scan).map_err(|fault| DataFusionError::External(Box::new(fault)))?));
        }
        let is_point = node.as_any().downcast_ref::<ReplanPoint>().is_some();
        let [input] = physical_inputs else { return Ok(None) };
        Ok(is_point.then(|| match &self.anew {
            Some(anew) => Arc::new(ReplanExec::new(Arc::clone(input), Arc::clone(anew))),
            None => Arc::clone(input),
        }))
    }
}
