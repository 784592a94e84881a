//! Every block of a small store is damaged in turn. Keys that the damage does not concern must be there, and no others.
//!
//! `PITHEAD_DAMAGE_KEYS` says how many keys the store has (60).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::options;
use crate::bounds::SEGMENT_BYTES_MIN;
use crate::conformance::value;
use crate::medium::{LyingMedium, Medium};
use crate::{CheckOptions, CheckReport, DiskStore, Durability, FindingKind, Key, Store, StoreError, Value, Write, check_on};

const BLOCK: u64 = 4_096;
const LARGE: usize = SEGMENT_BYTES_MIN + 5_000;

/// The kind of damage to a block.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Zero,
    /// The file ends where the block begins.
    Cut,
}

/// What the store must have, and the place of each large value.
struct Expected {
    values: BTreeMap<Key, Value>,
    places: BTreeMap<Key, (String, u64, u64)>,
}

#[derive(Debug, Default)]
struct Counts {
    blocks: usize,
    /// The damaged store opened.
    opened: usize,
    /// All keys are there after a repair.
    saved: usize,
    lost_keys: usize,
}

fn open(medium: &Arc<LyingMedium>) -> Result<DiskStore, StoreError> {
    DiskStore::open_on(Arc::clone(medium) as Arc<dyn Medium>, options())
}

fn check(medium: &Arc<LyingMedium>, repair: bool) -> Result<CheckReport, StoreError> {
    check_on(Arc::clone(medium) as Arc<dyn Medium>, &CheckOptions { repair }, &mut |_| {})
}

