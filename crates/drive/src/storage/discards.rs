//! The end of runs that no manifest names any more.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pithead_door::{Discard, Loads};
use pithead_model::{Blame, DatasetId, DatasetName, Fault, LoadId, SliceKey};
use pithead_store::{Durability, Key, Store, Write, each_entry, each_readable_entry};

use crate::storage::Storage;
use crate::storage::claims::{claimed, names};
use crate::storage::keys::{
    CONDEMNED_PREFIX, FILTER_PREFIX, SLICE_PREFIX, check_name, claim_key, condemned_key, parse_slice_key, retired_key,
};
use crate::storage::leases::Leases;

/// Runs that may go, each with its number of slices, and those that may not.
type Fenced = (Vec<(SliceKey, u64)>, Vec<SliceKey>);

impl Storage {
    /// Deletes the runs that are meant, or retires them: see [`crate::storage::retired`]. Returns the number of slices that went.
    pub(crate) async fn discard_runs(&self, discard: Discard) -> Result<u64, Fault> {
        let Discard { name, dataset, loads, partition, seen } = discard;
        check_name(&name)?;
        let store = Arc::clone(&self.store);
        let runs = self.resources.workers.blocking(move || stored_runs(&*store, &name, dataset)).await??;
        let means = meaning(loads);
        let meant = |run: &SliceKey| means(run.load) && partition.is_none_or(|number| number == run.partition);
        let meant: Vec<(SliceKey, u64)> = runs.into_iter().filter(|(run, _)| meant(run)).collect();
        Ok(self.delete_fenced(self.not_retired(meant, seen).await?, seen).await?.0)
    }

    /// Those of the runs that no older version of their manifest may name, too. The others stay until these are forgotten.
    async fn not_retired(&self, runs: Vec<(SliceKey, u64)>, seen: Option<u64>) -> Result<Vec<(SliceKey, u64)>, Fault> {
        let Some(seen) = seen else { return Ok(runs) };
        let (unfenced, _) = self.unfenced(runs, Some(seen)).await?;
        self.retire(unfenced, seen).await
    }

    /// Deletes runs, but those that are claimed for a later version than the one that was seen, or named by a manifest that is set
    /// aside. Returns the number of slices that went, and the runs that are claimed.
    pub(super) async fn delete_fenced(
        &self,
        runs: Vec<(SliceKey, u64)>,
        seen: Option<u64>,
    ) -> Result<(u64, Vec<SliceKey>), Fault> {
        let order = self.leases.in_order().await;
        let (going, fenced) = self.unfenced(runs, seen).await?;
        let going = self.not_aside(going).await?;
        let (now, later): (Vec<_>, Vec<_>) = going.into_iter().partition(|(run, _)| self.leases.doom(run));
        let slices = now.iter().map(|(_, slices)| slices).sum();
        let now = Dooming::new(now.into_iter().map(|(run, _)| run).collect(), &self.leases);
        let store = Arc::clone(&self.store);
        let later: Vec<SliceKey> = later.into_iter().map(|(run, _)| run).collect();
        tracing::info!(runs = now.runs.len(), leased = later.len(), "discarding");
        let condemned = self.resources.workers.blocking(move || (condemn(&*store, &later), order).0).await?;
        let deleted = self.delete_runs(now).await;
        condemned.and(deleted).map(|()| (slices, fenced))
    }

    /// Those of the runs that no manifest after the one that was seen can come to name, and the others.
    async fn unfenced(&self, runs: Vec<(SliceKey, u64)>, seen: Option<u64>) -> Result<Fenced, Fault> {
        let Some(seen) = seen else { return Ok((runs, vec![])) };
        let store = Arc::clone(&self.store);
        let sort = move || {
            let (mut going, mut fenced) = (Vec::with_capacity(runs.len()), Vec::new());
            for (run, slices) in runs {
                match claimed(&*store, &run)? {
                    Some(until) if until > seen => {
                        tracing::info!(%run, until, seen, "a run that is claimed stays");
                        fenced.push(run);
                    }
                    _ => going.push((run, slices)),
                }
            }
            Ok((going, fenced))
        };
        self.resources.workers.blocking(sort).await?
    }

