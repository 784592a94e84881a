//! [`Fleet`]: the one way to the drives and their manifests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use pithead_door::{Door, DriveStatus, SlicePart};
use pithead_model::{Dataset, DatasetName, DriveId, Fault, Manifest, View, boxed};
use tokio::sync::OwnedRwLockReadGuard;

use crate::attaching::write_attaching;
use crate::attended::ATTEND_STEP;
use crate::catalog::Catalog;
use crate::change::{Change, DatasetChange};
use crate::commit::{Committed, Edit, NotCommitted, commit, drop_dataset};
use crate::discard::{Writers, collect_orphans};
use crate::drives::{AbsentDrive, ConnectedDrive, Connections, Drives, HEDGE_WAIT};
use crate::history::AsOf;
use crate::snapshot::Snapshot;

/// A host's drives, and the domains that they keep. Cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    connections: Connections,
    catalog: Catalog,
    writers: Writers,
    attend_step: Mutex<Duration>,
}

impl Fleet {
    /// Says hello to all drives at once, checks that they fit, and finds the domains that they keep. At least one has to
    /// answer; those that do not are tried again at later statements. A drive that speaks another protocol or was
    /// named twice is an error. `domain` is the one that every snapshot has; `functions` are those that the host may ask for.
    #[boxed]
    pub async fn connect(doors: Vec<Arc<dyn Door>>, domain: &str, functions: &[String]) -> Result<Fleet, Fault> {
        let connections = Connections::open(doors, functions).await?;
        let catalog = Catalog::discover(&connections.now(), domain).await?;
        let attend_step = Mutex::new(ATTEND_STEP);
        Ok(Fleet { inner: Arc::new(Inner { connections, catalog, writers: Writers::default(), attend_step }) })
    }

    /// How often loads, moves and changes on their way claim what they have written: every minute if nothing else is said. For drives
    /// that keep what no manifest names for a short time only, it has to be well below that.
    pub fn attend_every(&self, step: Duration) {
        *self.inner.attend_step.lock() = step;
    }

    pub(crate) fn attend_step(&self) -> Duration {
        *self.inner.attend_step.lock()
    }

    /// The drives as they are known at this moment.
    pub fn connected(&self) -> Arc<Drives> {
        self.inner.connections.now()
    }

    /// The drives, after those that are missing were tried again and have answered, or have had their time.
    #[boxed]
    pub async fn refreshed(&self) -> Arc<Drives> {
        self.inner.connections.settled().await
    }

    /// The connected drives, sorted by identity.
    pub fn drives(&self) -> Vec<ConnectedDrive> {
        self.connected().all().to_vec()
    }

    /// The drives that did not answer so far.
    pub fn absent(&self) -> Vec<AbsentDrive> {
        self.connected().absent().to_vec()
    }

    /// What all domains hold now, read from their home drives, or where a home is not reached from the newest copy.
    ///
    /// Drives that do not answer at once are not waited for.
    #[boxed]
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Fault> {
        let drives = self.inner.connections.glanced().await;
        // A drive that hangs does not hold up statements for the sake of an earlier one.
        let _ = tokio::time::timeout(HEDGE_WAIT, self.inner.catalog.look_for_wanted(&drives)).await;
        self.read(&drives).await
    }

    async fn read(&self, drives: &Arc<Drives>) -> Result<Arc<Snapshot>, Fault> {
        let catalog = &self.inner.catalog;
        let mut seen = catalog.read(drives).await?;
        for domain in seen.domains.values().flatten() {
            self.connections().seek(&domain.manifest.drives);
        }
        write_attaching(catalog, &mut seen, drives).await;
        Ok(catalog.snapshot(seen, drives))
    }

    /// The same, after every drive has answered or has had its time, and was asked again for a domain that was named in vain. None:
    /// none was, and no drive is reached that was not among `before`.
    #[boxed]
    pub async fn settled_snapshot(&self, before: &[DriveId]) -> Result<Option<Arc<Snapshot>>, Fault> {
        let drives = self.refreshed().await;
        let has_looked = self.inner.catalog.look_for_wanted(&drives).await;
        if !has_looked && drives.ids().iter().all(|drive| before.contains(drive)) {
            return Ok(None);
        }
        self.read(&drives).await.map(Some)
    }

