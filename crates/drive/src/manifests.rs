//! Manifests: replaced by compare-and-set on their home drive, and kept as copies on others.

use std::sync::Arc;

use bytes::Bytes;
use pithead_model::{Blame, Fault, Manifest};
use pithead_store::{Durability, Expected, Put, Store, StoreError, Tag, Version, Write};

use crate::Drive;
use crate::keys::manifest_key;
use crate::metadata::check_domain;

/// How often a copy is offered again when another change came first. Each time a newer one is there, so it ends sooner.
const KEEP_TRIES: usize = 16;

impl Drive {
    pub(crate) async fn read_manifest(&self, domain: String) -> Result<Option<Manifest>, Fault> {
        check_domain(&domain)?;
        let store = Arc::clone(&self.store);
        let found = self.workers.blocking(move || manifest(&*store, &domain)).await??;
        Ok(found.map(|(manifest, _)| manifest))
    }

    pub(crate) async fn write_manifest(&self, expected: u64, next: Manifest) -> Result<(), Fault> {
        check_domain(&next.domain)?;
        self.check_running()?;
        if next.home() != Some(self.id) {
            let what = format!("the manifest of {} names {} as home, and this is drive {}", next.domain, home(&next), self.id);
            return Err(Fault::new(Blame::User, what).hint("commit it at its home, and keep copies of it elsewhere"));
        }
        if expected.checked_add(1) != Some(next.version) {
            let what = format!("a manifest that replaces version {expected} cannot have version {}", next.version);
            return Err(Fault::new(Blame::User, what));
        }
        let (store, domain) = (Arc::clone(&self.store), next.domain.clone());
        self.workers.blocking(move || replace_manifest(&*store, expected, &next)).await??;
        tracing::info!(domain, version = expected + 1, "manifest replaced");
        Ok(())
    }

    pub(crate) async fn keep_copy(&self, manifest: Manifest) -> Result<(), Fault> {
        check_domain(&manifest.domain)?;
        self.check_running()?;
        if manifest.home().is_none_or(|home| home == self.id) {
            let what = format!("the manifest of {} names {} as home, so this is no copy", manifest.domain, home(&manifest));
            return Err(Fault::new(Blame::User, what).hint("commit it, which compares it with what is here"));
        }
        let (store, domain, version) = (Arc::clone(&self.store), manifest.domain.clone(), manifest.version);
        let kept = self.workers.blocking(move || keep_newer(&*store, &manifest)).await??;
        tracing::debug!(domain, version, kept, "copy of a manifest");
        Ok(())
    }
}

fn home(manifest: &Manifest) -> String {
    manifest.home().map_or("no drive".to_owned(), |home| format!("drive {home}"))
}

/// A domain's manifest, and the version that the store has it under.
fn manifest(store: &dyn Store, domain: &str) -> Result<Option<(Manifest, Version)>, Fault> {
    let Some((bytes, entry)) = store.get(&manifest_key(domain))? else { return Ok(None) };
    let damaged =
        |error: serde_json::Error| Fault::new(Blame::Corrupt, format!("the manifest of {domain} is damaged: {error}"));
    Ok(Some((serde_json::from_slice(&bytes).map_err(damaged)?, entry.version)))
}

fn replace_manifest(store: &dyn Store, expected: u64, next: &Manifest) -> Result<(), Fault> {
    let domain = &next.domain;
    let conflict = |there: u64| {
        let what = format!("the manifest of {domain} has version {there}, not {expected}; nothing has changed");
        Fault::new(Blame::Conflict, what).hint("another change came first: try again")
    };
    let (there, condition) = found(manifest(store, domain)?);
    if there != expected {
        return Err(conflict(there));
    }
    match put(store, next, condition)? {
        true => Ok(()),
        false => Err(conflict(expected + 1)),
    }
}

