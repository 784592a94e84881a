//! [`Running`]: a session's rounds, run by a few tasks side by side, and their way into one bounded queue.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use pithead_device::{CountedWork, Device};
use pithead_door::{Event, PIECE_BYTES_MAX, batch_bytes};
use pithead_exec::{Carried, RoundStats, RoundWatch};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Annotation, Blame, Fault, Level, PushBackCause, SliceSpan};
use pithead_plan::ResultShape;
use pithead_sched::Class;

use crate::resources::Workers;
use crate::sessions::admission::Sessions;
use crate::sessions::meter::Meter;
use crate::sessions::partial_outputs::{Output, PartialOutputs};
use crate::sessions::queue::EventSender;
use crate::sessions::session::{Session, Work};
use crate::sessions::slow::Watch;
use crate::sessions::steer::{Busy, Step};
use crate::sessions::summary::SessionSummary;
use crate::sessions::tally::Tally;
use crate::storage::SliceCache;

/// Rounds of slices that are only filtered double in size so often.
const FILTERED_DOUBLINGS: u32 = 3;

/// What the tasks of a session share.
#[derive(Debug)]
pub(crate) struct Running {
    session: Arc<Session>,
    pub(crate) work: Work,
    device: Arc<dyn Device>,
    events: EventSender,
    watch: Watch,
    ledger: Mutex<Ledger>,
    pub(crate) kept: Mutex<PartialOutputs>,
    /// No further round begins: the plan needs no more slices.
    enough: AtomicBool,
    tasks_left: AtomicUsize,
    /// The device was told that it reads.
    is_reading: bool,
    around: Around,
}

/// What a session shares with others.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    pub(crate) workers: Workers,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) slices: Arc<SliceCache>,
}

#[derive(Debug, Default)]
struct Ledger {
    rounds_begun: u32,
    rounds_closed: u32,
    rows_closed: u64,
    slices_answered: Vec<u32>,
}

/// A round that has sent rows, or is about to.
#[derive(Debug)]
pub(crate) struct OpenRound {
    number: u32,
    level: Level,
    rows: u64,
    bytes: u64,
    queue_ms: Option<u64>,
    /// Its slice is at the host already.
    is_held: bool,
}

impl OpenRound {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The same, with so many bytes sent.
    pub(crate) fn of_bytes(self, bytes: u64) -> OpenRound {
        OpenRound { bytes, ..self }
    }

    /// The same, where so much waited at the drive.
    pub(crate) fn after(self, queue_ms: Option<u64>) -> OpenRound {
        OpenRound { queue_ms, ..self }
    }
}

impl Running {
    pub(crate) fn new(
        session: Arc<Session>,
        work: Work,
        device: Arc<dyn Device>,
        events: EventSender,
        watch: Watch,
        around: Around,
    ) -> Self {
        let tasks = work.policy.tasks + usize::from(work.steer.may_carry());
        let found = work.summary.as_ref().and_then(SessionSummary::take);
        // Kept partials may answer for all of it.
        let is_reading = found.is_none() || !work.bound.queue_is_empty();
        if is_reading {
            device.reading_begins();
        }
        let kept = found.map(|(batches, tally)| PartialOutputs::found(batches, tally)).unwrap_or_default();
        Self {
            session,
            work,
            device,
            events,
            watch,
            ledger: Mutex::default(),
            kept: Mutex::new(kept),
            enough: AtomicBool::new(false),
            tasks_left: AtomicUsize::new(tasks),
            is_reading,
            around,
        }
    }

    /// Another way into the queue. The host sees its end when all of them are gone.
    pub(crate) fn events(&self) -> EventSender {
        self.events.clone()
    }

    /// One of the tasks: rounds until no slices are left. The last one to end sends what was kept, and the end.
    pub(crate) async fn task(self: Arc<Self>, index: usize) -> Result<(), Fault> {
        if self.is_one_round() {
            // Where cached partials answer for all slices, no round is needed.
            if index == 0 && self.kept.lock().is_empty() {
                self.round(0, Level::Whole, usize::MAX, None).await?;
            }
            return self.task_over().await;
        }
        let mut nth = 0;
        while self.wants_round() {
            let step = self.step();
            let queue_ms = (step.queue_ms > 0).then_some(step.queue_ms);
            match step.task {
                Some(Level::Whole) => {
                    let slices_max = self.work.policy.slices_max(nth, self.slices_left(nth)).min(step.whole_max);
                    self.round(nth, Level::Whole, slices_max, None).await?;
                }
                Some(level) => {
                    // Beginning a round costs both ends; but the host has nothing to finish before one closes.
                    let slices_max = (1 << nth.min(FILTERED_DOUBLINGS)).min(step.filtered_max);
                    self.round(nth, level, slices_max, queue_ms).await?;
                }
                None => {
                    self.work.steer.wait_for_change().await;
                    continue;
                }
            }
            nth += 1;
        }
        self.task_over().await
    }

