//! One query's way: scalar subqueries first, then the cut, then the tables to ship, then the rest at the host.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use pithead_functions::{fault_from_datafusion, optimize, run_context, several};
use pithead_model::Fault;
use pithead_plan::{
    Computed, CutOptions, Decomposer, Decomposition, Input, ScalarQuery, SubPlan, is_volatile, narrowed, order_joins,
    reduce_by_joins, replace_scalar_queries, scalar_queries,
};

use crate::aside::{aside, aside_waiting, is_large};
use crate::elsewhere::{self, Placed};
use crate::idle_state::StatementState;
use crate::kept_rows::KeptRows;
use crate::large_texts::Admitted;
use crate::planner::{RemotePlanner, physical_plan};
use crate::replan::Replans;
use crate::ruled_out::partitions_left;
use crate::sampler::{SampleReport, SampledPages};
use crate::schemas::Datasets;
use crate::shared_rows::{SharedParts, SharedRows};
use crate::sub_plans::FromAbove;
use crate::{Host, Settings};
use pithead_remote::{QueryProfile, RemoteScanExec, SubPlanProfile};

/// Partitions of what workers run, however few threads this host has.
const FAR_PARTITIONS_MIN: usize = 2;

/// Whether the tables to ship are computed, or only planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Run,
    Explain,
}

/// What all parts of one statement share.
pub(crate) struct Query {
    pub(crate) host: Host,
    pub(crate) state: StatementState,
    pub(crate) settings: Settings,
    pub(crate) profile: Arc<QueryProfile>,
    /// Tables to ship, and parts computed first, that are there already: a statement may need one in several places.
    pub(crate) computed: Mutex<Vec<Arc<PreparedInput>>>,
    /// What its queries have in common with their scalar subqueries.
    pub(crate) shared: SharedParts,
    /// The memory of all these rows.
    pub(crate) kept: KeptRows,
    /// The statement's text, which is free for the most part once that is planned.
    pub(crate) admitted: Arc<Admitted>,
    /// Where the query is a sub-plan that a host above has sent.
    pub(crate) from_above: Option<FromAbove>,
    /// Where the query is a sample: the pages that it reads.
    pub(crate) pages: Option<SampledPages>,
    /// How often its plan may be changed while it runs.
    pub(crate) replans_left: u32,
}

/// A query that is ready to run, with the queries that come before it.
pub(crate) struct Prepared {
    pub(crate) decomposition: Decomposition,
    /// Of each sub-plan, what it cost.
    pub(crate) profiles: Vec<Arc<SubPlanProfile>>,
    /// What samples told of its predicates, the most restrictive first.
    pub(crate) samples: Vec<SampleReport>,
    /// What it has in common with its scalar subqueries, which is computed before them.
    pub(crate) shared: Vec<Arc<PreparedInput>>,
    /// Scalar subqueries, and their values.
    pub(crate) scalars: Vec<(Prepared, ScalarValue)>,
    /// Small sides of joins, computed first for their keys.
    pub(crate) first: Vec<Arc<PreparedInput>>,
    /// Tables to ship.
    pub(crate) tables: Vec<Arc<PreparedInput>>,
    /// Tables that were to be shipped, and turned out better kept at the host.
    pub(crate) kept: Vec<Arc<PreparedInput>>,
    /// Plans that took the place of this one while it ran.
    pub(crate) replans: Replans,
    /// Where what is left for the host runs, in words; nothing where it has no workers.
    pub(crate) placed: Arc<Mutex<Vec<String>>>,
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
        self.tables.iter().map(Arc::as_ref).find(|table| table.plan == input.plan)
    }
}

impl Query {
    /// Plans a query that is not optimised yet.
    pub(crate) async fn prepare(&self, plan: LogicalPlan, mode: Mode) -> Result<Prepared, Fault> {
        self.prepare_optimised_before(plan, None, mode).await
    }

