//! Runs that are copied from drive to drive: read as they are stored, and written whole or not at all.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use pithead_cse::Shutdown;
use pithead_device::Device;
use pithead_door::{Pieces, RunPiece, RunValue, check_columns, run_values, value_pieces};
use pithead_model::{Blame, Directory, Fault, SLICE_BYTES_MAX, SliceKey};
use pithead_sched::Class;
use pithead_slice::open_slice;
use pithead_store::{Expected, Put, Store, StoreError, Value, Write};
use tokio::sync::mpsc;

use crate::resources::Grant;
use crate::resources::Workers;
use crate::storage::Storage;
use crate::storage::claims::unclaimed;
use crate::storage::directories::{Directories, gone, parse};
use crate::storage::discards::filters_of;
use crate::storage::keys::{check_name, condemned_key, slice_key};
use crate::storage::leases::{Lease, Leases};
use crate::storage::loads::ROWS_WAIT;
use crate::storage::slices::SliceCache;
use crate::storage::staging::StagedValue;

/// Pieces that wait for the reader of a run at most.
const PIECES_QUEUED_MAX: usize = 2;
/// Longest that a run that is read waits for its reader, leased meanwhile.
const READER_WAIT: Duration = Duration::from_secs(300);

impl Storage {
    /// A run as it is stored, leased while it is read.
    pub(crate) async fn read_pieces(&self, run: SliceKey) -> Result<Pieces, Fault> {
        check_run(&run)?;
        self.shutdown.check()?;
        let grant = self.load_grant(false).await?;
        let lease = self.leases.lease(vec![run.clone()]).map_err(|run| gone(&run))?;
        let reader = RunReader {
            store: Arc::clone(&self.store),
            device: Arc::clone(&self.resources.device),
            workers: self.resources.workers.clone(),
            shutdown: self.shutdown.clone(),
            run: run.clone(),
            _held: (lease, grant),
        };
        let meta = reader.value(None).await?.ok_or_else(|| gone(&run))?;
        let slices = parse(&meta).map_err(|fault| fault.at(&run))?.slices.len();
        tracing::info!(%run, slices, "reading a run for a copy");
        let (sender, receiver) = mpsc::channel(PIECES_QUEUED_MAX);
        // A task of its own, so that a reader that sleeps does not hold the lease for ever.
        self.resources.workers.spawn(Class::Background, reader.send_all(meta, slices, sender));
        Ok(received(receiver))
    }

    /// Stores a run that another drive has: all of it, or nothing.
    pub(crate) async fn write_pieces(&self, run: SliceKey, pieces: Pieces) -> Result<(), Fault> {
        check_run(&run)?;
        self.shutdown.check()?;
        let grant = self.load_grant(false).await?;
        // Nobody deletes it while it is written.
        let lease = self.leases.lease(vec![run.clone()]).map_err(|run| {
            let what = format!("load {} of {}, partition {}, is being deleted here", run.load, run.name, run.partition);
            Fault::new(Blame::Conflict, what).hint("try again")
        })?;
        tracing::info!(%run, "writing a copy of a run");
        let writer = RunWriter {
            store: Arc::clone(&self.store),
            workers: self.resources.workers.clone(),
            leases: Arc::clone(&self.leases),
            directories: Arc::clone(&self.directories),
            slices: Arc::clone(&self.slices),
            run,
            _held: (lease, grant),
        };
        self.resources.workers.run(writer.write(pieces)).await?
    }
}

fn check_run(run: &SliceKey) -> Result<(), Fault> {
    match run.number {
        Some(number) => Err(Fault::new(Blame::User, format!("expected the key of a run, got that of its slice {number}"))),
        None => check_name(&run.name),
    }
}

/// Reads a run in a task, until the caller has all of it.
struct RunReader {
    store: Arc<dyn Store>,
    device: Arc<dyn Device>,
    workers: Workers,
    shutdown: Shutdown,
    run: SliceKey,
    _held: (Lease, Grant),
}

/// A piece, none at the run's end, or what went wrong. A queue that ends without either was left by its task.
type Queued = Result<Option<RunPiece>, Fault>;

