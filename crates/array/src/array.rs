//! [`Array`]: what an array is made of, and how it starts and stops.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::future::join_all;
use parking_lot::Mutex;
use pithead_cse::{Manifests, SessionLimits, Shutdown};
use pithead_door::{Claim, Discard, Door};
use pithead_fleet::ConnectedDrive;
use pithead_functions::Registry;
use pithead_host::{Host, HostOptions, SubPlans};
use pithead_model::{Blame, DriveId, Fault, SliceKey, boxed, total};
use pithead_store::{DiskStore, StoreOptions};

use crate::directories::Directories;
use crate::members;
use crate::sessions::Sessions;

/// Drives of an array: fewer would be a drive, more are better kept by several arrays.
const DRIVES_MIN: usize = 2;
const DRIVES_MAX: usize = 64;
/// How often discards that wait for sessions are looked at.
const DISCARD_STEP: Duration = Duration::from_secs(1);
/// Discards that wait at most; of more, the oldest is made at once.
const DISCARDS_MAX: usize = 10_000;
/// How often an array that is stopping looks whether its sessions have ended.
const STOP_STEP: Duration = Duration::from_millis(20);

/// How an array runs.
#[derive(Clone, Debug)]
pub struct ArrayOptions {
    /// Directory of its identity and its manifests; made if absent.
    pub data: PathBuf,
    /// Threads that put together what drives send. With as many sessions at it, partial results are handed up as they are.
    pub threads: usize,
    /// Memory for that, bytes.
    pub memory: u64,
    /// Sessions open at one time at most.
    pub sessions_max: usize,
    /// How long sessions may last.
    pub session_limits: SessionLimits,
    /// What sub-plans can call.
    pub functions: Arc<Registry>,
}

/// A server in front of drives, which hosts see as one drive.
#[derive(Debug)]
pub struct Array {
    pub(crate) inner: Arc<Inner>,
}

/// What the calls of an array share.
pub(crate) struct Inner {
    pub(crate) label: String,
    id: DriveId,
    pub(crate) started: Instant,
    /// It holds no rows: only manifests are here.
    pub(crate) manifests: Manifests,
    /// The drives below, by identity.
    pub(crate) drives: Arc<[ConnectedDrive]>,
    pub(crate) plans: SubPlans,
    pub(crate) directories: Directories,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) options: ArrayOptions,
    /// What is to be deleted once nobody reads it.
    waiting: Mutex<Vec<Discard>>,
}

impl Array {
    /// Opens the array in a directory over the drives behind `doors`, all of which have to answer. A new directory becomes a new
    /// array, whose drives these are from then on.
    #[boxed]
    pub async fn open(options: ArrayOptions, doors: Vec<Arc<dyn Door>>) -> Result<Array, Fault> {
        if !(DRIVES_MIN..=DRIVES_MAX).contains(&doors.len()) {
            let what = format!("expected {DRIVES_MIN} to {DRIVES_MAX} drives below an array, got {}", doors.len());
            return Err(Fault::new(Blame::User, what));
        }
        let host_options = HostOptions {
            threads: options.threads,
            memory: options.memory,
            functions: Arc::clone(&options.functions),
            ..HostOptions::default()
        };
        let host = Host::connect(doors, host_options).await?;
        if let Some(absent) = host.fleet().refreshed().await.absent().first() {
            return Err(absent.fault.clone().hint("start all drives of the array, then the array"));
        }
        let drives: Arc<[ConnectedDrive]> = host.fleet().drives().into();
        let (local, ids) = (options.clone(), drives.iter().map(ConnectedDrive::id).collect::<Vec<DriveId>>());
        let opened = tokio::task::spawn_blocking(move || open_local(&local, &ids)).await;
        let (manifests, id) =
            opened.map_err(|lost| Fault::new(Blame::Bug, format!("opening the array ended early: {lost}")))??;
        let inner = Arc::new(Inner {
            label: options.data.display().to_string(),
            id,
            started: Instant::now(),
            manifests,
            plans: SubPlans::new(host),
            directories: Directories::new(Arc::clone(&drives)),
            drives,
            sessions: Arc::new(Sessions::new(Shutdown::of("array"))),
            waiting: Mutex::default(),
            options,
        });
        tokio::spawn(Sessions::reap(Arc::downgrade(&inner.sessions), inner.options.session_limits));
        tokio::spawn(Inner::discard_later(Arc::downgrade(&inner)));
        tracing::info!(array = %inner.id(), drives = inner.drives.len(), "open");
        Ok(Array { inner })
    }

