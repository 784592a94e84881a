//! [`Output`] and [`PartialOutputs`]: partial results that stay at the drive until they are combined, within the reservation.

use arrow::array::RecordBatch;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::StreamExt;
use pithead_door::compact;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, Level};

use crate::sessions::meter::Meter;
use crate::sessions::running::{OpenRound, Running};
use crate::sessions::tally::Tally;

/// Where a round's batches go: they are kept, or they travel at once. What would outgrow its share of the reservation
/// changes from the first to the second.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    running: &'a Running,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Keep {
        batches: Vec<RecordBatch>,
        room: MemoryReservation,
    },
    /// The round begins with its first rows, so that one without slices and rows needs no number.
    Send(Option<OpenRound>, Level),
}

/// Outputs of rounds that have not travelled.
#[derive(Debug, Default)]
pub(crate) struct PartialOutputs {
    batches: Vec<RecordBatch>,
    room: Vec<MemoryReservation>,
    /// Outputs that are not combined with each other.
    parts: usize,
    tally: Tally,
}

impl<'a> Output<'a> {
    /// The output of a round to this level. Rows that are only filtered are not kept.
    pub(crate) fn new(running: &'a Running, level: Level) -> Self {
        let mode = match running.work.policy.keep && level == Level::Whole {
            true => {
                Mode::Keep { batches: Vec::new(), room: MemoryConsumer::new("kept partials").register(&running.work.memory) }
            }
            false => Mode::Send(None, level),
        };
        Self { running, mode }
    }

    /// Takes a batch. `queue_ms`: what waits at the drive, where that is why the round is not taken further.
    pub(crate) async fn push(&mut self, batch: RecordBatch, queue_ms: Option<u64>) -> Result<(), Fault> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        match &mut self.mode {
            Mode::Send(round, level) => {
                let round = round.get_or_insert_with(|| self.running.begin_round(*level).after(queue_ms));
                self.running.send_rows(round, batch).await
            }
            Mode::Keep { batches, room } => {
                let batch = compact(&batch);
                let bytes = batch.get_array_memory_size();
                batches.push(batch);
                if room.size() + bytes <= share(self.running) && room.try_grow(bytes).is_ok() {
                    return Ok(());
                }
                let batches = std::mem::take(batches);
                self.mode = Mode::Send(Some(self.running.send_all(batches).await?), Level::Whole);
                Ok(())
            }
        }
    }

    /// The round is over, and did this.
    pub(crate) async fn end(self, tally: Tally) -> Result<(), Fault> {
        match self.mode {
            Mode::Send(..) => self.travel(tally).await,
            Mode::Keep { batches, room } => {
                let outgrown = {
                    let mut kept = self.running.kept.lock();
                    kept.add(PartialOutputs { batches, room: vec![room], parts: 1, tally });
                    (kept.bytes() > share(self.running)).then(|| std::mem::take(&mut *kept))
                };
                match outgrown {
                    Some(kept) => kept.shrink(self.running).await,
                    None => Ok(()),
                }
            }
        }
    }

    /// The round is over, did this, and is not kept.
    async fn travel(self, tally: Tally) -> Result<(), Fault> {
        let round = match self.mode {
            Mode::Send(Some(round), _) => round,
            Mode::Send(None, level) => self.running.begin_round(level),
            Mode::Keep { batches, .. } => self.running.send_all(batches).await?,
        };
        self.running.close_round(round, tally).await
    }

    /// The round is over and did nothing.
    pub(crate) async fn discard(self) -> Result<(), Fault> {
        match self.mode {
            Mode::Send(Some(round), _) => self.running.close_round(round, Tally::default()).await,
            _ => Ok(()),
        }
    }
}

impl PartialOutputs {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts == 0
    }

    pub(crate) fn slices(&self) -> &[u32] {
        &self.tally.slices
    }

    /// Partial results that were kept before, with the slices that they answer for.
    pub(crate) fn found(batches: Vec<RecordBatch>, tally: Tally) -> PartialOutputs {
        PartialOutputs { batches, room: vec![], parts: 1, tally }
    }

    fn bytes(&self) -> usize {
        self.room.iter().map(MemoryReservation::size).sum()
    }

    fn add(&mut self, other: PartialOutputs) {
        self.batches.extend(other.batches);
        self.room.extend(other.room);
        self.parts += other.parts;
        self.tally.add(other.tally);
    }

    /// Combines early. What then still takes more than half of its share travels as a round of its own: combining it
    /// again would gain little.
    async fn shrink(self, running: &Running) -> Result<(), Fault> {
        let kept = self.combine(running).await?;
        if kept.parts == 1 && kept.bytes() <= share(running) / 2 {
            running.kept.lock().add(kept);
            return Ok(());
        }
        kept.travel(running).await
    }

    /// Sends everything as one round, which also answers for the slices of `rest`.
    pub(crate) async fn send(self, running: &Running, rest: Tally) -> Result<(), Fault> {
        let mut kept = self.combine(running).await?;
        kept.tally.add(rest);
        if let Some(summary) = running.work.summary.as_ref().filter(|_| kept.parts == 1) {
            summary.keep(&kept.tally.slices, kept.batches.clone());
        }
        kept.travel(running).await
    }

    async fn travel(self, running: &Running) -> Result<(), Fault> {
        let round = running.send_all(self.batches).await?;
        drop(self.room);
        running.close_round(round, self.tally).await
    }

    /// One output in place of several; as it was, where there is no memory to combine it. The host merges in any case.
    async fn combine(mut self, running: &Running) -> Result<PartialOutputs, Fault> {
        if self.parts <= 1 {
            return Ok(self);
        }
        let mut meter = running.counting_meter();
        let combined = combined(&self.batches, running, &mut meter).await;
        self.tally.cpu_ns += meter.cpu_ns();
        self.tally.wall_ns += meter.wall_ns();
        match combined {
            Ok((batches, room)) => Ok(PartialOutputs { batches, room: vec![room], parts: 1, tally: self.tally }),
            Err(fault) if fault.blame == Blame::Limit => {
                tracing::debug!(%fault, "partials travel as they are");
                Ok(self)
            }
            Err(fault) => Err(fault),
        }
    }
}

async fn combined(
    partials: &[RecordBatch],
    running: &Running,
    meter: &mut Meter<'_>,
) -> Result<(Vec<RecordBatch>, MemoryReservation), Fault> {
    let room = MemoryConsumer::new("combined partials").register(&running.work.memory);
    let mut batches = Vec::new();
    let mut stream = meter.run(running.work.bound.combine(partials.to_vec())).await?;
    while let Some(batch) = meter.run(stream.next()).await {
        let batch = compact(&batch.map_err(fault_from_datafusion)?);
        room.try_grow(batch.get_array_memory_size()).map_err(fault_from_datafusion)?;
        batches.push(batch);
        meter.charge().await;
        meter.give_way().await;
    }
    Ok((batches, room))
}

/// Bytes that kept outputs may take, and each task's that are still coming: together half of the session's grant. The other
/// half is for the operators of the rounds that run.
fn share(running: &Running) -> usize {
    let holders = running.work.policy.tasks as u64 + 1;
    usize::try_from(running.work.grant.bytes() / 2 / holders).unwrap_or(usize::MAX)
}
