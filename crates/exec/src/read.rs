//! [`Reading`]: a scan as it runs.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::{PhysicalExpr, conjunction_opt};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, stream};
use pithead_device::Instant;
use pithead_door::batch_bytes;
use pithead_model::{Blame, Fault};
use pithead_slice::{KeySet, Predicate, ReadStats, ScanRequest, SliceReader, SliceStream};
use tokio::task::yield_now;

use crate::SliceRef;
use crate::SliceSource;
use crate::keep::keep;
use crate::keys::BuildKeys;
use crate::pruning::{Conjunct, Moving, columns_of, hint, move_columns, slice_may_match};
use crate::round::{Cost, Round};
use crate::table::{Feed, TablePart};

/// Rows that moving filters are tried on before they are judged.
const TRIAL_ROWS: usize = 32_768;
/// Moving filters that let more than this share of the rows pass are not worth evaluating.
const PASSING_MAX: f64 = 0.8;
/// Keys of a join that are more than this share of a column's values are not worth asking for.
const KEYS_SHARE_MAX: f64 = 0.5;
/// How long a scan without rows to hand on keeps others from having their turn.
const TURN: Duration = Duration::from_micros(200);
/// Slices that may be ruled out in one poll.
const SKIPS_MAX: usize = 64;

/// What a scan is to read.
#[derive(Clone, Debug)]
pub(crate) struct ReadPlan {
    pub(crate) part: Arc<TablePart>,
    pub(crate) feed: Feed,
    /// Columns of the output by index in the part's schema.
    pub(crate) columns: Vec<usize>,
    /// What every row must satisfy, unless the part is only to be pruned: first the filters of the logical scan, then those that the
    /// scan took over from operators above.
    pub(crate) conditions: Vec<Conjunct>,
    /// How many of them are of the logical scan: rows that a CSE below has filtered satisfy these.
    pub(crate) logical: usize,
    /// Rows after which a batch is handed on.
    pub(crate) batch_rows: usize,
}

/// A running scan.
pub(crate) struct Reading {
    plan: ReadPlan,
    round: Arc<Round>,
    /// Slices still to be read, where they are not the round's.
    own: VecDeque<usize>,
    moving: Vec<Moving>,
    keys: Vec<(usize, Arc<BuildKeys>)>,
    trial: Trial,
    /// Which conditions the encoding applies itself, as far as its answers have shown.
    trusted: Vec<bool>,
    /// Conditions that want a column to equal something: more than bounds may be known of these.
    equalities: Vec<Predicate>,
    open: Option<OpenSlice>,
    /// Puts small batches together; none where rows are not filtered.
    coalescer: Option<BatchCoalescer>,
    /// When its turn began.
    turn: Option<Instant>,
}

/// A slice that is being read.
struct OpenSlice {
    slice: SliceRef,
    stream: SliceStream,
    stats: Arc<ReadStats>,
    /// Columns of the stream: those of the output, then those that conditions need.
    columns: Vec<usize>,
    /// What is left to evaluate on each batch.
    rest: Option<Arc<dyn PhysicalExpr>>,
    /// The same of moving filters.
    moving: Option<Arc<dyn PhysicalExpr>>,
    /// Whether a row was found.
    found: bool,
}

/// Where a predicate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    Condition(usize),
    Moving(usize),
}

/// Whether evaluating moving filters pays.
#[derive(Debug, Default)]
struct Trial {
    rows_in: usize,
    rows_out: usize,
}

impl Trial {
    fn pays(&self) -> bool {
        self.rows_in < TRIAL_ROWS || (self.rows_out as f64) < PASSING_MAX * self.rows_in as f64
    }
}

impl Reading {
    pub(crate) fn new(
        plan: ReadPlan,
        round: Arc<Round>,
        moving: Vec<Arc<dyn PhysicalExpr>>,
        keys: Vec<(usize, Arc<BuildKeys>)>,
    ) -> Self {
        let trusted = plan.conditions.iter().map(Conjunct::is_exact).collect();
        let equalities = equalities(&plan.conditions);
        let own = match plan.feed {
            Feed::All => (0..plan.part.slices.len()).collect(),
            Feed::Round => VecDeque::new(),
        };
        let moving = moving.into_iter().map(Moving::new).collect();
        let (trial, open, coalescer, turn) = (Trial::default(), None, None, None);
        Self { plan, round, own, moving, keys, trial, trusted, equalities, open, coalescer, turn }
    }

