//! From sources to drives: readers on blocking threads, each splitting its batches by partition, and one stream of
//! batches into each partition's drive. Channels between them are short, so that a slow drive holds the readers back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream;
use pithead_door::{Batches, LoadRequest};
use pithead_files::{Source, guarded};
use pithead_fleet::{ConnectedDrive, Drives, relay};
use pithead_model::{Blame, Dataset, DatasetName, Fault, LoadId, Loaded, Partition, SliceKey};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::agree::Conform;
use crate::partition::Partitioner;
use crate::spec::LoadProgress;
use crate::target::Target;

/// Runs that are copied at one time.
const COPIES_AT_ONCE: usize = 4;
/// Batches that wait for one partition's drive.
const CHANNEL_BATCHES: usize = 4;

/// Where rows come from.
pub(crate) enum Feed {
    /// Files, read by several threads.
    Files(Vec<Box<dyn Source>>),
    /// A program's batches, of this schema.
    Batches(SchemaRef, Batches),
}

/// Counts what was read, and tells.
pub(crate) struct Meter {
    bytes: AtomicU64,
    bytes_total: u64,
    rows: AtomicU64,
    tell: Arc<dyn Fn(LoadProgress) + Send + Sync>,
}

impl Meter {
    pub(crate) fn new(bytes_total: u64, tell: Arc<dyn Fn(LoadProgress) + Send + Sync>) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_total, rows: AtomicU64::new(0), tell }
    }

    fn add(&self, bytes: u64, rows: usize) {
        let bytes_done = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let rows = self.rows.fetch_add(rows as u64, Ordering::Relaxed) + rows as u64;
        let bytes_total = self.bytes_total.max(bytes_done);
        (self.tell)(LoadProgress { bytes_done, bytes_total, rows });
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Why a reader stopped early.
enum Stop {
    /// A drive no longer takes rows, or another reader failed: who did says why.
    Elsewhere,
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Fault(fault)
    }
}

/// What all readers of a load share.
struct Line {
    sources: Vec<Box<dyn Source>>,
    next: AtomicUsize,
    schema: SchemaRef,
    partitioner: Partitioner,
    senders: Vec<mpsc::Sender<RecordBatch>>,
    meter: Arc<Meter>,
    stopped: AtomicBool,
}

/// Loads all rows; returns one run a partition. If anything fails, every drive is told, and the error is the first
/// cause.
pub(crate) async fn run(
    drives: &Drives,
    threads: usize,
    target: &Target,
    feed: Feed,
    meter: Arc<Meter>,
) -> Result<Vec<Loaded>, Fault> {
    let dataset = &target.dataset;
    let (senders, receivers): (Vec<_>, Vec<_>) = dataset.partitions.iter().map(|_| mpsc::channel(CHANNEL_BATCHES)).unzip();
    let partitioner = Partitioner::new(&dataset.partitioning, &dataset.schema, dataset.partitions.len())?;
    let (sources, batches) = match feed {
        Feed::Files(sources) => (sources, None),
        Feed::Batches(schema, batches) => (Vec::new(), Some((schema, batches))),
    };
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let line = Line { sources, next, schema: Arc::clone(&dataset.schema), partitioner, senders, meter, stopped };
    let is_complete = Arc::new(AtomicBool::new(false));
    let mut loads = start_loads(drives, target, receivers, &is_complete)?;
    let feed = async {
        let line = Arc::new(line);
        match batches {
            Some((schema, batches)) => feed_batches(&line, &schema, batches).await?,
            None => feed_files(&line, threads).await?,
        }
        is_complete.store(true, Ordering::Release);
        Ok(line.meter.rows())
    };
    let (fed, stored) = futures::join!(feed, finish_loads(&mut loads));
    match (fed, stored) {
        (Err(Stop::Fault(fault)), _) | (_, Err(fault)) => Err(fault),
        (Err(Stop::Elsewhere), Ok(_)) => Err(Fault::bug("a drive stopped taking rows without saying why")),
        (Ok(rows), Ok(runs)) => check(target, &runs, rows).map(|()| runs),
    }
}

type Loads = JoinSet<(usize, Result<Loaded, Fault>)>;

