//! Versions of manifests that another one has taken the place of, kept for a time that their domain sets.
//!
//! Each is a value of its own beside the manifest, and is written in the batch that replaces it: no version is lost between the two,
//! and a damaged value takes one version away. The entry of the value says when the next version was made, when that was
//! noted here, and whether the next one was made from this very version. A drive that was away while others were made has gaps,
//! and what it has before a gap was the newest for a time that it does not know.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use pithead_door::{HistoryAsk, Pick, ToldVersion, VERSIONS_TOLD_MAX};
use pithead_model::{Fault, Manifest};
use pithead_store::{Durability, Entry, Expected, Key, Put, Store, StoreError, Tag, Version, Write, each_entry};
use serde::Deserialize;

use super::{MANIFEST_PREFIX, check_domain, manifest_key, parse};

/// Versions of manifests, by domain and version.
const OLD_PREFIX: &str = "manifest-old/";
/// Versions of a domain that are kept at most, and their bytes: the oldest go first.
const VERSIONS_MAX: usize = 10_000;
const BYTES_MAX: u64 = 1 << 30;
/// Partitions of datasets that one answer tells of at most: then it ends after the version at hand.
const PARTITIONS_TOLD_MAX: usize = 50_000;

/// What the entry of a kept version says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VersionNote {
    /// When the next version was made, by its manifest.
    until_ms: u64,
    /// When this was noted, by this drive's clock.
    noted_ms: u64,
    /// Whether the next version was made from this one.
    is_followed: bool,
}

impl VersionNote {
    fn version(self) -> Version {
        let mut bytes = Vec::with_capacity(17);
        bytes.extend(self.until_ms.to_be_bytes());
        bytes.extend(self.noted_ms.to_be_bytes());
        bytes.push(u8::from(self.is_followed));
        Bytes::from(bytes)
    }

    fn of(entry: &Entry) -> Option<Self> {
        let number = |from: usize| Some(u64::from_be_bytes(entry.version.get(from..from + 8)?.try_into().ok()?));
        Some(Self { until_ms: number(0)?, noted_ms: number(8)?, is_followed: entry.version.get(16)? == &1 })
    }
}

/// The write that keeps a version whose place `next` takes.
pub(super) fn write(old: &Manifest, bytes: Bytes, next: &Manifest, now_ms: u64) -> Write {
    let kept = VersionNote { until_ms: next.time_ms, noted_ms: now_ms, is_followed: next.made_from() == old.version };
    Write::Put(Put {
        key: key_of(&old.domain, old.version),
        value: bytes,
        version: kept.version(),
        tag: Tag::default(),
        expected: Expected::Any,
    })
}

/// Answers a question about versions.
pub(super) fn told(store: &dyn Store, ask: &HistoryAsk) -> Result<Vec<ToldVersion>, Fault> {
    check_domain(&ask.domain)?;
    let Some(newest) = newest(store, &ask.domain)? else { return Ok(vec![]) };
    match ask.pick {
        Pick::Before(version) => before(store, &newest, version),
        // Until when the newest one here was the newest of all, only who asks knows.
        Pick::At(time_ms) => Ok(at(store, &ask.domain, time_ms)?.into_iter().collect()),
    }
}

fn before(store: &dyn Store, newest: &Manifest, version: u64) -> Result<Vec<ToldVersion>, Fault> {
    let mut told = Vec::new();
    let mut partitions = 0;
    let current = (newest.version < version).then(|| ToldVersion::of(newest));
    let mut kept = kept(store, &newest.domain)?;
    kept.retain(|(number, _)| *number < version && *number < newest.version);
    kept.reverse();
    told.extend(current);
    for (number, _) in kept {
        if told.len() >= VERSIONS_TOLD_MAX || partitions > PARTITIONS_TOLD_MAX {
            break;
        }
        let next = match read(store, &newest.domain, number) {
            Ok(Some(manifest)) => ToldVersion::of(&manifest),
            // Forgotten meanwhile.
            Ok(None) => continue,
            Err(fault) => {
                tracing::warn!(domain = newest.domain, version = number, %fault, "a version of a manifest is damaged");
                ToldVersion::damaged(number)
            }
        };
        partitions += next.datasets.values().map(|dataset| dataset.copies.len()).sum::<usize>();
        told.push(next);
    }
    Ok(told)
}

/// The version that was the newest at a time, if that is certain.
fn at(store: &dyn Store, domain: &str, time_ms: u64) -> Result<Option<ToldVersion>, Fault> {
    let kept = kept(store, domain)?;
    let Some((number, how)) = kept.into_iter().find(|(_, kept)| time_ms < kept.until_ms) else { return Ok(None) };
    let Some(manifest) = read(store, domain, number)? else { return Ok(None) };
    let is_certain = how.is_followed && manifest.time_ms > 0 && manifest.time_ms <= time_ms;
    Ok(is_certain.then(|| ToldVersion::of(&manifest)))
}