impl RunReader {
    /// A value as it is on the medium; the store verifies its checksum. What is in memory says nothing of the copy here: it
    /// would hide damage from whoever compares copies, until the drive is started again.
    async fn value(&self, number: Option<u32>) -> Result<Option<Value>, Fault> {
        let (store, key) = (Arc::clone(&self.store), slice_key(&SliceKey { number, ..self.run.clone() }));
        let found = self.workers.blocking(move || store.get_stored(&key)).await??;
        let Some((value, _)) = found else { return Ok(None) };
        if let Some(wait) = self.device.read(value.len() as u64) {
            wait.await;
        }
        Ok(Some(value))
    }

    async fn send_all(self, meta: Value, slices: usize, queue: mpsc::Sender<Queued>) {
        let last = self.send_values(meta, slices, &queue).await.map(|()| None);
        // A reader that is gone hears nothing any more.
        let _ = tokio::time::timeout(READER_WAIT, queue.send(last)).await;
    }

    async fn send_values(&self, meta: Value, slices: usize, queue: &mpsc::Sender<Queued>) -> Result<(), Fault> {
        send((None, meta), queue).await?;
        for number in (0..).take(slices) {
            self.shutdown.check()?;
            let missing = || Fault::new(Blame::Corrupt, "its metadata slice names it, and it is not there");
            let value = self.value(Some(number)).await?.ok_or_else(missing).map_err(|it| it.at(self.run.slice(number)))?;
            send((Some(number), value), queue).await?;
        }
        Ok(())
    }
}

async fn send(value: RunValue, queue: &mpsc::Sender<Queued>) -> Result<(), Fault> {
    for piece in value_pieces(value) {
        match tokio::time::timeout(READER_WAIT, queue.send(Ok(Some(piece)))).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Fault::new(Blame::Cancelled, "the reader of the run is gone")),
            Err(_) => return Err(Fault::new(Blame::Limit, format!("nobody took the run's bytes for {READER_WAIT:?}"))),
        }
    }
    Ok(())
}

fn received(queue: mpsc::Receiver<Queued>) -> Pieces {
    stream::unfold(Some(queue), |queue| async move {
        let mut queue = queue?;
        match queue.recv().await {
            Some(Ok(Some(piece))) => Some((Ok(piece), Some(queue))),
            Some(Ok(None)) => None,
            Some(Err(fault)) => Some((Err(fault), None)),
            None => Some((Err(Fault::new(Blame::Device, "the drive has stopped reading the run")), None)),
        }
    })
    .boxed()
}

/// Writes one run.
struct RunWriter {
    store: Arc<dyn Store>,
    workers: Workers,
    leases: Arc<Leases>,
    directories: Arc<Directories>,
    slices: Arc<SliceCache>,
    run: SliceKey,
    _held: (Lease, Grant),
}

impl RunWriter {
    /// Writes the run with one value in memory at a time. Staged values are deleted where anything fails, or this is dropped.
    async fn write(self, pieces: Pieces) -> Result<(), Fault> {
        let mut values = run_values(patient(pieces));
        let Some((None, meta)) = values.try_next().await? else {
            return Err(Fault::new(Blame::User, "expected a run's metadata slice first").at(&self.run));
        };
        let directory = Arc::new(sound(&meta).map_err(|fault| fault.at(&self.run))?);
        self.check_equal(meta.clone()).await?;
        let mut staged = Vec::new();
        while let Some((number, value)) = values.try_next().await? {
            // Numbers are dense from 0, as `run_values` checks.
            let number = number.ok_or_else(|| Fault::new(Blame::Bug, "a second metadata slice"))?;
            staged.push((number, self.stage(number, value, &directory).await?));
        }
        if staged.len() != directory.slices.len() {
            let what = format!("{} of {} slices came", staged.len(), directory.slices.len());
            return Err(Fault::new(Blame::Corrupt, what).at(&self.run));
        }
        self.adopt(meta, staged).await
    }

    /// Opens a slice, compares it with the directory, and stages it, on a thread that may block.
    async fn stage(&self, number: u32, value: Value, directory: &Arc<Directory>) -> Result<StagedValue, Fault> {
        let (store, directory, key) = (Arc::clone(&self.store), Arc::clone(directory), self.run.slice(number));
        let stage = move || {
            check_slice(number, &value, &directory).map_err(|fault| fault.at(&key))?;
            Ok::<_, Fault>(StagedValue::stage(&store, value)?)
        };
        self.workers.blocking(stage).await?
    }

