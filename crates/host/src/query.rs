//! One query's way: scalar subqueries first, then the cut, then the tables to ship, then the rest at the host.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session as EngineSession;
use datafusion::common::{DataFusionError, Result as EngineResult, ScalarValue};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, DriveId, Fault, Partitioning, SHIPPED_BYTES_MAX};
use pithead_plan::{
    Computed, CutOptions, Decomposer, Decomposition, Input, RemoteScan, ScalarQuery, SubPlan, Travelling, order_joins,
    reduce_by_joins, replace_scalar_queries, scalar_queries,
};
use pithead_wire::{OpenRequest, PlanBytes, SessionOptions, ShippedInput, SlicePart};

use crate::drives::{ConnectedDrive, Drives};
use crate::fault::bug;
use crate::partition::Partitioner;
use crate::profile::{QueryProfile, SubPlanProfile};
use crate::remote::{RemoteScanExec, Target};
use crate::schemas::Datasets;
use crate::{Host, Settings};

/// Bytes that a batch is to have at most, by what is expected of its columns.
const BATCH_BYTES: f64 = 8e6;
/// Rows that a batch may have however wide they are.
const BATCH_ROWS_MIN: usize = 256;

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
    /// Small sides of joins, computed first for their keys.
    pub(crate) first: Vec<PreparedInput>,
    /// Tables to ship.
    pub(crate) tables: Vec<PreparedInput>,
    /// Tables that were to be shipped, and turned out better kept at the host.
    pub(crate) kept: Vec<PreparedInput>,
}

/// A table to ship, or a part that is computed first.
pub(crate) struct PreparedInput {
    /// The part of the query that it is.
    pub(crate) plan: LogicalPlan,
    /// What computes it.
    pub(crate) prepared: Prepared,
    /// Its rows, when it was run.
    pub(crate) batches: Vec<RecordBatch>,
}