    /// The rows.
    pub(crate) fn stream(mut self, schema: SchemaRef) -> SendableRecordBatchStream {
        let whole = self.plan.part.prune_only || (self.plan.conditions.is_empty() && self.moving.is_empty());
        if !whole && !self.plan.columns.is_empty() {
            let rows = self.plan.batch_rows;
            let coalescer = BatchCoalescer::new(Arc::clone(&schema), rows);
            self.coalescer = Some(coalescer.with_biggest_coalesce_batch_size(Some(rows / 2)));
        }
        let output = Arc::clone(&schema);
        let (round, feed, source) = (Arc::clone(&self.round), self.plan.feed, Arc::clone(&self.plan.part.source));
        let rows = stream::try_unfold(self, move |mut reading| {
            let output = Arc::clone(&output);
            async move { Ok(reading.next(&output).await?.map(|batch| (batch, reading))) }
        });
        match feed {
            Feed::All => Box::pin(RecordBatchStreamAdapter::new(schema, rows)),
            Feed::Round => Box::pin(RecordBatchStreamAdapter::new(schema, measured(rows, round, source))),
        }
    }

    async fn next(&mut self, output: &SchemaRef) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.coalescer.as_mut().and_then(BatchCoalescer::next_completed_batch) {
                return Ok(Some(batch));
            }
            if self.open.is_none() && !self.open_next().await? {
                return Ok(None);
            }
            match self.read_batch().await? {
                Some(batch) if batch.num_rows() > 0 => {
                    let batch = output_batch(&batch, output)?;
                    match &mut self.coalescer {
                        Some(coalescer) => coalescer.push_batch(batch)?,
                        None => return Ok(Some(batch)),
                    }
                }
                Some(_) => {}
                // What a slice gave does not wait for the next one: a limit above may have enough.
                None => self.coalescer.as_mut().map_or(Ok(()), BatchCoalescer::finish_buffered_batch)?,
            }
            if self.coalescer.as_ref().is_none_or(|coalescer| !coalescer.has_completed_batch()) {
                self.give_way().await;
            }
        }
    }

    /// Lets others on the thread have their turn, if this scan's has taken long enough: each turn costs system calls.
    async fn give_way(&mut self) {
        let source = Arc::clone(&self.plan.part.source);
        let clock = source.device().clock();
        let now = clock.now();
        if now.since(*self.turn.get_or_insert(now)) > TURN {
            yield_now().await;
            self.turn = Some(clock.now());
        }
    }

    /// The open slice's next batch, filtered; none at its end.
    async fn read_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let read = open.stream.next().await;
        let bytes = cost_of(&self.round, self.plan.feed).drain(&open.stats);
        self.plan.part.reads.bytes.fetch_add(bytes, Ordering::Relaxed);
        if bytes > 0
            && let Some(wait) = self.plan.part.source.device().read(bytes)
        {
            wait.await;
        }
        match read {
            Some(Ok(batch)) => self.filter(batch).map(Some),
            Some(Err(error)) => Err(external(Fault::from(error).at(&open.slice.key))),
            None => {
                if let Some(open) = self.open.take() {
                    self.learn(&open);
                }
                Ok(None)
            }
        }
    }

    /// Tells where the slice came from if its rows were read for an equality that none satisfies. What moving filters take away
    /// says nothing of that.
    fn learn(&self, open: &OpenSlice) {
        let part = &self.plan.part;
        let is_judged = self.moving.is_empty() && self.keys.is_empty() && !part.prune_only && part.sample.is_none();
        if !open.found && is_judged && part.zone_maps && open.slice.filtered.is_none() && !self.equalities.is_empty() {
            part.source.read_in_vain(&open.slice, &part.schema, &self.equalities);
        }
    }

    fn filter(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let Some(open) = &mut self.open else { return Ok(batch) };
        let batch = match &open.rest {
            Some(rest) => keep(&batch, rest)?,
            None => batch,
        };
        open.found |= batch.num_rows() > 0;
        let mut changed = false;
        for moving in &mut self.moving {
            changed |= moving.refresh(&self.plan.part.schema, &self.plan.part.facts)?;
        }
        if changed {
            open.moving = expression(self.moving.iter().flat_map(Moving::now), &open.columns, true)?;
            self.trial = Trial::default();
        }
        let Some(moving) = open.moving.as_ref().filter(|_| self.trial.pays()) else { return Ok(batch) };
        let kept = keep(&batch, moving)?;
        self.trial.rows_in += batch.num_rows();
        self.trial.rows_out += kept.num_rows();
        Ok(kept)
    }

    /// Opens the next slice that may have rows; false at the end.
    async fn open_next(&mut self) -> Result<bool> {
        let mut skips = 0;
        while let Some(slice) = self.take() {
            for moving in &mut self.moving {
                moving.refresh(&self.plan.part.schema, &self.plan.part.facts)?;
            }
            let conditions = self.plan.conditions.iter().chain(self.moving.iter().flat_map(Moving::now));
            let cost = cost_of(&self.round, self.plan.feed);
            // Rows that were filtered before may come from several slices; what is known of one says nothing of them.
            let bounded = self.plan.part.zone_maps && slice.filtered.is_none();
            let may_match = !bounded
                || slice_may_match(conditions, &slice.entry) && may_equal(&self.plan.part, &slice, &self.equalities).await;
            if !may_match {
                cost.skip_slice();
                skips += 1;
                if skips % SKIPS_MAX == 0 {
                    yield_now().await;
                }
                continue;
            }
            if self.plan.feed == Feed::Round {
                self.round.reads_slice();
            }
            cost.read_slice(slice.entry.rows);
            self.plan.part.reads.slices.fetch_add(1, Ordering::Relaxed);
            self.open = Some(match slice.filtered.clone() {
                Some(rows) => self.start_filtered(slice, rows)?,
                None => {
                    let reader = match &slice.came {
                        Some(reader) => Arc::clone(reader),
                        None => self.plan.part.source.open(&slice).await.map_err(external)?,
                    };
                    let reader = slice.fitted(reader);
                    self.start(slice, &*reader)?
                }
            });
            return Ok(true);
        }
        Ok(false)
    }

    fn take(&mut self) -> Option<SliceRef> {
        match self.plan.feed {
            Feed::Round => self.round.take(),
            Feed::All => self.own.pop_front().map(|slice| self.plan.part.slices[slice].clone()),
        }
    }

    /// Starts on rows that were filtered already. Filters that the scan took over from above are left to apply, and moving ones.
    fn start_filtered(&self, slice: SliceRef, rows: Arc<[RecordBatch]>) -> Result<OpenSlice> {
        let columns = self.plan.columns.clone();
        let place = |batch: &RecordBatch| -> Result<RecordBatch> {
            let mut indices = Vec::with_capacity(columns.len());
            for column in &columns {
                let wanted = self.plan.part.schema.field(*column);
                let Some((index, field)) = batch.schema_ref().column_with_name(wanted.name()) else {
                    let what = format!("filtered rows have no column {}, which the sub-plan needs", wanted.name());
                    return Err(external(Fault::new(Blame::Device, what)));
                };
                let found = field.data_type();
                if found != wanted.data_type() {
                    let what = format!("filtered rows have {} as {found}, not as {}", wanted.name(), wanted.data_type());
                    return Err(external(Fault::new(Blame::Device, what)));
                }
                indices.push(index);
            }
            Ok(batch.project(&indices)?)
        };
        let batches = rows.iter().map(place).collect::<Result<Vec<_>>>()?;
        let stream = stream::iter(batches.into_iter().map(Ok)).boxed();
        let rest = expression(self.plan.conditions.iter().skip(self.plan.logical), &columns, false)?;
        let moving = expression(self.moving.iter().flat_map(Moving::now), &columns, true)?;
        Ok(OpenSlice { slice, stream, stats: Arc::default(), columns, rest, moving, found: false })
    }

    /// Starts to read a slice. Which conditions it applies itself shows in its answer, and with that which columns are
    /// needed besides the output's; if it applies fewer than the slice before, it is asked again.
    fn start(&mut self, slice: SliceRef, reader: &dyn SliceReader) -> Result<OpenSlice> {
        loop {
            let rest: Vec<&Conjunct> = match self.plan.part.prune_only {
                true => vec![],
                false => {
                    self.plan.conditions.iter().zip(&self.trusted).filter(|(_, trusted)| !**trusted).map(|(c, _)| c).collect()
                }
            };
            let mut columns = self.plan.columns.clone();
            for column in rest.iter().flat_map(|condition| columns_of(&condition.expr)) {
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
            let (predicates, origins) = self.predicates();
            let stats = Arc::new(ReadStats::default());
            let request = ScanRequest {
                columns: columns.clone(),
                predicates,
                keys: self.selective_keys(),
                zone_maps: self.plan.part.zone_maps,
                sample: self.plan.part.sample.filter(|_| self.plan.feed == Feed::Round),
                batch_rows: self.plan.part.batch_rows,
                stats: Arc::clone(&stats),
            };
            let scan = reader.scan(request).map_err(|error| external(Fault::from(error).at(&slice.key)))?;
            let applied: HashSet<Origin> = scan.applied.iter().filter_map(|index| origins.get(*index).copied()).collect();
            let broken: Vec<usize> = (0..self.trusted.len())
                .filter(|condition| self.trusted[*condition] && !applied.contains(&Origin::Condition(*condition)))
                .collect();
            if broken.is_empty() || self.plan.part.prune_only {
                let rest = expression(rest, &columns, false)?;
                let moving = self.moving.iter().flat_map(Moving::now).enumerate();
                let moving =
                    moving.filter(|(index, _)| !applied.contains(&Origin::Moving(*index))).map(|(_, condition)| condition);
                let moving = expression(moving, &columns, true)?;
                return Ok(OpenSlice { slice, stream: scan.stream, stats, columns, rest, moving, found: false });
            }
            broken.into_iter().for_each(|condition| self.trusted[condition] = false);
        }
    }

    /// The keys of joins that are known by now, and few enough to be worth asking for.
    fn selective_keys(&self) -> Vec<(usize, Arc<KeySet>)> {
        let facts = &self.plan.part.facts;
        let known = self.keys.iter().filter_map(|(column, keys)| Some((*column, keys.known()?)));
        let is_few = |column, keys: &KeySet| {
            facts.distinct(column).is_some_and(|distinct| (keys.numbers() as f64) < KEYS_SHARE_MAX * distinct as f64)
        };
        known.filter(|(column, keys)| is_few(*column, keys)).collect()
    }

    /// What a slice is told, and where each predicate comes from.
    fn predicates(&self) -> (Vec<Predicate>, Vec<Origin>) {
        let part = &self.plan.part;
        let conditions = self.plan.conditions.iter().enumerate().filter(|_| part.zone_maps || !part.prune_only);
        let conditions = conditions.filter_map(|(index, condition)| {
            let predicate = &condition.converted.as_ref()?.predicate;
            Some((if part.prune_only { hint(predicate) } else { predicate.clone() }, Origin::Condition(index)))
        });
        let moving = self.moving.iter().flat_map(Moving::told).enumerate();
        let moving = moving.filter_map(|(index, told)| Some((told.clone()?, Origin::Moving(index))));
        conditions.chain(moving).unzip()
    }
}