    /// Hands slices back as they are stored, or their pages that may match, while that is sooner.
    pub(crate) async fn carrier(self: Arc<Self>) -> Result<(), Fault> {
        self.look_at_bounds().await;
        let is_one_round = self.is_one_round();
        while !is_one_round && self.wants_round() {
            let step = self.step();
            match step.carry {
                Some(level) => self.carry(level, &step).await?,
                None => self.work.steer.wait_for_change().await,
            }
        }
        self.task_over().await
    }

    /// Whether all slices are taken whole in one round.
    fn is_one_round(&self) -> bool {
        let steer = &self.work.steer;
        self.work.policy.single && (steer.is_plain() || steer.is_whole(&self.work.bound.waiting(), self.busy()))
    }

    async fn task_over(&self) -> Result<(), Fault> {
        match self.tasks_left.fetch_sub(1, Ordering::AcqRel) {
            1 => self.complete().await,
            _ => Ok(()),
        }
    }

    fn wants_round(&self) -> bool {
        !self.enough.load(Ordering::Acquire) && !self.has_enough_rows() && !self.work.bound.queue_is_empty()
    }

    /// Slices that wait, where the next round's size hangs on them: the first one has a slice in any case.
    fn slices_left(&self, nth: u32) -> usize {
        match nth > 0 && self.work.policy.grows() {
            true => self.work.bound.slices_waiting(),
            false => usize::MAX,
        }
    }

    fn step(&self) -> Step {
        if self.work.steer.is_plain() {
            return Step::WHOLE;
        }
        self.work.steer.next(&self.work.bound.waiting(), self.busy())
    }

    fn busy(&self) -> Busy {
        Busy {
            tasks: self.work.policy.tasks,
            reactors: self.around.workers.threads(),
            live: self.around.workers.live(Class::Foreground).saturating_sub(usize::from(self.work.steer.may_carry())),
            sessions: self.around.sessions.running(self.session.host),
            queued_bytes: self.events.queued_bytes() as f64,
        }
    }