/// The manifest of a version that is kept, or of the one that there is.
pub(super) fn past(store: &dyn Store, domain: &str, version: u64) -> Result<Option<Manifest>, Fault> {
    check_domain(domain)?;
    match newest(store, domain)? {
        Some(newest) if newest.version == version => Ok(Some(newest)),
        Some(_) => read(store, domain, version),
        None => Ok(None),
    }
}

/// The manifest that there is.
fn newest(store: &dyn Store, domain: &str) -> Result<Option<Manifest>, Fault> {
    let Some((bytes, _)) = store.get(&manifest_key(domain))? else { return Ok(None) };
    parse(domain, &bytes).map(Some)
}

fn read(store: &dyn Store, domain: &str, version: u64) -> Result<Option<Manifest>, Fault> {
    let at = |fault: Fault| fault.at(format_args!("version {version}"));
    let Some((bytes, _)) = store.get(&key_of(domain, version)).map_err(|error| at(error.into()))? else { return Ok(None) };
    parse(domain, &bytes).map(Some).map_err(at)
}

/// The versions that are kept of a domain, the oldest first.
fn kept(store: &dyn Store, domain: &str) -> Result<Vec<(u64, VersionNote)>, StoreError> {
    let mut kept = Vec::new();
    each_entry(store, &format!("{OLD_PREFIX}{domain}/"), |entry| {
        kept.extend(parse_key(&entry.key).and_then(|(_, version)| Some((version, VersionNote::of(entry)?))));
    })?;
    Ok(kept)
}

/// Forgets all versions of a domain but the one that there is, durably. How many they were.
pub(super) fn forget(store: &dyn Store, domain: &str) -> Result<u64, Fault> {
    check_domain(domain)?;
    let mut keys = Vec::new();
    each_entry(store, &format!("{OLD_PREFIX}{domain}/"), |entry| keys.push(entry.key.clone()))?;
    delete(store, keys)
}

/// Forgets versions whose time is over, durably. How many they were. `history_ms` says how long those of a domain are kept.
pub(super) fn expire(store: &dyn Store, now_ms: u64, history_ms: impl Fn(&str) -> u64) -> Result<u64, Fault> {
    let mut by_domain: BTreeMap<String, Vec<(Key, u64, Option<VersionNote>)>> = BTreeMap::new();
    each_entry(store, OLD_PREFIX, |entry| {
        if let Some((domain, _)) = parse_key(&entry.key) {
            by_domain.entry(domain.to_owned()).or_default().push((entry.key.clone(), entry.bytes, VersionNote::of(entry)));
        }
    })?;
    let mut over = Vec::new();
    for (domain, versions) in by_domain {
        let history_ms = history_ms(&domain);
        let (mut count, mut bytes) = (0, 0);
        // The newest ones are counted first.
        for (key, size, kept) in versions.into_iter().rev() {
            (count, bytes) = (count + 1, bytes + size);
            let is_due = kept.is_none_or(|kept| kept.noted_ms.saturating_add(history_ms) <= now_ms);
            if is_due || count > VERSIONS_MAX || bytes > BYTES_MAX {
                over.push(key);
            }
        }
    }
    delete(store, over)
}

fn delete(store: &dyn Store, keys: Vec<Key>) -> Result<u64, Fault> {
    let count = keys.len() as u64;
    if count > 0 {
        store.write(keys.into_iter().map(Write::delete).collect(), Durability::Through)?;
    }
    Ok(count)
}

/// What of a manifest says how long versions are kept. The rest is passed over.
#[derive(Deserialize)]
struct HistoryHead {
    #[serde(default)]
    history_ms: Option<u64>,
}

