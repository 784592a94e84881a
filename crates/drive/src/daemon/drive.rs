//! [`Drive`]: what a drive is made of, and how it starts and stops.

use std::sync::Arc;
use std::time::Duration;

use pithead_cse::{SessionLimits, Shutdown};
use pithead_device::{Instant, machine_cores};
use pithead_exec::Summaries;
use pithead_model::{Blame, Cores, DriveId, Fault, boxed};
use pithead_sched::{Pool, PoolOptions, check_cores};
use pithead_store::{DiskStore, Store, StoreOptions};

use crate::background::{Background, KEEP_STEP, start_services};
use crate::daemon::DriveOptions;
use crate::daemon::health::Writing;
use crate::metrics::{Limits, Metrics};
use crate::programs::Programs;
use crate::resources::{Budget, Resources, Runtimes, Workers};
use crate::sessions::{Costs, SessionServer, Sessions, TurnLimits};
use crate::storage::{Attached, Storage, history_default};

/// Calls that block at one time at most, a reactor: most of them wait for the medium.
const BLOCKING_THREADS_PER_REACTOR: usize = 10;
/// Longest time between two looks for runs that no manifest names.
const ORPHANS_STEP_MAX: Duration = Duration::from_secs(60);
/// How long after a fault a drive looks for versions of manifests again whose time is over.
const HISTORY_STEP: Duration = Duration::from_secs(2);
/// How often a drive that is stopping looks whether its sessions have ended.
const STOP_STEP: Duration = Duration::from_millis(20);

/// A drive: sessions, loads and metadata over one store. Its [`pithead_door::Door`] is what hosts see.
#[derive(Debug)]
pub struct Drive {
    pub(crate) label: String,
    pub(crate) started: Instant,
    pub(crate) resources: Arc<Resources>,
    pub(crate) storage: Arc<Storage>,
    pub(crate) serving: SessionServer,
    pub(crate) programs: Arc<Programs>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) background: Arc<Background>,
    pub(crate) writing: Writing,
}

impl Drive {
    /// Opens the drive in a directory, makes it if absent, and starts what runs in the background. Blocks for as long
    /// as the store takes.
    ///
    /// A directory that another process has open is [`Blame::User`].
    pub fn open(options: DriveOptions) -> Result<Arc<Drive>, Fault> {
        // Before a directory is made.
        if let Some(cores) = options.cores.as_ref().filter(|_| options.pool.is_none()) {
            check_cores(cores).map_err(|error| Fault::new(Blame::User, error.to_string()))?;
        }
        let cache_bytes = options.cache_bytes() - reader_bytes(&options);
        let disk = DiskStore::open(&options.data, StoreOptions { cache_bytes, compacts: false, ..StoreOptions::default() })?;
        let id = disk.drive_id();
        let history = history_default(&disk, options.history, options.sets_history);
        Self::over(Arc::new(disk), id, DriveOptions { history, ..options })
    }

    /// The same over a store that is open.
    pub(crate) fn over(store: Arc<dyn Store>, id: DriveId, options: DriveOptions) -> Result<Arc<Drive>, Fault> {
        let workers = Workers::new(match &options.pool {
            Some(pool) => Arc::clone(pool),
            None => Arc::new(own_pool(&options)?),
        });
        let device = Arc::clone(&options.device);
        let budget = Arc::new(Budget::new(options.memory));
        let used = Arc::clone(&store);
        let runtimes = Runtimes::open(&options.data.join("tmp"), move || Some(used.usage().ok()?.free_bytes))?;
        let resources = Arc::new(Resources { device: Arc::clone(&device), workers, budget, runtimes });
        let shutdown = Shutdown::of("drive");
        let attached = attached(&options, &resources.workers)?;
        let storage = Arc::new(Storage::new(
            store,
            id,
            Arc::clone(&resources),
            shutdown.clone(),
            reader_bytes(&options),
            attached,
            options.history,
        ));
        storage.collect_condemned();
        let turns = TurnLimits { sessions: options.sessions_max, host_sessions: options.host_sessions() };
        let metrics = Arc::new(Metrics::new(&Limits {
            sessions: turns.sessions,
            host_sessions: turns.host_sessions,
            memory: options.memory,
            cache: options.cache_bytes(),
            threads: resources.workers.threads(),
        }));
        let programs = Arc::new(Programs::new(
            Arc::clone(&storage),
            Arc::clone(&resources),
            options.data.clone(),
            shutdown.clone(),
            options.sessions_max,
        ));
        let services =
            options.services.clone().unwrap_or_else(|| start_services(resources.workers.pool(), options.background_policy));
        let workers = resources.workers.clone();
        let background = Background::new(services, id, &storage, workers, options.background_policy, options.scrub_period);
        let drive = Arc::new(Drive {
            programs: Arc::clone(&programs),
            label: options.data.display().to_string(),
            started: device.clock().now(),
            serving: SessionServer {
                storage: Arc::clone(&storage),
                resources: Arc::clone(&resources),
                sessions: Arc::new(Sessions::new(turns, shutdown, Arc::clone(&device), Arc::clone(&metrics))),
                metrics: Arc::clone(&metrics),
                uses: Arc::default(),
                costs: Arc::new(Costs::open(&options.data, device.cpu_share())),
                summaries: Arc::new(Summaries::new(options.cache_bytes() / 16)),
                cores: cores(&options),
                slow_session: options.slow_session,
                functions: Arc::clone(&options.functions),
                programs,
            },
            resources,
            storage,
            metrics,
            background: Arc::new(background),
            writing: Writing::default(),
        });
        drive.start_background(options.session_limits);
        drive.keep_history();
        let threads = drive.resources.workers.threads();
        tracing::info!(drive = %id, data = %drive.label, threads, memory = options.memory, "open");
        Ok(drive)
    }

