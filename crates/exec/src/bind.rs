//! [`Bound`]: one session's sub-plan, ready to run.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::{MemTable, provider_as_source, source_as_provider};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::{Expr, LogicalPlan, TableSource};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use pithead_functions::{
    EngineOptions, PlanningState, SessionCalls, fault_from_datafusion, lone_leaf, ready_to_run, run_context,
};
use pithead_model::lasting::plain_columns;
use pithead_model::{Blame, DatasetName, Fault, Level, SliceSpan, boxed};
use pithead_plan::{ResultShape, combine, narrowed};
use pithead_policy::Features;

use crate::codes::with_codes;
use crate::conform::{check, conform, rename};
use crate::features::features;
use crate::keys::with_keys;
use crate::level::{Carried, Filtered, Sums, Waiting, is_in, truth_of};
use crate::order::order_of;
use crate::pruning::slice_may_match;
use crate::round::{Round, SliceQueue};
use crate::statistics::PartFacts;
use crate::table::{Feed, ReadCounters, SliceTable, TablePart};
use crate::template::{Tables, Template};
use crate::{BindRequest, ExecError, PartData, PartReads, RunningRound, SliceRef};

/// A sub-plan that was read, checked against the output that is expected of it, and optimised once.
#[derive(Debug)]
pub struct Bound {
    state: PlanningState,
    /// Memory and spill files of the session.
    runtime: Arc<RuntimeEnv>,
    plan: LogicalPlan,
    /// The same, [`ready_to_run`]: each round makes a physical plan of it.
    ready: LogicalPlan,
    template: Arc<Template>,
    tables: Tables,
    schema: SchemaRef,
    queue: Arc<SliceQueue>,
    parts: Vec<Arc<TablePart>>,
    filtered: Option<Filtered>,
    held: Vec<SliceSpan>,
    sums: OnceLock<Sums>,
    slices_total: u32,
    whole_partition: bool,
}

impl Bound {
    /// Reads and optimises a sub-plan. Errors name what does not fit: an unknown table, a column of another type.
    #[boxed]
    pub async fn bind(request: BindRequest) -> Result<Arc<Bound>, Fault> {
        let options = EngineOptions {
            batch_rows: request.batch_rows,
            target_partitions: 1,
            time_zone: request.time_zone.clone(),
            runtime: Arc::clone(&request.runtime),
            functions: Arc::clone(&request.functions),
        };
        let parts: Vec<Arc<TablePart>> =
            request.parts.iter().enumerate().map(|(number, data)| Arc::new(part(number, data, &request))).collect();
        let driving = parts.first().cloned().ok_or(ExecError::NoParts)?;
        let mut state = PlanningState::new(&options);
        let template = Template::of(&request, &mut state).await?;
        let tables = tables(&parts, &request)?;
        let (name, plan) = (&request.parts[0].name, template.plan(&tables)?);
        check(plan.schema().as_arrow(), &request.schema)?;
        check_driven(&plan, name)?;
        if request.level_max < Level::Whole {
            check_prunes_only(&plan)?;
        }
        tracing::debug!(plan = %plan.display_indent(), "bound");
        let queue = Arc::new(SliceQueue::new(left(&driving.slices, &request.done)));
        let (schema, whole_partition) = (request.schema, request.whole_partition);
        let slices_total = driving.slices.len() as u32;
        let filtered = Filtered::of(&plan, &driving, &state).map_err(fault_from_datafusion)?;
        let ready = template.ready(&tables)?;
        Ok(Arc::new(Bound {
            state,
            runtime: request.runtime,
            plan,
            ready,
            template,
            tables,
            schema,
            queue,
            parts,
            filtered,
            held: request.held,
            sums: OnceLock::new(),
            slices_total,
            whole_partition,
        }))
    }

    /// Whether [`Bound::bind`] is done in much less than a millisecond: the sub-plan was read and optimised before.
    pub fn is_quick(request: &BindRequest) -> bool {
        Template::is_kept(request)
    }

    /// How the outputs of several rounds go together.
    pub fn shape(&self) -> ResultShape {
        self.template.shape
    }

