//! Runs that no manifest names, collected by the drive itself: of loads that were killed, of moves that were cut off.
//!
//! A drive keeps a copy of each domain's manifest. A run that this copy does not name here, and that was claimed for no later version
//! of it, cannot be named any more, however old the copy is (see [`crate::storage::claims`]). But it may be a load's that is still
//! writing elsewhere. So it stays for some time after it was first seen so; a host whose work takes longer claims it again and again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pithead_cse::Manifests;
use pithead_door::{Discard, Loads};
use pithead_model::{DriveId, Fault, Manifest, SliceKey};
use pithead_store::{Store, each_entry};

use crate::storage::Storage;
use crate::storage::claims::{claimed, names};
use crate::storage::keys::{CLAIM_PREFIX, parse_run};
use crate::storage::retired::is_retired;

/// Runs that nothing names, and since when that is known.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    since: HashMap<SliceKey, Instant>,
}

impl Orphans {
    /// Somebody needs these.
    pub(crate) fn spare(&mut self, runs: &[SliceKey]) {
        for run in runs {
            self.since.remove(run);
        }
    }

    /// Takes note of what nothing names now. Returns what has been so for as long as `kept`.
    fn see(&mut self, unnamed: &[(SliceKey, u64)], kept: Duration, now: Instant) -> Vec<(SliceKey, u64)> {
        let mut before = std::mem::take(&mut self.since);
        for (run, _) in unnamed {
            let since = before.remove(run).unwrap_or(now);
            self.since.insert(run.clone(), since);
        }
        let is_due = |run: &SliceKey| self.since.get(run).is_some_and(|since| now.duration_since(*since) >= kept);
        unnamed.iter().filter(|(run, _)| is_due(run)).cloned().collect()
    }
}

impl Storage {
    /// Looks for runs that nothing names, and deletes those that have been so for as long as `kept`.
    pub(crate) async fn collect_orphans(&self, kept: Duration) -> Result<(), Fault> {
        let (store, manifests, id) = (Arc::clone(&self.store), self.manifests.clone(), self.id);
        let unnamed = self.resources.workers.blocking(move || unnamed(&*store, &manifests, id)).await??;
        let due = self.orphans.lock().see(&unnamed, kept, Instant::now());
        for (run, seen) in due {
            tracing::info!(%run, manifest = seen, "collecting a run that no manifest names");
            let loads = Loads::Only(vec![run.load]);
            let (name, dataset, partition) = (run.name, run.dataset, Some(run.partition));
            self.discard_runs(Discard { name, dataset, loads, partition, seen: Some(seen) }).await?;
        }
        Ok(())
    }
}

/// Runs with a note that no manifest here names on this drive, and that none of a later version can: each with the version of its
/// domain's manifest. Retired runs, which wait for older versions to be forgotten, are left out.
fn unnamed(store: &dyn Store, manifests: &Manifests, id: DriveId) -> Result<Vec<(SliceKey, u64)>, Fault> {
    let mut runs = Vec::new();
    each_entry(store, CLAIM_PREFIX, |entry| runs.extend(entry.key.strip_prefix(CLAIM_PREFIX.as_bytes()).and_then(parse_run)))?;
    let mut by_domain: BTreeMap<String, Vec<Manifest>> = BTreeMap::new();
    let mut unnamed = Vec::new();
    for run in runs {
        let domain = &run.name.domain;
        if !by_domain.contains_key(domain) {
            let known = manifests.read(domain)?.into_iter().chain(manifests.set_aside(domain)?).collect();
            by_domain.insert(domain.clone(), known);
        }
        let known = by_domain.get(domain).map_or(&[][..], Vec::as_slice);
        let version = known.first().map_or(0, |manifest| manifest.version);
        if !known.iter().any(|manifest| names(manifest, &run, id))
            && claimed(store, &run)?.is_some_and(|until| until <= version)
            && !is_retired(store, &run)?
        {
            unnamed.push((run, version));
        }
    }
    Ok(unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::{DatasetId, LoadId};

    #[test]
    fn an_orphan_goes_after_its_time_and_is_spared_by_a_claim() {
        let run = |load| SliceKey {
            name: "t".parse().unwrap(),
            dataset: DatasetId(1),
            load: LoadId(load),
            partition: 0,
            number: None,
        };
        let all = [(run(1), 4), (run(2), 4)];
        let (mut orphans, start, kept) = (Orphans::default(), Instant::now(), Duration::from_secs(60));
        assert!(orphans.see(&all, kept, start).is_empty());
        assert!(orphans.see(&all, kept, start + kept / 2).is_empty());
        orphans.spare(&[run(2)]);
        assert_eq!(orphans.see(&all, kept, start + kept), [(run(1), 4)]);
        assert!(orphans.see(&[], kept, start + kept * 2).is_empty());
        assert!(orphans.see(&all, kept, start + kept * 3).is_empty(), "it was named meanwhile");
    }
}
