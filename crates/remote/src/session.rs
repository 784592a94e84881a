//! One partition's answer: a session at one of its drives, and where that fails another one over a copy, for the slices that
//! are not answered for yet. [`Admission`] makes it exactly once.

mod asking;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::runtime_env::RuntimeEnv;
use futures::{Stream, TryStreamExt, stream};
use pithead_door::{Door, Event, OpenRequest, batch_bytes};
use pithead_fleet::ConnectedDrive;
use pithead_functions::Registry;
use pithead_model::{Annotation, Blame, Fault, Finished, Level, SliceSpan};
use pithead_plan::RollUp;

use crate::admission::Admission;
use crate::brake::Brake;
use crate::choice::Choice;
use crate::context::RemoteContext;
use crate::finish::{Done, Finisher, external, fault_of};
use crate::idle::{Attention, LetGo, OpenSession};
use crate::profile::SessionLog;
use crate::recall::Recall;

/// Pause before a copy that failed is asked again.
const AGAIN_WAIT: Duration = Duration::from_millis(250);

/// What each partition's session is opened with, and where.
#[derive(Debug)]
pub struct Target {
    /// What it shares with all others of its host.
    pub context: Arc<RemoteContext>,
    /// What the sub-plan may call, where the host finishes it.
    pub functions: Arc<Registry>,
    /// Memory and spill files of work that comes back.
    pub runtime: Arc<RuntimeEnv>,
    /// Bytes of slices that the host may hold for later queries.
    pub slice_cache: u64,
    /// Whether partial results are kept, and the sub-plan's can be.
    pub summaries: bool,
    /// What the sub-plan groups and computes, where partial results of others may serve it.
    pub roll_up: Option<Arc<RollUp>>,
    /// The drives that hold a copy of all of it, the one to ask first first.
    pub copies: Vec<ConnectedDrive>,
    /// With 0 threads, as many are asked for as the drive has.
    pub request: OpenRequest,
    /// What may stop it between rounds.
    pub brake: Option<Arc<Brake>>,
}

/// One partition's answer on its way.
pub(crate) struct Session {
    target: Arc<Target>,
    partition: usize,
    schema: SchemaRef,
    busy_wait: Duration,
    profile: Arc<SessionLog>,
    admission: Admission,
    /// Rows of closed rounds, until whoever asks takes them.
    given: Arc<MemoryReservation>,
    finisher: Finisher,
    recall: Option<Recall>,
    choice: Option<Choice>,
    reading: Option<Reading>,
    /// Whether somebody pulls the rows: while nobody does, there need not be a session.
    attention: Arc<Attention>,
    /// Slices whose rows are handed on next.
    passing: u64,
    /// Whether it was looked for rows that were kept.
    is_begun: bool,
    is_over: bool,
}

/// A session whose events arrive.
struct Reading {
    open: Arc<OpenSession>,
    label: String,
    started: Instant,
    door: Arc<dyn Door>,
}

/// Why a session did not go on.
enum Stop {
    /// The drive, the link or what is stored: a copy may do better.
    Drive(Fault),
    /// The session was closed because nobody pulled; somebody pulls now.
    LetGo,
    /// The host plans the rest of the query anew.
    Braked,
    /// Anything else.
    End(DataFusionError),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        match fault.blame {
            // Cancelled by the drive: it is stopping, or nobody pulled for long. Conflict: it is not there any more.
            Blame::Device | Blame::Corrupt | Blame::Conflict | Blame::Cancelled => Stop::Drive(fault),
            _ => Stop::End(external(fault)),
        }
    }
}

impl From<LetGo> for Stop {
    fn from(_: LetGo) -> Self {
        Stop::LetGo
    }
}

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        Stop::End(error)
    }
}