/// How long the domains that are kept here keep versions, milliseconds, where they say it. One that is damaged says nothing, and its
/// versions stay.
pub(super) fn settings(store: &dyn Store) -> Result<BTreeMap<String, Option<u64>>, Fault> {
    let mut keys = BTreeSet::new();
    each_entry(store, MANIFEST_PREFIX, |entry| {
        keys.insert(entry.key.clone());
    })?;
    let mut settings = BTreeMap::new();
    for key in keys {
        let Some(domain) = std::str::from_utf8(&key).ok().and_then(|key| key.strip_prefix(MANIFEST_PREFIX)) else { continue };
        let setting = match store.get(&key) {
            Ok(Some((bytes, _))) => serde_json::from_slice::<HistoryHead>(&bytes).map(|head| head.history_ms).ok(),
            Ok(None) => continue,
            Err(StoreError::Corrupt { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        settings.insert(domain.to_owned(), setting.unwrap_or(Some(u64::MAX)));
    }
    Ok(settings)
}

fn key_of(domain: &str, version: u64) -> Key {
    format!("{OLD_PREFIX}{domain}/{version:016x}").into()
}

fn parse_key(key: &[u8]) -> Option<(&str, u64)> {
    let (domain, version) = std::str::from_utf8(key).ok()?.strip_prefix(OLD_PREFIX)?.rsplit_once('/')?;
    Some((domain, u64::from_str_radix(version, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use pithead_model::DriveId;
    use pithead_store::MemoryStore;

    use super::*;

    fn version(version: u64, time_ms: u64) -> Manifest {
        Manifest { version, time_ms, ..Manifest::empty("lab", vec![DriveId(1)]) }
    }

    /// A store with versions, each in the place of the one before it, noted at the time that it was made.
    fn store_of(versions: &[Manifest]) -> MemoryStore {
        let store = MemoryStore::new();
        let bytes = |manifest: &Manifest| Bytes::from(serde_json::to_vec(manifest).unwrap());
        for (old, next) in versions.iter().zip(&versions[1..]) {
            store.write(vec![write(old, bytes(old), next, next.time_ms)], Durability::Through).unwrap();
        }
        let last = versions.last().unwrap();
        store.write(vec![Write::put(manifest_key("lab"), bytes(last))], Durability::Through).unwrap();
        store
    }

    fn picked(store: &MemoryStore, pick: Pick) -> Vec<u64> {
        let ask = HistoryAsk { domain: "lab".into(), pick };
        told(store, &ask).unwrap().iter().map(|told| told.version).collect()
    }

    #[test]
    fn versions_are_found_by_number_and_time() {
        let store = store_of(&[version(1, 100), version(2, 200), version(3, 300)]);
        assert_eq!(picked(&store, Pick::Before(u64::MAX)), [3, 2, 1]);
        assert_eq!(picked(&store, Pick::Before(3)), [2, 1]);
        let at = |time_ms| picked(&store, Pick::At(time_ms));
        assert_eq!(
            (at(99), at(100), at(199), at(200), at(299), at(300), at(900)),
            (vec![], vec![1], vec![1], vec![2], vec![2], vec![], vec![])
        );
        assert_eq!(past(&store, "lab", 2).unwrap(), Some(version(2, 200)));
        assert_eq!(past(&store, "lab", 3).unwrap(), Some(version(3, 300)));
        assert_eq!((past(&store, "lab", 4).unwrap(), past(&store, "other", 1).unwrap()), (None, None));
        assert!(past(&store, "la/b", 1).is_err());
    }

    #[test]
    fn a_gap_is_no_answer_and_a_leap_is_one() {
        let store = store_of(&[version(1, 100), version(4, 400), version(5, 500)]);
        assert_eq!((picked(&store, Pick::At(250)), picked(&store, Pick::At(450))), (vec![], vec![4]));
        let leap = Manifest { follows: Some(1), ..version(1 << 20, 400) };
        let store = store_of(&[version(1, 100), leap]);
        assert_eq!((picked(&store, Pick::At(250)), picked(&store, Pick::At(400))), (vec![1], vec![]));
        // Nobody knows since when a version of an earlier release was there.
        let store = store_of(&[version(1, 0), version(2, 200)]);
        assert_eq!(picked(&store, Pick::At(150)), [0; 0]);
    }

    #[test]
    fn a_damaged_byte_takes_one_version_away() {
        let store = store_of(&[version(1, 100), version(2, 200), version(3, 300)]);
        store.write(vec![Write::put(key_of("lab", 2), "{\"dom")], Durability::Through).unwrap();
        assert_eq!(past(&store, "lab", 2).unwrap_err().blame, pithead_model::Blame::Corrupt);
        assert_eq!(past(&store, "lab", 1).unwrap(), Some(version(1, 100)));
    }

    #[test]
    fn versions_go_when_their_time_is_over() {
        let store = store_of(&[version(1, 100), version(2, 200), version(3, 300)]);
        assert_eq!(expire(&store, 249, |_| 50).unwrap(), 0);
        assert_eq!(expire(&store, 250, |_| 50).unwrap(), 1);
        assert_eq!(picked(&store, Pick::Before(u64::MAX)), [3, 2]);
        assert_eq!((forget(&store, "lab").unwrap(), forget(&store, "lab").unwrap()), (1, 0));
        assert_eq!(picked(&store, Pick::Before(u64::MAX)), [3]);
    }

    #[test]
    fn domains_say_how_long_they_keep_versions() {
        let store = store_of(&[version(1, 100), Manifest { history_ms: Some(7), ..version(2, 200) }]);
        store.write(vec![Write::put("manifest/x", "{"), Write::put("manifest/y", "{}")], Durability::Through).unwrap();
        let expected = [("lab", Some(7)), ("x", Some(u64::MAX)), ("y", None)].map(|(name, setting)| (name.to_owned(), setting));
        assert_eq!(settings(&store).unwrap(), BTreeMap::from(expected));
    }
}
