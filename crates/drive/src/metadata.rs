//! Manifests, directories, status, and the end of slices that no manifest names any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use pithead_functions::EXTENSIONS;
use pithead_model::{Blame, DatasetId, DatasetName, Directory, Fault, LoadId, Manifest, PROTOCOL_VERSION, SliceKey};
use pithead_slice::encoding_names;
use pithead_store::{Expected, Store, StoreError, Version, Write};
use pithead_wire::{DriveStatus, Hello, Welcome, check_hello};

use crate::Drive;

const MANIFEST_PREFIX: &str = "manifest/";
const SLICE_PREFIX: &str = "slice/";
/// Runs that wait for their last reader, so that they go after a restart, too. The value is the run's key as JSON.
const CONDEMNED_PREFIX: &str = "condemned/";
const RELEASE: &str = env!("CARGO_PKG_VERSION");

impl Drive {
    pub(crate) fn welcome(&self, hello: &Hello) -> Result<Welcome, Fault> {
        let welcome = Welcome {
            protocol: PROTOCOL_VERSION,
            release: RELEASE.to_owned(),
            drive: self.id,
            extensions: EXTENSIONS.iter().map(|name| (*name).to_owned()).collect(),
            encodings: encoding_names().into_iter().map(str::to_owned).collect(),
            threads: self.workers.threads() as u32,
            link_bits_per_second: self.device.link_bits_per_second(),
        };
        check_hello(hello, &welcome)?;
        Ok(welcome)
    }

    pub(crate) async fn read_manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        check_domain(&domain)?;
        let store = Arc::clone(&self.store);
        let found = self.workers.blocking(move || manifest(&*store, &domain)).await??;
        Ok(found.map(|(manifest, _)| manifest))
    }

    pub(crate) async fn write_manifest(&self, expected: u64, next: Manifest) -> Result<(), Fault> {
        check_domain(&next.domain)?;
        self.check_running()?;
        if expected.checked_add(1) != Some(next.version) {
            let what = format!("a manifest that replaces version {expected} cannot have version {}", next.version);
            return Err(Fault::new(Blame::User, what));
        }
        let (store, domain) = (Arc::clone(&self.store), next.domain.clone());
        self.workers.blocking(move || replace_manifest(&*store, expected, &next)).await??;
        tracing::info!(domain, version = expected + 1, "manifest replaced");
        Ok(())
    }

    pub(crate) async fn read_directory(&self, key: SliceKey) -> Result<Directory, Fault> {
        check_name(&key.name)?;
        self.directories.read(&SliceKey { number: None, ..key }).await
    }

    /// Deletes the runs of an incarnation but those of `keep`. Returns the number of slices that went.
    pub(crate) async fn discard_runs(&self, name: DatasetName, dataset: DatasetId, keep: Vec<LoadId>) -> Result<u64, Fault> {
        check_name(&name)?;
        let store = Arc::clone(&self.store);
        let runs = self.workers.blocking(move || stored_runs(&*store, &name, dataset)).await??;
        let going = runs.into_iter().filter(|(run, _)| !keep.contains(&run.load));
        let (now, later): (Vec<_>, Vec<_>) = going.partition(|(run, _)| self.leases.doom(run));
        let store = Arc::clone(&self.store);
        let later: Vec<SliceKey> = later.into_iter().map(|(run, _)| run).collect();
        tracing::info!(runs = now.len(), leased = later.len(), "discarding");
        let condemned = self.workers.blocking(move || condemn(&*store, &later)).await?;
        let slices = now.iter().map(|(_, slices)| slices).sum();
        let deleted = self.delete_runs(now.into_iter().map(|(run, _)| run).collect()).await;
        condemned.and(deleted).map(|()| slices)
    }

    /// Deletes runs whose last lease has ended.
    pub(crate) async fn collect_freed(&self) {
        let freed = self.leases.take_freed();
        if freed.is_empty() {
            return;
        }
        tracing::info!(runs = freed.len(), "collecting runs that were waiting for their readers");
        if let Err(fault) = self.delete_runs(freed).await {
            tracing::error!(%fault, "runs that nobody needs could not be deleted; they go when the drive is opened again");
        }
    }

    /// Deletes what a drive that stopped had not come to. Blocks.
    pub(crate) fn collect_condemned(&self) -> Result<(), Fault> {
        for entry in self.store.list(CONDEMNED_PREFIX)? {
            let Some((value, _)) = self.store.get(&entry.key)? else { continue };
            match serde_json::from_slice::<SliceKey>(&value) {
                Ok(run) => delete_run(&*self.store, &run)?,
                Err(error) => tracing::warn!(key = entry.key, %error, "damaged note of a run to delete"),
            }
        }
        Ok(())
    }

    async fn delete_runs(&self, runs: Vec<SliceKey>) -> Result<(), Fault> {
        let store = Arc::clone(&self.store);
        let deleting = runs.clone();
        let deleted = self.workers.blocking(move || deleting.iter().try_for_each(|run| delete_run(&*store, run))).await;
        for run in &runs {
            self.directories.forget(run);
            self.slices.forget(run);
            self.leases.gone(run);
        }
        deleted?
    }

    pub(crate) async fn read_status(&self) -> Result<DriveStatus, Fault> {
        let store = Arc::clone(&self.store);
        let look = move || Ok::<_, StoreError>((store.usage()?, store.list(SLICE_PREFIX)?, store.list(MANIFEST_PREFIX)?));
        let (usage, slices, manifests) = self.workers.blocking(look).await??;
        Ok(DriveStatus {
            drive: self.id,
            release: RELEASE.to_owned(),
            uptime_s: self.device.clock().now().since(self.started).as_secs(),
            threads: self.workers.threads() as u32,
            memory: self.budget.total(),
            memory_reserved: self.budget.reserved(),
            sessions: self.sessions.count() as u32,
            slices: slices.iter().filter(|entry| !entry.key.ends_with(".meta")).count() as u64,
            stored_bytes: usage.value_bytes,
            free_bytes: usage.free_bytes,
            domains: manifests.into_iter().map(|entry| entry.key[MANIFEST_PREFIX.len()..].to_owned()).collect(),
            link_bits_per_second: self.device.link_bits_per_second(),
        })
    }
}

