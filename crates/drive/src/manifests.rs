//! Manifests: replaced by compare-and-set on their home drive, and kept as copies on others.

use std::sync::Arc;

use bytes::Bytes;
use pithead_model::{Blame, DriveId, Fault, Manifest};
use pithead_store::{Durability, Expected, Put, Store, StoreError, Tag, Version, Write};
use pithead_wire::Kept;

use crate::Drive;
use crate::keys::{aside_key, manifest_key};
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

    pub(crate) async fn keep_copy(&self, manifest: Manifest) -> Result<Kept, Fault> {
        check_domain(&manifest.domain)?;
        self.check_running()?;
        if manifest.home().is_none_or(|home| home == self.id) {
            let what = format!("the manifest of {} names {} as home, so this is no copy", manifest.domain, home(&manifest));
            return Err(Fault::new(Blame::User, what).hint("commit it, which compares it with what is here"));
        }
        let (store, id, domain) = (Arc::clone(&self.store), self.id, manifest.domain.clone());
        let kept = self.workers.blocking(move || keep_newer(&*store, id, &manifest)).await??;
        tracing::debug!(domain, version = kept.version, before = kept.before, "copy of a manifest");
        Ok(kept)
    }
}

fn home(manifest: &Manifest) -> String {
    manifest.home().map_or("no drive".to_owned(), |home| format!("drive {home}"))
}

/// A domain's manifest as this drive has it.
pub(crate) fn kept_manifest(store: &dyn Store, domain: &str) -> Result<Option<Manifest>, Fault> {
    Ok(manifest(store, domain)?.map(|(manifest, _)| manifest))
}

/// The manifest that this drive had as home when another one took its place, if changes in it are lost.
pub(crate) fn set_aside(store: &dyn Store, domain: &str) -> Result<Option<Manifest>, Fault> {
    match store.get(&aside_key(domain))? {
        Some((bytes, _)) => Ok(Some(parse(domain, &bytes)?)),
        None => Ok(None),
    }
}

fn parse(domain: &str, bytes: &[u8]) -> Result<Manifest, Fault> {
    serde_json::from_slice(bytes)
        .map_err(|error| Fault::new(Blame::Corrupt, format!("the manifest of {domain} is damaged: {error}")))
}

/// A domain's manifest, and the version that the store has it under.
fn manifest(store: &dyn Store, domain: &str) -> Result<Option<(Manifest, Version)>, Fault> {
    let Some((bytes, entry)) = store.get(&manifest_key(domain))? else { return Ok(None) };
    Ok(Some((parse(domain, &bytes)?, entry.version)))
}

fn replace_manifest(store: &dyn Store, expected: u64, next: &Manifest) -> Result<(), Fault> {
    let domain = &next.domain;
    let conflict = |there: u64| {
        let what = format!("the manifest of {domain} has version {there}, not {expected}; nothing has changed");
        Fault::new(Blame::Conflict, what).hint("another change came first: try again")
    };
    let (there, condition) = found(manifest(store, domain)?.as_ref());
    if there != expected {
        return Err(conflict(there));
    }
    match put(store, next, condition, None)? {
        true => Ok(()),
        false => Err(conflict(expected + 1)),
    }
}

/// Puts a copy unless what is here is as new, or has what the copy lacks.
fn keep_newer(store: &dyn Store, id: DriveId, copy: &Manifest) -> Result<Kept, Fault> {
    for _ in 0..KEEP_TRIES {
        let there = manifest(store, &copy.domain)?;
        let here = there.as_ref().map(|(manifest, _)| manifest);
        let (before, condition) = found(there.as_ref());
        if before >= copy.version || here.is_some_and(|here| !may_replace(here, copy, id)) {
            return Ok(kept(before, here, copy));
        }
        let aside = here.filter(|here| loses_changes(here, copy, id));
        if put(store, copy, condition, aside)? {
            return Ok(kept(before, Some(copy), copy));
        }
    }
    let what = format!("the manifest of {} changed {KEEP_TRIES} times meanwhile", copy.domain);
    Err(Fault::new(Blame::Conflict, what).hint("try again"))
}

fn kept(before: u64, here: Option<&Manifest>, copy: &Manifest) -> Kept {
    let is_lost = |here: &Manifest| copy.home().is_some_and(|home| here.lost_home(home).is_some());
    Kept {
        before,
        version: here.map_or(0, |here| here.version),
        home: here.and_then(Manifest::home),
        home_is_lost: here.is_some_and(is_lost),
    }
}

/// Whether a newer copy may take the place of what is here. As home, this drive gives way to a hand-over, which follows its own last
/// change, and to homes that were made after it was declared lost. Elsewhere, a copy that takes a home for lost has to
/// contain all that is known here of that home's changes.
fn may_replace(here: &Manifest, copy: &Manifest, id: DriveId) -> bool {
    match here.home() {
        Some(home) if home == id => copy.lost_home(id).is_some() || copy.version == here.version.saturating_add(1),
        Some(home) => copy.lost_home(home).is_none_or(|known| here.version <= known),
        None => true,
    }
}