    /// The plan of a round, indented, for people.
    pub fn plan_text(&self) -> String {
        self.plan.display_indent().to_string()
    }

    /// Slices of the driving partition, those among them that are done.
    pub fn slices_total(&self) -> u32 {
        self.slices_total
    }

    /// The slices that rounds are to take care of, by ordinal: all but those that are done.
    pub fn slices_left(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.queue.ordinals()
    }

    /// What was read of each part so far, in the request's order.
    pub fn reads(&self) -> Vec<PartReads> {
        let read = |part: &Arc<TablePart>| PartReads {
            slices: part.reads.slices.load(Ordering::Relaxed),
            bytes: part.reads.bytes.load(Ordering::Relaxed),
        };
        self.parts.iter().map(read).collect()
    }

    /// What users' functions take while it runs.
    pub fn calls(&self) -> SessionCalls {
        SessionCalls::of(self.state.config_options())
    }

    /// Whether all slices were taken.
    pub fn queue_is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many slices nobody has taken yet.
    pub fn slices_waiting(&self) -> usize {
        self.queue.left().len()
    }

    /// The slices that nobody has taken yet, those aside that their bounds rule out.
    pub fn waiting(&self) -> Waiting {
        let sums = self.sums.get_or_init(|| Sums::new(self.queue.slices(), &self.held, self.filtered.as_ref()));
        sums.over(&self.queue.left())
    }

    /// What the sub-plan does with a slice, on average over those that wait. `expected`: rows and bytes of the answer over all of
    /// them. None: it reads no slices.
    /// `calls`: what users' functions take for a row, as the host says.
    pub fn features(&self, expected: Option<(f64, f64)>, calls: &BTreeMap<String, f64>) -> Option<Features> {
        let (part, filtered) = (self.parts.first()?, self.filtered.as_ref()?);
        features(&self.plan, part, filtered, &self.waiting(), (expected, calls)).ok()
    }

    /// The slices, those aside whose bounds show that the only column of the sub-plan is true of none of their rows.
    pub fn may_be_true(&self) -> Vec<SliceRef> {
        let truth = self.parts.first().map(|part| truth_of(&self.plan, part, &self.state)).unwrap_or_default();
        self.queue.slices().iter().filter(|slice| slice_may_match(&truth, &slice.entry)).cloned().collect()
    }

    /// Takes the last slice that nobody has taken, to hand it back as it is stored.
    pub fn carry(&self) -> Option<Carried> {
        let slice = self.queue.take_last()?;
        let may_match = self.filtered.as_ref().is_none_or(|filtered| filtered.may_match(&slice.entry));
        let held = is_in(&self.held, slice.ordinal);
        Some(Carried { slice, may_match, held })
    }

    /// The slice that the carrier would take next, unless its bounds rule it out.
    pub fn next_carried(&self) -> Option<SliceRef> {
        let left = self.queue.left();
        let slice = self.queue.slices().get(left.end.checked_sub(1).filter(|last| left.contains(last))?)?;
        self.filtered.as_ref().is_some_and(|filtered| filtered.may_match(&slice.entry)).then(|| slice.clone())
    }

    /// The driving part, and how the sub-plan reads it.
    pub(crate) fn driving(&self) -> Option<(&Arc<TablePart>, &Filtered)> {
        Some((self.parts.first()?, self.filtered.as_ref()?))
    }

    /// Whether the sub-plan can be taken to [`Level::Filtered`] by itself: there is more to it than filter and projection, and
    /// there are columns to send.
    pub fn can_filter(&self) -> bool {
        self.filtered.as_ref().is_some_and(|filtered| filtered.is_part && !filtered.schema.fields().is_empty())
    }

    /// Whether a slice may be handed back as it is stored: the sub-plan reads the driving dataset at all.
    pub fn can_carry(&self) -> bool {
        self.filtered.is_some()
    }

    /// Begins a round with a physical plan of its own. As its rows are pulled, it takes slices that no other round has
    /// taken, until it has read `slices_max` of them; with a whole partition, all of them. Rounds may run side by side.
    ///
    /// A session over an empty partition runs one round all the same: an aggregate without groups has a row.
    #[boxed]
    pub async fn round(&self, slices_max: usize) -> Result<RunningRound, Fault> {
        let slices_max = if self.whole_partition { usize::MAX } else { slices_max };
        let round = Arc::new(Round::new(Arc::clone(&self.queue), slices_max));
        let stream = self.run(&self.ready, &self.schema, &round).await?;
        Ok(RunningRound { stream, round })
    }