    /// The array's identity, kept for life.
    pub fn id(&self) -> DriveId {
        self.inner.id()
    }

    /// The drives below.
    pub fn drives(&self) -> &[ConnectedDrive] {
        &self.inner.drives
    }

    /// Refuses new sessions and loads, gives running sessions `grace` to end, then ends them.
    #[boxed]
    pub async fn stop(&self, grace: Duration) {
        let inner = &self.inner;
        inner.sessions.shutdown().begin();
        let start = tokio::time::Instant::now();
        while inner.sessions.count() > 0 && start.elapsed() < grace {
            tokio::time::sleep(STOP_STEP).await;
        }
        inner.sessions.end_all(&inner.sessions.shutdown().fault()).await;
        let waiting = std::mem::take(&mut *inner.waiting.lock());
        inner.discard_logged(waiting).await;
        tracing::info!(array = %inner.id(), "stopped");
    }
}

/// The array's manifests and its identity, once its drives are known to be its own.
fn open_local(options: &ArrayOptions, drives: &[DriveId]) -> Result<(Manifests, DriveId), Fault> {
    let store = DiskStore::open(&options.data, StoreOptions { cache_bytes: 0, ..StoreOptions::default() })?;
    members::keep(&options.data, drives)?;
    let id = store.drive_id();
    if drives.contains(&id) {
        return Err(Fault::new(Blame::User, "an array cannot be one of its own drives"));
    }
    Ok((Manifests::new(Arc::new(store), id), id))
}

impl Inner {
    pub(crate) fn id(&self) -> DriveId {
        self.id
    }

    pub(crate) fn check_running(&self) -> Result<(), Fault> {
        self.sessions.shutdown().check()
    }

    /// Makes a call of the manifests, which blocks.
    pub(crate) async fn manifests<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Manifests) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let manifests = self.manifests.clone();
        let called = tokio::task::spawn_blocking(move || call(&manifests)).await;
        called.map_err(|lost| Fault::new(Blame::Bug, format!("a call of the array's store ended early: {lost}")))?
    }

    /// Deletes at all drives; what sessions read goes when they have ended. Returns the number of slices that went at once.
    pub(crate) async fn discard(&self, discard: Discard) -> Result<u64, Fault> {
        if self.sessions.reads(discard.dataset) {
            let oldest = {
                let mut waiting = self.waiting.lock();
                waiting.push(discard);
                (waiting.len() > DISCARDS_MAX).then(|| waiting.remove(0))
            };
            self.discard_logged(oldest).await;
            return Ok(0);
        }
        self.discard_now(&discard).await
    }

    /// Claims at all drives. A run of which one drive lacks its part is not here.
    pub(crate) async fn claim(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        let missing = join_all(
            self.drives
                .iter()
                .map(|drive| async { drive.door.claim(claim.clone()).await.map_err(|fault| fault.at_drive(drive.label())) }),
        );
        let missing: BTreeSet<SliceKey> =
            missing.await.into_iter().collect::<Result<Vec<_>, Fault>>()?.into_iter().flatten().collect();
        Ok(missing.into_iter().collect())
    }

    async fn discard_now(&self, discard: &Discard) -> Result<u64, Fault> {
        self.directories.forget_all(discard);
        let gone = join_all(self.drives.iter().map(|drive| async move {
            drive.door.discard(discard.clone()).await.map_err(|fault| fault.at_drive(drive.label()))
        }));
        // All are asked before one that fails is told of.
        let gone = gone.await.into_iter().collect::<Result<Vec<u64>, Fault>>()?;
        Ok(total(gone))
    }

    async fn discard_logged(&self, discards: impl IntoIterator<Item = Discard>) {
        for discard in discards {
            if let Err(fault) = self.discard_now(&discard).await {
                tracing::warn!(dataset = %discard.name, %fault, "slices that nothing names stay");
            }
        }
    }

    async fn discard_later(inner: Weak<Inner>) {
        while let Some(inner) = inner.upgrade() {
            let free: Vec<Discard> =
                inner.waiting.lock().extract_if(.., |discard| !inner.sessions.reads(discard.dataset)).collect();
            inner.discard_logged(free).await;
            drop(inner);
            tokio::time::sleep(DISCARD_STEP).await;
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Array").field("label", &self.label).field("drives", &self.drives.len()).finish_non_exhaustive()
    }
}