/// Refuses names that could reach outside their part of a key.
pub(crate) fn check_name(name: &DatasetName) -> Result<(), Fault> {
    DatasetName::new(name.domain.clone(), name.dataset.clone()).map(drop)
}

fn check_domain(domain: &str) -> Result<(), Fault> {
    DatasetName::new(domain, "any").map(drop)
}

fn manifest(store: &dyn Store, domain: &str) -> Result<Option<(Manifest, Version)>, Fault> {
    let key = format!("{MANIFEST_PREFIX}{domain}");
    let Some((bytes, version)) = store.get(&key)? else { return Ok(None) };
    let damaged =
        |error: serde_json::Error| Fault::new(Blame::Corrupt, format!("the manifest of {domain} is damaged: {error}"));
    Ok(Some((serde_json::from_slice(&bytes).map_err(damaged)?, version)))
}

fn replace_manifest(store: &dyn Store, expected: u64, next: &Manifest) -> Result<(), Fault> {
    let domain = &next.domain;
    let conflict = |there: u64| {
        let what = format!("the manifest of {domain} has version {there}, not {expected}; nothing has changed");
        Fault::new(Blame::Conflict, what).hint("another change came first: try again")
    };
    let (there, condition) = match manifest(store, domain)? {
        Some((manifest, version)) => (manifest.version, Expected::Version(version)),
        None => (0, Expected::Absent),
    };
    if there != expected {
        return Err(conflict(there));
    }
    let bytes =
        serde_json::to_vec(next).map_err(|error| Fault::new(Blame::Bug, format!("a manifest that is no JSON: {error}")))?;
    let write = Write::Put { key: format!("{MANIFEST_PREFIX}{domain}"), value: Bytes::from(bytes), expected: condition };
    match store.write(vec![write]) {
        Err(StoreError::Conflict { .. }) => Err(conflict(expected + 1)),
        other => Ok(other?),
    }
}