    /// The same to [`Level::Filtered`]: rows of the driving dataset that pass the filters, in the columns that the sub-plan needs. A
    /// bug where [`Bound::can_filter`] is false.
    #[boxed]
    pub async fn filter_round(&self, slices_max: usize) -> Result<RunningRound, Fault> {
        let filtered = self.filtered.as_ref().ok_or_else(|| Fault::new(Blame::Bug, "the sub-plan has no driving scan"))?;
        let round = Arc::new(Round::new(Arc::clone(&self.queue), slices_max));
        let stream = self.run(&filtered.ready, &filtered.schema, &round).await?;
        Ok(RunningRound { stream, round })
    }

    /// Runs the whole sub-plan over slices that came from elsewhere: what a CSE does with work that was handed back to it. The
    /// slices of the session itself stay where they are.
    #[boxed]
    pub async fn round_over(&self, slices: Vec<SliceRef>) -> Result<RunningRound, Fault> {
        let round = Arc::new(Round::new(Arc::new(SliceQueue::new(slices.into())), usize::MAX));
        let stream = self.run(&self.ready, &self.schema, &round).await?;
        Ok(RunningRound { stream, round })
    }

    /// Puts the outputs of several rounds together: rows of the same columns and the same meaning. Where rows are just
    /// rows, they come back as they are, no more of them than the sub-plan asks for.
    #[boxed]
    pub async fn combine(&self, partials: Vec<RecordBatch>) -> Result<SendableRecordBatchStream, Fault> {
        let rounds = numbered(&self.schema, &partials)?;
        match combine(&self.template.consumed(&self.tables)?, provider_as_source(Arc::new(rounds)), &self.state)? {
            Some(plan) => {
                let ready = self.state.optimize(&plan).and_then(ready_to_run).map_err(fault_from_datafusion)?;
                let round = Arc::new(Round::new(Arc::clone(&self.queue), 0));
                self.run(&ready, &self.schema, &round).await
            }
            None => {
                let rows = match self.template.shape {
                    ResultShape::Limit(rows) => first_rows(partials, rows),
                    _ => partials,
                };
                let stream = MemoryStream::try_new(rows, Arc::clone(&self.schema), None).map_err(fault_from_datafusion)?;
                Ok(Box::pin(stream) as SendableRecordBatchStream)
            }
        }
    }

    /// Runs what is [`ready_to_run`].
    async fn run(
        &self,
        ready: &LogicalPlan,
        schema: &SchemaRef,
        round: &Arc<Round>,
    ) -> Result<SendableRecordBatchStream, Fault> {
        let physical = self.physical(ready).await.map_err(fault_from_datafusion)?;
        tracing::trace!(plan = %displayable(physical.as_ref()).indent(false), "round");
        let config = narrowed(self.state.config().clone().with_extension(Arc::clone(round)), &physical);
        let context = run_context(&self.state, config, Arc::clone(&self.runtime));
        let rows = execute_stream(physical, context).map_err(fault_from_datafusion)?;
        Ok(conform(rows, schema))
    }

    /// The physical plan of what is [`ready_to_run`], for one run.
    async fn physical(&self, ready: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        if let LogicalPlan::TableScan(scan) = ready
            && let Some(table) = slice_table(&scan.source)
        {
            let filters: Vec<Expr> = unnormalize_cols(scan.filters.iter().cloned());
            let leaf = table.scan(&*self.state, scan.projection.as_ref(), &filters, scan.fetch).await?;
            return lone_leaf(leaf, self.state.config_options());
        }
        let planned = DefaultPhysicalPlanner::default().create_physical_plan(ready, &*self.state).await;
        planned.and_then(with_keys).and_then(with_codes)
    }
}

