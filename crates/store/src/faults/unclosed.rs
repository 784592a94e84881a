//! Every block of a store that was not closed is damaged in turn, while its log has more than its index.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::options;
use crate::bounds::SEGMENT_BYTES_MIN;
use crate::conformance::value;
use crate::medium::{LyingMedium, Medium};
use crate::{CheckOptions, DiskStore, Durability, FindingKind, Key, Store, StoreError, Value, Write, check_on, show_key};

const BLOCK: u64 = 4_096;

type Values = BTreeMap<Key, Value>;

/// A store whose index lacks half of the commits. Keys that begin with `gone` were deleted, all but one in the log.
fn filled() -> (Arc<LyingMedium>, Values) {
    let medium = LyingMedium::new(8, 4 << 30);
    let store = DiskStore::open_on(Arc::clone(&medium) as Arc<dyn Medium>, options()).unwrap();
    let mut values = Values::new();
    let mut put = |key: String, value: Value| {
        values.insert(key.clone().into(), value.clone());
        Write::put(key, value)
    };
    for number in 0..12_u8 {
        let small = value(number, 200 + usize::from(number) * 150);
        let batch = vec![put(format!("old/{number}"), small.clone()), Write::put(format!("new/{number}"), "an older value")];
        store.write(batch, Durability::Through).unwrap();
        store.write(vec![Write::put(format!("gone/{number}"), small)], Durability::Through).unwrap();
    }
    store.write(vec![put("old/large".to_string(), value(1, SEGMENT_BYTES_MIN))], Durability::Through).unwrap();
    store.write(vec![Write::delete("gone/0")], Durability::Through).unwrap();
    store.flush().unwrap();
    for number in 0..12_u8 {
        let batch = vec![put(format!("new/{number}"), value(100 + number, 900)), Write::delete(format!("gone/{number}"))];
        store.write(batch, Durability::Through).unwrap();
    }
    store.write(vec![put("new/large".to_string(), value(2, SEGMENT_BYTES_MIN))], Durability::Through).unwrap();
    (medium.fork(), values)
}

fn damage(medium: &LyingMedium, name: &str, at: u64, kind: u64) {
    let file = medium.open(name, false).unwrap();
    let bytes = BLOCK.min(file.len().unwrap() - at);
    match kind {
        0 => medium.flip(name, at + at / BLOCK * 977 % bytes, 1 << (at / BLOCK % 8)),
        1 => file.write(at, &vec![0; bytes as usize]).unwrap(),
        _ => file.set_len(at).unwrap(),
    }
}

/// Which keys are not what they should be. Each of them must be named.
fn wrong(store: &DiskStore, values: &Values, what: &str) -> Vec<Key> {
    let mut wrong = Vec::new();
    for (key, value) in values {
        match store.get(key) {
            Ok(Some((found, _))) => assert!(found == *value, "{what}: {} has a wrong value", show_key(key)),
            Ok(None) | Err(StoreError::Corrupt { .. }) => wrong.push(key.clone()),
            Err(error) => panic!("{what}: {error}"),
        }
    }
    if let Ok(entries) = store.list(b"") {
        let strange = entries.iter().find(|entry| !values.contains_key(&entry.key));
        assert!(strange.is_none(), "{what}: {strange:?} has come back");
    }
    wrong
}

#[test]
fn damage_to_a_store_that_was_not_closed_is_told() {
    let (medium, values) = filled();
    let mut names = vec!["FORMAT".to_string(), "index.redb".to_string()];
    for folder in ["journal", "segments"] {
        names.extend(medium.list(folder).unwrap().into_iter().map(|name| format!("{folder}/{name}")));
    }
    for name in names {
        let (mut cases, mut opened, mut saved, mut lost) = (0, 0, 0, 0);
        for at in medium.written(&name) {
            for kind in 0..3 {
                let what = format!("damage {kind} at {at} of {name}");
                let damaged = medium.fork();
                damage(&damaged, &name, at, kind);
                let repaired = damaged.fork();
                match DiskStore::open_on(Arc::clone(&damaged) as Arc<dyn Medium>, options()) {
                    Ok(store) => {
                        let missing = wrong(&store, &values, &what);
                        let is_gone = missing.iter().find(|key| matches!(store.get(key), Ok(None)));
                        assert!(is_gone.is_none(), "{what}: {is_gone:?} is gone without a word");
                        opened += 1;
                    }
                    Err(StoreError::Damaged { .. }) => {}
                    Err(error) => panic!("{what}: {error}"),
                }
                let medium = || Arc::clone(&repaired) as Arc<dyn Medium>;
                let report = check_on(medium(), &CheckOptions { repair: true }, &mut |_| {});
                let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
                let store = DiskStore::open_on(medium(), options());
                let store = store.unwrap_or_else(|error| panic!("{what}: {error} after {report:?}"));
                let missing = wrong(&store, &values, &what);
                for key in &missing {
                    let is_told = |found: &crate::Finding| found.key == Some(show_key(key)) && !found.repaired;
                    assert!(report.findings.iter().any(is_told), "{what}: {} is lost: {report:?}", show_key(key));
                }
                drop(store);
                let mut again = check_on(medium(), &CheckOptions::default(), &mut |_| {}).unwrap();
                again.findings.retain(|found| found.kind != FindingKind::Value || missing.is_empty());
                assert!(again.findings.is_empty(), "{what}: {:?} is left after {report:?}", again.findings);
                (cases, lost) = (cases + 1, lost + missing.len());
                saved += usize::from(missing.is_empty());
            }
        }
        println!("{name}: {cases} cases, {opened} opened, {saved} saved all keys, {lost} keys lost in all");
    }
}
