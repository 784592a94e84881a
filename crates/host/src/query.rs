//! One query's way: scalar subqueries first, then the cut, then the tables to ship, then the rest at the host.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session as EngineSession;
use datafusion::common::{DataFusionError, Result as EngineResult, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, SHIPPED_BYTES_MAX};
use pithead_plan::{
    Decomposition, Input, RemoteScan, ScalarQuery, SubPlan, Travelling, decompose, replace_scalar_queries, scalar_queries,
};
use pithead_wire::{OpenRequest, PlanBytes, SessionOptions, ShippedInput, SlicePart};

use crate::fault::bug;
use crate::profile::{QueryProfile, SubPlanProfile};
use crate::remote::{RemoteScanExec, Target};
use crate::schemas::Datasets;
use crate::{Host, Settings};

/// Whether the tables to ship are computed, or only planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Run,
    Explain,
}

/// What all parts of one statement share.
pub(crate) struct Query {
    pub(crate) host: Host,
    pub(crate) state: SessionState,
    pub(crate) settings: Settings,
    pub(crate) profile: Arc<QueryProfile>,
}

/// A query that is ready to run, with the queries that come before it.
pub(crate) struct Prepared {
    pub(crate) decomposition: Decomposition,
    /// Of each sub-plan, what it cost.
    pub(crate) profiles: Vec<Arc<SubPlanProfile>>,
    /// Scalar subqueries, and their values.
    pub(crate) scalars: Vec<(Prepared, ScalarValue)>,
    /// Tables to ship.
    pub(crate) inputs: Vec<PreparedInput>,
}

/// A table to ship.
pub(crate) struct PreparedInput {
    pub(crate) input: Input,
    pub(crate) prepared: Prepared,
    /// Its rows, when it was run.
    pub(crate) batches: Vec<RecordBatch>,
}

impl Query {
    /// Plans a query that is not optimised yet.
    pub(crate) async fn prepare(&self, plan: LogicalPlan, mode: Mode) -> Result<Prepared, Fault> {
        let mut scalars = Vec::new();
        let mut values: Vec<(ScalarQuery, ScalarValue)> = Vec::new();
        for query in scalar_queries(&plan).map_err(fault_from_datafusion)? {
            let (prepared, value) = self.scalar(query.plan.clone()).await?;
            values.push((query, value.clone()));
            scalars.push((prepared, value));
        }
        let plan = match values.is_empty() {
            true => plan,
            false => replace_scalar_queries(plan, &values).map_err(fault_from_datafusion)?,
        };
        let optimised = self.state.optimize(&plan).map_err(fault_from_datafusion)?;
        let prepared = self.prepare_optimised(optimised, mode).await?;
        Ok(Prepared { scalars, ..prepared })
    }

