//! [`GiveWayExec`]: hands on rows in their order, and lets other tasks run in between.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::{Stream, StreamExt};

use crate::long_lists::in_parts;
use crate::pieces::Pieces;

/// The longest time that a task goes on before others have their turn.
const TURN: Duration = Duration::from_millis(10);
/// A poll that takes at least this long is logged.
const LONG_POLL: Duration = Duration::from_secs(1);

/// The time that a join works, measured above and below it. Each partition has its own counter.
#[derive(Debug)]
pub(crate) struct Times {
    start: Instant,
    partitions: Vec<Partition>,
    /// The name of the operator that works.
    name: String,
    told: AtomicU64,
    /// The rows of a join's build side.
    build_rows: AtomicUsize,
}

#[derive(Debug, Default)]
struct Partition {
    /// When the present poll began, or the last one, nanoseconds.
    poll_began: AtomicU64,
    /// The time of all polls that ended, nanoseconds.
    polled: AtomicU64,
    /// The time of the probe side within all polls, nanoseconds.
    below: AtomicU64,
}

impl Times {
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Arc<Times> {
        let partitions = (0..plan.output_partitioning().partition_count()).map(|_| Partition::default()).collect();
        let (told, build_rows) = (AtomicU64::new(0), AtomicUsize::new(0));
        Arc::new(Times { start: Instant::now(), partitions, name: plan.name().to_owned(), told, build_rows })
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// The time that the operator itself has worked up to now, also in the middle of a poll.
    fn worked(&self, partition: usize) -> Duration {
        let Some(times) = self.partitions.get(partition) else { return Duration::ZERO };
        let polled = times.polled.load(Ordering::Relaxed) + self.now().saturating_sub(times.poll_began.load(Ordering::Relaxed));
        Duration::from_nanos(polled.saturating_sub(times.below.load(Ordering::Relaxed)))
    }

    /// Polls the operator from above.
    fn poll<T>(&self, partition: usize, poll: impl FnOnce() -> T) -> T {
        let Some(times) = self.partitions.get(partition) else { return poll() };
        let (began, below) = (self.now(), times.below.load(Ordering::Relaxed));
        times.poll_began.store(began, Ordering::Relaxed);
        let polled = poll();
        let took = self.now().saturating_sub(began);
        times.polled.fetch_add(took, Ordering::Relaxed);
        let own = took.saturating_sub(times.below.load(Ordering::Relaxed).saturating_sub(below));
        if own > LONG_POLL.as_nanos() as u64 && self.told.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(operator = %self.name, ms = own / 1_000_000, "an operator kept its thread for long");
        }
        polled
    }

    /// Polls the probe side.
    fn poll_below<T>(&self, partition: usize, poll: impl FnOnce() -> T) -> T {
        let began = self.now();
        let polled = poll();
        if let Some(times) = self.partitions.get(partition) {
            times.below.fetch_add(self.now().saturating_sub(began), Ordering::Relaxed);
        }
        polled
    }
}

/// The place of a [`GiveWayExec`].
#[derive(Clone, Debug)]
enum Position {
    Above,
    /// Between a join and its probe side, whose rows it hands on in pieces: the rows of the first piece, and the most
    /// rows of any piece.
    Below(usize, usize),
    /// Between a join and its build side, whose rows it counts.
    Build,
    /// Below an operator that makes rows of lists: rows with long lists in these columns become several, with a part each.
    Lists(Arc<[usize]>),
}

/// Hands on its input's rows in their order, and lets other tasks run in between.
#[derive(Clone, Debug)]
pub(crate) struct GiveWayExec {
    input: Arc<dyn ExecutionPlan>,
    place: Position,
    times: Arc<Times>,
}

impl GiveWayExec {
    /// A [`GiveWayExec`] above an operator that may work for a long time.
    pub(crate) fn above(input: Arc<dyn ExecutionPlan>, times: Arc<Times>) -> Self {
        Self { input, place: Position::Above, times }
    }

    /// A [`GiveWayExec`] below an operator, as its probe side: the rows of the first piece, and the most rows of any
    /// piece.
    pub(crate) fn below(input: Arc<dyn ExecutionPlan>, times: Arc<Times>, (rows, rows_max): (usize, usize)) -> Self {
        Self { input, place: Position::Below(rows, rows_max), times }
    }

    /// A [`GiveWayExec`] below a join, as its build side.
    pub(crate) fn build(input: Arc<dyn ExecutionPlan>, times: Arc<Times>) -> Self {
        Self { input, place: Position::Build, times }
    }