    /// Those of the runs that no manifest which is set aside names here.
    async fn not_aside(&self, runs: Vec<(SliceKey, u64)>) -> Result<Vec<(SliceKey, u64)>, Fault> {
        let Some(domain) = runs.first().map(|(run, _)| run.name.domain.clone()) else { return Ok(runs) };
        let manifests = self.manifests.clone();
        let aside = self.resources.workers.blocking(move || manifests.set_aside(&domain)).await??;
        let is_named = |run: &SliceKey| aside.iter().any(|manifest| names(manifest, run, self.id));
        Ok(runs.into_iter().filter(|(run, _)| !is_named(run)).collect())
    }

    /// Deletes runs whose last lease has ended.
    pub(crate) async fn collect_freed(&self) {
        let freed = self.leases.take_freed();
        if freed.is_empty() {
            return;
        }
        tracing::info!(runs = freed.len(), "collecting runs that were waiting for their readers");
        if let Err(fault) = self.delete_runs(Dooming::new(freed, &self.leases)).await {
            tracing::error!(%fault, "runs that nobody needs could not be deleted; they go when the drive is opened again");
        }
    }

    /// Deletes what a drive that stopped had not come to. What cannot be deleted, or is not known for damage, is left to the next
    /// time: all else is served. Blocks.
    pub(crate) fn collect_condemned(&self) {
        let mut notes = Vec::new();
        match each_readable_entry(&*self.store, CONDEMNED_PREFIX, |entry| notes.push(entry.key.clone())) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("some notes of runs to delete cannot be read"),
            Err(error) => tracing::warn!(%error, "the notes of runs to delete cannot be listed"),
        }
        for note in notes {
            if let Err(fault) = self.delete_condemned(&note) {
                tracing::warn!(key = %note.escape_ascii(), %fault, "a run that was to be deleted is left");
            }
        }
    }

    fn delete_condemned(&self, note: &Key) -> Result<(), Fault> {
        let Some((value, _)) = self.store.get(note)? else { return Ok(()) };
        let damaged = |error: serde_json::Error| Fault::new(Blame::Corrupt, format!("a damaged note: {error}"));
        let run: SliceKey = serde_json::from_slice(&value).map_err(damaged)?;
        delete_run(&*self.store, &run)?;
        self.slices.forget(&run);
        Ok(())
    }

    /// Once begun this goes on to its end, even if nobody waits for it any more.
    async fn delete_runs(&self, doomed: Dooming) -> Result<(), Fault> {
        let (store, directories, slices) = (Arc::clone(&self.store), Arc::clone(&self.directories), Arc::clone(&self.slices));
        let delete = move || {
            let deleted = doomed.runs.iter().try_for_each(|run| delete_run(&*store, run));
            for run in &doomed.runs {
                directories.forget(run);
                slices.forget(run);
            }
            drop(doomed);
            deleted
        };
        self.resources.workers.blocking(delete).await?
    }
}

/// Runs that are being deleted: nobody can lease them until this is dropped. What is dropped before is left to a later call.
struct Dooming {
    runs: Vec<SliceKey>,
    leases: Arc<Leases>,
}

impl Dooming {
    fn new(runs: Vec<SliceKey>, leases: &Arc<Leases>) -> Dooming {
        Dooming { runs, leases: Arc::clone(leases) }
    }
}

impl Drop for Dooming {
    fn drop(&mut self) {
        self.runs.iter().for_each(|run| self.leases.gone(run));
    }
}

/// Whether a load is among those that are meant.
fn meaning(loads: Loads) -> impl Fn(LoadId) -> bool {
    let (named, means_named) = match loads {
        Loads::All => (Vec::new(), false),
        Loads::Only(loads) => (loads, true),
        Loads::AllBut(loads) => (loads, false),
    };
    let named: HashSet<LoadId> = named.into_iter().collect();
    move |load| named.contains(&load) == means_named
}

/// The runs of an incarnation that are stored, each with its number of slices.
fn stored_runs(store: &dyn Store, name: &DatasetName, dataset: DatasetId) -> Result<BTreeMap<SliceKey, u64>, Fault> {
    let prefix = format!("{SLICE_PREFIX}{}/{}@{dataset}/", name.domain, name.dataset);
    let mut runs = BTreeMap::new();
    each_entry(store, &prefix, |entry| match parse_slice_key(&entry.key) {
        Some(slice) => {
            let run = SliceKey { name: name.clone(), dataset, load: slice.load, partition: slice.partition, number: None };
            *runs.entry(run).or_insert(0) += u64::from(slice.is_slice);
        }
        None => tracing::warn!(key = %entry.key.escape_ascii(), "a key that is no slice's"),
    })?;
    Ok(runs)
}