    /// Cuts an optimised plan, and computes what it ships. A table that turns out too large is not shipped: the cut is
    /// made again without it.
    fn prepare_optimised(&self, plan: LogicalPlan, mode: Mode) -> BoxFuture<'_, Result<Prepared, Fault>> {
        async move {
            let mut not_shipped = BTreeSet::new();
            loop {
                let options = pithead_plan::CutOptions { not_shipped: not_shipped.clone(), ..self.settings.cut() };
                let decomposition = decompose(&plan, &Datasets, &self.state, &options).await?;
                match self.inputs(&decomposition, mode).await? {
                    Ok(inputs) => {
                        let profiles = decomposition.sub_plans.iter().map(|sub_plan| self.profile.add(sub_plan)).collect();
                        return Ok(Prepared { decomposition, profiles, scalars: vec![], inputs });
                    }
                    Err(too_large) => {
                        tracing::debug!(table = %too_large, "too large to ship; planning again");
                        not_shipped.insert(too_large);
                    }
                }
            }
        }
        .boxed()
    }

    /// The tables to ship; the inner error is the key of one that is too large.
    async fn inputs(&self, decomposition: &Decomposition, mode: Mode) -> Result<Result<Vec<PreparedInput>, String>, Fault> {
        let mut done: Vec<PreparedInput> = Vec::new();
        let mut by_key: HashMap<String, Vec<RecordBatch>> = HashMap::new();
        for input in decomposition.sub_plans.iter().flat_map(|sub_plan| &sub_plan.inputs) {
            let prepared = self.prepare_optimised(input.plan.clone(), mode).await?;
            let known = by_key.get(&input.key).cloned();
            let batches = match (mode, known) {
                (Mode::Explain, _) => vec![],
                (Mode::Run, Some(batches)) => batches,
                (Mode::Run, None) => match self.collect_input(input, &prepared).await? {
                    Some(batches) => batches,
                    None => return Ok(Err(input.key.clone())),
                },
            };
            by_key.insert(input.key.clone(), batches.clone());
            done.push(PreparedInput { input: input.clone(), prepared, batches });
        }
        Ok(Ok(done))
    }

    /// The rows of a table to ship, under its own column names; none if they are too large.
    async fn collect_input(&self, input: &Input, prepared: &Prepared) -> Result<Option<Vec<RecordBatch>>, Fault> {
        let schema: SchemaRef = Arc::new(input.schema());
        let bytes_max = SHIPPED_BYTES_MAX.min(self.settings.ship_bytes_max.saturating_mul(4));
        let mut rows = self.execute(prepared).await?;
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = rows.next().await {
            let batch = batch.map_err(fault_from_datafusion)?;
            if batch.num_rows() == 0 {
                continue;
            }
            bytes += batch.get_array_memory_size();
            if bytes > bytes_max {
                return Ok(None);
            }
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let renamed = RecordBatch::try_new_with_options(Arc::clone(&schema), batch.columns().to_vec(), &options);
            batches.push(renamed.map_err(|error| bug(format!("a table to ship has other columns than planned: {error}")))?);
        }
        Ok(Some(batches))
    }

    fn scalar(&self, plan: LogicalPlan) -> BoxFuture<'_, Result<(Prepared, ScalarValue), Fault>> {
        async move { self.run_scalar(plan).await }.boxed()
    }

    async fn run_scalar(&self, plan: LogicalPlan) -> Result<(Prepared, ScalarValue), Fault> {
        let data_type = plan.schema().field(0).data_type().clone();
        let prepared = self.prepare(plan, Mode::Run).await?;
        let mut rows = self.execute(&prepared).await?;
        let mut value = None;
        while let Some(batch) = rows.next().await {
            let batch = batch.map_err(fault_from_datafusion)?;
            if batch.num_rows() > 1 || (batch.num_rows() == 1 && value.is_some()) {
                return Err(Fault::new(Blame::User, "a scalar subquery returned more than one row").hint("add LIMIT 1 or an aggregate to it"));
            }
            if batch.num_rows() == 1 {
                value = Some(ScalarValue::try_from_array(batch.column(0), 0).map_err(fault_from_datafusion)?);
            }
        }
        let value = match value {
            Some(value) => value,
            None => ScalarValue::try_from(&data_type).map_err(fault_from_datafusion)?,
        };
        Ok((prepared, value))
    }

    /// Starts a prepared query.
    pub(crate) async fn execute(&self, prepared: &Prepared) -> Result<SendableRecordBatchStream, Fault> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(RemotePlanner::new(self, prepared))]);
        let plan = planner.create_physical_plan(&prepared.decomposition.super_plan, &self.state).await.map_err(fault_from_datafusion)?;
        tracing::debug!(plan = %datafusion::physical_plan::displayable(plan.as_ref()).indent(false), "the host's plan");
        execute_stream(plan, self.state.task_ctx()).map_err(fault_from_datafusion)
    }
}

/// Turns [`RemoteScan`] into [`RemoteScanExec`].
struct RemotePlanner {
    host: Host,
    settings: Settings,
    time_zone: Option<String>,
    batch_rows: usize,
    now_ns: i64,
    sub_plans: Vec<(Arc<SubPlanProfile>, Vec<ShippedInput>)>,
}