/// Values that were put, replaced, adopted, moved and deleted. Keys that begin with `gone` were deleted.
fn filled() -> (Arc<LyingMedium>, Expected) {
    let keys = std::env::var("PITHEAD_DAMAGE_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(60_usize);
    let medium = LyingMedium::new(7, 4 << 30);
    let store = open(&medium).unwrap();
    let mut values = BTreeMap::new();
    for number in 0..keys {
        let small = value(number as u8, 200 + number * 37 % 3_000);
        let (key, gone) = (format!("key/{number:04}"), format!("gone/{number:04}"));
        let batch = vec![Write::put(key.clone(), "an older value"), Write::put(gone, small.clone())];
        store.write(batch, Durability::Through).unwrap();
        store.write(vec![Write::put(key.clone(), small.clone())], Durability::Back).unwrap();
        values.insert(Key::from(key), small);
    }
    for number in 0..8 {
        let (key, large) = (format!("large/{number}"), value(100 + number, LARGE));
        let batch = vec![Write::put(key.clone(), large.clone()), Write::put(format!("gone/large/{number}"), value(1, LARGE))];
        store.write(batch, Durability::Through).unwrap();
        let adopted = format!("adopted/{number}");
        let staged = store.stage(large.clone()).unwrap();
        store.adopt(vec![(adopted.clone().into(), staged)], vec![]).unwrap();
        values.extend([(Key::from(key), large.clone()), (Key::from(adopted), large)]);
    }
    // The journal then has a base, and a log after it.
    store.core().write_base(store.core().index.journal().unwrap()).unwrap();
    let gone = store.list(b"gone").unwrap().into_iter().map(|entry| Write::delete(entry.key)).collect();
    store.write(gone, Durability::Through).unwrap();
    store.compact_now().unwrap();
    let place = |key: &Key| {
        let (place, _) = store.core().index.place(key).unwrap()?;
        Some((key.clone(), (crate::segments::file_name(place.file), place.offset, place.offset + place.bytes)))
    };
    let places = values.keys().filter_map(place).collect();
    drop(store);
    (medium, Expected { values, places })
}

fn apply(medium: &LyingMedium, name: &str, at: u64, damage: Damage) {
    match damage {
        Damage::Flip => medium.flip(name, at + at / BLOCK * 977 % BLOCK.min(length(medium, name) - at), 1 << (at / BLOCK % 8)),
        Damage::Zero => {
            let bytes = BLOCK.min(length(medium, name) - at) as usize;
            medium.open(name, false).unwrap().write(at, &vec![0; bytes]).unwrap();
        }
        Damage::Cut => medium.open(name, false).unwrap().set_len(at).unwrap(),
    }
}

fn length(medium: &LyingMedium, name: &str) -> u64 {
    medium.open(name, false).unwrap().len().unwrap()
}

impl Expected {
    /// Keys that the store cannot show; reading each of them is an error. All others are right, and there are no more.
    fn damaged(&self, store: &DiskStore, what: &str) -> Vec<Key> {
        let mut damaged = Vec::new();
        for (key, expected) in &self.values {
            match store.get(key) {
                Ok(Some((found, _))) => assert!(found == *expected, "{}: {} is wrong", what, key.escape_ascii()),
                Ok(None) => panic!("{what}: {} is gone without a word", key.escape_ascii()),
                Err(StoreError::Corrupt { .. }) => damaged.push(key.clone()),
                Err(error) => panic!("{what}: {error}"),
            }
        }
        if let Ok(entries) = store.list(b"") {
            let strange = entries.iter().find(|entry| !self.values.contains_key(&entry.key));
            assert!(strange.is_none(), "{what}: {strange:?} has come back");
        }
        damaged
    }

    /// Whether the damage is in the key's value.
    fn is_touched(&self, key: &Key, name: &str, at: u64, damage: Damage) -> bool {
        let to = if matches!(damage, Damage::Cut) { u64::MAX } else { at + BLOCK };
        self.places.get(key).is_some_and(|(file, from, end)| file == name && *from < to && at < *end)
    }
}

/// Opens the damaged store as it is, then a copy of it after a repair.
fn judge(medium: &LyingMedium, expected: &Expected, name: &str, at: u64, damage: Damage, counts: &mut Counts) {
    let what = format!("{damage:?} at {at} of {name}");
    counts.blocks += 1;
    let as_it_is = medium.fork();
    apply(&as_it_is, name, at, damage);
    let repaired = as_it_is.fork();
    match open(&as_it_is) {
        Ok(store) => {
            expected.damaged(&store, &what);
            counts.opened += 1;
        }
        Err(error @ StoreError::Damaged { .. }) => assert!(error.to_string().contains("pithead check --repair"), "{error}"),
        Err(error) => panic!("{what}: {error}"),
    }
    let report = check(&repaired, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    let store = open(&repaired).unwrap_or_else(|error| panic!("{what}: {error} after {report:?}"));
    let lost = expected.damaged(&store, &what);
    for key in &lost {
        assert!(expected.is_touched(key, name, at, damage), "{what}: {} is lost: {report:?}", key.escape_ascii());
        let shown = Some(crate::show_key(key));
        assert!(report.findings.iter().any(|finding| finding.key == shown), "{what}: {shown:?} is lost without a word");
    }
    counts.saved += usize::from(lost.is_empty());
    counts.lost_keys += lost.len();
    drop(store);
    let mut again = check(&repaired, false).unwrap();
    again.findings.retain(|finding| finding.kind != FindingKind::Value || lost.is_empty());
    assert!(again.findings.is_empty(), "{what}: {:?} is left after {:?}", again.findings, report.findings);
}

#[test]
fn a_damaged_block_costs_what_lies_in_it_and_no_more() {
    let (medium, expected) = filled();
    let mut names = vec!["FORMAT".to_string(), "index.redb".to_string()];
    for folder in ["journal", "segments"] {
        names.extend(medium.list(folder).unwrap().into_iter().map(|name| format!("{folder}/{name}")));
    }
    for name in &names {
        let mut counts = Counts::default();
        for at in medium.written(name) {
            for damage in [Damage::Flip, Damage::Zero, Damage::Cut] {
                judge(&medium, &expected, name, at, damage, &mut counts);
            }
        }
        println!("{name}: {counts:?} of {} keys", expected.values.len());
        assert!(counts.blocks > 0 && (name.starts_with("segments") || counts.lost_keys == 0), "{name}: {counts:?}");
    }
}

/// The index is gone, and so is the FORMAT file.
#[test]
fn the_journal_alone_makes_the_store() {
    let (medium, expected) = filled();
    for name in ["index.redb", "FORMAT"] {
        medium.remove(name).unwrap();
        let report = check(&medium, false).unwrap();
        assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::Index && !finding.repaired), "{report:?}");
    }
    assert!(matches!(open(&medium), Err(StoreError::Damaged { .. })));
    let report = check(&medium, true).unwrap();
    assert_eq!((report.keys, report.restored_keys), (expected.values.len() as u64, report.keys), "{report:?}");
    assert!(report.findings.iter().all(|finding| finding.repaired), "{report:?}");
    let store = open(&medium).unwrap();
    assert!(expected.damaged(&store, "no index").is_empty());
    assert_eq!(report.drive, Some(store.drive_id()));
}