    /// The drive's identity, kept for life.
    pub fn id(&self) -> DriveId {
        self.storage.id
    }

    /// Refuses new sessions and loads, gives running sessions `grace` to end, then ends them and flushes the store.
    #[boxed]
    pub async fn stop(&self, grace: Duration) {
        self.sessions().shutdown().begin();
        let clock = self.resources.device.clock();
        let start = clock.now();
        while self.sessions().count() + self.programs.count() > 0 && clock.now().since(start) < grace {
            clock.sleep(STOP_STEP).await;
        }
        for session in self.sessions().close_all() {
            session.stopped().await;
        }
        for application in self.programs.close_all() {
            application.stopped().await;
        }
        let (store, costs, share) =
            (Arc::clone(&self.storage.store), Arc::clone(&self.serving.costs), self.resources.device.cpu_share());
        let background = Arc::clone(&self.background);
        let flush = move || {
            background.end();
            costs.keep(share);
            store.flush()
        };
        match self.resources.workers.blocking(flush).await {
            Ok(Ok(())) => tracing::info!(drive = %self.storage.id, "stopped"),
            Ok(Err(error)) => tracing::error!(drive = %self.storage.id, %error, "the store was not flushed"),
            Err(fault) => tracing::error!(drive = %self.storage.id, %fault, "the store was not flushed"),
        }
    }

    pub(crate) fn sessions(&self) -> &Arc<Sessions> {
        &self.serving.sessions
    }

    /// The reaper, the collector of runs that were waiting for their last reader, and what writes down how far background services
    /// are. All end with the drive, and keep nothing of it open meanwhile.
    fn start_background(&self, limits: SessionLimits) {
        let (sessions, programs) = (Arc::downgrade(self.sessions()), Arc::downgrade(&self.programs));
        let device = Arc::clone(&self.resources.device);
        let reaper = async move {
            while let (Some(sessions), Some(programs)) = (sessions.upgrade(), programs.upgrade()) {
                sessions.reap(&limits);
                programs.reap(&limits);
                drop((sessions, programs));
                device.clock().sleep(limits.step()).await;
            }
        };
        self.resources.workers.spawn_control(reaper);
        let (storage, leases) = (Arc::downgrade(&self.storage), Arc::downgrade(&self.storage.leases));
        let collector = async move {
            while let Some(leases) = leases.upgrade() {
                if leases.wait_freed(COLLECT_WAIT).await {
                    let Some(storage) = storage.upgrade() else { return };
                    storage.collect_freed().await;
                }
            }
        };
        self.resources.workers.spawn_control(collector);
        let (background, workers) = (Arc::downgrade(&self.background), self.resources.workers.clone());
        let device = Arc::clone(&self.resources.device);
        let keeper = async move {
            loop {
                device.clock().sleep(KEEP_STEP).await;
                let Some(background) = background.upgrade() else { return };
                let kept = workers.blocking(move || background.keep_positions()).await;
                if let Err(fault) = kept.flatten() {
                    tracing::warn!(%fault, "how far background services are was not written down");
                }
            }
        };
        self.resources.workers.spawn_control(keeper);
    }

    /// Forgets, until the drive is dropped, versions of manifests whose time is over, and deletes what they alone have named.
    fn keep_history(&self) {
        let (storage, device) = (Arc::downgrade(&self.storage), Arc::clone(&self.resources.device));
        let keeper = async move {
            // At once: the drives of a process that lives for one statement have no other time for it.
            let mut step = Duration::ZERO;
            loop {
                device.clock().sleep(step).await;
                let Some(storage) = storage.upgrade() else { return };
                step = storage.keep_history().await.unwrap_or_else(|fault| {
                    tracing::error!(%fault, "versions whose time is over could not be forgotten");
                    HISTORY_STEP
                });
            }
        };
        self.resources.workers.spawn_control(keeper);
    }

    /// Deletes, from now on and until the drive is dropped, runs that no manifest has named for as long as `kept`.
    pub fn collect_orphans_after(&self, kept: Duration) {
        let step = (kept / 4).clamp(Duration::from_millis(50), ORPHANS_STEP_MAX);
        let (storage, device) = (Arc::downgrade(&self.storage), Arc::clone(&self.resources.device));
        let collector = async move {
            loop {
                device.clock().sleep(step).await;
                let Some(storage) = storage.upgrade() else { return };
                if let Err(fault) = storage.collect_orphans(kept).await {
                    tracing::error!(%fault, "runs that no manifest names could not be collected");
                }
            }
        };
        self.resources.workers.spawn_control(collector);
    }
}

impl Drop for Drive {
    /// Sessions hold on to the store.
    fn drop(&mut self) {
        self.sessions().close_all();
        self.programs.close_all();
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

/// Files that are read in place; none where nothing is attached.
fn attached(options: &DriveOptions, workers: &Workers) -> Result<Option<Arc<Attached>>, Fault> {
    if options.attach.is_empty() {
        return Ok(None);
    }
    let attached = Attached::open(options.attach.clone(), &options.data, options.attach_cache, workers.clone())?;
    Ok(Some(Arc::new(attached)))
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
