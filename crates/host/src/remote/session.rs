//! One partition's answer: a session at one of its drives, and where that fails another one over a copy, for the slices that
//! are not answered for yet. [`Admission`] makes it exactly once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryReservation;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use pithead_model::{Blame, Fault, Reply};
use pithead_wire::{Event, Events, OpenRequest};

use super::choice::Choice;
use super::closer::Closer;
use crate::Host;
use crate::admission::Admission;
use crate::drives::ConnectedDrive;
use crate::fault::{at_drive, bug};
use crate::profile::SubPlanProfile;

/// Pause before a copy that failed is asked again.
const AGAIN_WAIT: Duration = Duration::from_millis(250);

/// What each partition's session is opened with, and where.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) host: Host,
    /// The drives that hold a copy of all of it, the one to ask first first.
    pub(crate) copies: Vec<ConnectedDrive>,
    /// With 0 threads, as many are asked for as the drive has.
    pub(crate) request: OpenRequest,
}

/// One partition's answer on its way.
pub(super) struct Session {
    target: Arc<Target>,
    partition: usize,
    schema: SchemaRef,
    busy_wait: Duration,
    profile: Arc<SubPlanProfile>,
    admission: Admission,
    choice: Option<Choice>,
    reading: Option<Reading>,
    is_over: bool,
}

/// A session whose events arrive.
struct Reading {
    events: Events,
    label: String,
    started: Instant,
    closer: Closer,
}

/// Why a session did not go on.
enum Stop {
    /// The drive, the link or what is stored: a copy may do better.
    Drive(Fault),
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

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        Stop::End(error)
    }
}

impl Session {
    pub(super) fn new(
        target: Arc<Target>,
        partition: usize,
        schema: &SchemaRef,
        busy_wait: Duration,
        profile: &Arc<SubPlanProfile>,
        reservation: MemoryReservation,
    ) -> Self {
        let driving = target.request.parts.first();
        let slices = driving.map_or(0, |part| part.runs.iter().map(|(_, slices)| u64::from(*slices)).sum());
        Self {
            partition,
            schema: Arc::clone(schema),
            busy_wait,
            profile: Arc::clone(profile),
            admission: Admission::new(slices, reservation),
            choice: Choice::new(target.copies.clone(), target.host.connected().suspects().clone()),
            reading: None,
            is_over: false,
            target,
        }
    }

