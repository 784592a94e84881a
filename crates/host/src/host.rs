//! [`Host`]: the drives that a client's statements run on, and what they hold.

use std::fmt;
use std::sync::Arc;

use futures::future::join_all;
use pithead_door::{Door, DriveStatus, SlicePart};
use pithead_exec::Summaries;
use pithead_model::{Dataset, DatasetName, DriveId, Fault};

use crate::catalog::{Catalog, Snapshot};
use crate::commit::drop_dataset;
use crate::discard::{Writers, collect_orphans};
use crate::drives::{AbsentDrive, ConnectedDrive, Drives, Fleet};
use crate::fault::at_drive;
use crate::finishing::Finishing;
use crate::held::HeldSlices;
use crate::metrics::Metrics;
use crate::remote::IdleSessions;
use crate::rollups::RollUps;
use crate::sizes::Sizes;
use crate::spills::SpillFolder;

/// Memory for partial results at most, bytes.
const SUMMARY_BYTES_MAX: u64 = 256 << 20;

/// How a host runs.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOptions {
    /// Threads of the host's own operators and of loads.
    pub threads: usize,
    /// Memory of the host's own operators, bytes.
    pub memory: u64,
    /// The domain that bare names belong to.
    pub domain: String,
}

impl Default for HostOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
        Self { threads, memory: 2 << 30, domain: DatasetName::DEFAULT_DOMAIN.to_owned() }
    }
}

/// A host: plans statements, sends work to its drives, finishes what comes back. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
}

struct Inner {
    fleet: Fleet,
    options: HostOptions,
    catalog: Catalog,
    writers: Writers,
    merging: tokio::sync::Mutex<()>,
    metrics: Metrics,
    finishing: Arc<Finishing>,
    held: HeldSlices,
    summaries: Summaries,
    rollups: RollUps,
    sizes: Sizes,
    idle_sessions: Arc<IdleSessions>,
    spills: Arc<SpillFolder>,
    /// What drives know this host by, so that they share their places among hosts.
    number: u64,
}

impl Host {
    /// Says hello to all drives at once, checks that they fit, and finds the domains that they keep. At least one has to
    /// answer; those that do not are tried again at later statements. A drive that speaks another protocol, lacks a function
    /// of ours or was named twice is an error.
    pub async fn connect(doors: Vec<Arc<dyn Door>>, options: HostOptions) -> Result<Host, Fault> {
        let fleet = Fleet::connect(doors).await?;
        let catalog = Catalog::discover(&fleet.now(), &options.domain).await?;
        let inner = Inner {
            finishing: Finishing::new(options.threads),
            held: HeldSlices::default(),
            summaries: Summaries::new((options.memory / 16).min(SUMMARY_BYTES_MAX)),
            rollups: RollUps::default(),
            sizes: Sizes::default(),
            idle_sessions: Arc::default(),
            spills: Arc::default(),
            fleet,
            options,
            catalog,
            writers: Writers::default(),
            merging: tokio::sync::Mutex::default(),
            metrics: Metrics::new(),
            number: rand::random_range(1..=u64::MAX),
        };
        Ok(Host { inner: Arc::new(inner) })
    }

    /// How it runs.
    pub fn options(&self) -> &HostOptions {
        &self.inner.options
    }

    /// The connected drives, sorted by identity.
    pub fn drives(&self) -> Vec<ConnectedDrive> {
        self.connected().all().to_vec()
    }

    /// The drives that did not answer so far.
    pub fn absent(&self) -> Vec<AbsentDrive> {
        self.connected().absent().to_vec()
    }

    /// The drives that do not answer, after each of them was waited for.
    pub async fn settled(&self) -> Vec<AbsentDrive> {
        self.refreshed().await.absent().to_vec()
    }

    /// The drive of this identity; an error that names it where it is not connected.
    pub fn drive(&self, id: DriveId) -> Result<ConnectedDrive, Fault> {
        self.connected().get(id).cloned()
    }

