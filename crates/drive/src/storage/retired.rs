//! Runs that the newest manifest names here no more, and that older versions of it do: they stay for as long as these can be read.
//!
//! Whoever deletes a run that a manifest has named retires it, where its domain keeps versions: a note says when that was, and which
//! version named it here no more. The run goes once that is as long ago as the domain keeps versions, since all versions that
//! name it were replaced before it was retired. So no old manifest has to be read to know what may go, and a drive needs no
//! clock but its own.
//!
//! A run that a manifest comes to name again, as after a restore, is claimed for that before ([`crate::storage::claims`]), for a later
//! version than the note has: then the note means nothing any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pithead_model::{Fault, SliceKey};
use pithead_store::{Durability, Entry, Expected, Key, Put, Store, Tag, Version, Write, each_entry};

use crate::storage::Storage;
use crate::storage::claims::{claimed, names};
use crate::storage::keys::{RETIRED_PREFIX, parse_run, retired_key, slice_key};

/// Shortest and longest time between two looks for versions and runs whose time is over.
const STEP: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// A run stays for a part of its time longer, at most so long, for statements that were planned while its version was there.
const GRACE_MS_MAX: u64 = 60_000;

/// The note of a retired run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Retired {
    /// Since when, milliseconds since 1970 UTC by this drive's clock.
    since_ms: u64,
    /// The version of the manifest that names it here no more.
    seen: u64,
}

impl Retired {
    fn version(self) -> Version {
        let mut bytes = Vec::with_capacity(16);
        bytes.extend(self.since_ms.to_be_bytes());
        bytes.extend(self.seen.to_be_bytes());
        Bytes::from(bytes)
    }

    /// A note that cannot be read is of a run whose time has just begun.
    fn of(entry: &Entry, now_ms: u64) -> Self {
        let number = |from: usize| Some(u64::from_be_bytes(entry.version.get(from..from + 8)?.try_into().ok()?));
        Self { since_ms: number(0).unwrap_or(now_ms), seen: number(8).unwrap_or(0) }
    }

    /// Whether it has been so for as long as its domain keeps versions.
    fn is_due(self, history_ms: u64, now_ms: u64) -> bool {
        let grace_ms = (history_ms / 16).min(GRACE_MS_MAX);
        self.since_ms.saturating_add(history_ms).saturating_add(grace_ms) <= now_ms
    }
}

impl Storage {
    /// Of runs that the manifest of version `seen` does not name here, retires those that an older one may name. Returns the others,
    /// which can go.
    pub(super) async fn retire(&self, runs: Vec<(SliceKey, u64)>, seen: u64) -> Result<Vec<(SliceKey, u64)>, Fault> {
        let Some(domain) = runs.first().map(|(run, _)| run.name.domain.clone()) else { return Ok(runs) };
        let (store, manifests) = (Arc::clone(&self.store), self.manifests.clone());
        let retire = move || match manifests.history_ms(&domain)? {
            0 => Ok(runs),
            _ => retire(&*store, runs, Retired { since_ms: now_ms(), seen }),
        };
        self.resources.workers.blocking(retire).await?
    }

    /// Forgets versions whose time is over, and deletes the runs that they alone have named. Returns when to look again.
    pub(crate) async fn keep_history(&self) -> Result<Duration, Fault> {
        let (store, manifests) = (Arc::clone(&self.store), self.manifests.clone());
        let look = move || {
            let history = manifests.expire_history()?;
            let due = due(&*store, now_ms(), |domain| history.get(domain).copied().unwrap_or(0))?;
            let shortest = history.values().copied().filter(|time_ms| *time_ms > 0).min();
            Ok::<_, Fault>((due, shortest))
        };
        let (due, shortest) = self.resources.workers.blocking(look).await??;
        self.end_retired(due).await?;
        Ok(shortest.map_or(STEP.1, |time_ms| Duration::from_millis(time_ms / 4).clamp(STEP.0, STEP.1)))
    }

    /// Forgets the versions of a domain but the newest one, and deletes the runs that they alone have named. Returns how many
    /// versions there were.
    pub(crate) async fn forget_history(&self, domain: String) -> Result<u64, Fault> {
        self.shutdown.check()?;
        let (store, manifests) = (Arc::clone(&self.store), self.manifests.clone());
        let forget = move || {
            let versions = manifests.forget_history(&domain)?;
            let other = |other: &str| if other == domain { 0 } else { u64::MAX };
            Ok::<_, Fault>((versions, due(&*store, now_ms(), other)?))
        };
        let (versions, due) = self.resources.workers.blocking(forget).await??;
        self.end_retired(due).await?;
        Ok(versions)
    }

    /// Deletes retired runs, but those that a manifest has come to name again, or may: of these, the note goes.
    async fn end_retired(&self, due: BTreeMap<(String, u64), Vec<SliceKey>>) -> Result<(), Fault> {
        for ((domain, seen), runs) in due {
            let manifests = self.manifests.clone();
            let newest = self.resources.workers.blocking(move || manifests.read(&domain)).await??;
            let is_named = |run: &SliceKey| newest.as_ref().is_some_and(|manifest| names(manifest, run, self.id));
            let (named, going): (Vec<_>, Vec<_>) = runs.into_iter().partition(is_named);
            let meant = going.into_iter().map(|run| (run, 0)).collect();
            let (_, fenced) = self.delete_fenced(meant, Some(seen)).await?;
            let store = Arc::clone(&self.store);
            let notes: Vec<Write> = named.iter().chain(&fenced).map(|run| Write::delete(retired_key(run))).collect();
            if !notes.is_empty() {
                self.resources.workers.blocking(move || store.write(notes, Durability::Through)).await??;
            }
        }
        Ok(())
    }
}