impl Session {
    pub(crate) fn new(
        target: Arc<Target>,
        partition: usize,
        schema: &SchemaRef,
        busy_wait: Duration,
        profile: &Arc<SessionLog>,
        reservation: MemoryReservation,
    ) -> Self {
        let driving = target.request.parts.first();
        let slices = driving.map_or(0, |part| part.runs.iter().map(|(_, slices)| u64::from(*slices)).sum());
        let recall = Recall::new(&target);
        let (waiting, given) = (reservation.new_empty(), Arc::new(reservation.new_empty()));
        let mut admission = Admission::new(slices, reservation);
        admission.leave_out(&target.request.done);
        Self {
            recall,
            partition,
            schema: Arc::clone(schema),
            busy_wait,
            profile: Arc::clone(profile),
            finisher: Finisher::new(&target, waiting),
            admission,
            given,
            choice: Choice::new(target.copies.clone(), target.context.fleet.connected().suspects().clone()),
            reading: None,
            attention: Arc::default(),
            passing: 0,
            is_begun: false,
            is_over: false,
            target,
        }
    }

    /// The rows, from OPEN to CLOSE.
    pub(crate) fn rows(self) -> impl Stream<Item = Result<RecordBatch>> {
        let attention = Arc::clone(&self.attention);
        let given = Arc::clone(&self.given);
        let batches = stream::try_unfold(self, |mut session| async move {
            let batches = session.next().await?;
            Ok::<_, DataFusionError>(batches.map(|batches| (batches, session)))
        });
        let rows = batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok::<_, DataFusionError>))).try_flatten();
        let taken = rows.inspect_ok(move |batch| given.shrink(batch_bytes(batch).min(given.size())));
        attention.of(Box::pin(taken))
    }

    /// The rows of the next round that closes, or of slices that the host has finished; none at the end.
    async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        if let Some(rows) = self.recalled() {
            return Ok(Some(rows));
        }
        let rows = self.fresh().await?;
        // They are here until they are taken, whoever takes them.
        self.given.grow(rows.iter().flatten().map(batch_bytes).sum());
        if let (Some(brake), Some(rows)) = (&self.target.brake, &rows) {
            let count = rows.iter().map(|batch| batch.num_rows() as u64).sum();
            brake.passed(std::mem::take(&mut self.passing), count);
        }
        match (&rows, &mut self.recall) {
            (Some(rows), Some(recall)) => recall.pass(rows),
            (None, recall) => {
                if let Some(recall) = recall.take() {
                    recall.keep(&self.target, self.admission.slices_total());
                }
            }
            (Some(_), None) => {}
        }
        Ok(rows)
    }

    /// Before anything is asked for: rows that the host has kept.
    fn recalled(&mut self) -> Option<Vec<RecordBatch>> {
        if std::mem::replace(&mut self.is_begun, true) {
            return None;
        }
        let (rows, slices) = self.recall.as_mut()?.found(&self.target)?;
        let rows: Result<Vec<RecordBatch>, Fault> = rows.into_iter().map(|batch| conform(batch, &self.schema)).collect();
        // Columns of another name or type would be another sub-plan's.
        let rows = rows.ok()?;
        if let Some(recall) = &mut self.recall {
            recall.pass(&rows);
        }
        let count = slices.len() as u64;
        self.profile.update(self.partition, |session| {
            session.recalled += count;
            session.recalled_slices = SliceSpan::cover(slices.clone());
        });
        self.admission.recall(slices);
        self.is_over = self.admission.is_complete();
        Some(rows)
    }

    async fn fresh(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        while !self.is_over {
            match self.step_or_stop().await {
                Ok(Some(rows)) => return Ok(Some(rows)),
                Ok(None) => {}
                Err(Stop::End(error)) => return Err(error),
                Err(Stop::LetGo) => drop(self.break_off().map_err(external)?),
                Err(Stop::Braked) => self.end_here(),
                Err(Stop::Drive(fault)) => self.go_on(fault).await.map_err(external)?,
            }
        }
        match self.finisher.is_idle() {
            true => Ok(None),
            false => {
                let done = self.finisher.next().await?;
                self.take(done).map(Some).map_err(external)
            }
        }
    }

    /// The next step, unless what is left is planned anew. A step that is dropped leaves rounds open, whose rows do not count.
    async fn step_or_stop(&mut self) -> Result<Option<Vec<RecordBatch>>, Stop> {
        let Some(brake) = self.target.brake.clone() else { return self.step().await };
        tokio::select! {
            biased;
            () = brake.stopped() => Err(Stop::Braked),
            step = self.step() => step,
        }
    }

    /// Ends with the rounds that are closed.
    fn end_here(&mut self) {
        self.reading = None;
        self.admission.restart();
        self.finisher.restart();
        self.is_over = true;
    }

    async fn step(&mut self) -> Result<Option<Vec<RecordBatch>>, Stop> {
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.open().await?,
        };
        let rows = self.read(&reading).await?;
        self.reading = Some(reading);
        Ok(rows)
    }

    /// What the host has finished.
    fn take(&mut self, done: Done) -> Result<Vec<RecordBatch>, Fault> {
        let Done { batches, level, slices, cpu_ns, calls, .. } = done;
        self.passing += u64::from(slices);
        self.profile.update(self.partition, |session| {
            session.finished.push(Finished { level, slices, cpu_ns });
            // Sums, which tasks took one after the other and told in any order.
            for call in calls {
                match session.calls.iter_mut().find(|known| known.function == call.function) {
                    Some(known) if known.rows < call.rows => *known = call,
                    Some(_) => {}
                    None => session.calls.push(call),
                }
            }
        });
        batches.into_iter().map(|batch| conform(batch, &self.schema)).collect()
    }

    /// The next rows; none where only the session's end came.
    async fn read(&mut self, reading: &Reading) -> Result<Option<Vec<RecordBatch>>, Stop> {
        loop {
            let is_full = self.finisher.is_full();
            let pulled = tokio::select! {
                biased;
                pulled = reading.open.next(), if !is_full => pulled,
                done = self.finisher.next() => return self.told(reading, done?),
            };
            let at = |fault: Fault| fault.at_drive(&reading.label);
            let event = match pulled? {
                Some(event) => event.map_err(at)?,
                None => return Err(at(Fault::new(Blame::Device, "the session ended before its work was done")).into()),
            };
            match self.event(event, reading).await? {
                Some(rows) if rows.is_empty() => {}
                Some(rows) => return Ok(Some(rows)),
                None => return Ok(None),
            }
        }
    }

    fn told(&mut self, reading: &Reading, done: Done) -> Result<Option<Vec<RecordBatch>>, Stop> {
        self.finisher.tell(&reading.door, reading.open.session);
        Ok(Some(self.take(done)?))
    }

    /// Takes an event. The rows that count by it; none at the session's end.
    async fn event(&mut self, event: Event, reading: &Reading) -> Result<Option<Vec<RecordBatch>>, Stop> {
        let at = |fault: Fault| fault.at_drive(&reading.label);
        let Self { profile, partition, admission, schema, finisher, .. } = self;
        match event {
            Event::Rows { round, batch, link_bytes } => {
                profile.update(*partition, |session| session.link_bytes += link_bytes);
                admission.hold(round, conform(batch, schema).map_err(at)?)?;
            }
            Event::Filtered { round, batch, link_bytes } => {
                profile.update(*partition, |session| session.link_bytes += link_bytes);
                finisher.bind(&reading.door).await.map_err(at)?;
                admission.hold(round, batch)?;
            }
            Event::Stored { round, slice, total, bytes, link_bytes } => {
                profile.update(*partition, |session| session.link_bytes += link_bytes);
                finisher.bind(&reading.door).await.map_err(at)?;
                finisher.store(round, slice, total, &bytes).map_err(|error| Stop::from(at(fault_of(error))))?;
            }
            Event::Hints { round, slice, pages, parts, link_bytes } => {
                profile.update(*partition, |session| session.link_bytes += link_bytes);
                finisher.bind(&reading.door).await.map_err(at)?;
                finisher.hint(round, slice, pages, parts).map_err(at)?;
            }
            Event::Closed { annotation, link_bytes } => return self.closed(annotation, link_bytes, reading).await,
            Event::Finished { profile: report, link_bytes } => {
                admission.finish().map_err(at)?;
                finisher.all_came()?;
                if let Some(costs) = &report.settled {
                    self.target.context.sizes.keep(&self.target.request, costs);
                }
                profile.update(*partition, |session| {
                    session.link_bytes += link_bytes;
                    session.session = Some(report);
                    session.wall_us += reading.started.elapsed().as_micros() as u64;
                });
                reading.open.close().await;
                self.is_over = true;
                return Ok(None);
            }
        }
        Ok(Some(vec![]))
    }

    /// A round is closed. The rows that count by it; slices that came back are finished here.
    async fn closed(
        &mut self,
        annotation: Annotation,
        link_bytes: u64,
        reading: &Reading,
    ) -> Result<Option<Vec<RecordBatch>>, Stop> {
        let at = |fault: Fault| fault.at_drive(&reading.label);
        let Self { profile, partition, admission, finisher, .. } = self;
        let is_handed_back = finisher.is_handed_back(annotation.level);
        if is_handed_back {
            // A round may come back without a row: its partition is to be finished all the same.
            finisher.bind(&reading.door).await.map_err(at)?;
        }
        // What came back is checked before it counts, since another copy may be sound.
        let (opened, bytes) = match annotation.level {
            Level::Bytes | Level::Hints if is_handed_back => finisher.opened(&annotation).map_err(at)?,
            _ => Default::default(),
        };
        let accept = |rows: Vec<RecordBatch>| match annotation.level {
            _ if !is_handed_back || rows.is_empty() => Ok((opened, bytes, rows)),
            Level::Filtered => finisher.filtered(&annotation, rows).map(|(slices, bytes)| (slices, bytes, vec![])),
            _ => Err(Fault::new(Blame::Device, "rows came of slices that were handed back as stored")),
        };
        let closed = admission.close(&annotation, accept);
        let (slices, bytes, rows) = closed.inspect_err(|_| finisher.let_go(bytes)).map_err(at)?;
        let counts = |brake: &Arc<Brake>| brake.answered(*partition, admission.done());
        if !self.target.brake.as_ref().is_none_or(counts) {
            return Err(Stop::Braked);
        }
        if is_handed_back {
            finisher.finish(&annotation, slices, bytes)?;
        } else {
            self.passing += annotation.slices.iter().map(|span| u64::from(span.count)).sum::<u64>();
        }
        profile.update(*partition, |session| {
            session.link_bytes += link_bytes;
            session.annotations.push(annotation);
        });
        Ok(Some(rows))
    }

    /// After a session has ended early: another one may answer for what is left. Whether anything is.
    fn break_off(&mut self) -> Result<bool, Fault> {
        self.reading = None;
        self.admission.restart();
        self.finisher.restart();
        if self.admission.is_complete() {
            // Only its good-bye was lost.
            self.finisher.all_came()?;
            self.is_over = true;
            return Ok(false);
        }
        if self.target.request.whole_partition && self.finisher.forget() {
            // Nothing of it was handed on: all of it is asked for again.
            self.admission.start_over();
        }
        Ok(true)
    }

    /// After a drive has failed: chooses another copy, for what is left. The last fault if there is none.
    async fn go_on(&mut self, fault: Fault) -> Result<(), Fault> {
        if !self.break_off()? {
            return Ok(());
        }
        let Some(choice) = &mut self.choice else { return Err(fault) };
        let Some(failed) = choice.drive().cloned() else { return Err(fault) };
        if fault.blame == Blame::Device {
            self.target.context.fleet.connected().suspects().add(failed.id());
        }
        let mut goes_on = choice.fail(fault.clone());
        if fault.blame == Blame::Conflict {
            // Moved, or dropped: the newest manifest tells.
            let copies = self.target.context.fleet.copies_now(&self.target.request.parts).await;
            goes_on = copies.is_some_and(|copies| choice.moved(copies));
        }
        // Rows of a whole partition come in one round. More than one would be asked for twice.
        let is_whole = self.target.request.whole_partition && !self.admission.done().is_empty();
        let Some(next) = choice.drive().filter(|_| goes_on && !is_whole).cloned() else {
            return Err(choice.verdict().unwrap_or(fault));
        };
        let told = format!(
            "partition {}: went on at {} after {} failed: {}",
            self.partition,
            next.label(),
            failed.label(),
            fault.message
        );
        tracing::info!("{told}");
        self.profile.update(self.partition, |session| session.failovers.push(told));
        if choice.faults() >= choice.width() {
            tokio::time::sleep(AGAIN_WAIT).await;
        }
        Ok(())
    }
}

/// The batch under the names of `schema`; its types must be the same.
fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Fault::new(Blame::Device, format!("the drive sent other columns than asked for: {error}")))
}
