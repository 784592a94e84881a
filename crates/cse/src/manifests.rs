//! [`Manifests`]: replaced by compare-and-set at their home, and kept as copies elsewhere.

mod aside;
mod history;
mod parsed;
mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pithead_door::{DomainAt, HistoryAsk, ManifestReceipt, ToldVersion};
use pithead_model::{Blame, DatasetName, DriveId, Fault, Manifest};
use pithead_store::{Durability, Expected, Key, Put, Store, StoreError, Tag, Version, Write, each_readable_entry};
use serde::Deserialize;

use parsed::Parsed;
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
    parsed: Arc<Parsed>,
    history: History,
}

/// A manifest as the store has it.
#[derive(Debug)]
struct Stored {
    manifest: Arc<Manifest>,
    /// Its text.
    bytes: Bytes,
    /// The version of the value.
    version: Version,
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
        Self { store, id, versions: Arc::default(), parsed: Arc::default(), history: History::Never }
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
        Ok(self.stored(domain)?.map_or(0, |stored| self.history.of(stored.manifest.history_ms)))
    }

    /// A domain's manifest as it is here, be this the home or not; none: it is not kept here.
    pub fn read(&self, domain: &str) -> Result<Option<Manifest>, Fault> {
        check_domain(domain)?;
        let since = self.versions.since();
        let Some(Stored { manifest, .. }) = self.stored(domain)? else { return Ok(None) };
        self.versions.note_read(domain, manifest.version, since);
        Ok(Some(Arc::unwrap_or_clone(manifest)))
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
    pub fn replace(&self, expected: u64, next: Manifest) -> Result<(), Fault> {
        check_domain(&next.domain)?;
        if next.home() != Some(self.id) {
            let what = format!("the manifest of {} names {} as home, and this is drive {}", next.domain, home(&next), self.id);
            return Err(Fault::new(Blame::User, what).hint("commit it at its home, and keep copies of it elsewhere"));
        }
        if expected.checked_add(1) != Some(next.version) {
            let what = format!("a manifest that replaces version {expected} cannot have version {}", next.version);
            return Err(Fault::new(Blame::User, what));
        }
        let next = Arc::new(next);
        self.noting(&next.domain, next.version, self.replace_stored(expected, &next))?;
        tracing::info!(domain = next.domain, version = next.version, "manifest replaced");
        Ok(())
    }

    /// Keeps a copy of a manifest whose home is elsewhere: see [`pithead_door::Door::keep_manifest`].
    pub fn keep(&self, copy: Manifest) -> Result<ManifestReceipt, Fault> {
        check_domain(&copy.domain)?;
        if copy.home().is_none_or(|home| home == self.id) {
            let what = format!("the manifest of {} names {} as home, so this is no copy", copy.domain, home(&copy));
            return Err(Fault::new(Blame::User, what).hint("commit it, which compares it with what is here"));
        }
        let copy = Arc::new(copy);
        let kept = self.keep_newer(&copy);
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

    /// A domain's manifest as the store has it.
    fn stored(&self, domain: &str) -> Result<Option<Stored>, Fault> {
        let Some((bytes, entry)) = self.store.get(&manifest_key(domain))? else { return Ok(None) };
        Ok(Some(Stored { manifest: self.parsed.of(domain, &bytes)?, bytes, version: entry.version }))
    }

    fn replace_stored(&self, expected: u64, next: &Arc<Manifest>) -> Result<(), Fault> {
        let domain = &next.domain;
        let conflict = |there: u64| {
            let what = format!("the manifest of {domain} has version {there}, not {expected}; nothing has changed");
            Fault::new(Blame::Conflict, what).hint("another change came first: try again")
        };
        let before = self.stored(domain)?;
        let there = before.as_ref().map_or(0, |before| before.manifest.version);
        if there != expected {
            return Err(conflict(there));
        }
        match self.put(next, before.as_ref(), false)? {
            true => Ok(()),
            false => Err(conflict(expected + 1)),
        }
    }

    /// Puts a copy unless what is here is as new, or has what the copy lacks.
    fn keep_newer(&self, copy: &Arc<Manifest>) -> Result<ManifestReceipt, Fault> {
        for _ in 0..KEEP_TRIES {
            let there = self.stored(&copy.domain)?;
            let here = there.as_ref().map(|there| &*there.manifest);
            let before = here.map_or(0, |here| here.version);
            if before >= copy.version || here.is_some_and(|here| !may_replace(here, copy, self.id)) {
                return Ok(kept(before, here, copy));
            }
            let sets_aside = here.is_some_and(|here| loses_changes(here, copy, self.id));
            if self.put(copy, there.as_ref(), sets_aside)? {
                return Ok(kept(before, Some(copy), copy));
            }
        }
        let what = format!("the manifest of {} changed {KEEP_TRIES} times meanwhile", copy.domain);
        Err(Fault::new(Blame::Conflict, what).hint("try again"))
    }

    /// Puts a manifest, durably, in the place of what was found there, which is kept as long as its domain says, and set aside where the
    /// new one lacks changes of it: all or nothing. False: something else is there by now.
    ///
    /// The manifest's version is also its version in the store. It only grows, so no two values under the key have the same one, and
    /// a compare-and-set cannot take one for another.
    fn put(&self, manifest: &Arc<Manifest>, before: Option<&Stored>, sets_aside: bool) -> Result<bool, Fault> {
        let text = serde_json::to_vec(&**manifest)
            .map_err(|error| Fault::new(Blame::Bug, format!("a manifest that is no JSON: {error}")))?;
        let text = Bytes::from(text);
        let aside = before.filter(|_| sets_aside).map(|before| aside::write(&before.manifest, before.bytes.clone()));
        let old = before.filter(|_| self.history.of(manifest.history_ms) > 0);
        let old = old.map(|old| history::write(&old.manifest, old.bytes.clone(), manifest, now_ms()));
        let put = Put {
            key: manifest_key(&manifest.domain),
            value: text.clone(),
            version: Version::copy_from_slice(&manifest.version.to_be_bytes()),
            tag: Tag::default(),
            expected: before.map_or(Expected::Absent, |before| Expected::Version(before.version.clone())),
        };
        let writes = std::iter::once(Write::Put(put)).chain(aside).chain(old).collect();
        // What names less than before lets something be deleted, which has to go on where there is no more room.
        let is_shorter = before.is_some_and(|before| text.len() < before.bytes.len());
        match self.store.write(writes, if is_shorter { Durability::Reserved } else { Durability::Through }) {
            Ok(()) => {
                self.parsed.remember(&manifest.domain, text, Arc::clone(manifest));
                Ok(true)
            }
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
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
mod tests;
