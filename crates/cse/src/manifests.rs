//! [`Manifests`]: replaced by compare-and-set at their home, and kept as copies elsewhere.

mod aside;
mod history;
mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pithead_door::{DomainAt, HistoryAsk, ManifestReceipt, ToldVersion};
use pithead_model::{Blame, DatasetName, DriveId, Fault, Manifest};
use pithead_store::{Durability, Expected, Key, Put, Store, StoreError, Tag, Version, Write, each_readable_entry};
use serde::Deserialize;

use versions::Versions;

/// Manifests, by domain.
const MANIFEST_PREFIX: &str = "manifest/";
/// How often a copy is offered again when another change came first. Each time a newer one is there, so it ends sooner.
const KEEP_TRIES: usize = 16;

/// What status needs of a manifest. The rest is passed over, which is much faster than reading it.
#[derive(Deserialize)]
struct ManifestHead {
    version: u64,
    drives: Vec<DriveId>,
}

/// The manifests that a CSE keeps, as their home or as a copy. Every call blocks for as long as the store takes.
#[derive(Clone, Debug)]
pub struct Manifests {
    store: Arc<dyn Store>,
    id: DriveId,
    versions: Arc<Versions>,
    history: History,
}

/// How long versions are kept once another one has taken their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    /// Not at all, whatever domains say.
    Never,
    /// As long as a domain says, or so many milliseconds where it says nothing.
    For(u64),
}

impl History {
    /// How long, milliseconds, by what a domain says of it.
    fn of(self, said: Option<u64>) -> u64 {
        match self {
            History::Never => 0,
            History::For(default_ms) => said.unwrap_or(default_ms),
        }
    }
}

impl Manifests {
    /// Those in a store of the CSE `id`.
    pub fn new(store: Arc<dyn Store>, id: DriveId) -> Self {
        Self { store, id, versions: Arc::default(), history: History::Never }
    }

    /// The same, which keep versions for as long as their domain says, or so long where it says nothing.
    #[must_use]
    pub fn with_history(self, default: Duration) -> Self {
        Self { history: History::For(u64::try_from(default.as_millis()).unwrap_or(u64::MAX)), ..self }
    }

    /// Answers a question about versions: see [`pithead_door::Door::history`].
    pub fn history(&self, ask: &HistoryAsk) -> Result<Vec<ToldVersion>, Fault> {
        history::told(&*self.store, ask)
    }

    /// The manifest of a version; none: it is not here.
    pub fn past(&self, domain: &str, version: u64) -> Result<Option<Manifest>, Fault> {
        history::past(&*self.store, domain, version)
    }

    /// Forgets all versions of a domain but the one that there is, durably. How many they were.
    pub fn forget_history(&self, domain: &str) -> Result<u64, Fault> {
        history::forget(&*self.store, domain)
    }

    /// Forgets versions whose time is over, durably. How long each domain that is kept here keeps versions, milliseconds.
    pub fn expire_history(&self) -> Result<BTreeMap<String, u64>, Fault> {
        let settings = history::settings(&*self.store)?;
        let settings: BTreeMap<String, u64> =
            settings.into_iter().map(|(domain, said)| (domain, self.history.of(said))).collect();
        let gone = history::expire(&*self.store, now_ms(), |domain| settings.get(domain).copied().unwrap_or(0))?;
        if gone > 0 {
            tracing::info!(versions = gone, "versions of manifests are forgotten");
        }
        Ok(settings)
    }

    /// How long a domain keeps versions here, milliseconds; 0: not at all, or its manifest is not here.
    pub fn history_ms(&self, domain: &str) -> Result<u64, Fault> {
        let manifest = manifest(&*self.store, domain)?;
        Ok(manifest.map_or(0, |(manifest, _)| self.history.of(manifest.history_ms)))
    }

    /// A domain's manifest as it is here, be this the home or not; none: it is not kept here.
    pub fn read(&self, domain: &str) -> Result<Option<Manifest>, Fault> {
        check_domain(domain)?;
        let since = self.versions.since();
        let manifest = manifest(&*self.store, domain)?.map(|(manifest, _)| manifest);
        if let Some(manifest) = &manifest {
            self.versions.note_read(domain, manifest.version, since);
        }
        Ok(manifest)
    }