fn condemn(store: &dyn Store, runs: &[SliceKey]) -> Result<(), Fault> {
    if runs.is_empty() {
        return Ok(());
    }
    let note = |run: &SliceKey| {
        let value =
            serde_json::to_vec(run).map_err(|error| Fault::new(Blame::Bug, format!("a key that is no JSON: {error}")))?;
        Ok(Write::put(condemned_key(run), value))
    };
    Ok(store.write(runs.iter().map(note).collect::<Result<_, Fault>>()?, Durability::Reserved)?)
}

/// Deletes a run's slices with their filters, its metadata slice, and the note that it was to go: all or none.
fn delete_run(store: &dyn Store, run: &SliceKey) -> Result<(), Fault> {
    let key = run.to_string();
    let Some(prefix) = key.strip_suffix("meta") else { return Ok(()) };
    let mut keys: Vec<Key> = store.list(prefix.as_bytes())?.into_iter().map(|entry| entry.key).collect();
    keys.extend(filters_of(store, run)?);
    keys.extend([condemned_key(run), claim_key(run), retired_key(run)]);
    Ok(store.write(keys.into_iter().map(Write::delete).collect(), Durability::Through)?)
}

/// The keys of the filters of a run's slices.
pub(super) fn filters_of(store: &dyn Store, run: &SliceKey) -> Result<Vec<Key>, Fault> {
    let key = run.to_string();
    let Some(prefix) = key.strip_suffix("meta") else { return Ok(Vec::new()) };
    let filters = store.list(format!("{FILTER_PREFIX}{prefix}").as_bytes())?;
    Ok(filters.into_iter().map(|entry| entry.key).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::keys::{filter_key, parse_filter_key, slice_key};
    use pithead_store::MemoryStore;

    #[test]
    fn runs_are_found_and_deleted_whole() {
        let store = MemoryStore::new();
        let run = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 3, number: None };
        let other = SliceKey { load: LoadId(4), ..run.clone() };
        for key in [run.clone(), run.slice(0), run.slice(1), other.clone(), other.slice(0)] {
            store.write(vec![Write::put(slice_key(&key), "")], Durability::Through).unwrap();
        }
        condemn(&store, std::slice::from_ref(&run)).unwrap();
        for slice in [run.slice(1), other.slice(0)] {
            store.write(vec![Write::put(filter_key(&slice, 2), "")], Durability::Through).unwrap();
        }
        let runs = stored_runs(&store, &run.name, run.dataset).unwrap();
        assert_eq!(runs, BTreeMap::from([(run.clone(), 2), (other.clone(), 1)]));
        delete_run(&store, &run).unwrap();
        let filters = store.list(FILTER_PREFIX.as_bytes()).unwrap();
        let filters: Vec<_> = filters.iter().map(|entry| parse_filter_key(&entry.key).unwrap()).collect();
        assert_eq!(filters, [(other.slice(0), 2)]);
        assert_eq!(stored_runs(&store, &run.name, run.dataset).unwrap(), BTreeMap::from([(other, 1)]));
        assert!(store.list(CONDEMNED_PREFIX.as_bytes()).unwrap().is_empty());
    }

    #[test]
    fn loads_are_meant_by_name_or_by_exception() {
        let meant = |loads| {
            let means = meaning(loads);
            (1..5).filter(|load| means(LoadId(*load))).collect::<Vec<u64>>()
        };
        let named = || vec![LoadId(2), LoadId(9)];
        assert_eq!(meant(Loads::All), [1, 2, 3, 4]);
        assert_eq!(meant(Loads::Only(named())), [2]);
        assert_eq!(meant(Loads::AllBut(named())), [1, 3, 4]);
        assert_eq!(meant(Loads::Only(vec![])), [0; 0]);
        assert_eq!(meant(Loads::AllBut(vec![])), [1, 2, 3, 4]);
    }
}