impl Prepared {
    /// The rows of a sub-plan's input.
    pub(crate) fn table(&self, input: &Input) -> Option<&PreparedInput> {
        self.tables.iter().find(|table| table.plan == input.plan)
    }
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
        let started = std::time::Instant::now();
        let optimised = self.state.optimize(&plan).map_err(fault_from_datafusion)?;
        tracing::debug!(us = started.elapsed().as_micros(), "optimised");
        let prepared = self.prepare_joins(&optimised, mode).await?;
        Ok(Prepared { scalars, ..prepared })
    }

    /// Orders the joins, and computes the small sides whose keys reduce others. Where one turns out large, there is no such
    /// reduction.
    async fn prepare_joins(&self, optimised: &LogicalPlan, mode: Mode) -> Result<Prepared, Fault> {
        let settings = self.settings.cut();
        let started = std::time::Instant::now();
        let ordered = match self.settings.join_order {
            true => order_joins(optimised, &Datasets, &self.state, &settings)?,
            false => optimised.clone(),
        };
        tracing::debug!(us = started.elapsed().as_micros(), "ordered joins");
        if !self.settings.join_filters {
            return self.prepare_optimised(ordered, mode, settings).await;
        }
        let started = std::time::Instant::now();
        let reduced = reduce_by_joins(&ordered, &Datasets, &self.state, &settings)?;
        tracing::debug!(us = started.elapsed().as_micros(), "reduced by joins");
        let mut options = settings.clone();
        let mut first = Vec::new();
        for part in reduced.first {
            let input = &part.input;
            let prepared = self.prepare_optimised(input.plan.clone(), mode, options.clone()).await?;
            let Some((prepared, known)) = self.computed(input, prepared, mode).await? else {
                tracing::debug!(part = %input.name, "too large to reduce by; planning without");
                return self.prepare_optimised(ordered, mode, settings).await;
            };
            let known = match mode {
                Mode::Explain => Computed { rows: input.estimate.rows, bytes: input.estimate.bytes(), ..known },
                Mode::Run => known,
            };
            options.computed.push((part.leaf, known));
            first.push(prepared);
        }
        let prepared = self.prepare_optimised(LogicalPlan::clone(&reduced.plan), mode, options).await?;
        Ok(Prepared { first, ..prepared })
    }

    /// A part's rows, for the host and to ship; none if they are too large.
    async fn computed(
        &self,
        input: &Input,
        prepared: Prepared,
        mode: Mode,
    ) -> Result<Option<(PreparedInput, Computed)>, Fault> {
        let batches = match mode {
            Mode::Explain => vec![],
            Mode::Run => match self.collect_input(input, &prepared).await? {
                Some(batches) => batches,
                None => return Ok(None),
            },
        };
        let known = computed(input, &batches)?;
        Ok(Some((PreparedInput { plan: input.plan.clone(), prepared, batches }, known)))
    }

    /// Cuts an optimised plan, and computes what it ships. The size of each table to ship is known once it is computed:
    /// where it is far from what was expected, the cut is made again.
    fn prepare_optimised(
        &self,
        plan: LogicalPlan,
        mode: Mode,
        mut options: CutOptions,
    ) -> BoxFuture<'_, Result<Prepared, Fault>> {
        async move {
            let mut tables: Vec<PreparedInput> = Vec::new();
            let computed_first = options.clone();
            let mut decomposer = Decomposer::new(&Datasets, &self.state);
            loop {
                let started = std::time::Instant::now();
                let cut = decomposer.cut(&plan, &options).await?;
                tracing::debug!(us = started.elapsed().as_micros(), "cut");
                let mut missing: Vec<&Input> = Vec::new();
                for input in cut.sub_plans.iter().flat_map(|sub_plan| &sub_plan.inputs) {
                    let known = tables.iter().map(|table| &table.plan).chain(missing.iter().map(|input| &input.plan));
                    if !known.into_iter().any(|plan| *plan == input.plan) {
                        missing.push(input);
                    }
                }
                if missing.is_empty() {
                    return Ok(self.prepared(cut, tables));
                }
                // Side by side: each waits for drives most of its time.
                let found = missing.iter().map(|input| async {
                    let prepared = self.prepare_optimised(input.plan.clone(), mode, computed_first.clone()).await?;
                    self.computed(input, prepared, mode).await
                });
                for (input, found) in missing.iter().zip(futures::future::try_join_all(found).await?) {
                    let Some((table, known)) = found else {
                        tracing::debug!(table = %input.name, "too large to ship; planning again");
                        options.not_shipped.push(input.plan.clone());
                        continue;
                    };
                    if mode == Mode::Run {
                        options.computed.push((input.plan.clone(), known));
                    }
                    tables.push(table);
                }
            }
        }
        .boxed()
    }

    fn prepared(&self, decomposition: Decomposition, mut tables: Vec<PreparedInput>) -> Prepared {
        let profiles = decomposition.sub_plans.iter().map(|sub_plan| self.profile.add(sub_plan)).collect();
        let is_shipped = |plan: &LogicalPlan| {
            decomposition.sub_plans.iter().flat_map(|sub_plan| &sub_plan.inputs).any(|input| input.plan == *plan)
        };
        let kept = tables.extract_if(.., |table| !is_shipped(&table.plan)).collect();
        Prepared { decomposition, profiles, scalars: vec![], first: vec![], tables, kept }
    }

    /// The rows of a table to ship, under its own column names; none if they are too large.
    async fn collect_input(&self, input: &Input, prepared: &Prepared) -> Result<Option<Vec<RecordBatch>>, Fault> {
        let schema: SchemaRef = Arc::new(input.schema());
        let bytes_max = SHIPPED_BYTES_MAX;
        let mut rows = self.execute(prepared).await?;
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = rows.next().await {
            let batch = batch.map_err(fault_from_datafusion)?;
            if batch.num_rows() == 0 {
                continue;
            }
            bytes += pithead_wire::batch_bytes(&batch);
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
                return Err(Fault::new(Blame::User, "a scalar subquery returned more than one row")
                    .hint("add LIMIT 1 or an aggregate to it"));
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
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(RemotePlanner::new(self, prepared)?)]);
        let started = std::time::Instant::now();
        let plan = planner
            .create_physical_plan(&prepared.decomposition.super_plan, &self.state)
            .await
            .map_err(fault_from_datafusion)?;
        tracing::debug!(us = started.elapsed().as_micros(), "planned what the host runs");
        tracing::debug!(plan = %datafusion::physical_plan::displayable(plan.as_ref()).indent(false), "the host's plan");
        execute_stream(plan, self.state.task_ctx()).map_err(fault_from_datafusion)
    }
}

