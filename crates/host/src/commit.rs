//! Changes of a domain: one compare-and-set of its manifest each (DESIGN's rule 10), and what is deleted afterwards.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use pithead_model::{Blame, Dataset, DatasetId, DatasetName, DriveId, Fault, LoadId, Manifest, Run};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::catalog::Catalog;
use crate::fault::{at_drive, invalid, unknown_dataset};
use crate::host::{ConnectedDrive, Drives};

/// Times that a change is tried against other hosts' changes.
const ATTEMPTS_MAX: u64 = 10;
/// Longest wait before the second attempt; later ones wait longer.
const WAIT_MS_MAX: u64 = 8;

/// A change of one dataset in a manifest.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A new name.
    Create(Dataset),
    /// A new incarnation, whether or not there is an old one.
    Replace(Dataset),
    /// One more load of an incarnation: what it put into each partition, and metadata to add.
    Append {
        /// The incarnation that the load was written for.
        dataset: DatasetId,
        /// The load.
        load: LoadId,
        /// One a partition; none where the partition got no rows.
        runs: Vec<Option<Run>>,
        /// Added to the dataset's.
        metadata: BTreeMap<String, String>,
    },
    /// The name goes.
    Drop,
}

/// A change that was not made.
#[derive(Debug)]
pub(crate) struct NotCommitted {
    /// Why.
    pub fault: Fault,
    /// Whether it is certain that the change was not made and never will be. Otherwise its slices must stay.
    pub certain: bool,
}

impl From<Fault> for NotCommitted {
    fn from(fault: Fault) -> Self {
        Self { fault, certain: true }
    }
}

impl Change {
    /// Makes the change in a manifest; returns the incarnation that it supersedes.
    fn apply(&self, name: &DatasetName, manifest: &mut Manifest) -> Result<Option<Dataset>, Fault> {
        match self {
            Change::Create(dataset) | Change::Replace(dataset) => {
                if matches!(self, Change::Create(_)) && manifest.datasets.contains_key(&name.dataset) {
                    return Err(already_there(name));
                }
                if let Some(stray) = dataset.partitions.iter().find(|partition| !manifest.drives.contains(&partition.drive)) {
                    let message = format!("domain {} was made on other drives meanwhile, without {}", name.domain, stray.drive);
                    return Err(Fault::new(Blame::Conflict, message));
                }
                Ok(manifest.datasets.insert(name.dataset.clone(), dataset.clone()))
            }
            Change::Append { dataset, runs, metadata, .. } => {
                let present = manifest.datasets.get_mut(&name.dataset).filter(|present| present.id == *dataset);
                let Some(present) = present else {
                    return Err(Fault::new(Blame::Conflict, format!("dataset {name} was replaced or dropped during the load")));
                };
                for (partition, run) in present.partitions.iter_mut().zip(runs) {
                    partition.runs.extend(run.clone());
                }
                present.metadata.extend(metadata.clone());
                Ok(None)
            }
            Change::Drop => match manifest.datasets.remove(&name.dataset) {
                Some(dropped) => Ok(Some(dropped)),
                None => Err(unknown(name, manifest)),
            },
        }
    }

    /// Whether a manifest shows the change.
    fn is_in(&self, name: &DatasetName, manifest: &Manifest) -> bool {
        let present = manifest.datasets.get(&name.dataset);
        match self {
            Change::Create(dataset) | Change::Replace(dataset) => present.is_some_and(|present| present.id == dataset.id),
            Change::Append { load, .. } => present.is_some_and(|present| present.runs().any(|run| run.load == *load)),
            Change::Drop => present.is_none(),
        }
    }
}

/// A dataset that is there already, where a new one was asked for.
pub(crate) fn already_there(name: &DatasetName) -> Fault {
    invalid(format!("dataset {name} exists already")).hint("load with --append to add to it, or --replace to start anew")
}

fn unknown(name: &DatasetName, manifest: &Manifest) -> Fault {
    let names: Vec<String> = manifest.datasets.keys().map(|dataset| manifest.name(dataset).to_string()).collect();
    unknown_dataset(name, names.iter().map(String::as_str))
}