/// Two faults at once: the whole index, and a block of the journal. No deleted key and no older value comes back, no key goes that
/// the damage does not concern, and each that does is named. Large values are all there, for both accounts of the journal say where
/// they lie.
#[test]
fn a_damaged_journal_without_an_index_costs_its_own_keys_and_brings_none_back() {
    let (medium, expected) = filled();
    medium.remove("index.redb").unwrap();
    let (mut cases, mut costless, mut lost) = (0, 0, 0);
    for name in medium.list("journal").unwrap().into_iter().map(|name| format!("journal/{name}")) {
        for at in medium.written(&name) {
            for damage in [Damage::Flip, Damage::Zero, Damage::Cut] {
                let damaged = medium.fork();
                apply(&damaged, &name, at, damage);
                let report = check(&damaged, true).unwrap();
                let store = open(&damaged).unwrap();
                let what = format!("{damage:?} at {at} of {name}");
                let entries = store.list(b"").unwrap();
                let is_right = |key: &Key| store.get(key).unwrap().map(|(value, _)| value) == expected.values.get(key).cloned();
                let wrong: Vec<&Key> = entries.iter().map(|entry| &entry.key).filter(|key| !is_right(key)).collect();
                assert!(wrong.is_empty(), "{what}: {wrong:?} came back");
                let missing: Vec<&Key> =
                    expected.values.keys().filter(|key| entries.iter().all(|entry| entry.key != **key)).collect();
                for key in &missing {
                    assert!(!expected.places.contains_key(*key), "{what}: a large value is lost");
                    let named = Some(crate::show_key(key));
                    let is_named = |finding: &crate::Finding| finding.kind == FindingKind::LostKey && finding.key == named;
                    assert!(report.findings.iter().any(is_named), "{what}: {named:?} is lost without a word");
                }
                assert!(missing.len() <= 40 || matches!(damage, Damage::Cut), "{what}: {} keys", missing.len());
                (cases, lost) = (cases + 1, lost + missing.len());
                costless += usize::from(missing.is_empty());
            }
        }
    }
    println!(
        "{cases} times a block of the journal, each with the whole index: {costless} cost no key, {lost} keys lost in all"
    );
}

/// Two faults at once: each block of the index with each block of the journal, or with a file of it.
#[test]
fn a_damaged_index_beside_a_damaged_journal_brings_nothing_back() {
    let (medium, expected) = filled();
    let journal: Vec<String> = medium.list("journal").unwrap().into_iter().map(|name| format!("journal/{name}")).collect();
    let (mut cases, mut costless, mut lost) = (0, 0, 0);
    for (number, at) in medium.written("index.redb").into_iter().enumerate() {
        let name = &journal[number % journal.len()];
        let blocks = medium.written(name);
        let block = blocks[number / journal.len() % blocks.len()];
        let damaged = medium.fork();
        apply(&damaged, "index.redb", at, Damage::Zero);
        apply(&damaged, name, block, if number % 2 == 0 { Damage::Zero } else { Damage::Cut });
        let what = format!("block {at} of the index and {block} of {name}");
        let report = check(&damaged, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        let store = open(&damaged).unwrap_or_else(|error| panic!("{what}: {error} after {report:?}"));
        let entries = store.list(b"").unwrap();
        for entry in &entries {
            let (value, _) = store.get(&entry.key).unwrap().unwrap();
            assert!(expected.values.get(&entry.key) == Some(&value), "{what}: {} came back", crate::show_key(&entry.key));
        }
        let missing: Vec<&Key> = expected.values.keys().filter(|key| entries.iter().all(|entry| entry.key != **key)).collect();
        let is_told = report.findings.iter().any(|finding| finding.kind == FindingKind::LostKey && !finding.repaired);
        assert!(missing.is_empty() || is_told, "{what}: {missing:?} are lost without a word");
        (cases, lost) = (cases + 1, lost + missing.len());
        costless += usize::from(missing.is_empty());
    }
    println!("{cases} pairs of a block of the index and one of the journal: {costless} cost no key, {lost} keys lost in all");
}