/// All runs by partition, or the fault that came first.
async fn finish_loads(loads: &mut Loads) -> Result<Vec<Loaded>, Fault> {
    let mut runs = Vec::new();
    let mut outcome = Ok(());
    while let Some(joined) = loads.join_next().await {
        let loaded = match joined {
            Ok((partition, loaded)) => loaded.map(|run| runs.push((partition, run))),
            Err(error) => Err(Fault::bug(error)),
        };
        outcome = outcome.and(loaded);
    }
    runs.sort_by_key(|(partition, _)| *partition);
    outcome.map(|()| runs.into_iter().map(|(_, run)| run).collect())
}

/// Starts one load a partition, each a task, so that they encode at the same time.
fn start_loads(
    drives: &Drives,
    target: &Target,
    receivers: Vec<mpsc::Receiver<RecordBatch>>,
    is_complete: &Arc<AtomicBool>,
) -> Result<Loads, Fault> {
    let dataset = &target.dataset;
    let at = |fault: Fault| fault.at(format_args!("cannot load {}", target.name));
    let copies = dataset.partitions.iter().map(|partition| copies_of(partition, drives)).collect::<Result<Vec<_>, _>>();
    let copies = copies.map_err(at)?;
    let copying = Arc::new(Semaphore::new(COPIES_AT_ONCE));
    let mut loads = JoinSet::new();
    for (partition, (copies, receiver)) in copies.into_iter().zip(receivers).enumerate() {
        let request = load_request(&target.name, dataset, partition as u32, target.load);
        let rows = rows(receiver, Arc::clone(is_complete));
        let copying = Arc::clone(&copying);
        loads.spawn(async move { (partition, load_copies(request, rows, &copies, &copying).await) });
    }
    Ok(loads)
}

/// What a load into a partition of a dataset asks of a drive.
pub(crate) fn load_request(name: &DatasetName, dataset: &Dataset, partition: u32, load: LoadId) -> LoadRequest {
    LoadRequest {
        load,
        name: name.clone(),
        dataset: dataset.id,
        partition,
        schema: Arc::clone(&dataset.schema),
        metadata: dataset.metadata.clone(),
        sort: dataset.sort.clone(),
        encoding: dataset.encoding.clone(),
        slice_rows: dataset.slice_rows,
        slice_bytes: dataset.slice_bytes,
    }
}

/// The drives of a partition. All of them have to be there.
pub(crate) fn copies_of(partition: &Partition, drives: &Drives) -> Result<Vec<ConnectedDrive>, Fault> {
    partition.copies.iter().map(|id| drives.get(*id).cloned()).collect()
}

/// Loads into the first copy. The others get its run byte for byte once it is complete there.
async fn load_copies(
    request: LoadRequest,
    rows: Batches,
    copies: &[ConnectedDrive],
    copying: &Semaphore,
) -> Result<Loaded, Fault> {
    let Some((first, others)) = copies.split_first() else { return Err(Fault::bug("a partition on no drive")) };
    let key = SliceKey {
        name: request.name.clone(),
        dataset: request.dataset,
        load: request.load,
        partition: request.partition,
        number: None,
    };
    let loaded = first.door.load(request, rows).await.map_err(|fault| fault.at_drive(first.label()))?;
    // Of no rows there is nothing to name, and so nothing to copy.
    let others = if loaded.run.rows > 0 { others } else { &[] };
    for other in others {
        let _turn = copying.acquire().await.map_err(Fault::bug)?;
        relay(&key, first, other).await?;
    }
    Ok(loaded)
}

/// Reads the files' parts on up to `threads` threads.
async fn feed_files(line: &Arc<Line>, threads: usize) -> Result<(), Stop> {
    let parts: usize = line.sources.iter().map(|source| source.parts()).sum();
    let mut readers = JoinSet::new();
    for _ in 0..threads.clamp(1, parts.max(1)) {
        let line = Arc::clone(line);
        readers.spawn_blocking(move || {
            let read = line.read_parts();
            line.stopped.fetch_or(read.is_err(), Ordering::Relaxed);
            read
        });
    }
    let mut outcome = Ok(());
    while let Some(joined) = readers.join_next().await {
        let stop = match joined {
            Ok(Ok(())) => continue,
            Ok(Err(stop)) => stop,
            Err(error) => Stop::Fault(Fault::bug(error)),
        };
        if !matches!(outcome, Err(Stop::Fault(_))) {
            outcome = Err(stop);
        }
    }
    outcome
}