    /// A [`GiveWayExec`] below an operator that makes rows of the lists in these columns.
    pub(crate) fn lists(input: Arc<dyn ExecutionPlan>, columns: Arc<[usize]>) -> Self {
        let times = Times::of(&input);
        Self { input, place: Position::Lists(columns), times }
    }
}

impl DisplayAs for GiveWayExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match &self.place {
            Position::Above => "GiveWayExec",
            Position::Below(..) => "GiveWayExec: in pieces",
            Position::Build => "GiveWayExec: counted",
            Position::Lists(_) => "GiveWayExec: lists in parts",
        })
    }
}

impl ExecutionPlan for GiveWayExec {
    fn name(&self) -> &str {
        "GiveWayExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else { return internal_err!("GiveWayExec has one child") };
        Ok(Arc::new(Self { input, ..Self::clone(&self) }))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let (times, turn) = (Arc::clone(&self.times), Turn::default());
        Ok(match &self.place {
            Position::Above => Box::pin(Above { input, times, partition, turn }),
            Position::Below(rows, rows_max) => {
                let pieces = Pieces::new(*rows, *rows_max);
                Box::pin(Below { input, times, partition, turn, pieces, has_begun: false })
            }
            Position::Build => Box::pin(Build { input, times, turn, rows: 0 }),
            Position::Lists(columns) => in_parts(input, Arc::clone(columns)),
        })
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, input_stats: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(match self.place {
            Position::Lists(_) => Arc::new(Statistics::new_unknown(&self.schema())),
            _ => Arc::clone(&input_stats[0]),
        })
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        match self.place {
            Position::Lists(_) => CardinalityEffect::GreaterEqual,
            _ => CardinalityEffect::Equal,
        }
    }
}

/// How long a stream was polled since it last yielded.
#[derive(Default)]
struct Turn {
    since: Option<Instant>,
    giving: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Turn {
    /// Pending once the stream's turn is over, until other tasks had theirs.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(giving) = &mut self.giving {
            ready!(giving.as_mut().poll(context));
            self.giving = None;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < TURN {
            return Poll::Ready(());
        }
        self.since = None;
        // The runtime looks at its timers and sockets before it wakes the task.
        let giving = self.giving.insert(Box::pin(tokio::task::yield_now()));
        giving.as_mut().poll(context)
    }

    /// Notes that the stream has waited for something.
    fn waited(&mut self) {
        self.since = None;
    }
}

/// The rows of an operator.
struct Above {
    input: SendableRecordBatchStream,
    times: Arc<Times>,
    partition: usize,
    turn: Turn,
}

impl Stream for Above {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        ready!(this.turn.poll(context));
        let polled = this.times.poll(this.partition, || this.input.poll_next_unpin(context));
        if polled.is_pending() {
            this.turn.waited();
        }
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.input.size_hint()
    }
}

impl RecordBatchStream for Above {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

/// The rows of a probe side, in pieces.
struct Below {
    input: SendableRecordBatchStream,
    times: Arc<Times>,
    partition: usize,
    turn: Turn,
    pieces: Pieces,
    has_begun: bool,
}

impl Stream for Below {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.has_begun, true) {
            // A join has all rows of its build side before it asks for one of the other.
            this.pieces.begin(this.times.build_rows.load(Ordering::Relaxed));
        }
        this.pieces.measure(|| this.times.worked(this.partition));
        ready!(this.turn.poll(context));
        if this.pieces.is_empty() {
            let polled = this.times.poll_below(this.partition, || this.input.poll_next_unpin(context));
            match polled {
                Poll::Ready(Some(Ok(batch))) => this.pieces.take(batch),
                Poll::Pending => {
                    this.turn.waited();
                    return Poll::Pending;
                }
                other => return other,
            }
        }
        let worked = this.times.worked(this.partition);
        Poll::Ready(this.pieces.next(worked).map(Ok))
    }
}

impl RecordBatchStream for Below {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}

/// The rows of a build side, counted.
struct Build {
    input: SendableRecordBatchStream,
    times: Arc<Times>,
    turn: Turn,
    rows: usize,
}

impl Stream for Build {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        ready!(this.turn.poll(context));
        let polled = this.input.poll_next_unpin(context);
        match &polled {
            Poll::Ready(Some(Ok(batch))) => {
                this.rows += batch.num_rows();
                // The side may be read again, by a join that has no memory for all of it.
                this.times.build_rows.fetch_max(this.rows, Ordering::Relaxed);
            }
            Poll::Pending => this.turn.waited(),
            _ => {}
        }
        polled
    }
}

impl RecordBatchStream for Build {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}