    /// What all domains hold now, read from their home drives, or where a home is not reached from the newest copy.
    ///
    /// Drives that do not answer at once are not waited for.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Fault> {
        let drives = self.inner.fleet.glanced().await;
        self.inner.catalog.snapshot(&drives).await
    }

    /// The same, after every drive has answered or has had its time; none: no drive is reached that was not among `before`.
    pub(crate) async fn settled_snapshot(&self, before: &[DriveId]) -> Result<Option<Arc<Snapshot>>, Fault> {
        let drives = self.inner.fleet.settled().await;
        if drives.ids().iter().all(|drive| before.contains(drive)) {
            return Ok(None);
        }
        self.inner.catalog.snapshot(&drives).await.map(Some)
    }

    /// The datasets of all domains that can be read, sorted by name.
    pub async fn datasets(&self) -> Result<Vec<(DatasetName, Dataset)>, Fault> {
        let snapshot = self.snapshot().await?;
        Ok(snapshot.tables().map(|table| (table.name().clone(), table.dataset().as_ref().clone())).collect())
    }

    /// Removes a dataset from its domain, then deletes its slices. A drive that is not there keeps them as garbage.
    pub async fn drop_dataset(&self, name: &DatasetName) -> Result<(), Fault> {
        let drives = self.refreshed().await;
        drop_dataset(&self.inner.catalog, &drives, name).await
    }

    /// Deletes what loads and moves left that were cut off: all slices that no manifest names. Returns the number of slices
    /// that went. Waits for the loads and moves of this host. Not to be called while another host has some, whose slices are
    /// not visible yet.
    pub async fn collect_orphans(&self) -> Result<u64, Fault> {
        collect_orphans(&self.inner.catalog, &self.refreshed().await, &self.inner.writers).await
    }

    /// How each drive is, by label.
    pub async fn status(&self) -> Vec<(String, Result<DriveStatus, Fault>)> {
        let ask = |drive: &ConnectedDrive| {
            let (label, door) = (drive.label().to_owned(), Arc::clone(&drive.door));
            async move {
                let status = door.status().await.map_err(|fault| at_drive(fault, &label));
                (label, status)
            }
        };
        join_all(self.connected().all().iter().map(ask)).await
    }

    /// The connected drives that hold a copy of all of these parts by now; none: not all of it is there any more.
    pub(crate) async fn copies_now(&self, parts: &[SlicePart]) -> Option<Vec<ConnectedDrive>> {
        let snapshot = self.snapshot().await.ok()?;
        let mut ids: Option<Vec<DriveId>> = None;
        for part in parts {
            let (_, dataset) = snapshot.dataset(&part.name).filter(|(_, dataset)| dataset.id == part.dataset)?;
            let partition = dataset.partitions.get(part.partition as usize)?;
            if !part.runs.iter().all(|(load, _)| partition.runs.iter().any(|run| run.load == *load)) {
                return None;
            }
            match &mut ids {
                None => ids = Some(partition.copies.clone()),
                Some(ids) => ids.retain(|id| partition.copies.contains(id)),
            }
        }
        let drives = self.connected();
        Some(ids?.into_iter().filter_map(|id| drives.find(id).cloned()).collect())
    }

    /// What its operators spill. Whoever ends the host removes it, or the last one who has it.
    pub fn spills(&self) -> &Arc<SpillFolder> {
        &self.inner.spills
    }

    pub(crate) fn connected(&self) -> Arc<Drives> {
        self.inner.fleet.now()
    }

    /// The drives, after those that are missing were tried again.
    pub(crate) async fn refreshed(&self) -> Arc<Drives> {
        self.inner.fleet.settled().await
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.inner.fleet
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// The host's cores.
    pub(crate) fn finishing(&self) -> &Arc<Finishing> {
        &self.inner.finishing
    }

    /// Slices that came back.
    pub(crate) fn held(&self) -> &HeldSlices {
        &self.inner.held
    }

    /// Partial results that were kept.
    pub(crate) fn summaries(&self) -> &Summaries {
        &self.inner.summaries
    }

    /// Which of them serve others.
    pub(crate) fn rollups(&self) -> &RollUps {
        &self.inner.rollups
    }

    /// What sub-plans cost.
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.inner.sizes
    }

    /// Sessions, as far as nobody may pull them any more.
    pub(crate) fn idle_sessions(&self) -> &Arc<IdleSessions> {
        &self.inner.idle_sessions
    }

    pub(crate) fn number(&self) -> u64 {
        self.inner.number
    }

    pub(crate) fn writers(&self) -> &Writers {
        &self.inner.writers
    }

    /// Held by the load that merges small runs.
    pub(crate) fn merging(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.merging
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("drives", &self.connected()).field("options", &self.inner.options).finish_non_exhaustive()
    }
}