async fn feed_batches(line: &Line, schema: &SchemaRef, mut batches: Batches) -> Result<(), Stop> {
    let conform = Conform::new(schema, &line.schema)?;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        let bytes = pithead_door::batch_bytes(&batch) as u64;
        let rows = batch.num_rows();
        for (partition, piece) in line.partitioner.split(&conform.batch(&batch)?)? {
            line.senders[partition].send(piece).await.map_err(|_| Stop::Elsewhere)?;
        }
        line.meter.add(bytes, rows);
    }
    Ok(())
}

/// One partition's rows on their way to its drive. When the readers end without saying that they are through, be it by
/// an error or because nobody waits any more, the drive is told that these are not all the rows.
fn rows(receiver: mpsc::Receiver<RecordBatch>, is_complete: Arc<AtomicBool>) -> Batches {
    let next = move |receiver: Option<mpsc::Receiver<RecordBatch>>| {
        let is_complete = Arc::clone(&is_complete);
        async move {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Some(batch) => Some((Ok(batch), Some(receiver))),
                None if is_complete.load(Ordering::Acquire) => None,
                None => Some((Err(Fault::new(Blame::Cancelled, "the load was given up")), None)),
            }
        }
    };
    stream::unfold(Some(receiver), next).boxed()
}

impl Line {
    /// Reads parts of files until none is left.
    fn read_parts(&self) -> Result<(), Stop> {
        while let Some((source, part)) = self.next_part() {
            let mut elsewhere = false;
            guarded(source.path(), || match self.read_part(source, part) {
                Err(Stop::Fault(fault)) => Err(fault),
                Err(Stop::Elsewhere) => {
                    elsewhere = true;
                    Ok(())
                }
                Ok(()) => Ok(()),
            })?;
            if elsewhere {
                return Err(Stop::Elsewhere);
            }
        }
        Ok(())
    }

    fn read_part(&self, source: &dyn Source, part: usize) -> Result<(), Stop> {
        let conform = Conform::new(source.schema(), &self.schema)?;
        let at_file = |fault: Fault| fault.at(source.path().display());
        let batch_rows = self.partitioner.batch_rows(self.schema.fields().len());
        for chunk in source.read(part, batch_rows, None)? {
            if self.stopped.load(Ordering::Relaxed) {
                return Err(Stop::Elsewhere);
            }
            let chunk = chunk?;
            let batch = conform.batch(&chunk.batch).map_err(at_file)?;
            for (partition, piece) in self.partitioner.split(&batch)? {
                self.senders[partition].blocking_send(piece).map_err(|_| Stop::Elsewhere)?;
            }
            self.meter.add(chunk.bytes, batch.num_rows());
        }
        Ok(())
    }

    fn next_part(&self) -> Option<(&dyn Source, usize)> {
        let mut part = self.next.fetch_add(1, Ordering::Relaxed);
        for source in &self.sources {
            if part < source.parts() {
                return Some((source.as_ref(), part));
            }
            part -= source.parts();
        }
        None
    }
}

/// The drives must have stored what was fed.
fn check(target: &Target, runs: &[Loaded], rows: u64) -> Result<(), Fault> {
    let stored: u64 = runs.iter().map(|loaded| loaded.run.rows).sum();
    if runs.len() != target.dataset.partitions.len() || stored != rows {
        return Err(Fault::bug(format!("the drives say they stored {stored} rows of {rows} of {}", target.name)));
    }
    runs.iter().try_for_each(|loaded| check_loaded(loaded, &target.dataset, target.load))
}

/// A drive must have answered for this load, with one summary a column.
pub(crate) fn check_loaded(loaded: &Loaded, dataset: &Dataset, load: LoadId) -> Result<(), Fault> {
    if loaded.run.load != load || loaded.columns.len() != dataset.schema.fields().len() {
        return Err(Fault::bug(format!("a drive answered for load {} instead of {load}", loaded.run.load)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rows_that_just_end_are_not_all_rows() {
        for is_complete in [true, false] {
            let (sender, receiver) = mpsc::channel(1);
            drop(sender);
            let ending: Vec<_> = rows(receiver, Arc::new(AtomicBool::new(is_complete))).collect().await;
            assert_eq!(ending.iter().filter(|batch| batch.is_err()).count(), usize::from(!is_complete));
        }
    }
}