    /// The datasets of all domains that can be read, sorted by name.
    #[boxed]
    pub async fn datasets(&self) -> Result<Vec<(DatasetName, Dataset)>, Fault> {
        let snapshot = self.snapshot().await?;
        Ok(snapshot.datasets().map(|found| (found.name().clone(), found.dataset().as_ref().clone())).collect())
    }

    /// The views of all domains that can be read, sorted by name.
    #[boxed]
    pub async fn views(&self) -> Result<Vec<(DatasetName, View)>, Fault> {
        Ok(self.snapshot().await?.views().map(|(name, view)| (name, view.clone())).collect())
    }

    /// A domain's manifest as it is now, to change it. For a domain that nobody keeps yet: the empty one. A fault if its home
    /// is not reached.
    #[boxed]
    pub async fn manifest(&self, domain: &str, drives: &Drives) -> Result<Manifest, Fault> {
        let (manifest, _) = self.inner.catalog.manifest(domain, drives).await?;
        self.connections().seek(&manifest.drives);
        Ok(manifest)
    }

    /// Makes a change of a domain visible: all of it, or nothing.
    pub async fn commit<E: Edit>(&self, edit: &E) -> Result<Committed<E::Output>, NotCommitted> {
        commit(&self.inner.catalog, &self.connected(), edit).await
    }

    /// Makes a change of one dataset. Returns the incarnation that it supersedes.
    #[boxed]
    pub async fn commit_dataset(
        &self,
        name: &DatasetName,
        change: &Change,
    ) -> Result<Committed<Option<Dataset>>, NotCommitted> {
        self.commit(&DatasetChange { name, change }).await
    }

    /// Removes a dataset from its domain, then deletes its slices. A drive that is not there keeps them as garbage.
    #[boxed]
    pub async fn drop_dataset(&self, name: &DatasetName) -> Result<(), Fault> {
        let drives = self.refreshed().await;
        drop_dataset(&self.inner.catalog, &drives, name).await
    }

    /// Deletes what loads and moves left that were cut off: all slices that no manifest names. Returns the number of slices
    /// that went. Waits for the loads and moves of this host. Not to be called while another host has some, whose slices are
    /// not visible yet.
    #[boxed]
    pub async fn collect_orphans(&self) -> Result<u64, Fault> {
        collect_orphans(&self.inner.catalog, &self.refreshed().await, &self.inner.writers).await
    }

    /// Slices may be written that no manifest names yet: nothing of this host deletes them until the guard is dropped.
    pub async fn writing(&self) -> OwnedRwLockReadGuard<()> {
        self.inner.writers.begin().await
    }

    /// How each drive is, by label.
    #[boxed]
    pub async fn status(&self) -> Vec<(String, Result<DriveStatus, Fault>)> {
        let ask = |drive: &ConnectedDrive| {
            let (label, door) = (drive.label().to_owned(), Arc::clone(&drive.door));
            async move {
                let status = door.status().await.map_err(|fault| fault.at_drive(&label));
                (label, status)
            }
        };
        join_all(self.connected().all().iter().map(ask)).await
    }

    /// The connected drives that hold a copy of all of these parts by now; none: not all of it is there any more.
    #[boxed]
    pub async fn copies_now(&self, parts: &[SlicePart]) -> Option<Vec<ConnectedDrive>> {
        let snapshot = self.snapshot().await.ok()?;
        let mut ids: Option<Vec<DriveId>> = None;
        for part in parts {
            let dataset = match part.name.stored() {
                (name, None) => snapshot.dataset(&name)?.1.clone(),
                (name, Some(version)) => {
                    self.as_of(&snapshot, &name, AsOf::Version(version)).await.ok()?.dataset().as_ref().clone()
                }
            };
            let dataset = Some(dataset).filter(|dataset| dataset.id == part.dataset)?;
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

    pub(crate) fn connections(&self) -> &Connections {
        &self.inner.connections
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("drives", &self.connected()).finish_non_exhaustive()
    }
}
