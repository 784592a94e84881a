//! [`Drive`]: what a drive is made of, and how it starts and stops.

use std::sync::Arc;
use std::time::Duration;

use pithead_device::{Device, Instant, machine_cores};
use pithead_exec::Summaries;
use pithead_model::{Blame, Cores, DriveId, Fault};
use pithead_sched::{Pool, PoolOptions};
use pithead_store::{DiskStore, Store, StoreOptions};

use crate::DriveOptions;
use crate::budget::Budget;
use crate::costs::Costs;
use crate::directories::Directories;
use crate::health::Writing;
use crate::leases::Leases;
use crate::metrics::{Limits, Metrics};
use crate::orphans::Orphans;
use crate::runtime::Runtimes;
use crate::sessions::Sessions;
use crate::slices::SliceCache;
use crate::turns::TurnLimits;
use crate::uses::Uses;
use crate::work::Workers;

/// Calls that block at one time at most, a reactor.
const BLOCKING_THREADS_PER_REACTOR: usize = 4;
/// Longest time between two looks for runs that no manifest names.
const ORPHANS_STEP_MAX: Duration = Duration::from_secs(60);
/// How often a drive that is stopping looks whether its sessions have ended.
const STOP_STEP: Duration = Duration::from_millis(20);

/// A drive: sessions, loads and metadata over one store. Its [`pithead_wire::Door`] is what hosts see.
#[derive(Debug)]
pub struct Drive {
    pub(crate) label: String,
    pub(crate) id: DriveId,
    pub(crate) started: Instant,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) workers: Workers,
    pub(crate) budget: Arc<Budget>,
    pub(crate) runtimes: Runtimes,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) directories: Arc<Directories>,
    pub(crate) slices: Arc<SliceCache>,
    pub(crate) uses: Arc<Uses>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) writing: Writing,
    /// Runs that no manifest names.
    pub(crate) orphans: parking_lot::Mutex<Orphans>,
    pub(crate) slow_session: Option<Duration>,
    pub(crate) costs: Arc<Costs>,
    pub(crate) summaries: Arc<Summaries>,
    /// The cores that it runs on.
    pub(crate) cores: Cores,
}

impl Drive {
    /// Opens the drive in a directory, makes it if absent, and starts what runs in the background. Blocks for as long
    /// as the store takes.
    ///
    /// A directory that another process has open is [`Blame::User`].
    pub fn open(options: DriveOptions) -> Result<Arc<Drive>, Fault> {
        let cache_bytes = options.cache_bytes() - reader_bytes(&options);
        let disk = DiskStore::open(&options.data, StoreOptions { cache_bytes, ..StoreOptions::default() })?;
        let id = disk.drive_id();
        Self::over(Arc::new(disk), id, options)
    }

    /// The same over a store that is open.
    pub(crate) fn over(store: Arc<dyn Store>, id: DriveId, options: DriveOptions) -> Result<Arc<Drive>, Fault> {
        let workers = Workers::new(match &options.pool {
            Some(pool) => Arc::clone(pool),
            None => Arc::new(own_pool(&options)?),
        });
        let device = Arc::clone(&options.device);
        let reader_bytes = reader_bytes(&options);
        let directories = Arc::new(Directories::new(Arc::clone(&store), workers.clone()));
        let slices =
            SliceCache::new(Arc::clone(&store), Arc::clone(&device), workers.clone(), Arc::clone(&directories), reader_bytes);
        let turns = TurnLimits { sessions: options.sessions_max, host_sessions: options.host_sessions() };
        let metrics = Arc::new(Metrics::new(&Limits {
            sessions: turns.sessions,
            host_sessions: turns.host_sessions,
            memory: options.memory,
            cache: options.cache_bytes(),
            threads: workers.threads(),
        }));
        let costs = Arc::new(Costs::open(&options.data, device.cpu_share()));
        let sessions = Arc::new(Sessions::new(turns, Arc::clone(&device), Arc::clone(&metrics)));
        let drive = Arc::new(Drive {
            label: options.data.display().to_string(),
            id,
            started: device.clock().now(),
            store,
            device,
            workers,
            budget: Arc::new(Budget::new(options.memory)),
            runtimes: Runtimes::open(&options.data.join("tmp"))?,
            sessions,
            leases: Arc::default(),
            directories,
            slices: Arc::new(slices),
            uses: Arc::default(),
            metrics,
            writing: Writing::default(),
            orphans: parking_lot::Mutex::default(),
            slow_session: options.slow_session,
            costs,
            summaries: Arc::new(Summaries::new(options.cache_bytes() / 16)),
            cores: cores(&options),
        });
        drive.collect_condemned()?;
        drive.start_background(options.idle_limit, options.open_limit);
        tracing::info!(drive = %id, data = %drive.label, threads = drive.workers.threads(), memory = options.memory, "open");
        Ok(drive)
    }

    /// The drive's identity, kept for life.
    pub fn id(&self) -> DriveId {
        self.id
    }