impl RemotePlanner {
    fn new(query: &Query, prepared: &Prepared) -> Self {
        let shipped = |input: &Input| {
            let found = prepared.inputs.iter().find(|prepared| prepared.input.name == input.name);
            let batches = found.map(|prepared| prepared.batches.clone()).unwrap_or_default();
            ShippedInput { name: input.name.clone(), schema: Arc::new(input.schema()), batches }
        };
        let sub_plans = prepared.profiles.iter().map(|profile| {
            let inputs = profile.sub_plan.inputs.iter().map(shipped).collect();
            (Arc::clone(profile), inputs)
        });
        let config = query.state.config_options();
        let now = query.state.execution_props().query_execution_start_time;
        Self {
            host: query.host.clone(),
            settings: query.settings.clone(),
            time_zone: config.execution.time_zone.clone(),
            batch_rows: config.execution.batch_size.get(),
            now_ns: now.and_then(|now| now.timestamp_nanos_opt()).unwrap_or_default(),
            sub_plans: sub_plans.collect(),
        }
    }

    /// OPEN for one partition.
    fn request(&self, sub_plan: &SubPlan, inputs: &[ShippedInput], partition: usize, threads_max: u32) -> OpenRequest {
        let part = |facts: &Arc<pithead_plan::DatasetFacts>| SlicePart {
            name: facts.name.clone(),
            dataset: facts.dataset.id,
            schema: Arc::clone(&facts.dataset.schema),
            partition: partition as u32,
            runs: facts.dataset.partitions[partition].runs.iter().map(|run| (run.load, run.slices)).collect(),
            sort: facts.dataset.sort.clone(),
        };
        let plan = match &sub_plan.travelling {
            Travelling::Substrait(bytes) => PlanBytes::Substrait(bytes.clone().into()),
            Travelling::Scan(columns) => PlanBytes::Scan { dataset: sub_plan.driving().clone(), columns: columns.clone() },
        };
        let threads = match self.settings.drive_threads {
            0 => threads_max,
            threads => threads as u32,
        };
        OpenRequest {
            plan,
            manifest_version: sub_plan.datasets[0].manifest_version,
            parts: sub_plan.datasets.iter().map(part).collect(),
            inputs: inputs.to_vec(),
            schema: Arc::clone(&sub_plan.schema),
            whole_partition: sub_plan.whole_partition,
            options: SessionOptions {
                threads,
                memory: self.settings.drive_memory as u64,
                batch_rows: self.batch_rows,
                level_max: sub_plan.level_max,
                zone_maps: self.settings.zone_maps,
                time_zone: self.time_zone.clone(),
                now_ns: self.now_ns,
                extensions: vec![],
            },
        }
    }
}

#[async_trait]
impl ExtensionPlanner for RemotePlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        _physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn EngineSession,
        _context: &PhysicalPlanningContext,
    ) -> EngineResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(scan) = node.as_any().downcast_ref::<RemoteScan>() else { return Ok(None) };
        let sub_plan = &scan.sub_plan;
        let external = |fault: Fault| DataFusionError::External(Box::new(fault));
        let known = sub_plan.number.checked_sub(1).and_then(|index| self.sub_plans.get(index));
        let (profile, inputs) = known.ok_or_else(|| external(bug("a sub-plan was not prepared")))?;
        let mut targets = Vec::new();
        for (partition, id) in sub_plan.drives.iter().enumerate() {
            let drive = self.host.drive(*id).map_err(external)?;
            let request = self.request(sub_plan, inputs, partition, drive.welcome.threads);
            targets.push(Target { door: Arc::clone(&drive.door), request });
        }
        let schema = Arc::new(scan.schema.as_arrow().clone());
        let busy_wait = Duration::from_secs(self.settings.busy_wait_s as u64);
        Ok(Some(Arc::new(RemoteScanExec::new(Arc::clone(sub_plan), schema, targets, busy_wait, Arc::clone(profile)))))
    }
}
