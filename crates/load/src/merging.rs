//! Small runs are merged after appends (size-tiered compaction), so that neither a manifest nor the number of a partition's
//! slices grows without bound.
//!
//! The drive writes the rows of the runs once more, as one run. One compare-and-set of the manifest names it in their place, at the
//! same place in the order. The runs that it was made of are not deleted here: statements that read an older manifest may still
//! open them. Each drive collects them when nothing has named them for some time.

mod tiers;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, stream};
use pithead_door::{Discard, LoadRequest, Loads, MergeRuns};
use pithead_fleet::{ConnectedDrive, Drives, Edit, Fleet, NotCommitted, discard_at, relay};
use pithead_model::{
    Blame, Dataset, DatasetId, DatasetName, DriveId, Fault, LoadId, Loaded, Manifest, Partition, Run, SliceKey, total,
};

use crate::loader::Loader;
use crate::pipeline::{check_loaded, copies_of, load_request};

/// Longest that an append waits for merging. What was not done by then is left to the drives' collectors.
const MERGE_WAIT: Duration = Duration::from_secs(60);
/// Partitions that are merged at one time.
const PARTITIONS_AT_ONCE: usize = 4;

/// Merges small runs of a dataset, where the manifest that an append has just made names many. The append counts whatever comes
/// of it.
pub(crate) async fn merge_small_runs(loader: &Loader, name: &DatasetName, manifest: &Manifest) {
    let Some(dataset) = manifest.datasets.get(&name.dataset) else { return };
    let drives = loader.fleet().connected();
    // An array merges none, nor does it collect what was merged.
    let merges = |part: &Partition| part.copies.iter().all(|id| drives.find(*id).is_some_and(|drive| drive.welcome.merges));
    let partitions = (0..).zip(&dataset.partitions).filter(|(_, part)| merges(part));
    let due = partitions.filter_map(|(number, part)| Some((number, tiers::due(&part.runs, dataset.slice_rows)?.to_vec())));
    let due: Vec<(u32, Vec<Run>)> = due.collect();
    if due.is_empty() {
        return;
    }
    // Where another load of this loader is at it, a later append comes back to what is left.
    let Ok(_turn) = loader.merging().try_lock() else { return };
    match tokio::time::timeout(MERGE_WAIT, merge(loader.fleet(), name, dataset, due)).await {
        Ok(Ok(())) => {}
        Ok(Err(fault)) => tell(name, &fault),
        Err(_) => tracing::warn!(dataset = %name, "small runs were not merged within {MERGE_WAIT:?}"),
    }
}

fn tell(name: &DatasetName, fault: &Fault) {
    match fault.blame {
        // Another host came first, or the drive has no memory free. A later append tries again.
        Blame::Conflict | Blame::Limit => tracing::debug!(dataset = %name, "runs were not merged: {}", fault.message),
        _ => tracing::warn!(dataset = %name, "small runs were not merged: {}", fault.message),
    }
}

async fn merge(fleet: &Fleet, name: &DatasetName, dataset: &Dataset, due: Vec<(u32, Vec<Run>)>) -> Result<(), Fault> {
    let drives = fleet.connected();
    let load = LoadId(rand::random());
    // The futures are made here, as one that a closure makes of a borrowed argument is not `Send` for all lifetimes.
    let mut merging = Vec::with_capacity(due.len());
    for (partition, runs) in due {
        merging.push(merge_partition(&drives, name, dataset, partition, runs, load));
    }
    let mut merged = Vec::new();
    for outcome in stream::iter(merging).buffered(PARTITIONS_AT_ONCE).collect::<Vec<_>>().await {
        match outcome {
            Ok(partition) => merged.push(partition),
            Err(fault) => tell(name, &fault),
        }
    }
    if merged.is_empty() {
        return Ok(());
    }
    let change = Replacement { name, dataset: dataset.id, load, merged };
    match fleet.commit(&change).await {
        Ok(committed) => {
            let (runs, version) = (change.runs_replaced(), committed.manifest.version);
            tracing::info!(dataset = %name, runs, partitions = change.merged.len(), version, "merged small runs");
            Ok(())
        }
        Err(NotCommitted { fault, certain }) => {
            if certain {
                let ids: BTreeSet<DriveId> = change.merged.iter().flat_map(|merged| merged.placed.clone()).collect();
                discard_at(&drives, ids, &given_up(name, dataset.id, load, None)).await;
            }
            Err(fault)
        }
    }
}