    /// The same of a query of which it may be known what optimising it gives.
    pub(crate) async fn prepare_optimised_before(
        &self,
        plan: LogicalPlan,
        known: Option<Arc<LogicalPlan>>,
        mode: Mode,
    ) -> Result<Prepared, Fault> {
        let (mut scalars, mut shared) = (Vec::new(), SharedRows::default());
        let mut values: Vec<(ScalarQuery, ScalarValue)> = Vec::new();
        for query in scalar_queries(&plan).map_err(fault_from_datafusion)? {
            let (prepared, value) = self.scalar(self.over_shared(&plan, &query, &mut shared).await?).await?;
            values.push((query, value.clone()));
            scalars.push((prepared, value));
        }
        let started = std::time::Instant::now();
        let optimised = match known.filter(|_| values.is_empty()) {
            Some(known) => Arc::unwrap_or_clone(known),
            None => {
                let plan = shared.in_place(plan)?;
                let plan = match values.is_empty() {
                    true => plan,
                    false => replace_scalar_queries(plan, &values).map_err(fault_from_datafusion)?,
                };
                aside(is_large(&plan), || optimize(&self.state, &plan)).map_err(fault_from_datafusion)?
            }
        };
        tracing::debug!(us = started.elapsed().as_micros(), "optimised");
        let prepared = self.prepare_joins(&self.with_replan_point(optimised)?, mode).await?;
        Ok(Prepared { scalars, shared: shared.prepared(), ..prepared })
    }

    /// Orders the joins, and computes the small sides whose keys reduce others. Where one turns out large, there is no such
    /// reduction.
    async fn prepare_joins(&self, optimised: &LogicalPlan, mode: Mode) -> Result<Prepared, Fault> {
        let mut settings = self.settings.cut(self.is_in_process());
        let started = std::time::Instant::now();
        let samples = self.sampled(optimised, &settings).await?;
        samples.iter().for_each(|report| settings.samples.add(report.question.key.clone(), report.answer));
        tracing::debug!(us = started.elapsed().as_micros(), tables = samples.len(), "sampled");
        Ok(Prepared { samples, ..self.prepare_sampled(optimised, mode, settings).await? })
    }

    /// Whether no link is between host and drives.
    pub(crate) fn is_in_process(&self) -> bool {
        self.host.fleet().connected().all().iter().all(|drive| drive.door.is_in_process())
    }

