//! Deleting slices that no manifest names any more, or never did.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use pithead_door::{Discard, Loads, PartitionUse};
use pithead_model::{Blame, Dataset, DatasetName, DriveId, Fault, Manifest, boxed};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::catalog::Catalog;
use crate::drives::{ConnectedDrive, Drives};
use crate::homes::{HomeState, asked};

/// Deletes an incarnation that the manifest of version `seen` does not contain any more, on all its drives. Slices that cannot be
/// deleted stay as garbage, which is logged. Returns the number of slices that went at once.
#[boxed]
pub async fn discard(drives: &Drives, name: &DatasetName, dataset: &Dataset, seen: u64) -> u64 {
    let ids: BTreeSet<DriveId> = dataset.partitions.iter().flat_map(|partition| partition.copies.clone()).collect();
    let wanted = Discard { name: name.clone(), dataset: dataset.id, loads: Loads::All, partition: None, seen: Some(seen) };
    discard_at(drives, ids, &wanted).await
}

/// The same on these drives.
pub async fn discard_at(drives: &Drives, ids: impl IntoIterator<Item = DriveId>, wanted: &Discard) -> u64 {
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for id in ids {
        match drives.find(id) {
            Some(drive) => present.push(drive),
            None => absent.push(id.to_string()),
        }
    }
    if !absent.is_empty() {
        let drives = absent.join(", ");
        tracing::warn!(dataset = %wanted.name, drives, "drives that are not connected keep slices that nothing names");
    }
    let gone = join_all(present.into_iter().map(|drive| discard_one(drive, wanted))).await;
    gone.into_iter().sum()
}

async fn discard_one(drive: &ConnectedDrive, wanted: &Discard) -> u64 {
    let gone = drive.door.discard(wanted.clone()).await;
    gone.unwrap_or_else(|fault| {
        let (drive, dataset) = (drive.label(), &wanted.name);
        match fault.blame {
            // Who may not write has left nothing there.
            Blame::Access => tracing::debug!(drive, %dataset, "nothing to discard: {}", fault.message),
            _ => tracing::warn!(drive, %dataset, "slices that nothing names stay: {}", fault.message),
        }
        0
    })
}

/// Deletes slices that no manifest names: of loads that were cut off, of incarnations that never became visible, of
/// partitions that were moved. Nothing of this host may write meanwhile. A domain whose home is away is left alone.
pub(crate) async fn collect_orphans(catalog: &Catalog, drives: &Arc<Drives>, writers: &Writers) -> Result<u64, Fault> {
    let _paused = writers.pause().await;
    let mut manifests = Vec::new();
    for domain in catalog.domains(drives).await? {
        if let Some(found) = catalog.newest(&domain, drives).await? {
            manifests.push((found.manifest, matches!(found.home, HomeState::Here)));
        }
    }
    let mut gone = 0;
    for drive in drives.all() {
        let status = asked(drives, drive, drive.door.status()).await?;
        for held in &status.partitions {
            if let Some(wanted) = unnamed(held, drive.id(), &manifests, drives.absent().is_empty()) {
                gone += discard_one(drive, &wanted).await;
            }
        }
    }
    Ok(gone)
}

/// What of a partition on a drive no manifest names; none: nothing can be, or it is not sure.
fn unnamed(held: &PartitionUse, drive: DriveId, manifests: &[(Manifest, bool)], all_reached: bool) -> Option<Discard> {
    let known = manifests.iter().find(|(manifest, _)| manifest.domain == held.name.domain);
    let seen = Some(known.map_or(0, |(manifest, _)| manifest.version));
    let loads = match known {
        Some((_, false)) => return None,
        Some((manifest, true)) => {
            let dataset = manifest.datasets.get(&held.name.dataset).filter(|dataset| dataset.id == held.dataset);
            let partition = dataset.and_then(|dataset| dataset.partitions.get(held.partition as usize));
            match partition.filter(|partition| partition.copies.contains(&drive)) {
                Some(partition) => Loads::AllBut(partition.runs.iter().map(|run| run.load).collect()),
                None => Loads::All,
            }
        }
        None if all_reached => Loads::All,
        None => return None,
    };
    Some(Discard { name: held.name.clone(), dataset: held.dataset, loads, partition: Some(held.partition), seen })
}

/// Keeps deleting what no manifest names apart from loads and moves, whose slices are not named yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers(Arc<RwLock<()>>);

impl Writers {
    /// Writing may go on until this is dropped.
    pub(crate) async fn begin(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.0).read_owned().await
    }

    /// Waits for those that run, and lets none begin until this is dropped.
    pub(crate) async fn pause(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0).write_owned().await
    }
}

#[cfg(test)]
mod tests {
    use pithead_model::{DatasetId, LoadId, Partition, Partitioning, Run};

    use super::*;

    fn manifest() -> Manifest {
        let run = Run { load: LoadId(5), slices: 1, rows: 1, bytes: 1 };
        let dataset = Dataset {
            id: DatasetId(1),
            schema: Arc::new(arrow::datatypes::Schema::empty()),
            metadata: Default::default(),
            partitioning: Partitioning::RoundRobin,
            sort: vec![],
            encoding: "arrow".into(),
            slice_rows: 1,
            slice_bytes: None,
            copies: 1,
            merged: 0,
            partitions: vec![Partition { copies: vec![DriveId(1)], runs: vec![run], columns: vec![] }],
        };
        let mut manifest = Manifest::empty("main", vec![DriveId(1), DriveId(2)]);
        manifest.datasets.insert("t".into(), dataset);
        manifest
    }

    fn held(name: &str, dataset: u64, partition: u32) -> PartitionUse {
        PartitionUse {
            name: name.parse().unwrap(),
            dataset: DatasetId(dataset),
            partition,
            slices: 1,
            bytes: 1,
            sessions: 0,
            slices_read: 0,
            bytes_read: 0,
            cpu_ns: 0,
            idle_s: None,
        }
    }

    #[test]
    fn only_what_is_surely_unnamed_goes() {
        let here = [(manifest(), true)];
        let loads = |held: PartitionUse, drive, all| unnamed(&held, DriveId(drive), &here, all).map(|discard| discard.loads);
        assert_eq!(loads(held("t", 1, 0), 1, true), Some(Loads::AllBut(vec![LoadId(5)])));
        assert_eq!(loads(held("t", 1, 0), 2, true), Some(Loads::All), "moved away from there");
        assert_eq!(loads(held("t", 9, 0), 1, true), Some(Loads::All), "an incarnation that never was");
        assert_eq!(loads(held("other.t", 1, 0), 1, true), Some(Loads::All));
        assert_eq!(loads(held("other.t", 1, 0), 1, false), None, "a drive that is not reached may know it");
        assert_eq!(unnamed(&held("t", 9, 0), DriveId(1), &[(manifest(), false)], true), None, "its home is away");
    }
}