/// A table of these rows, whose columns are numbered: an output may have several of one name.
fn numbered(schema: &SchemaRef, rows: &[RecordBatch]) -> Result<MemTable, Fault> {
    let fields = schema.fields().iter().enumerate();
    let fields = fields.map(|(number, field)| field.as_ref().clone().with_name(number.to_string()));
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let rows = rows.iter().map(|batch| rename(batch, &schema)).collect::<Result<Vec<_>, _>>()?;
    MemTable::try_new(schema, vec![rows]).map_err(fault_from_datafusion)
}

fn first_rows(batches: Vec<RecordBatch>, mut rows: usize) -> Vec<RecordBatch> {
    let mut first = Vec::new();
    for batch in batches {
        let take = batch.num_rows().min(rows);
        rows -= take;
        if take > 0 {
            first.push(batch.slice(0, take));
        }
    }
    first
}

/// The slices that no span covers.
fn left(slices: &Arc<[SliceRef]>, done: &[SliceSpan]) -> Arc<[SliceRef]> {
    if done.is_empty() {
        return Arc::clone(slices);
    }
    let mut left = vec![true; slices.len()];
    for span in done {
        left.iter_mut().skip(span.first as usize).take(span.count as usize).for_each(|left| *left = false);
    }
    slices.iter().zip(left).filter(|(_, left)| *left).map(|(slice, _)| slice.clone()).collect()
}

fn part(number: usize, data: &PartData, request: &BindRequest) -> TablePart {
    let slices: Arc<[SliceRef]> = data.slices.as_slice().into();
    TablePart {
        number,
        name: data.name.to_string(),
        schema: plain_columns(&data.schema),
        facts: PartFacts::new(Arc::clone(&slices), data.passing),
        order: order_of(&data.schema, &data.sort, &slices),
        slices,
        source: Arc::clone(&request.source),
        zone_maps: request.zone_maps,
        sample: request.sample,
        prune_only: request.level_max < Level::Whole,
        batch_rows: request.batch_rows.max(1),
        reads: ReadCounters::default(),
    }
}

/// The tables of a session.
fn tables(parts: &[Arc<TablePart>], request: &BindRequest) -> Result<Tables, Fault> {
    let source = |part: &Arc<TablePart>, feed| {
        let table: Arc<dyn TableProvider> = Arc::new(SliceTable { part: Arc::clone(part), feed });
        provider_as_source(table)
    };
    let input = |(_, schema, batches): &(String, SchemaRef, Vec<RecordBatch>)| {
        let table = MemTable::try_new(Arc::clone(schema), vec![batches.clone()]).map_err(fault_from_datafusion)?;
        Ok(provider_as_source(Arc::new(table)))
    };
    Ok(Tables {
        parts: parts.iter().map(|part| (source(part, Feed::Round), source(part, Feed::All))).collect(),
        inputs: request.inputs.iter().map(input).collect::<Result<_, Fault>>()?,
    })
}

fn slice_table(source: &Arc<dyn TableSource>) -> Option<Arc<dyn TableProvider>> {
    source_as_provider(source).ok().filter(|table| table.downcast_ref::<SliceTable>().is_some())
}

/// The optimiser may drop the driving scan (`WHERE false`), but must not make two of it.
fn check_driven(plan: &LogicalPlan, name: &DatasetName) -> Result<(), Fault> {
    let mut scans = 0;
    let counted = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = slice_table(&scan.source)
            && table.downcast_ref::<SliceTable>().is_some_and(|table| table.feed == Feed::Round)
        {
            scans += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    });
    counted.map_err(fault_from_datafusion)?;
    if scans > 1 { Err(ExecError::DrivenTwice(name.clone(), scans).into()) } else { Ok(()) }
}

/// Rows that a filter would remove stay below level 3, so nothing may be computed from them.
fn check_prunes_only(plan: &LogicalPlan) -> Result<(), Fault> {
    match plan {
        LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_) => Ok(()),
        LogicalPlan::SubqueryAlias(alias) => check_prunes_only(&alias.input),
        LogicalPlan::Projection(projection) if projection.expr.iter().all(is_column) => check_prunes_only(&projection.input),
        other => Err(ExecError::TooMuch(other.display().to_string()).into()),
    }
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Alias(alias) => is_column(&alias.expr),
        _ => false,
    }
}