    async fn check_equal(&self, meta: Value) -> Result<(), Fault> {
        let (store, run) = (Arc::clone(&self.store), self.run.clone());
        self.workers.blocking(move || here(&*store, &run, &meta).map(drop)).await?
    }

    /// Names all values at once. Once begun this goes on to its end, even if nobody waits for it any more.
    async fn adopt(self, meta: Value, staged: Vec<(u32, StagedValue)>) -> Result<(), Fault> {
        // A run that was to be deleted stays now: its note goes and it is revived in one step, as a discard takes it.
        let order = self.leases.in_order().await;
        let workers = self.workers.clone();
        let adopt = move || {
            let expected = here(&*self.store, &self.run, &meta)?;
            let meta = Write::Put(Put { expected, ..Put::forced(slice_key(&self.run), meta) });
            let named = staged.into_iter().filter_map(|(number, value)| value.named(slice_key(&self.run.slice(number))));
            let batch = [meta, Write::delete(condemned_key(&self.run))].into_iter().chain(unclaimed(&*self.store, &self.run)?);
            // Filters of slices that are no more what they were would outlive the process that knows so.
            let filters = filters_of(&*self.store, &self.run)?.into_iter().map(Write::delete);
            self.store.adopt(named.collect(), batch.chain(filters).collect())?;
            self.leases.revive(&self.run);
            self.directories.forget(&self.run);
            self.slices.forget(&self.run);
            tracing::info!(run = %self.run, "copied");
            drop(order);
            Ok(())
        };
        workers.blocking(adopt).await?
    }
}

/// The condition on the metadata slice's key: that it holds nothing, this very metadata slice, or a damaged one. Any other
/// metadata slice is refused, since sessions may be reading its slices.
fn here(store: &dyn Store, run: &SliceKey, meta: &Value) -> Result<Expected, Fault> {
    match store.get(&slice_key(run)) {
        Ok(None) => Ok(Expected::Absent),
        Ok(Some((value, entry))) if value == *meta => Ok(Expected::Version(entry.version)),
        Ok(Some(_)) => {
            let what = format!("{run} is here already, and is not what was sent");
            Err(Fault::new(Blame::Conflict, what).hint("one of the two is damaged: compare them with `pithead check`"))
        }
        Err(StoreError::Corrupt { .. }) => Ok(Expected::Any),
        Err(error) => Err(error.into()),
    }
}

/// Reads a metadata slice from another drive, within the bounds that a load holds to.
fn sound(meta: &[u8]) -> Result<Directory, Fault> {
    let directory = parse(meta)?;
    check_columns(&directory.schema)?;
    match directory.slices.iter().position(|slice| slice.bytes > SLICE_BYTES_MAX as u64) {
        None => Ok(directory),
        Some(number) => Err(Fault::new(Blame::Corrupt, format!("slice {number} is said to have more bytes than a slice may"))),
    }
}

fn check_slice(number: u32, value: &Value, directory: &Directory) -> Result<(), Fault> {
    let damaged = |what: String| Err(Fault::new(Blame::Corrupt, what));
    let Some(entry) = directory.slices.get(number as usize) else {
        return damaged(format!("its metadata slice names {} slices", directory.slices.len()));
    };
    if value.len() as u64 != entry.bytes {
        return damaged(format!("it has {} bytes, its metadata slice says {}", value.len(), entry.bytes));
    }
    let rows = open_slice(&directory.schema, value.clone())?.rows();
    match rows == entry.rows {
        true => Ok(()),
        false => damaged(format!("it has {rows} rows, its metadata slice says {}", entry.rows)),
    }
}

/// The same pieces, or a fault when none come for too long.
fn patient(pieces: Pieces) -> Pieces {
    stream::unfold(pieces, |mut pieces| async move {
        match tokio::time::timeout(ROWS_WAIT, pieces.next()).await {
            Ok(piece) => Some((piece?, pieces)),
            Err(_) => Some((Err(Fault::new(Blame::Limit, format!("no bytes of the run came for {ROWS_WAIT:?}"))), pieces)),
        }
    })
    .boxed()
}