/// The same rows. What the scan takes and gives is counted as the round's.
fn measured(
    rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    round: Arc<Round>,
    source: Arc<dyn SliceSource>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let mut rows = Box::pin(rows);
    // Batches of one scan are alike. The first one tells about how many bytes a row has.
    let mut row_bytes = None;
    stream::poll_fn(move |context| {
        let start = source.device().cpu_ns();
        let polled = rows.poll_next_unpin(context);
        round.driving.work(source.device().cpu_ns().saturating_sub(start));
        if let Poll::Ready(Some(Ok(batch))) = &polled {
            let count = batch.num_rows().max(1);
            let row_bytes = *row_bytes.get_or_insert_with(|| batch_bytes(batch) as f64 / count as f64);
            round.driving.hand_on(batch.num_rows() as u64, (row_bytes * batch.num_rows() as f64) as u64);
        }
        polled
    })
}

/// The predicates that want a column to equal something.
fn equalities(conditions: &[Conjunct]) -> Vec<Predicate> {
    let predicates = conditions.iter().filter_map(|condition| Some(&condition.converted.as_ref()?.predicate));
    let equates = |predicate: &&Predicate| {
        let mut columns = Vec::new();
        predicate.equated(&mut columns);
        !columns.is_empty()
    };
    predicates.filter(equates).cloned().collect()
}