    /// One slice as it is stored, or its pages that may match; only its name where the host holds it, or where its bounds rule
    /// it out.
    async fn carry(&self, level: Level, step: &Step) -> Result<(), Fault> {
        let Some(Carried { slice, may_match, held }) = self.work.bound.carry() else { return Ok(()) };
        if level == Level::Hints && may_match && !held {
            return self.hint(&slice, step).await;
        }
        let mut meter = self.counting_meter();
        let mut round = self.begin_round(if may_match { Level::Bytes } else { level });
        round.queue_ms = (step.queue_ms > 0).then_some(step.queue_ms);
        round.is_held = may_match && held;
        let (number, ordinal) = (round.number, slice.ordinal);
        let mut tally = Tally { slices: vec![ordinal], slices_skipped: u32::from(!may_match), ..Tally::default() };
        let event = |total: u64, bytes: Bytes| Event::Stored { round: number, slice: ordinal, total, bytes, link_bytes: 0 };
        if may_match && held {
            self.send(event(0, Bytes::new()), 0).await?;
        } else if may_match {
            let mut bytes = meter.run(self.around.slices.stored(&slice)).await?;
            let total = bytes.len() as u64;
            (tally.stored_bytes, tally.medium_bytes) = (total, total);
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES_MAX));
                let length = piece.len() as u64;
                self.send(event(total, piece), length).await?;
                meter.give_way().await;
            }
        }
        meter.charge().await;
        (tally.cpu_ns, tally.wall_ns) = (meter.cpu_ns(), meter.wall_ns());
        self.work.steer.carried(tally.stored_bytes, tally.cpu_ns);
        round.bytes = tally.stored_bytes;
        self.close_round(round, tally).await
    }

    fn has_enough_rows(&self) -> bool {
        self.work.policy.rows_enough.is_some_and(|rows| self.ledger.lock().rows_closed >= rows)
    }

    async fn round(&self, nth: u32, level: Level, slices_max: usize, queue_ms: Option<u64>) -> Result<(), Fault> {
        let mut meter = self.counting_meter();
        let mut output = Output::new(self, level);
        let bound = &self.work.bound;
        let mut round = match level {
            Level::Whole => meter.run(bound.round(slices_max)).await?,
            _ => meter.run(bound.filter_round(slices_max)).await?,
        };
        tracing::trace!(nth, ?level, slices_max, "round begins");
        let live = self.work.steer.begin(level, round.watch(), meter.spent());
        meter.watch(counts(round.watch()), level == Level::Whole && bound.shape() != ResultShape::Rows);
        let (mut rows, mut bytes) = (0, 0);
        while let Some(batch) = meter.run(round.stream.next()).await {
            let batch = batch.map_err(fault_from_datafusion)?;
            (rows, bytes) = (rows + batch.num_rows() as u64, bytes + batch_bytes(&batch) as u64);
            if let Some(summary) = self.work.summary.as_ref().filter(|_| self.work.policy.single && level == Level::Whole) {
                summary.pass(&batch);
            }
            output.push(batch, queue_ms).await?;
            meter.charge().await;
            meter.give_way().await;
        }
        let stats = round.finish();
        if level == Level::Whole && rows < stats.scan.rows {
            meter.takes_in();
        }
        meter.close().await;
        self.watch.metrics.ran_round(Duration::from_nanos(meter.wall_ns()), meter.turn());
        self.session.waits.for_turn(meter.turn());
        self.count_others(&stats);
        let mut tally = Tally::of(stats, meter.cpu_ns(), meter.wall_ns());
        self.work.steer.end(live, bytes);
        if self.work.policy.single && level == Level::Whole {
            tally.slices = self.work.bound.slices_left().collect();
            if let Some(summary) = &self.work.summary {
                summary.keep_whole(&tally.slices);
            }
        }
        self.end_round(output, tally).await
    }

    async fn end_round(&self, output: Output<'_>, tally: Tally) -> Result<(), Fault> {
        if tally.slices.is_empty() && self.work.bound.slices_left().len() > 0 {
            if self.work.bound.queue_is_empty() {
                // Other tasks took all slices before this round could: their rounds are complete without it.
                return output.discard().await;
            }
            // The plan gives its rows without reading: `WHERE false`, a join with nothing.
            self.enough.store(true, Ordering::Release);
        }
        output.end(tally).await
    }

    fn count_others(&self, stats: &RoundStats) {
        let progress = &self.session.progress;
        progress.other_rows_in.fetch_add(stats.other_rows_in, Ordering::Relaxed);
        progress.other_medium_bytes.fetch_add(stats.other_medium_bytes, Ordering::Relaxed);
    }

    /// Sends the rest once all tasks have ended: kept outputs, and the slices that the plan had no need of.
    async fn complete(&self) -> Result<(), Fault> {
        let kept = std::mem::take(&mut *self.kept.lock());
        let unread = self.unread(&kept);
        if !unread.is_empty() && !self.enough.load(Ordering::Acquire) && !self.has_enough_rows() {
            return Err(Fault::new(Blame::Bug, format!("{} slices of the session were never taken", unread.len())));
        }
        let rest = Tally { slices_skipped: unread.len() as u32, slices: unread, ..Tally::default() };
        if !kept.is_empty() {
            kept.send(self, rest).await?;
        } else if !rest.slices.is_empty() || self.ledger.lock().rounds_closed == 0 {
            let round = self.begin_round(Level::Whole);
            self.close_round(round, rest).await?;
        }
        self.session.progress.finish();
        self.send(Event::Finished { profile: self.session.profile(), link_bytes: 0 }, 0).await
    }

    fn unread(&self, kept: &PartialOutputs) -> Vec<u32> {
        let ledger = self.ledger.lock();
        let read: HashSet<u32> = ledger.slices_answered.iter().chain(kept.slices()).copied().collect();
        self.work.bound.slices_left().filter(|slice| !read.contains(slice)).collect()
    }

    pub(crate) fn begin_round(&self, level: Level) -> OpenRound {
        let mut ledger = self.ledger.lock();
        ledger.rounds_begun += 1;
        OpenRound { number: ledger.rounds_begun - 1, level, rows: 0, bytes: 0, queue_ms: None, is_held: false }
    }

    pub(crate) async fn send_rows(&self, round: &mut OpenRound, batch: RecordBatch) -> Result<(), Fault> {
        round.rows += batch.num_rows() as u64;
        let bytes = batch_bytes(&batch) as u64;
        round.bytes += bytes;
        let event = match round.level {
            Level::Filtered => Event::Filtered { round: round.number, batch, link_bytes: 0 },
            _ => Event::Rows { round: round.number, batch, link_bytes: 0 },
        };
        self.send(event, bytes).await
    }

    /// Begins a round to level 3 with these rows.
    pub(crate) async fn send_all(&self, batches: Vec<RecordBatch>) -> Result<OpenRound, Fault> {
        let mut round = self.begin_round(Level::Whole);
        for batch in batches {
            self.send_rows(&mut round, batch).await?;
        }
        Ok(round)
    }

    pub(crate) async fn close_round(&self, round: OpenRound, tally: Tally) -> Result<(), Fault> {
        let (slices, summarised) = (tally.slices.len() as u32, tally.summarised);
        self.work.used.add_cpu(tally.cpu_ns);
        self.session.waits.worked(tally.cpu_ns);
        self.watch.metrics.closed_round(&tally, round.rows, round.bytes);
        let annotation = self.annotation(&round, &tally);
        self.watch.metrics.counted(&annotation);
        tracing::debug!(session = %self.session.id, round = round.number, slices, rows = round.rows, "round closed");
        self.send(Event::Closed { annotation, link_bytes: 0 }, 0).await?;
        let mut ledger = self.ledger.lock();
        ledger.rounds_closed += 1;
        // Rows of other levels are still to be joined, grouped or filtered.
        if round.level == Level::Whole {
            ledger.rows_closed += round.rows;
        }
        ledger.slices_answered.extend(tally.slices);
        self.session.progress.rounds.fetch_add(1, Ordering::Relaxed);
        // Slices that cached partials answer for were counted when the session began.
        self.session.progress.slices_done.fetch_add(slices.saturating_sub(summarised), Ordering::Relaxed);
        Ok(())
    }

    fn annotation(&self, round: &OpenRound, tally: &Tally) -> Annotation {
        let level = self.work.level_max.min(round.level);
        let asked = self.work.level_max < Level::Whole;
        let cause = match asked {
            true => PushBackCause::Asked,
            false if round.is_held => PushBackCause::Held,
            false => self.work.steer.cause(),
        };
        Annotation {
            round: round.number,
            partition: self.work.partition,
            slices: SliceSpan::cover(tally.slices.clone()),
            level,
            slices_skipped: tally.slices_skipped,
            pages_read: tally.pages_read,
            pages_skipped: tally.pages_skipped,
            pages_sent: tally.pages_sent,
            rows_in: tally.rows_in,
            rows_out: round.rows,
            medium_bytes: tally.medium_bytes,
            batch_bytes: round.bytes,
            cpu_ns: tally.cpu_ns,
            scan: tally.scan,
            stored_bytes: tally.stored_bytes,
            summarised: tally.summarised,
            wall_ns: tally.wall_ns,
            cause: (level < Level::Whole).then_some(cause),
            queue_ms: round.queue_ms,
            retry_after_ms: round.queue_ms,
        }
    }

    /// Waits while the queue is full: the host sets the pace. A host that is gone drops the other end, one that sleeps
    /// is found by the reaper. `bytes` of rows are in the event.
    pub(crate) async fn send(&self, event: Event, bytes: u64) -> Result<(), Fault> {
        if self.events.has_room(bytes) {
            return self.events.send(event, bytes).await;
        }
        let start = self.device.clock().now();
        self.events.send(event, bytes).await?;
        let wait = self.device.clock().now().since(start);
        self.session.waits.for_host(wait);
        self.watch.metrics.waited_for_host(wait);
        Ok(())
    }

    /// Waits as long as the device says that reading so many bytes takes.
    pub(crate) async fn reads(&self, bytes: u64) {
        if let Some(wait) = self.device.read(bytes) {
            wait.await;
        }
    }

    /// A meter of this session's device, for work that rounds do not count.
    pub(crate) fn meter(&self) -> Meter<'_> {
        Meter::start(&*self.device)
    }

    /// A meter for work that is counted, or costs nothing beside what is.
    pub(crate) fn counting_meter(&self) -> Meter<'_> {
        Meter::counting(&*self.device)
    }
}

/// What a round counts: slices of all datasets that it read.
fn counts(watch: RoundWatch) -> impl Fn() -> CountedWork + Send + Sync + 'static {
    move || {
        let stats = watch.counts();
        CountedWork {
            bytes: stats.medium_bytes + stats.other_medium_bytes,
            rows: stats.rows_in + stats.other_rows_in,
            matches: stats.scan.rows,
            sums: 0,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_reading {
            self.device.reading_ends();
        }
        let took = self.device.clock().now().since(self.session.opened);
        self.watch.work_over(&self.session, &self.work.bound, took);
    }
}
