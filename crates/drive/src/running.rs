//! [`Running`]: a session's rounds, run by a few tasks side by side, and their way into one bounded queue.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::StreamExt;
use parking_lot::Mutex;
use pithead_device::Device;
use pithead_exec::RoundStats;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Annotation, Blame, Fault, Level, PushBackCause, SliceSpan};
use pithead_wire::{Event, batch_bytes};

use crate::kept::{Kept, Output};
use crate::meter::Meter;
use crate::queue::EventSender;
use crate::session::{Session, Work};
use crate::slow::Watch;
use crate::tally::Tally;

/// What the tasks of a session share.
#[derive(Debug)]
pub(crate) struct Running {
    session: Arc<Session>,
    pub(crate) work: Work,
    device: Arc<dyn Device>,
    events: EventSender,
    watch: Watch,
    ledger: Mutex<Ledger>,
    pub(crate) kept: Mutex<Kept>,
    /// No further round begins: the plan needs no more slices.
    enough: AtomicBool,
    tasks_left: AtomicUsize,
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
    rows: u64,
    bytes: u64,
}

impl Running {
    pub(crate) fn new(session: Arc<Session>, work: Work, device: Arc<dyn Device>, events: EventSender, watch: Watch) -> Self {
        let tasks = work.policy.tasks;
        Self {
            session,
            work,
            device,
            events,
            watch,
            ledger: Mutex::default(),
            kept: Mutex::default(),
            enough: AtomicBool::new(false),
            tasks_left: AtomicUsize::new(tasks),
        }
    }

    /// Another way into the queue. The host sees its end when all of them are gone.
    pub(crate) fn events(&self) -> EventSender {
        self.events.clone()
    }

    /// One of the tasks: rounds until no slices are left. The last one to end sends what was kept, and the end.
    pub(crate) async fn task(self: Arc<Self>) -> Result<(), Fault> {
        let mut nth = 0;
        while self.wants_round(nth) {
            self.round(nth).await?;
            nth += 1;
        }
        if self.tasks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete().await?;
        }
        Ok(())
    }

    fn wants_round(&self, nth: u32) -> bool {
        if self.work.policy.single {
            return nth == 0;
        }
        !self.enough.load(Ordering::Acquire) && !self.has_enough_rows() && !self.work.bound.queue_is_empty()
    }

    fn has_enough_rows(&self) -> bool {
        self.work.policy.rows_enough.is_some_and(|rows| self.ledger.lock().rows_closed >= rows)
    }

    async fn round(&self, nth: u32) -> Result<(), Fault> {
        let mut meter = Meter::start(&*self.device);
        let mut output = Output::new(self, self.work.policy.keep);
        let slices_max = self.work.policy.slices_max(nth);
        let mut round = meter.run(self.work.bound.round(slices_max)).await?;
        while let Some(batch) = meter.run(round.stream.next()).await {
            output.push(batch.map_err(fault_from_datafusion)?).await?;
            meter.charge().await;
            meter.give_way().await;
        }
        meter.charge().await;
        self.watch.metrics.ran_round(Duration::from_nanos(meter.wall_ns()), meter.turn());
        self.session.waits.for_turn(meter.turn());
        let stats = round.finish();
        self.count_others(&stats);
        let mut tally = Tally::of(stats, meter.cpu_ns(), meter.wall_ns());
        if self.work.policy.single {
            tally.slices = self.work.bound.slices_left().collect();
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

    /// What is left once all tasks have ended: outputs that were kept, and slices that the plan had no need of.
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
            let round = self.begin_round();
            self.close_round(round, rest).await?;
        }
        self.session.progress.finish();
        self.send(Event::Finished { profile: self.session.profile(), link_bytes: 0 }, 0).await
    }

    fn unread(&self, kept: &Kept) -> Vec<u32> {
        let ledger = self.ledger.lock();
        let read: HashSet<u32> = ledger.slices_answered.iter().chain(kept.slices()).copied().collect();
        self.work.bound.slices_left().filter(|slice| !read.contains(slice)).collect()
    }

    pub(crate) fn begin_round(&self) -> OpenRound {
        let mut ledger = self.ledger.lock();
        ledger.rounds_begun += 1;
        OpenRound { number: ledger.rounds_begun - 1, rows: 0, bytes: 0 }
    }

    pub(crate) async fn send_rows(&self, round: &mut OpenRound, batch: RecordBatch) -> Result<(), Fault> {
        round.rows += batch.num_rows() as u64;
        let bytes = batch_bytes(&batch) as u64;
        round.bytes += bytes;
        self.send(Event::Rows { round: round.number, batch, link_bytes: 0 }, bytes).await
    }

    /// Begins a round with these rows.
    pub(crate) async fn send_all(&self, batches: Vec<RecordBatch>) -> Result<OpenRound, Fault> {
        let mut round = self.begin_round();
        for batch in batches {
            self.send_rows(&mut round, batch).await?;
        }
        Ok(round)
    }

    pub(crate) async fn close_round(&self, round: OpenRound, tally: Tally) -> Result<(), Fault> {
        let slices = tally.slices.len() as u32;
        self.work.used.add_cpu(tally.cpu_ns);
        self.session.waits.worked(tally.cpu_ns);
        self.watch.metrics.closed_round(&tally, round.rows, round.bytes);
        let annotation = self.annotation(&round, &tally);
        tracing::debug!(session = %self.session.id, round = round.number, slices, rows = round.rows, "round closed");
        self.send(Event::Closed { annotation, link_bytes: 0 }, 0).await?;
        let mut ledger = self.ledger.lock();
        ledger.rounds_closed += 1;
        ledger.rows_closed += round.rows;
        ledger.slices_answered.extend(tally.slices);
        self.session.progress.rounds.fetch_add(1, Ordering::Relaxed);
        self.session.progress.slices_done.fetch_add(slices, Ordering::Relaxed);
        Ok(())
    }

    fn annotation(&self, round: &OpenRound, tally: &Tally) -> Annotation {
        let level = self.work.level_max;
        Annotation {
            round: round.number,
            partition: self.work.partition,
            slices: SliceSpan::cover(tally.slices.clone()),
            level,
            slices_skipped: tally.slices_skipped,
            pages_read: tally.pages_read,
            pages_skipped: tally.pages_skipped,
            rows_in: tally.rows_in,
            rows_out: round.rows,
            medium_bytes: tally.medium_bytes,
            batch_bytes: round.bytes,
            cpu_ns: tally.cpu_ns,
            wall_ns: tally.wall_ns,
            cause: (level < Level::Whole).then_some(PushBackCause::Asked),
            retry_after_ms: None,
        }
    }

    /// Waits while the queue is full: the host sets the pace. A host that is gone drops the other end, one that sleeps
    /// is found by the reaper. `bytes` of rows are in the event.
    async fn send(&self, event: Event, bytes: u64) -> Result<(), Fault> {
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

    /// A meter of this session's device.
    pub(crate) fn meter(&self) -> Meter<'_> {
        Meter::start(&*self.device)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let took = self.device.clock().now().since(self.session.opened);
        self.watch.work_over(&self.session, &self.work.bound, took);
    }
}