    pub(crate) async fn prepare_sampled(
        &self,
        optimised: &LogicalPlan,
        mode: Mode,
        settings: CutOptions,
    ) -> Result<Prepared, Fault> {
        let started = std::time::Instant::now();
        let ordered = match self.settings.join_order {
            true => aside(is_large(optimised), || order_joins(optimised, &self.datasets(), &self.state, &settings))?,
            false => optimised.clone(),
        };
        tracing::debug!(us = started.elapsed().as_micros(), "ordered joins");
        if !self.settings.join_filters {
            return self.prepare_optimised(ordered, mode, settings).await;
        }
        let started = std::time::Instant::now();
        let reduced = aside(is_large(&ordered), || reduce_by_joins(&ordered, &self.datasets(), &self.state, &settings))?;
        tracing::debug!(us = started.elapsed().as_micros(), "reduced by joins");
        let mut options = settings.clone();
        let mut first = Vec::new();
        for part in reduced.first {
            let input = &part.input;
            let Some((prepared, known)) = self.table(input, mode, &options).await? else {
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

    /// The datasets behind scans, on the drives that are there.
    pub(crate) fn datasets(&self) -> Datasets {
        Datasets::new(self.host.fleet().connected(), Arc::clone(self.host.functions()))
    }

    /// A part's rows, for the host and to ship; none if they are too large.
    async fn computed_rows(
        &self,
        input: &Input,
        prepared: Prepared,
        mode: Mode,
    ) -> Result<Option<(PreparedInput, Computed)>, Fault> {
        let batches = match mode {
            Mode::Explain => vec![],
            Mode::Run => match self.collect(Arc::new(input.schema()), &prepared).await? {
                Some(batches) => batches,
                None => return Ok(None),
            },
        };
        let known = computed(input, &batches)?;
        Ok(Some((PreparedInput { plan: input.plan.clone(), prepared, batches }, known)))
    }

    /// Cuts an optimised plan, and computes what it ships. The size of each table to ship is known once it is computed:
    /// where it is far from what was expected, the cut is made again.
    pub(crate) fn prepare_optimised(
        &self,
        plan: LogicalPlan,
        mode: Mode,
        mut options: CutOptions,
    ) -> BoxFuture<'_, Result<Prepared, Fault>> {
        async move {
            let mut tables: Vec<Arc<PreparedInput>> = Vec::new();
            let computed_first = options.clone();
            let datasets = self.datasets();
            let mut decomposer = Decomposer::new(&datasets, &self.state);
            let is_large = is_large(&plan);
            loop {
                let started = std::time::Instant::now();
                let cut = aside_waiting(is_large, decomposer.cut(&plan, &options)).await?;
                tracing::debug!(us = started.elapsed().as_micros(), "cut");
                let (mut missing, not_shipped): (Vec<&Input>, usize) = (Vec::new(), options.not_shipped.len());
                for input in cut.sub_plans.iter().flat_map(|sub_plan| &sub_plan.inputs) {
                    let mut known = tables.iter().map(|table| &table.plan).chain(missing.iter().map(|input| &input.plan));
                    if known.any(|plan| *plan == input.plan) {
                        continue;
                    }
                    match is_drawn_again(&plan, &input.plan).map_err(fault_from_datafusion)? {
                        true => options.not_shipped.push(input.plan.clone()),
                        false => missing.push(input),
                    }
                }
                if options.not_shipped.len() > not_shipped {
                    continue;
                }
                if missing.is_empty() {
                    return Ok(self.prepared(cut, tables));
                }
                // Side by side: each waits for drives most of its time.
                let found = missing.iter().map(|input| self.table(input, mode, &computed_first));
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

    /// A table to ship, or a part that is computed first; none if it is too large.
    async fn table(
        &self,
        input: &Input,
        mode: Mode,
        options: &CutOptions,
    ) -> Result<Option<(Arc<PreparedInput>, Computed)>, Fault> {
        let known = self.computed.lock().iter().find(|table| table.plan == input.plan).cloned();
        if let Some(table) = known {
            let known = computed(input, &table.batches)?;
            return Ok(Some((table, known)));
        }
        let prepared = self.prepare_optimised(input.plan.clone(), mode, options.clone()).await?;
        let Some((table, known)) = self.computed_rows(input, prepared, mode).await? else { return Ok(None) };
        let table = Arc::new(table);
        if mode == Mode::Run && !is_volatile(&input.plan).map_err(fault_from_datafusion)? {
            self.computed.lock().push(Arc::clone(&table));
        }
        Ok(Some((table, known)))
    }

    fn prepared(&self, decomposition: Decomposition, mut tables: Vec<Arc<PreparedInput>>) -> Prepared {
        let add = |sub_plan: &Arc<SubPlan>| {
            // A sample is of all partitions, and who asked an array is to hear of all slices.
            let may_leave_out = self.settings.zone_maps && self.pages.is_none() && self.from_above.is_none();
            let left = match may_leave_out {
                true => partitions_left(sub_plan, &self.state),
                false => vec![true; sub_plan.copies.len()],
            };
            self.profile.add(sub_plan, left, self.pages.is_some())
        };
        let profiles = decomposition.sub_plans.iter().map(add).collect();
        let is_shipped = |plan: &LogicalPlan| {
            decomposition.sub_plans.iter().flat_map(|sub_plan| &sub_plan.inputs).any(|input| input.plan == *plan)
        };
        let kept = tables.extract_if(.., |table| !is_shipped(&table.plan)).collect();
        let (samples, shared, scalars, first, replans, placed) = Default::default();
        Prepared { decomposition, profiles, samples, shared, scalars, first, tables, kept, replans, placed }
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
                return Err(several());
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
        let rows = self.started(prepared).await?;
        self.admitted.planned();
        Ok(self.kept.until_end_of(rows))
    }

    /// The rows from the workers, if there are any and they can run it, or from here. Where they do, this host plans nothing unless
    /// they fail.
    async fn started(&self, prepared: &Prepared) -> Result<SendableRecordBatchStream, Fault> {
        let remote = RemotePlanner::for_workers(self, prepared)?;
        let far = self.placed(prepared, remote.clone()).await?;
        let remote = remote.replannable(self, prepared)?;
        let super_plan = &prepared.decomposition.super_plan;
        let Some(far) = far else {
            return run(physical_plan(super_plan, remote, &self.state).await?, &self.state);
        };
        let (super_plan, state) = (super_plan.clone(), self.state.clone());
        let alone = move || async move { run(physical_plan(&super_plan, remote, &state).await?, &state) }.boxed();
        Ok(elsewhere::or_here(far, Box::new(alone), Arc::clone(&prepared.placed)))
    }

    /// Takes note of where a prepared query would run, and why.
    pub(crate) async fn place(&self, prepared: &Prepared) -> Result<(), Fault> {
        self.placed(prepared, RemotePlanner::for_workers(self, prepared)?).await.map(drop)
    }

    /// The rows from the workers; none where the host runs all of it. Takes note of which, and why.
    async fn placed(&self, prepared: &Prepared, remote: RemotePlanner) -> Result<Option<SendableRecordBatchStream>, Fault> {
        let is_whole = self.from_above.is_none() && self.pages.is_none();
        let Some(elsewhere) = self.host.elsewhere().filter(|_| is_whole && self.settings.workers) else { return Ok(None) };
        let mut state = self.state.clone();
        // Work is divided where it is partitioned.
        let partitions = &mut state.config_mut().options_mut().execution.target_partitions;
        *partitions = (*partitions).max(FAR_PARTITIONS_MIN);
        let plan = physical_plan(&prepared.decomposition.super_plan, remote, &state).await?;
        let (far, told) = match elsewhere.place(plan, &state).await? {
            Placed::There { rows, told } => (Some(rows), told),
            Placed::Here(why) => (None, format!("at this host alone: {why}")),
        };
        *prepared.placed.lock() = vec![told];
        Ok(far)
    }

    /// What the host runs of a prepared query.
    pub(crate) async fn physical(&self, prepared: &Prepared) -> Result<Arc<dyn ExecutionPlan>, Fault> {
        physical_plan(&prepared.decomposition.super_plan, RemotePlanner::new(self, prepared)?, &self.state).await
    }
}

/// Runs what the host runs of a query.
fn run(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<SendableRecordBatchStream, Fault> {
    let config = narrowed(state.config().clone(), &plan);
    let context = match reads_drives_alone(&plan).map_err(fault_from_datafusion)? {
        true => run_context(state, config, Arc::clone(state.runtime_env())),
        // information_schema lists the functions that a context has.
        false => Arc::new(TaskContext::from(state).with_session_config(config)),
    };
    execute_stream(plan, context).map_err(fault_from_datafusion)
}

fn reads_drives_alone(plan: &Arc<dyn ExecutionPlan>) -> Result<bool, DataFusionError> {
    plan.exists(|node| Ok(node.children().is_empty() && !node.is::<RemoteScanExec>())).map(|others| !others)
}

/// Whether a part with random values occurs again in a plan. It has others each time, so no one table serves all places.
fn is_drawn_again(plan: &LogicalPlan, part: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut places = 0;
    if is_volatile(part)? {
        plan.apply(|node| {
            places += usize::from(node == part);
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(places > 1)
}

/// A computed table as the next cut is to see it.
fn computed(input: &Input, batches: &[RecordBatch]) -> Result<Computed, Fault> {
    let table = MemTable::try_new(Arc::new(input.schema()), vec![batches.to_vec()]).map_err(fault_from_datafusion)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let bytes: usize = batches.iter().map(pithead_door::batch_bytes).sum();
    Ok(Computed { table: provider_as_source(Arc::new(table)), rows: rows as f64, bytes: bytes as f64 })
}