/// Whether a row of a slice may satisfy the equalities, by what is known of its values.
async fn may_equal(part: &TablePart, slice: &SliceRef, equalities: &[Predicate]) -> bool {
    equalities.is_empty() || slice.came.is_some() || part.source.may_match(slice, equalities).await
}

fn cost_of(round: &Round, feed: Feed) -> &Cost {
    match feed {
        Feed::Round => &round.driving,
        Feed::All => &round.others,
    }
}

/// All conditions as one expression over a batch of these columns. `some`: those that need others are left out.
pub(crate) fn expression<'a>(
    conditions: impl IntoIterator<Item = &'a Conjunct>,
    columns: &[usize],
    some: bool,
) -> Result<Option<Arc<dyn PhysicalExpr>>> {
    let mut moved = Vec::new();
    for condition in conditions {
        match move_columns(&condition.expr, &|column| columns.iter().position(|other| *other == column))? {
            Some(expr) => moved.push(expr),
            None if some => {}
            None => return datafusion::common::internal_err!("a column of {} was not read", condition.expr),
        }
    }
    Ok(conjunction_opt(moved))
}

/// The columns of the output, which come first.
fn output_batch(batch: &RecordBatch, output: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns()[..output.fields().len()].to_vec();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(output), columns, &options)?)
}

fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}