/// Merges runs of one partition, on all drives that it is on. What a failure leaves is deleted.
async fn merge_partition(
    drives: &Drives,
    name: &DatasetName,
    dataset: &Dataset,
    partition: u32,
    runs: Vec<Run>,
    load: LoadId,
) -> Result<Merged, Fault> {
    let part = dataset.partitions.get(partition as usize).ok_or_else(|| Fault::bug("a partition that is none"))?;
    let copies = copies_of(part, drives)?;
    let from: Vec<LoadId> = runs.iter().map(|run| run.load).collect();
    let request = MergeRuns { into: load_request(name, dataset, partition, load), loads: from.clone() };
    let rows = total(runs.iter().map(|run| run.rows));
    match merge_copies(request, dataset, rows, &copies).await {
        Ok(run) => Ok(Merged { partition, from, run, placed: part.copies.clone() }),
        Err(fault) => {
            discard_at(drives, part.copies.clone(), &given_up(name, dataset.id, load, Some(partition))).await;
            Err(fault)
        }
    }
}

/// The first copy merges; the others get its run byte for byte.
async fn merge_copies(request: MergeRuns, dataset: &Dataset, rows: u64, copies: &[ConnectedDrive]) -> Result<Loaded, Fault> {
    let Some((first, others)) = copies.split_first() else { return Err(Fault::bug("a partition on no drive")) };
    let LoadRequest { load, ref name, partition, .. } = request.into;
    let key = SliceKey { name: name.clone(), dataset: dataset.id, load, partition, number: None };
    let loaded = first.door.merge_runs(request).await.map_err(|fault| fault.at_drive(first.label()))?;
    check_loaded(&loaded, dataset, load)?;
    if loaded.run.rows != rows {
        return Err(Fault::bug(format!("{} rows became {} as runs of {} were merged", rows, loaded.run.rows, key.name)));
    }
    for other in others {
        relay(&key, first, other).await?;
    }
    Ok(loaded)
}

/// What is deleted of a merge that no manifest will ever name.
fn given_up(name: &DatasetName, dataset: DatasetId, load: LoadId, partition: Option<u32>) -> Discard {
    Discard { name: name.clone(), dataset, loads: Loads::Only(vec![load]), partition, seen: None }
}

/// One partition's merged run.
#[derive(Clone, Debug)]
struct Merged {
    partition: u32,
    /// The runs that it was made of.
    from: Vec<LoadId>,
    run: Loaded,
    /// The drives that have it.
    placed: Vec<DriveId>,
}

/// Names merged runs in the place of those that they were made of: in all partitions, or none.
struct Replacement<'a> {
    name: &'a DatasetName,
    dataset: DatasetId,
    load: LoadId,
    merged: Vec<Merged>,
}

impl Replacement<'_> {
    fn find<'a>(&self, manifest: &'a Manifest) -> Option<&'a Dataset> {
        manifest.datasets.get(&self.name.dataset).filter(|present| present.id == self.dataset)
    }

    fn runs_replaced(&self) -> usize {
        self.merged.iter().map(|merged| merged.from.len()).sum()
    }
}

impl Edit for Replacement<'_> {
    type Made = ();

    fn domain(&self) -> &str {
        &self.name.domain
    }

    fn subject(&self) -> String {
        format!("the runs of {}", self.name)
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        let conflict = |what: &str| Err(Fault::new(Blame::Conflict, format!("{} was {what} meanwhile", self.name)));
        let version = manifest.version + 1;
        let present = manifest.datasets.get_mut(&self.name.dataset).filter(|present| present.id == self.dataset);
        let Some(present) = present else { return conflict("replaced or dropped") };
        for merged in &self.merged {
            let Some(partition) = present.partitions.get_mut(merged.partition as usize) else { return conflict("changed") };
            if partition.copies.iter().any(|drive| !merged.placed.contains(drive)) {
                return conflict("moved");
            }
            if !partition.replace(&merged.from, &merged.run) {
                return conflict("merged by another host");
            }
        }
        present.merged = version;
        Ok(())
    }

    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        let key =
            |partition| SliceKey { name: self.name.clone(), dataset: self.dataset, load: self.load, partition, number: None };
        let merged = self.merged.iter();
        merged.flat_map(|merged| merged.placed.iter().map(move |drive| (*drive, key(merged.partition)))).collect()
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        let Some(present) = self.find(manifest) else { return false };
        self.merged.iter().all(|merged| {
            let partition = present.partitions.get(merged.partition as usize);
            partition.is_some_and(|partition| partition.runs.iter().any(|run| run.load == self.load))
        })
    }

    fn may_be_hidden(&self, manifest: &Manifest, version: u64) -> bool {
        self.find(manifest).is_some_and(|present| present.merged > version)
    }
}

#[cfg(test)]
mod tests;