    /// The rows, from OPEN to CLOSE.
    pub(super) fn rows(self) -> impl Stream<Item = Result<RecordBatch>> {
        let batches = stream::try_unfold(self, |mut session| async move {
            let batches = session.next().await?;
            Ok::<_, DataFusionError>(batches.map(|batches| (batches, session)))
        });
        batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok::<_, DataFusionError>))).try_flatten()
    }

    /// The rows of the next round that closes; none at the end.
    async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        while !self.is_over {
            match self.step().await {
                Ok(rows) => return Ok(rows),
                Err(Stop::End(error)) => return Err(error),
                Err(Stop::Drive(fault)) => self.go_on(fault).await.map_err(external)?,
            }
        }
        Ok(None)
    }

    async fn step(&mut self) -> Result<Option<Vec<RecordBatch>>, Stop> {
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => self.open().await?,
        };
        let rows = self.read(&mut reading).await?;
        self.reading = Some(reading);
        Ok(rows)
    }

    /// OPEN and GET at the copy that is chosen, or at another one that is less busy.
    async fn open(&mut self) -> Result<Reading, Stop> {
        let started = Instant::now();
        loop {
            let Some(drive) = self.choice.as_ref().and_then(Choice::drive).cloned() else {
                return Err(bug("a session without a drive").into());
            };
            let label = drive.label().to_owned();
            let at = |fault: Fault| at_drive(fault, &label);
            let (opened, closer) = Closer::open(&drive.door, self.request(&drive)).await.map_err(at)?;
            self.profile.update(self.partition, |session| {
                session.label.clone_from(&label);
                session.link_bytes += opened.link_bytes;
            });
            match (opened.reply, closer) {
                (Reply::Granted(_), Some(closer)) => {
                    let open_us = started.elapsed().as_micros() as u64;
                    self.profile.update(self.partition, |session| session.open_us = session.open_us.max(open_us));
                    let events = drive.door.get(closer.session).await.map_err(|fault| lost_session(at(fault)))?;
                    return Ok(Reading { events, label, started, closer });
                }
                (Reply::Granted(_), None) => return Err(bug("a session was granted and is not there").into()),
                (Reply::Busy { why, retry_after_ms }, _) => self.wait(started, &label, &why, retry_after_ms).await?,
            }
        }
    }

    /// The drive is busy: another one is asked, or after a while all again, up to a limit.
    async fn wait(&mut self, started: Instant, label: &str, why: &str, retry_after_ms: u64) -> Result<(), Fault> {
        self.profile.update(self.partition, |session| session.busy += 1);
        let Some(choice) = &mut self.choice else { return Err(bug("a session without a drive")) };
        if choice.try_less_busy() {
            return Ok(());
        }
        if started.elapsed() > self.busy_wait {
            let message = format!("drive {label}: busy for {} s: {why}", self.busy_wait.as_secs());
            let hint = "try again later, or SET pithead.busy_wait_s to wait longer";
            return Err(Fault::new(Blame::Limit, message).hint(hint));
        }
        choice.ask_all_again();
        let wait = Duration::from_millis(retry_after_ms.clamp(1, 1000));
        self.profile.update(self.partition, |session| session.busy_us += wait.as_micros() as u64);
        tokio::time::sleep(wait).await;
        Ok(())
    }

    fn request(&self, drive: &ConnectedDrive) -> OpenRequest {
        let mut request = self.target.request.clone();
        request.done = self.admission.done();
        if request.options.threads == 0 {
            request.options.threads = drive.welcome.threads;
        }
        request
    }

    async fn read(&mut self, reading: &mut Reading) -> Result<Option<Vec<RecordBatch>>, Stop> {
        let Self { profile, partition, admission, schema, .. } = self;
        let at = |fault: Fault| at_drive(fault, &reading.label);
        loop {
            let event = match reading.events.next().await {
                Some(event) => event.map_err(at)?,
                None => return Err(at(Fault::new(Blame::Device, "the session ended before its work was done")).into()),
            };
            match event {
                Event::Rows { round, batch, link_bytes } => {
                    profile.update(*partition, |session| session.link_bytes += link_bytes);
                    admission.hold(round, conform(batch, schema).map_err(at)?)?;
                }
                Event::Closed { annotation, link_bytes } => {
                    let batches = admission.close(&annotation).map_err(at)?;
                    profile.update(*partition, |session| {
                        session.link_bytes += link_bytes;
                        session.annotations.push(annotation);
                    });
                    if !batches.is_empty() {
                        return Ok(Some(batches));
                    }
                }
                Event::Finished { profile: report, link_bytes } => {
                    admission.finish().map_err(at)?;
                    profile.update(*partition, |session| {
                        session.link_bytes += link_bytes;
                        session.session = Some(report);
                        session.wall_us += reading.started.elapsed().as_micros() as u64;
                    });
                    reading.closer.close().await;
                    self.is_over = true;
                    return Ok(None);
                }
            }
        }
    }

    /// After a drive has failed: chooses another copy, for what is left. The last fault if there is none.
    async fn go_on(&mut self, fault: Fault) -> Result<(), Fault> {
        self.reading = None;
        self.admission.restart();
        if self.admission.is_complete() {
            // Only its good-bye was lost.
            self.is_over = true;
            return Ok(());
        }
        let Some(choice) = &mut self.choice else { return Err(fault) };
        let Some(failed) = choice.drive().cloned() else { return Err(fault) };
        if fault.blame == Blame::Device {
            self.target.host.connected().suspects().add(failed.id());
        }
        let mut goes_on = choice.fail(fault.clone());
        if fault.blame == Blame::Conflict {
            // Moved, or dropped: the newest manifest tells.
            let copies = self.target.host.copies_now(&self.target.request.parts).await;
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

/// A session that was granted just now and is not there: the drive has started anew in between.
fn lost_session(fault: Fault) -> Fault {
    match fault.blame {
        Blame::User => Fault { blame: Blame::Device, ..fault },
        _ => fault,
    }
}

/// The batch under the names of `schema`; its types must be the same.
fn conform(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Fault::new(Blame::Device, format!("the drive sent other columns than asked for: {error}")))
}

fn external(fault: Fault) -> DataFusionError {
    DataFusionError::External(Box::new(fault))
}