    /// The version of a domain's manifest, if that is known without reading it. Does not block.
    pub fn version(&self, domain: &str) -> Option<u64> {
        self.versions.get(domain)
    }

    /// The manifests that were here as home when other CSEs took this one's place, if changes in them are lost: the oldest first.
    pub fn set_aside(&self, domain: &str) -> Result<Vec<Manifest>, Fault> {
        aside::all(&*self.store, domain)
    }

    /// The first of them after a version.
    pub fn next_aside(&self, domain: &str, after: u64) -> Result<Option<Manifest>, Fault> {
        aside::next(&*self.store, domain, after)
    }

    /// Drops one of them, durably. Whether it was there.
    pub fn drop_aside(&self, domain: &str, version: u64) -> Result<bool, Fault> {
        aside::drop_one(&*self.store, domain, version)
    }

    /// Replaces a manifest whose home this is, by compare-and-set: see [`pithead_door::Door::commit`].
    pub fn replace(&self, expected: u64, next: &Manifest) -> Result<(), Fault> {
        check_domain(&next.domain)?;
        if next.home() != Some(self.id) {
            let what = format!("the manifest of {} names {} as home, and this is drive {}", next.domain, home(next), self.id);
            return Err(Fault::new(Blame::User, what).hint("commit it at its home, and keep copies of it elsewhere"));
        }
        if expected.checked_add(1) != Some(next.version) {
            let what = format!("a manifest that replaces version {expected} cannot have version {}", next.version);
            return Err(Fault::new(Blame::User, what));
        }
        self.noting(&next.domain, next.version, replace_manifest(&*self.store, self.history, expected, next))?;
        tracing::info!(domain = next.domain, version = next.version, "manifest replaced");
        Ok(())
    }

    /// Keeps a copy of a manifest whose home is elsewhere: see [`pithead_door::Door::keep_manifest`].
    pub fn keep(&self, copy: &Manifest) -> Result<ManifestReceipt, Fault> {
        check_domain(&copy.domain)?;
        if copy.home().is_none_or(|home| home == self.id) {
            let what = format!("the manifest of {} names {} as home, so this is no copy", copy.domain, home(copy));
            return Err(Fault::new(Blame::User, what).hint("commit it, which compares it with what is here"));
        }
        let kept = keep_newer(&*self.store, self.history, self.id, copy);
        let version = kept.as_ref().map_or(0, |kept| kept.version);
        let kept = self.noting(&copy.domain, version, kept)?;
        tracing::debug!(domain = copy.domain, version = kept.version, before = kept.before, "copy of a manifest");
        Ok(kept)
    }

    /// Notes the version that a change has left here. Where it failed, nobody knows whether that was before or after it was made.
    fn noting<T>(&self, domain: &str, version: u64, changed: Result<T, Fault>) -> Result<T, Fault> {
        match &changed {
            Ok(_) => self.versions.note(domain, version),
            Err(_) => self.versions.forget(domain),
        }
        changed
    }

    /// The domains whose manifests are here. One that is damaged is left out, so that status still says the rest.
    pub fn domains(&self) -> Result<Vec<DomainAt>, StoreError> {
        domains(&*self.store)
    }
}

fn check_domain(domain: &str) -> Result<(), Fault> {
    DatasetName::new(domain, "any").map(drop)
}

fn manifest_key(domain: &str) -> Key {
    format!("{MANIFEST_PREFIX}{domain}").into()
}