/// The runs of an incarnation that are stored, each with its number of slices.
fn stored_runs(store: &dyn Store, name: &DatasetName, dataset: DatasetId) -> Result<BTreeMap<SliceKey, u64>, Fault> {
    let prefix = format!("{SLICE_PREFIX}{}/{}@{dataset}/", name.domain, name.dataset);
    let mut runs = BTreeMap::new();
    for entry in store.list(&prefix)? {
        let Some((load, partition, is_slice)) = parse_rest(&entry.key[prefix.len()..]) else {
            tracing::warn!(key = entry.key, "a key that is no slice's");
            continue;
        };
        let run = SliceKey { name: name.clone(), dataset, load, partition, number: None };
        *runs.entry(run).or_insert(0) += u64::from(is_slice);
    }
    Ok(runs)
}

/// Load, partition, and whether it is a slice: `load/partition.number` or `load/partition.meta`.
fn parse_rest(rest: &str) -> Option<(LoadId, u32, bool)> {
    let (load, rest) = rest.split_once('/')?;
    let (partition, number) = rest.split_once('.')?;
    Some((load.parse().ok()?, partition.parse().ok()?, number != "meta"))
}

fn condemned_key(run: &SliceKey) -> String {
    format!("{CONDEMNED_PREFIX}{run}")
}

fn condemn(store: &dyn Store, runs: &[SliceKey]) -> Result<(), Fault> {
    if runs.is_empty() {
        return Ok(());
    }
    let note = |run: &SliceKey| {
        let value =
            serde_json::to_vec(run).map_err(|error| Fault::new(Blame::Bug, format!("a key that is no JSON: {error}")))?;
        Ok(Write::Put { key: condemned_key(run), value: value.into(), expected: Expected::Any })
    };
    Ok(store.write(runs.iter().map(note).collect::<Result<_, Fault>>()?)?)
}

/// Deletes a run's slices, its metadata slice, and the note that it was to go: all or none.
fn delete_run(store: &dyn Store, run: &SliceKey) -> Result<(), Fault> {
    let key = run.to_string();
    let Some(prefix) = key.strip_suffix("meta") else { return Ok(()) };
    let mut keys: Vec<String> = store.list(prefix)?.into_iter().map(|entry| entry.key).collect();
    keys.push(condemned_key(run));
    let delete = |key| Write::Delete { key, expected: Expected::Any };
    Ok(store.write(keys.into_iter().map(delete).collect())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_store::MemoryStore;

    fn manifest_of(version: u64) -> Manifest {
        Manifest { version, ..Manifest::empty("lab", vec![]) }
    }

    #[test]
    fn a_manifest_is_replaced_by_compare_and_set() {
        let store = MemoryStore::new();
        replace_manifest(&store, 0, &manifest_of(1)).unwrap();
        assert_eq!(replace_manifest(&store, 0, &manifest_of(1)).unwrap_err().blame, Blame::Conflict);
        replace_manifest(&store, 1, &manifest_of(2)).unwrap();
        assert_eq!(replace_manifest(&store, 7, &manifest_of(8)).unwrap_err().blame, Blame::Conflict);
        assert_eq!(manifest(&store, "lab").unwrap().unwrap().0.version, 2);
        assert!(manifest(&store, "other").unwrap().is_none());
    }

    #[test]
    fn runs_are_found_and_deleted_whole() {
        let store = MemoryStore::new();
        let run = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(2), partition: 3, number: None };
        let other = SliceKey { load: LoadId(4), ..run.clone() };
        for key in [run.clone(), run.slice(0), run.slice(1), other.clone(), other.slice(0)] {
            store.write(vec![Write::Put { key: key.to_string(), value: Bytes::new(), expected: Expected::Any }]).unwrap();
        }
        condemn(&store, std::slice::from_ref(&run)).unwrap();
        let runs = stored_runs(&store, &run.name, run.dataset).unwrap();
        assert_eq!(runs, BTreeMap::from([(run.clone(), 2), (other.clone(), 1)]));
        delete_run(&store, &run).unwrap();
        assert_eq!(stored_runs(&store, &run.name, run.dataset).unwrap(), BTreeMap::from([(other, 1)]));
        assert!(store.list(CONDEMNED_PREFIX).unwrap().is_empty());
    }

    #[test]
    fn foreign_keys_are_no_runs() {
        assert!(parse_rest("").is_none());
        assert!(parse_rest("zz/00001.meta").is_none());
        assert_eq!(parse_rest("000000000000000a/00001.meta"), Some((LoadId(10), 1, false)));
    }
}