/// Makes a change visible: reads the manifest, changes it, swaps it, again if another host came first. Returns the
/// incarnation that was superseded.
pub(crate) async fn commit(
    catalog: &Catalog,
    drives: &Drives,
    name: &DatasetName,
    change: &Change,
) -> Result<Option<Dataset>, NotCommitted> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let (mut manifest, home) = catalog.manifest(&name.domain, drives).await?;
        let expected = manifest.version;
        let superseded = change.apply(name, &mut manifest)?;
        manifest.version += 1;
        let fault = match home.door.commit(expected, manifest).await {
            Ok(()) => {
                catalog.note_home(&name.domain, home.id());
                return Ok(superseded);
            }
            Err(fault) => at_drive(fault, home.label()),
        };
        if fault.blame != Blame::Conflict {
            return match settle(catalog, drives, name, change).await {
                Settled::Made => Ok(superseded),
                Settled::NotMade => Err(NotCommitted { fault, certain: true }),
                Settled::Unknown => Err(NotCommitted { fault: unsettled(fault, name), certain: false }),
            };
        }
        if attempt == ATTEMPTS_MAX {
            let hint = "other hosts keep changing the domain; try again";
            return Err(fault.hint(hint).into());
        }
        let wait_ms = rand::random_range(1..=WAIT_MS_MAX * attempt);
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

enum Settled {
    Made,
    NotMade,
    Unknown,
}

/// After a swap whose answer was lost: was it made? If not, swaps in the same manifest under a new version, so that a
/// swap which is still on its way can no longer succeed.
async fn settle(catalog: &Catalog, drives: &Drives, name: &DatasetName, change: &Change) -> Settled {
    let Ok((mut manifest, home)) = catalog.manifest(&name.domain, drives).await else {
        return Settled::Unknown;
    };
    if change.is_in(name, &manifest) {
        return Settled::Made;
    }
    let expected = manifest.version;
    manifest.version += 1;
    match home.door.commit(expected, manifest).await {
        Ok(()) => Settled::NotMade,
        Err(_) => Settled::Unknown,
    }
}

fn unsettled(fault: Fault, name: &DatasetName) -> Fault {
    let message = format!("{}; the change of {name} may have been made or not", fault.message);
    Fault::new(fault.blame, message).hint("pithead ls shows which, once the drive answers")
}

/// Removes a dataset, then deletes its slices.
pub(crate) async fn drop_dataset(catalog: &Catalog, drives: &Drives, name: &DatasetName) -> Result<(), Fault> {
    let dropped = commit(catalog, drives, name, &Change::Drop).await.map_err(|not| not.fault)?;
    if let Some(dataset) = dropped {
        discard(drives, name, &dataset, Vec::new()).await;
    }
    Ok(())
}

/// Deletes an incarnation's slices on all its drives, all but those of the loads named. What cannot be deleted stays
/// as garbage, which is logged.
pub(crate) async fn discard(drives: &Drives, name: &DatasetName, dataset: &Dataset, keep: Vec<LoadId>) -> u64 {
    let ids: HashSet<DriveId> = dataset.partitions.iter().map(|partition| partition.drive).collect();
    let present: Vec<&ConnectedDrive> = drives.all().iter().filter(|drive| ids.contains(&drive.id())).collect();
    if present.len() < ids.len() {
        tracing::warn!(dataset = %name, "drives that are not connected keep slices that nothing names");
    }
    let discards = present.into_iter().map(|drive| {
        let keep = keep.clone();
        async move {
            let gone = drive.door.discard(name.clone(), dataset.id, keep).await;
            gone.unwrap_or_else(|fault| {
                tracing::warn!(drive = drive.label(), dataset = %name, "slices that nothing names stay: {}", fault.message);
                0
            })
        }
    });
    join_all(discards).await.into_iter().sum()
}

/// Deletes slices of loads that no manifest names. No append of this host may run meanwhile.
pub(crate) async fn collect_orphans(catalog: &Catalog, drives: &Drives, appends: &Appends) -> Result<u64, Fault> {
    let _paused = appends.pause().await;
    let mut gone = 0;
    for table in catalog.snapshot(drives).await?.tables() {
        gone += discard(drives, table.name(), table.dataset(), loads_of(table.dataset())).await;
    }
    Ok(gone)
}

/// The loads that a manifest names.
pub(crate) fn loads_of(dataset: &Dataset) -> Vec<LoadId> {
    let loads: BTreeSet<LoadId> = dataset.runs().map(|run| run.load).collect();
    loads.into_iter().collect()
}

/// Keeps deleting what no manifest names apart from appending, whose slices are not named yet. New incarnations have ids
/// that nobody else knows, so they need no such care.
#[derive(Clone, Debug, Default)]
pub(crate) struct Appends(Arc<RwLock<()>>);

impl Appends {
    /// Appending may go on until this is dropped.
    pub(crate) async fn begin(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.0).read_owned().await
    }

    /// Waits for those that run, and lets none begin until this is dropped.
    pub(crate) async fn pause(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0).write_owned().await
    }
}