/// Puts a copy unless what is here is as new. Whether it did.
fn keep_newer(store: &dyn Store, copy: &Manifest) -> Result<bool, Fault> {
    for _ in 0..KEEP_TRIES {
        let (there, condition) = found(manifest(store, &copy.domain)?);
        if there >= copy.version {
            return Ok(false);
        }
        if put(store, copy, condition)? {
            return Ok(true);
        }
    }
    let what = format!("the manifest of {} changed {KEEP_TRIES} times meanwhile", copy.domain);
    Err(Fault::new(Blame::Conflict, what).hint("try again"))
}

/// The version that there is, 0 for none, and what a change of it expects of the store.
fn found(found: Option<(Manifest, Version)>) -> (u64, Expected) {
    match found {
        Some((manifest, version)) => (manifest.version, Expected::Version(version)),
        None => (0, Expected::Absent),
    }
}

/// Puts a manifest, durably. False: the condition does not hold.
///
/// The manifest's version is also its version in the store. It only grows, so no two values under the key have the same one, and
/// a compare-and-set cannot take one for another.
fn put(store: &dyn Store, manifest: &Manifest, expected: Expected) -> Result<bool, Fault> {
    let bytes =
        serde_json::to_vec(manifest).map_err(|error| Fault::new(Blame::Bug, format!("a manifest that is no JSON: {error}")))?;
    let put = Put {
        key: manifest_key(&manifest.domain),
        value: Bytes::from(bytes),
        version: Version::copy_from_slice(&manifest.version.to_be_bytes()),
        tag: Tag::default(),
        expected,
    };
    match store.write(vec![Write::Put(put)], Durability::Through) {
        Ok(()) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::DriveId;
    use pithead_store::MemoryStore;

    fn manifest_of(version: u64, home: u64) -> Manifest {
        Manifest { version, ..Manifest::empty("lab", vec![DriveId(home)]) }
    }

    fn there(store: &MemoryStore) -> Manifest {
        manifest(store, "lab").unwrap().unwrap().0
    }

    #[test]
    fn a_manifest_is_replaced_by_compare_and_set() {
        let store = MemoryStore::new();
        replace_manifest(&store, 0, &manifest_of(1, 7)).unwrap();
        assert_eq!(replace_manifest(&store, 0, &manifest_of(1, 7)).unwrap_err().blame, Blame::Conflict);
        replace_manifest(&store, 1, &manifest_of(2, 7)).unwrap();
        assert_eq!(replace_manifest(&store, 7, &manifest_of(8, 7)).unwrap_err().blame, Blame::Conflict);
        assert_eq!(there(&store).version, 2);
        assert!(manifest(&store, "other").unwrap().is_none());
    }

    #[test]
    fn a_change_that_came_between_is_a_conflict() {
        let store = MemoryStore::new();
        replace_manifest(&store, 0, &manifest_of(1, 7)).unwrap();
        let (_, stale) = found(manifest(&store, "lab").unwrap());
        replace_manifest(&store, 1, &manifest_of(2, 7)).unwrap();
        assert!(!put(&store, &manifest_of(2, 8), stale).unwrap());
        assert!(!put(&store, &manifest_of(2, 8), Expected::Absent).unwrap());
        assert_eq!(there(&store), manifest_of(2, 7));
    }

    #[test]
    fn only_a_newer_copy_is_kept() {
        let store = MemoryStore::new();
        assert!(keep_newer(&store, &manifest_of(3, 7)).unwrap());
        assert!(!keep_newer(&store, &manifest_of(3, 8)).unwrap());
        assert!(!keep_newer(&store, &manifest_of(2, 8)).unwrap());
        assert_eq!(there(&store), manifest_of(3, 7));
        assert!(keep_newer(&store, &manifest_of(9, 8)).unwrap());
        assert_eq!(there(&store), manifest_of(9, 8));
        // A copy may become the home's own: the next commit goes on from it.
        replace_manifest(&store, 9, &manifest_of(10, 1)).unwrap();
    }
}