/// Whether this drive, as home, has made changes that are not in the copy, since it was declared lost before.
fn loses_changes(here: &Manifest, copy: &Manifest, id: DriveId) -> bool {
    here.home() == Some(id) && copy.lost_home(id).is_some_and(|known| known < here.version)
}

/// The version that there is, 0 for none, and what a change of it expects of the store.
fn found(found: Option<&(Manifest, Version)>) -> (u64, Expected) {
    match found {
        Some((manifest, version)) => (manifest.version, Expected::Version(version.clone())),
        None => (0, Expected::Absent),
    }
}

/// Puts a manifest, durably. False: the condition does not hold.
///
/// The manifest's version is also its version in the store. It only grows, so no two values under the key have the same one, and
/// a compare-and-set cannot take one for another.
///
/// Beside it, what is set aside: a manifest with changes that are not in it.
fn put(store: &dyn Store, manifest: &Manifest, expected: Expected, aside: Option<&Manifest>) -> Result<bool, Fault> {
    let bytes = |manifest: &Manifest| {
        serde_json::to_vec(manifest).map_err(|error| Fault::new(Blame::Bug, format!("a manifest that is no JSON: {error}")))
    };
    let aside = aside.map(|aside| {
        let (domain, version) = (&aside.domain, aside.version);
        tracing::error!(
            domain,
            version,
            "another drive became home, and does not know this drive's last changes; they are set aside"
        );
        Ok::<_, Fault>(Write::Put(Put::forced(aside_key(domain), bytes(aside)?)))
    });
    let put = Put {
        key: manifest_key(&manifest.domain),
        value: Bytes::from(bytes(manifest)?),
        version: Version::copy_from_slice(&manifest.version.to_be_bytes()),
        tag: Tag::default(),
        expected,
    };
    match store.write(std::iter::once(Write::Put(put)).chain(aside.transpose()?).collect(), Durability::Through) {
        Ok(()) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::LostHome;
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
        let (_, stale) = found(manifest(&store, "lab").unwrap().as_ref());
        replace_manifest(&store, 1, &manifest_of(2, 7)).unwrap();
        assert!(!put(&store, &manifest_of(2, 8), stale, None).unwrap());
        assert!(!put(&store, &manifest_of(2, 8), Expected::Absent, None).unwrap());
        assert_eq!(there(&store), manifest_of(2, 7));
    }

    #[test]
    fn only_a_newer_copy_is_kept() {
        let store = MemoryStore::new();
        let keep = |copy: &Manifest| keep_newer(&store, DriveId(1), copy).unwrap();
        let kept = |before, version, home| Kept { before, version, home: Some(DriveId(home)), home_is_lost: false };
        assert_eq!(keep(&manifest_of(3, 7)), kept(0, 3, 7));
        assert_eq!(keep(&manifest_of(3, 8)), kept(3, 3, 7));
        assert_eq!(keep(&manifest_of(2, 8)), kept(3, 3, 7));
        assert_eq!(there(&store), manifest_of(3, 7));
        assert_eq!(keep(&manifest_of(9, 8)), kept(3, 9, 8));
        assert_eq!(there(&store), manifest_of(9, 8));
        // A copy may become the home's own: the next commit goes on from it.
        replace_manifest(&store, 9, &manifest_of(10, 1)).unwrap();
    }

    fn after_loss(version: u64, known: u64) -> Manifest {
        Manifest { lost_homes: vec![LostHome { drive: DriveId(1), version: known }], ..manifest_of(version, 2) }
    }

    #[test]
    fn changes_that_the_next_home_does_not_know_are_set_aside() {
        for (known, is_split) in [(3, true), (4, false)] {
            let store = MemoryStore::new();
            put(&store, &manifest_of(4, 1), Expected::Absent, None).unwrap();
            let next = after_loss(900, known);
            keep_newer(&store, DriveId(1), &next).unwrap();
            assert_eq!(there(&store), next);
            assert_eq!(set_aside(&store, "lab").unwrap().is_some(), is_split);
        }
    }

    #[test]
    fn a_home_gives_way_to_nobody_who_does_not_know_that_it_is_home() {
        let store = MemoryStore::new();
        put(&store, &manifest_of(4, 1), Expected::Absent, None).unwrap();
        let kept = keep_newer(&store, DriveId(1), &manifest_of(900, 2)).unwrap();
        assert_eq!((kept.version, there(&store)), (4, manifest_of(4, 1)));
        keep_newer(&store, DriveId(1), &manifest_of(5, 2)).unwrap();
        assert_eq!(there(&store), manifest_of(5, 2), "a hand-over");
    }

    #[test]
    fn a_copy_that_lacks_changes_of_a_lost_home_is_refused_and_the_lost_home_is_told() {
        let store = MemoryStore::new();
        let keep = |copy: &Manifest| keep_newer(&store, DriveId(9), copy).unwrap();
        keep(&manifest_of(4, 1));
        assert_eq!(keep(&after_loss(900, 3)).version, 4);
        assert_eq!(keep(&after_loss(900, 4)).version, 900);
        let told = keep(&manifest_of(5, 1));
        assert!(told.home_is_lost && told.version == 900);
    }
}