/// Whether a run is retired.
pub(super) fn is_retired(store: &dyn Store, run: &SliceKey) -> Result<bool, Fault> {
    Ok(store.entry(&retired_key(run))?.is_some())
}

/// Notes that runs are retired, durably. A run that is retired already keeps its time, unless it was claimed for a later version
/// meanwhile. Returns the runs that nobody has ever claimed, and no manifest has named.
fn retire(store: &dyn Store, runs: Vec<(SliceKey, u64)>, now: Retired) -> Result<Vec<(SliceKey, u64)>, Fault> {
    let (mut notes, mut others) = (BTreeMap::<Key, Write>::new(), Vec::new());
    for (run, slices) in runs {
        let until = claimed(store, &run)?;
        if until == Some(0) {
            others.push((run, slices));
            continue;
        }
        let before = store.entry(&retired_key(&run))?.map(|entry| Retired::of(&entry, now.since_ms));
        if before.is_none_or(|before| until.is_some_and(|until| until > before.seen)) {
            notes.insert(retired_key(&run), note_of(&run, now));
        }
    }
    if !notes.is_empty() {
        tracing::info!(runs = notes.len(), "kept for versions that name them");
        store.write(notes.into_values().collect(), Durability::Reserved)?;
    }
    Ok(others)
}

fn note_of(run: &SliceKey, retired: Retired) -> Write {
    let (key, version) = (retired_key(run), retired.version());
    Write::Put(Put { key, value: Bytes::new(), version, tag: Tag::default(), expected: Expected::Any })
}

/// Retired runs whose time is over, by domain and the version that was seen to name them no more.
fn due(
    store: &dyn Store,
    now_ms: u64,
    history_ms: impl Fn(&str) -> u64,
) -> Result<BTreeMap<(String, u64), Vec<SliceKey>>, Fault> {
    let mut due: BTreeMap<(String, u64), Vec<SliceKey>> = BTreeMap::new();
    each_entry(store, RETIRED_PREFIX, |entry| {
        let Some(run) = entry.key.strip_prefix(RETIRED_PREFIX.as_bytes()).and_then(parse_run) else { return };
        let retired = Retired::of(entry, now_ms);
        if retired.is_due(history_ms(&run.name.domain), now_ms) {
            due.entry((run.name.domain.clone(), retired.seen)).or_default().push(run);
        }
    })?;
    // Of one that is gone, the note was left where a drive was stopped in between.
    for runs in due.values_mut() {
        let mut gone = Vec::new();
        for run in runs.iter() {
            if store.entry(&slice_key(run))?.is_none() {
                gone.push(Write::delete(retired_key(run)));
            }
        }
        if !gone.is_empty() {
            store.write(gone, Durability::Through)?;
        }
    }
    Ok(due)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use pithead_model::{DatasetId, LoadId};
    use pithead_store::MemoryStore;

    use super::*;
    use crate::storage::keys::claim_key;

    fn run(load: u64) -> SliceKey {
        SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(load), partition: 0, number: None }
    }

    fn store_with(runs: &[(u64, u64)]) -> MemoryStore {
        let store = MemoryStore::new();
        for (load, claimed) in runs {
            let claim = Write::Put(Put::forced(claim_key(&run(*load)), claimed.to_be_bytes().to_vec()));
            store.write(vec![Write::put(slice_key(&run(*load)), ""), claim], Durability::Through).unwrap();
        }
        store
    }

    fn due_at(store: &MemoryStore, now_ms: u64) -> Vec<SliceKey> {
        due(store, now_ms, |_| 160).unwrap().into_values().flatten().collect()
    }

    #[test]
    fn a_retired_run_stays_for_its_time() {
        let store = store_with(&[(1, 4), (2, 0)]);
        let at = |since_ms, seen| Retired { since_ms, seen };
        let never_named = retire(&store, vec![(run(1), 1), (run(2), 1)], at(1_000, 5)).unwrap();
        assert_eq!(never_named, [(run(2), 1)]);
        assert!(is_retired(&store, &run(1)).unwrap() && !is_retired(&store, &run(2)).unwrap());
        // Who says it again, as a process that has just begun does, does not make it stay longer.
        retire(&store, vec![(run(1), 1)], at(1_100, 6)).unwrap();
        assert!(due_at(&store, 1_169).is_empty());
        assert_eq!(due_at(&store, 1_170), [run(1)]);
    }

    #[test]
    fn a_run_that_was_named_again_and_dropped_again_begins_anew() {
        let store = store_with(&[(1, 4)]);
        retire(&store, vec![(run(1), 1)], Retired { since_ms: 1_000, seen: 5 }).unwrap();
        store
            .write(vec![Write::Put(Put::forced(claim_key(&run(1)), 7_u64.to_be_bytes().to_vec()))], Durability::Through)
            .unwrap();
        retire(&store, vec![(run(1), 1)], Retired { since_ms: 1_100, seen: 8 }).unwrap();
        assert!(due_at(&store, 1_170).is_empty());
        assert_eq!(due(&store, 1_270, |_| 160).unwrap().into_keys().next(), Some(("main".to_owned(), 8)));
    }

    #[test]
    fn a_note_whose_run_is_gone_goes() {
        let store = store_with(&[(1, 4)]);
        retire(&store, vec![(run(1), 1)], Retired { since_ms: 1_000, seen: 5 }).unwrap();
        store.write(vec![Write::delete(slice_key(&run(1)))], Durability::Through).unwrap();
        due_at(&store, 1_170);
        assert!(!is_retired(&store, &run(1)).unwrap());
    }
}
