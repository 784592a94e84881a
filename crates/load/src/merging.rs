//! Small runs are merged after appends (size-tiered compaction), so that neither a manifest nor the number of a partition's
//! slices grows without bound.
//!
//! The drive writes the rows of the runs once more, as one run. One compare-and-set of the manifest names it in their place, at the
//! same place in the order. The runs that it was made of are not deleted here: statements that read an older manifest may still
//! open them. Each drive collects them when nothing has named them for some time.

mod tiers;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use pithead_door::{LoadRequest, MergeRuns};
use pithead_fleet::{ConnectedDrive, Drives, Fleet, NotCommitted};
use pithead_model::{Blame, Dataset, DatasetName, Fault, LoadId, Loaded, Manifest, Partition, Run, SliceKey, total};

use crate::loader::Loader;
use crate::pipeline::{check_loaded, copies_of, load_request};
use crate::replacement::{Replacement, ReplacementRun, give_up, relay_to};

/// Longest that merging after an append takes. What was not done by then is left to the drives' collectors.
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
    let change = Replacement { name, dataset: dataset.id, schema: Arc::clone(&dataset.schema), made: merged, over: None };
    match fleet.commit(&change).await {
        Ok(committed) => {
            let (runs, version) = (change.runs_replaced(), committed.manifest.version);
            tracing::info!(dataset = %name, runs, partitions = change.made.len(), version, "merged small runs");
            Ok(())
        }
        Err(NotCommitted { fault, certain }) => {
            if certain {
                change.give_up(&drives).await;
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
) -> Result<ReplacementRun, Fault> {
    let part = dataset.partitions.get(partition as usize).ok_or_else(|| Fault::bug("a partition that is none"))?;
    let copies = copies_of(part, drives)?;
    let from: Vec<LoadId> = runs.iter().map(|run| run.load).collect();
    let request = MergeRuns { into: load_request(name, dataset, partition, load), loads: from.clone() };
    let rows = total(runs.iter().map(|run| run.rows));
    match merge_copies(request, dataset, rows, &copies).await {
        Ok(run) => Ok(ReplacementRun { partition, from, run, placed: part.copies.clone(), nulls_gone: None }),
        Err(fault) => {
            give_up(drives, (name, dataset.id), partition, load, &part.copies).await;
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
    relay_to(&key, first, others).await?;
    Ok(loaded)
}

#[cfg(test)]
pub(crate) mod tests;