/// Rows of a batch: fewer where rows are wide, so that a batch stays a small part of a session's memory.
fn batch_rows(sub_plan: &SubPlan, most: usize) -> usize {
    let width: f64 = sub_plan.estimate.columns.iter().map(|column| column.bytes).sum();
    ((BATCH_BYTES / width.max(1.0)) as usize).clamp(BATCH_ROWS_MIN.min(most), most)
}

/// The copies of a partition that can be asked. What has no rows any drive can answer for.
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

/// A computed table as the next cut is to see it.
fn computed(input: &Input, batches: &[RecordBatch]) -> Result<Computed, Fault> {
    let table = MemTable::try_new(Arc::new(input.schema()), vec![batches.to_vec()]).map_err(fault_from_datafusion)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let bytes: usize = batches.iter().map(pithead_wire::batch_bytes).sum();
    Ok(Computed { table: provider_as_source(Arc::new(table)), rows: rows as f64, bytes: bytes as f64 })
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

/// Turns [`RemoteScan`] into [`RemoteScanExec`].
struct RemotePlanner {
    host: Host,
    settings: Settings,
    time_zone: Option<String>,
    batch_rows: usize,
    now_ns: i64,
    sub_plans: Vec<(Arc<SubPlanProfile>, Vec<Shipment>)>,
}

impl RemotePlanner {
    fn new(query: &Query, prepared: &Prepared) -> Result<Self, Fault> {
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
            now_ns: now.and_then(|now| now.timestamp_nanos_opt()).unwrap_or_default(),
            sub_plans,
        })
    }

    /// OPEN for one partition.
    fn request(&self, sub_plan: &SubPlan, shipments: &[Shipment], partition: usize) -> OpenRequest {
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
        OpenRequest {
            plan,
            manifest_version: sub_plan.datasets[0].manifest_version,
            parts: sub_plan.datasets.iter().map(part).collect(),
            inputs: shipments.iter().map(|shipment| shipment.to(partition)).collect(),
            done: vec![],
            schema: Arc::clone(&sub_plan.schema),
            whole_partition: sub_plan.whole_partition,
            options: SessionOptions {
                threads: self.settings.drive_threads as u32,
                memory: self.settings.drive_memory as u64,
                batch_rows: batch_rows(sub_plan, self.batch_rows),
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
        let (profile, shipments) = known.ok_or_else(|| external(bug("a sub-plan was not prepared")))?;
        let drives = self.host.connected();
        let mut targets = Vec::new();
        for (partition, ids) in sub_plan.copies.iter().enumerate() {
            let request = self.request(sub_plan, shipments, partition);
            let copies = reached(&drives, ids, &request).map_err(external)?;
            targets.push(Target { host: self.host.clone(), copies, request });
        }
        let schema = Arc::new(scan.schema.as_arrow().clone());
        let busy_wait = Duration::from_secs(self.settings.busy_wait_s as u64);
        Ok(Some(Arc::new(RemoteScanExec::new(Arc::clone(sub_plan), schema, targets, busy_wait, Arc::clone(profile)))))
    }
}