    /// Refuses new sessions and loads, gives running sessions `grace` to end, then ends them and flushes the store.
    pub async fn stop(&self, grace: Duration) {
        self.sessions.refuse();
        let clock = self.device.clock();
        let start = clock.now();
        while self.sessions.count() > 0 && clock.now().since(start) < grace {
            clock.sleep(STOP_STEP).await;
        }
        for session in self.sessions.close_all() {
            session.stopped().await;
        }
        let (store, costs, share) = (Arc::clone(&self.store), Arc::clone(&self.costs), self.device.cpu_share());
        let flush = move || {
            costs.keep(share);
            store.flush()
        };
        match self.workers.blocking(flush).await {
            Ok(Ok(())) => tracing::info!(drive = %self.id, "stopped"),
            Ok(Err(error)) => tracing::error!(drive = %self.id, %error, "the store was not flushed"),
            Err(fault) => tracing::error!(drive = %self.id, %fault, "the store was not flushed"),
        }
    }

    pub(crate) fn check_running(&self) -> Result<(), Fault> {
        match self.sessions.refusing() {
            true => Err(Fault::new(Blame::Device, "the drive is stopping").hint("start it again, then try again")),
            false => Ok(()),
        }
    }

    /// The reaper, and the collector of runs that were waiting for their last reader. Both end with the drive, and keep
    /// nothing of it open meanwhile.
    fn start_background(self: &Arc<Self>, idle_limit: Duration, open_limit: Option<Duration>) {
        let step =
            (idle_limit.min(open_limit.unwrap_or(idle_limit)) / 4).clamp(Duration::from_millis(5), Duration::from_secs(5));
        let (sessions, device) = (Arc::downgrade(&self.sessions), Arc::clone(&self.device));
        let reaper = async move {
            while let Some(sessions) = sessions.upgrade() {
                sessions.reap(idle_limit, open_limit);
                drop(sessions);
                device.clock().sleep(step).await;
            }
        };
        self.workers.spawn_control(reaper);
        let (drive, leases) = (Arc::downgrade(self), Arc::downgrade(&self.leases));
        let collector = async move {
            while let Some(leases) = leases.upgrade() {
                if leases.wait_freed(COLLECT_WAIT).await {
                    let Some(drive) = drive.upgrade() else { return };
                    drive.collect_freed().await;
                }
            }
        };
        self.workers.spawn_control(collector);
    }

    /// Deletes, from now on and until the drive is dropped, runs that no manifest has named for as long as `kept`.
    pub fn collect_orphans_after(self: &Arc<Self>, kept: Duration) {
        let step = (kept / 4).clamp(Duration::from_millis(50), ORPHANS_STEP_MAX);
        let (drive, device) = (Arc::downgrade(self), Arc::clone(&self.device));
        let collector = async move {
            loop {
                device.clock().sleep(step).await;
                let Some(drive) = drive.upgrade() else { return };
                if let Err(fault) = drive.collect_orphans(kept).await {
                    tracing::error!(%fault, "runs that no manifest names could not be collected");
                }
            }
        };
        self.workers.spawn_control(collector);
    }
}

impl Drop for Drive {
    /// Sessions hold on to the store.
    fn drop(&mut self) {
        self.sessions.close_all();
    }
}

/// How often the collector looks whether its drive is still there.
const COLLECT_WAIT: Duration = Duration::from_secs(1);

/// Bytes of slices that open readers may hold, of all that a drive keeps in memory of its store.
///
/// Readers and the store's cache share a budget: a slice that both hold is one allocation, since values are handed out without a
/// copy, and counts with both. Readers get most of it, because a reader also saves checking a slice and reading its
/// footer again. What the store keeps serves metadata slices, copies, and slices whose reader had to go.
fn reader_bytes(options: &DriveOptions) -> u64 {
    options.cache_bytes() / 4 * 3
}

fn cores(options: &DriveOptions) -> Cores {
    let (machine, numbers) = machine_cores();
    let mut pinned: Option<Vec<u32>> =
        options.cores.as_ref().filter(|_| options.pool.is_none()).map(|cores| cores.iter().map(|core| *core as u32).collect());
    if let Some(pinned) = &mut pinned {
        pinned.sort_unstable();
    }
    Cores { machine: machine.clone(), numbers: pinned.unwrap_or_else(|| numbers.clone()) }
}

fn own_pool(options: &DriveOptions) -> Result<Pool, Fault> {
    let count = match (options.threads, &options.cores) {
        (0, None) => std::thread::available_parallelism().map_or(1, usize::from),
        (0, Some(cores)) => cores.len(),
        (threads, _) => threads,
    };
    let pool = PoolOptions {
        name: "drive".to_owned(),
        cores: options.cores.clone(),
        reactors: count,
        blocking_threads_max: count * BLOCKING_THREADS_PER_REACTOR,
    };
    Pool::new(pool).map_err(|error| Fault::new(Blame::User, error.to_string()))
}
