//! Claims: the fence between a host that is about to name runs here and another one that deletes what nothing names.
//!
//! Two hosts that act at once each see a manifest that may be old by the time their calls arrive. So whoever wants a manifest of
//! version `v + 1` to name a run here claims it first, for `v + 1`, and whoever deletes it says which version names it nowhere here.
//! A run goes only if that version is not older than its claim: then the change that it was claimed for was not made, or another one
//! undid it, and it cannot be made any more, since a manifest is replaced by compare-and-set on its version. No clock is asked.
//!
//! A claim for the first version of a domain that has one leaves no note. It only says that work is on its way which needs the run: it
//! is not taken for left behind yet ([`crate::storage::orphans`]), and goes at once where that work fails.
//!
//! The note of a claim is written with the run, and goes with it. A run without one is of an older release: nothing but a host's
//! request deletes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pithead_cse::Manifests;
use pithead_door::Claim;
use pithead_model::{Blame, DriveId, Fault, Manifest, SliceKey};
use pithead_store::{Durability, Key, Put, Store, Write};

use crate::storage::Storage;
use crate::storage::keys::{check_name, claim_key, condemned_key, slice_key};

impl Storage {
    /// Notes claims, durably. Returns the runs that are not here, or about to go.
    pub(crate) async fn claim_runs(&self, claim: Claim) -> Result<Vec<SliceKey>, Fault> {
        self.shutdown.check()?;
        let until = claim.version.checked_add(1);
        let until = until.ok_or_else(|| Fault::new(Blame::User, "expected a version that can be replaced"))?;
        for run in &claim.runs {
            check_name(&run.name)?;
        }
        self.orphans.lock().spare(&claim.runs);
        let order = self.leases.in_order().await;
        let (store, manifests) = (Arc::clone(&self.store), self.manifests.clone());
        let (mut going, staying): (Vec<_>, Vec<_>) = claim.runs.into_iter().partition(|run| self.leases.is_doomed(run));
        let noted = move || {
            let is_past = until == 1 && have_manifests(&manifests, &staying);
            (note(&*store, staying, until, is_past), order).0
        };
        going.extend(self.resources.workers.blocking(noted).await??);
        Ok(going)
    }
}

/// The version up to which a manifest may come to name a run here; none: it has no note.
pub(crate) fn claimed(store: &dyn Store, run: &SliceKey) -> Result<Option<u64>, Fault> {
    let Some((value, _)) = store.get(&claim_key(run))? else { return Ok(None) };
    let version = value.as_ref().try_into().map(u64::from_be_bytes);
    // A note that cannot be read protects its run.
    Ok(Some(version.unwrap_or(u64::MAX)))
}

/// The note that goes with a new run, which nobody has claimed yet. A note that is there already stays.
pub(crate) fn unclaimed(store: &dyn Store, run: &SliceKey) -> Result<Option<Write>, Fault> {
    Ok(claimed(store, run)?.is_none().then(|| note_of(run, 0)))
}

fn note_of(run: &SliceKey, until: u64) -> Write {
    Write::Put(Put::forced(claim_key(run), until.to_be_bytes().to_vec()))
}

/// Whether all domains of runs have manifests here, so that no first version can come to name these any more.
fn have_manifests(manifests: &Manifests, runs: &[SliceKey]) -> bool {
    let domains: BTreeSet<&str> = runs.iter().map(|run| run.name.domain.as_str()).collect();
    domains.into_iter().all(|domain| matches!(manifests.read(domain), Ok(Some(_))))
}

/// Notes claims up to a version, but one that `is_past`: that spares the runs for now, and they stay as unclaimed as they were.
fn note(store: &dyn Store, runs: Vec<SliceKey>, until: u64, is_past: bool) -> Result<Vec<SliceKey>, Fault> {
    let (mut missing, mut notes) = (Vec::new(), BTreeMap::<Key, Write>::new());
    for run in runs {
        let is_here = store.entry(&slice_key(&run))?.is_some() && store.entry(&condemned_key(&run))?.is_none();
        if !is_here {
            missing.push(run);
        } else if !is_past && claimed(store, &run)?.is_none_or(|there| there < until) {
            notes.insert(claim_key(&run), note_of(&run, until));
        }
    }
    if !notes.is_empty() {
        store.write(notes.into_values().collect(), Durability::Through)?;
    }
    Ok(missing)
}

/// Whether a manifest names a run on a drive.
pub(crate) fn names(manifest: &Manifest, run: &SliceKey, id: DriveId) -> bool {
    let dataset = manifest.datasets.get(&run.name.dataset).filter(|dataset| dataset.id == run.dataset);
    let partition = dataset.and_then(|dataset| dataset.partitions.get(run.partition as usize));
    partition
        .is_some_and(|partition| partition.copies.contains(&id) && partition.runs.iter().any(|named| named.load == run.load))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::{DatasetId, LoadId};
    use pithead_store::MemoryStore;

    #[test]
    fn a_claim_only_grows_and_needs_its_run() {
        let store = MemoryStore::new();
        let run = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 0, number: None };
        let other = SliceKey { load: LoadId(9), ..run.clone() };
        store.write(vec![Write::put(slice_key(&run), "")], Durability::Through).unwrap();
        assert_eq!(claimed(&store, &run).unwrap(), None);
        for (until, there) in [(5, 5), (3, 5), (8, 8)] {
            assert_eq!(note(&store, vec![run.clone(), other.clone()], until, false).unwrap(), vec![other.clone()]);
            assert_eq!(claimed(&store, &run).unwrap(), Some(there));
        }
        assert!(unclaimed(&store, &run).unwrap().is_none() && unclaimed(&store, &other).unwrap().is_some());
        store.write(vec![Write::put(condemned_key(&run), "")], Durability::Through).unwrap();
        assert_eq!(note(&store, vec![run.clone()], 9, false).unwrap(), [run]);
    }

    /// Who has work on its way says again and again that its runs are needed. If it fails, nothing has named them, and they go at once.
    #[test]
    fn a_claim_for_a_version_that_is_there_leaves_no_note() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let manifests = Manifests::new(Arc::clone(&store), DriveId(1));
        let run = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 0, number: None };
        store.write(vec![Write::put(slice_key(&run), ""), note_of(&run, 0)], Durability::Through).unwrap();
        let runs = [run.clone()];
        assert!(!have_manifests(&manifests, &runs), "its first version may come to name the run");
        let mut first = Manifest::empty(&run.name.domain, vec![DriveId(1)]);
        first.succeed(7);
        manifests.replace(0, first).unwrap();
        assert!(have_manifests(&manifests, &runs));
        assert!(note(&*store, runs.to_vec(), 1, true).unwrap().is_empty());
        assert_eq!(claimed(&*store, &run).unwrap(), Some(0));
    }
}