fn home(manifest: &Manifest) -> String {
    manifest.home().map_or("no drive".to_owned(), |home| format!("drive {home}"))
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

fn replace_manifest(store: &dyn Store, history: History, expected: u64, next: &Manifest) -> Result<(), Fault> {
    let domain = &next.domain;
    let conflict = |there: u64| {
        let what = format!("the manifest of {domain} has version {there}, not {expected}; nothing has changed");
        Fault::new(Blame::Conflict, what).hint("another change came first: try again")
    };
    let before = manifest(store, domain)?;
    let (there, condition) = found(before.as_ref());
    if there != expected {
        return Err(conflict(there));
    }
    let old = before.as_ref().map(|(manifest, _)| manifest);
    match put(store, next, condition, Beside { old, aside: None, history })? {
        true => Ok(()),
        false => Err(conflict(expected + 1)),
    }
}

/// Puts a copy unless what is here is as new, or has what the copy lacks.
fn keep_newer(store: &dyn Store, history: History, id: DriveId, copy: &Manifest) -> Result<ManifestReceipt, Fault> {
    for _ in 0..KEEP_TRIES {
        let there = manifest(store, &copy.domain)?;
        let here = there.as_ref().map(|(manifest, _)| manifest);
        let (before, condition) = found(there.as_ref());
        if before >= copy.version || here.is_some_and(|here| !may_replace(here, copy, id)) {
            return Ok(kept(before, here, copy));
        }
        let aside = here.filter(|here| loses_changes(here, copy, id));
        if put(store, copy, condition, Beside { old: here, aside, history })? {
            return Ok(kept(before, Some(copy), copy));
        }
    }
    let what = format!("the manifest of {} changed {KEEP_TRIES} times meanwhile", copy.domain);
    Err(Fault::new(Blame::Conflict, what).hint("try again"))
}

fn kept(before: u64, here: Option<&Manifest>, copy: &Manifest) -> ManifestReceipt {
    let is_lost = |here: &Manifest| copy.home().is_some_and(|home| here.lost_home(home).is_some());
    ManifestReceipt {
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
/// Beside it, what is written of the one whose place it takes.
fn put(store: &dyn Store, manifest: &Manifest, expected: Expected, beside: Beside<'_>) -> Result<bool, Fault> {
    let bytes = |manifest: &Manifest| {
        serde_json::to_vec(manifest).map_err(|error| Fault::new(Blame::Bug, format!("a manifest that is no JSON: {error}")))
    };
    let aside = beside.aside.map(|aside| Ok::<_, Fault>(aside::write(aside, bytes(aside)?)));
    let kept = beside.old.filter(|_| beside.history.of(manifest.history_ms) > 0);
    let kept = kept.map(|old| Ok::<_, Fault>(history::write(old, bytes(old)?.into(), manifest, now_ms())));
    let put = Put {
        key: manifest_key(&manifest.domain),
        value: Bytes::from(bytes(manifest)?),
        version: Version::copy_from_slice(&manifest.version.to_be_bytes()),
        tag: Tag::default(),
        expected,
    };
    match store.write(
        std::iter::once(Write::Put(put)).chain(aside.transpose()?).chain(kept.transpose()?).collect(),
        Durability::Through,
    ) {
        Ok(()) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What is written beside a manifest, all or nothing.
struct Beside<'a> {
    /// The manifest whose place it takes, which is kept as long as its domain says.
    old: Option<&'a Manifest>,
    /// A manifest with changes that are not in the new one.
    aside: Option<&'a Manifest>,
    history: History,
}

/// Milliseconds since 1970 UTC.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The manifests that are here. One that is damaged is left out, so that status still says the rest.
fn domains(store: &dyn Store) -> Result<Vec<DomainAt>, StoreError> {
    let mut keys: Vec<Key> = Vec::new();
    if !each_readable_entry(store, MANIFEST_PREFIX, |entry| keys.push(entry.key.clone()))? {
        tracing::warn!("a page of the index is damaged: domains on it are not known");
    }
    let mut domains = Vec::with_capacity(keys.len());
    for key in keys {
        match store.get(&key) {
            Ok(Some((value, _))) => domains.extend(domain_at(&key, &value)),
            Ok(None) => {}
            Err(StoreError::Corrupt { key, what }) => tracing::warn!(key, what, "a damaged manifest"),
            Err(error) => return Err(error),
        }
    }
    Ok(domains)
}

fn domain_at(key: &[u8], value: &[u8]) -> Option<DomainAt> {
    let name = std::str::from_utf8(key).ok()?.strip_prefix(MANIFEST_PREFIX)?.to_owned();
    match serde_json::from_slice::<ManifestHead>(value) {
        Ok(ManifestHead { version, drives }) => Some(DomainAt { name, version, home: *drives.first()? }),
        Err(error) => {
            tracing::warn!(domain = name, %error, "a damaged manifest");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::LostHome;
    use pithead_store::MemoryStore;

    const NOTHING: Beside<'_> = Beside { old: None, aside: None, history: History::Never };

    fn manifest_of(version: u64, home: u64) -> Manifest {
        Manifest { version, ..Manifest::empty("lab", vec![DriveId(home)]) }
    }

    fn there(store: &MemoryStore) -> Manifest {
        manifest(store, "lab").unwrap().unwrap().0
    }

    #[test]
    fn a_manifest_is_replaced_by_compare_and_set() {
        let store = MemoryStore::new();
        replace_manifest(&store, History::Never, 0, &manifest_of(1, 7)).unwrap();
        assert_eq!(replace_manifest(&store, History::Never, 0, &manifest_of(1, 7)).unwrap_err().blame, Blame::Conflict);
        replace_manifest(&store, History::Never, 1, &manifest_of(2, 7)).unwrap();
        assert_eq!(replace_manifest(&store, History::Never, 7, &manifest_of(8, 7)).unwrap_err().blame, Blame::Conflict);
        assert_eq!(there(&store).version, 2);
        assert!(manifest(&store, "other").unwrap().is_none());
    }

    #[test]
    fn the_version_is_known_after_reads_and_changes_alone() {
        let store = Arc::new(MemoryStore::new());
        let manifests = Manifests::new(Arc::clone(&store) as Arc<dyn Store>, DriveId(7));
        assert_eq!(manifests.version("lab"), None);
        manifests.replace(0, &manifest_of(1, 7)).unwrap();
        assert_eq!(manifests.version("lab"), Some(1));
        manifests.keep(&manifest_of(2, 8)).unwrap();
        assert_eq!(manifests.version("lab"), Some(2));
        // An older copy changes nothing, here as in the store.
        manifests.keep(&manifest_of(1, 8)).unwrap();
        assert_eq!(manifests.version("lab"), Some(2));
        // After an error it is not known what is there.
        manifests.replace(7, &manifest_of(8, 7)).unwrap_err();
        assert_eq!(manifests.version("lab"), None);
        assert_eq!(manifests.read("lab").unwrap().unwrap().version, 2);
        assert_eq!(manifests.version("lab"), Some(2));
    }

    #[test]
    fn versions_are_kept_as_long_as_their_domain_says() {
        let keeping = |default_ms| {
            let store = Arc::new(MemoryStore::new());
            Manifests::new(store, DriveId(7)).with_history(Duration::from_millis(default_ms))
        };
        let said = |version, history_ms| Manifest { history_ms, time_ms: version, ..manifest_of(version, 7) };
        let versions = |manifests: &Manifests| {
            let ask = HistoryAsk { domain: "lab".into(), pick: pithead_door::Pick::Before(u64::MAX) };
            manifests.history(&ask).unwrap().iter().map(|told| told.version).collect::<Vec<_>>()
        };
        let of_default = keeping(60_000);
        of_default.replace(0, &said(1, None)).unwrap();
        of_default.replace(1, &said(2, None)).unwrap();
        assert_eq!((versions(&of_default), of_default.history_ms("lab").unwrap()), (vec![2, 1], 60_000));
        // From the version on that says so, and for those before it.
        of_default.replace(2, &said(3, Some(0))).unwrap();
        assert_eq!(of_default.expire_history().unwrap(), BTreeMap::from([("lab".to_owned(), 0)]));
        assert_eq!(versions(&of_default), [3]);
        let of_domain = keeping(0);
        of_domain.replace(0, &said(1, Some(60_000))).unwrap();
        of_domain.replace(1, &said(2, Some(60_000))).unwrap();
        of_domain.keep(&Manifest { history_ms: Some(60_000), ..manifest_of(3, 8) }).unwrap();
        of_domain.expire_history().unwrap();
        assert_eq!((versions(&of_domain), of_domain.history_ms("other").unwrap()), (vec![3, 2, 1], 0));
    }

    #[test]
    fn a_change_that_came_between_is_a_conflict() {
        let store = MemoryStore::new();
        replace_manifest(&store, History::Never, 0, &manifest_of(1, 7)).unwrap();
        let (_, stale) = found(manifest(&store, "lab").unwrap().as_ref());
        replace_manifest(&store, History::Never, 1, &manifest_of(2, 7)).unwrap();
        assert!(!put(&store, &manifest_of(2, 8), stale, NOTHING).unwrap());
        assert!(!put(&store, &manifest_of(2, 8), Expected::Absent, NOTHING).unwrap());
        assert_eq!(there(&store), manifest_of(2, 7));
    }

    #[test]
    fn only_a_newer_copy_is_kept() {
        let store = MemoryStore::new();
        let keep = |copy: &Manifest| keep_newer(&store, History::Never, DriveId(1), copy).unwrap();
        let kept = |before, version, home| ManifestReceipt { before, version, home: Some(DriveId(home)), home_is_lost: false };
        assert_eq!(keep(&manifest_of(3, 7)), kept(0, 3, 7));
        assert_eq!(keep(&manifest_of(3, 8)), kept(3, 3, 7));
        assert_eq!(keep(&manifest_of(2, 8)), kept(3, 3, 7));
        assert_eq!(there(&store), manifest_of(3, 7));
        assert_eq!(keep(&manifest_of(9, 8)), kept(3, 9, 8));
        assert_eq!(there(&store), manifest_of(9, 8));
        // A copy may become the home's own: the next commit goes on from it.
        replace_manifest(&store, History::Never, 9, &manifest_of(10, 1)).unwrap();
    }

    fn after_loss(version: u64, known: u64) -> Manifest {
        Manifest { lost_homes: vec![LostHome { drive: DriveId(1), version: known }], ..manifest_of(version, 2) }
    }

    #[test]
    fn changes_that_the_next_home_does_not_know_are_set_aside() {
        for (known, is_split) in [(3, true), (4, false)] {
            let store = MemoryStore::new();
            put(&store, &manifest_of(4, 1), Expected::Absent, NOTHING).unwrap();
            let next = after_loss(900, known);
            keep_newer(&store, History::Never, DriveId(1), &next).unwrap();
            assert_eq!(there(&store), next);
            let aside = aside::all(&store, "lab").unwrap();
            assert_eq!(aside, Vec::from_iter(is_split.then(|| manifest_of(4, 1))));
        }
    }

    #[test]
    fn a_home_gives_way_to_nobody_who_does_not_know_that_it_is_home() {
        let store = MemoryStore::new();
        put(&store, &manifest_of(4, 1), Expected::Absent, NOTHING).unwrap();
        let kept = keep_newer(&store, History::Never, DriveId(1), &manifest_of(900, 2)).unwrap();
        assert_eq!((kept.version, there(&store)), (4, manifest_of(4, 1)));
        keep_newer(&store, History::Never, DriveId(1), &manifest_of(5, 2)).unwrap();
        assert_eq!(there(&store), manifest_of(5, 2), "a hand-over");
    }

    #[test]
    fn a_copy_that_lacks_changes_of_a_lost_home_is_refused_and_the_lost_home_is_told() {
        let store = MemoryStore::new();
        let keep = |copy: &Manifest| keep_newer(&store, History::Never, DriveId(9), copy).unwrap();
        keep(&manifest_of(4, 1));
        assert_eq!(keep(&after_loss(900, 3)).version, 4);
        assert_eq!(keep(&after_loss(900, 4)).version, 900);
        let told = keep(&manifest_of(5, 1));
        assert!(told.home_is_lost && told.version == 900);
    }

    #[test]
    fn damaged_manifests_do_not_hide_the_others() {
        let store = MemoryStore::new();
        let good = Manifest { version: 3, ..Manifest::empty("lab", vec![DriveId(7), DriveId(8)]) };
        let puts = [
            Write::put(manifest_key("bad"), "{"),
            Write::put(manifest_key("lab"), serde_json::to_vec(&good).unwrap()),
            Write::put(manifest_key("homeless"), serde_json::to_vec(&Manifest::empty("homeless", vec![])).unwrap()),
        ];
        store.write(puts.into(), Durability::Through).unwrap();
        assert_eq!(domains(&store).unwrap(), [DomainAt { name: "lab".into(), version: 3, home: DriveId(7) }]);
    }
}
