//! What every [`Store`] must do. Each test here runs on each store.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::bounds::SEGMENT_BYTES_MIN;
use crate::{
    DiskStore, Expected, KEY_BYTES_MAX, MemoryStore, Staged, Store, StoreError, VALUE_BYTES_MAX, Value, Version, Write,
};

/// Runs a check on a new store of each kind.
fn on_each(check: impl Fn(&dyn Store)) {
    check(&MemoryStore::new());
    let dir = tempfile::tempdir().unwrap();
    check(&DiskStore::open(dir.path()).unwrap());
}

/// A value of so many bytes that differs from others by its seed.
pub(crate) fn value(seed: u8, bytes: usize) -> Value {
    (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect::<Vec<u8>>().into()
}

pub(crate) fn put(key: &str, value: Value) -> Write {
    Write::Put { key: key.to_string(), value, expected: Expected::Any }
}

pub(crate) fn delete(key: &str) -> Write {
    Write::Delete { key: key.to_string(), expected: Expected::Any }
}

fn held(store: &dyn Store, key: &str) -> Option<Value> {
    store.get(key).unwrap().map(|(value, _)| value)
}

fn version(store: &dyn Store, key: &str) -> Version {
    store.entry(key).unwrap().unwrap().version
}

fn is_conflict(done: Result<(), StoreError>, on: &str) -> bool {
    matches!(done, Err(StoreError::Conflict { key }) if key == on)
}

#[test]
fn values_of_all_sizes_come_back() {
    on_each(|store| {
        for (number, bytes) in
            [0, 1, SEGMENT_BYTES_MIN - 1, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MIN + 1, 3 << 20].into_iter().enumerate()
        {
            let key = format!("k{number}");
            store.write(vec![put(&key, value(number as u8, bytes))]).unwrap();
            assert_eq!(held(store, &key).unwrap(), value(number as u8, bytes), "{bytes} bytes");
            assert_eq!(store.entry(&key).unwrap().unwrap().bytes, bytes as u64);
        }
        assert_eq!(store.get("none").unwrap(), None);
        assert_eq!(store.entry("none").unwrap(), None);
    });
}

#[test]
fn bounds_are_held() {
    on_each(|store| {
        let longest = "k".repeat(KEY_BYTES_MAX);
        store.write(vec![put("", value(1, 3)), put(&longest, value(2, 3))]).unwrap();
        assert_eq!(held(store, "").unwrap(), value(1, 3));
        assert_eq!(held(store, &longest).unwrap(), value(2, 3));
        let too_long = format!("{longest}k");
        let staged = store.stage(b"v").unwrap();
        for refused in [
            store.write(vec![put("a", value(1, 1)), put(&too_long, Value::new())]),
            store.write(vec![put("a", value(1, 1)), delete(&too_long)]),
            store.write(vec![put("a", value(1, 1)), put("b", vec![0; VALUE_BYTES_MAX + 1].into())]),
            store.adopt(vec![(too_long.clone(), staged)], vec![]),
            store.stage(&vec![0; VALUE_BYTES_MAX + 1]).map(drop),
        ] {
            assert!(matches!(refused, Err(StoreError::TooLarge(_))), "{refused:?}");
        }
        assert_eq!(store.usage().unwrap().keys, 2);
    });
}

#[test]
fn versions_rise_and_are_not_used_again() {
    on_each(|store| {
        store.write(vec![put("a", value(1, 1))]).unwrap();
        let first = version(store, "a");
        store.write(vec![delete("a")]).unwrap();
        store.write(vec![put("a", value(1, 1))]).unwrap();
        assert!(version(store, "a") > first);
        assert_eq!(store.get("a").unwrap().unwrap().1, version(store, "a"));
    });
}

#[test]
fn a_batch_in_conflict_changes_nothing() {
    on_each(|store| {
        store.write(vec![put("a", value(1, 1)), put("b", value(1, SEGMENT_BYTES_MIN))]).unwrap();
        let (now, before) = (version(store, "a"), store.list("").unwrap());
        let conflicting = |key: &str, expected| {
            [
                Write::Put { key: key.into(), value: value(3, SEGMENT_BYTES_MIN), expected },
                Write::Delete { key: key.into(), expected },
            ]
        };
        for (key, expected) in [("a", Expected::Absent), ("a", Expected::Version(now + 9)), ("c", Expected::Version(now))] {
            for write in conflicting(key, expected) {
                let batch = vec![put("b", value(2, SEGMENT_BYTES_MIN)), delete("a"), put("a", value(4, 1)), write];
                // The batch's own put is what `a` meets; the condition fails all the same.
                assert!(is_conflict(store.write(batch), key), "{key} {expected:?}");
                assert_eq!(store.list("").unwrap(), before);
            }
        }
        assert_eq!(held(store, "b").unwrap(), value(1, SEGMENT_BYTES_MIN));
    });
}

#[test]
fn writes_that_are_expected_go_through() {
    on_each(|store| {
        store.write(vec![Write::Put { key: "a".into(), value: value(1, 1), expected: Expected::Absent }]).unwrap();
        let expected = Expected::Version(version(store, "a"));
        store.write(vec![Write::Put { key: "a".into(), value: value(2, 1), expected }]).unwrap();
        assert!(is_conflict(store.write(vec![Write::Delete { key: "a".into(), expected }]), "a"));
        let expected = Expected::Version(version(store, "a"));
        store.write(vec![Write::Delete { key: "a".into(), expected }]).unwrap();
        store.write(vec![delete("a"), Write::Delete { key: "a".into(), expected: Expected::Absent }]).unwrap();
        assert_eq!(held(store, "a"), None);
    });
}

#[test]
fn lists_are_in_order_and_of_their_prefix() {
    on_each(|store| {
        let keys = ["", "a", "a/", "a/1", "a/10", "a/2", "a0", "b", "é", "éa"];
        store.write(keys.iter().rev().map(|key| put(key, value(0, key.len()))).collect()).unwrap();
        let listed = |prefix: &str| -> Vec<String> { store.list(prefix).unwrap().into_iter().map(|entry| entry.key).collect() };
        assert_eq!(listed(""), keys);
        assert_eq!(listed("a/"), ["a/", "a/1", "a/10", "a/2"]);
        assert_eq!(listed("é"), ["é", "éa"]);
        assert!(listed("c").is_empty());
        assert_eq!(store.list("a/10").unwrap()[0].bytes, 4);
    });
}

#[test]
fn staged_values_appear_with_their_batch() {
    on_each(|store| {
        store.write(vec![put("slice/1", value(9, 10)), put("manifest", value(1, 1))]).unwrap();
        let manifest = version(store, "manifest");
        let staged = vec![
            ("slice/1".to_string(), store.stage(&value(1, SEGMENT_BYTES_MIN)).unwrap()),
            ("slice/2".to_string(), store.stage(&value(2, 7)).unwrap()),
            ("slice/3".to_string(), store.stage(b"").unwrap()),
        ];
        assert_eq!(store.usage().unwrap().keys, 2);
        let expected = Expected::Version(manifest);
        store.adopt(staged, vec![Write::Put { key: "manifest".into(), value: value(2, 1), expected }]).unwrap();
        assert_eq!(held(store, "slice/1").unwrap(), value(1, SEGMENT_BYTES_MIN));
        assert_eq!(held(store, "slice/2").unwrap(), value(2, 7));
        assert_eq!(held(store, "slice/3").unwrap(), Value::new());
        assert_eq!(held(store, "manifest").unwrap(), value(2, 1));
        let late = vec![("slice/4".to_string(), store.stage(&value(4, 10)).unwrap())];
        let batch = vec![Write::Put { key: "manifest".into(), value: value(3, 1), expected }];
        assert!(is_conflict(store.adopt(late, batch), "manifest"));
        assert_eq!(held(store, "slice/4"), None);
    });
}

#[test]
fn only_what_is_staged_can_be_adopted() {
    on_each(|store| {
        let staged = store.stage(&value(1, 10)).unwrap();
        let copy = Staged { ..staged };
        store.unstage(staged);
        assert!(matches!(store.adopt(vec![("a".into(), copy)], vec![]), Err(StoreError::Corrupt { .. })));
        let (good, never) = (store.stage(b"v").unwrap(), Staged { file: 1 << 40, bytes: 1, checksum: 0 });
        let both = vec![("a".into(), good), ("b".into(), never)];
        assert!(store.adopt(both, vec![]).is_err());
        assert_eq!(store.usage().unwrap().keys, 0);
    });
}

#[test]
fn values_handed_out_outlive_their_key() {
    on_each(|store| {
        store.write(vec![put("a", value(1, 1 << 20)), put("b", value(2, 100))]).unwrap();
        let (large, small) = (held(store, "a").unwrap(), held(store, "b").unwrap());
        store.write(vec![put("a", value(3, 1 << 20)), delete("b")]).unwrap();
        assert_eq!((large, small), (value(1, 1 << 20), value(2, 100)));
        assert_eq!(held(store, "a").unwrap(), value(3, 1 << 20));
    });
}

#[test]
fn use_counts_what_is_there() {
    on_each(|store| {
        store.write(vec![put("a", value(1, 10)), put("b", value(2, 1 << 20)), put("a", value(3, 20))]).unwrap();
        let used = store.usage().unwrap();
        assert_eq!((used.keys, used.value_bytes), (2, 20 + (1 << 20)));
        assert!(used.free_bytes > 0);
        store.write(vec![delete("a"), delete("b")]).unwrap();
        let used = store.usage().unwrap();
        assert_eq!((used.keys, used.value_bytes), (0, 0));
    });
}

#[test]
fn of_writers_that_race_one_wins_each_version() {
    on_each(|store| {
        store.write(vec![put("n", vec![0].into())]).unwrap();
        let add = |_| {
            let mut won = 0;
            while won < 5 {
                let (number, version) = store.get("n").unwrap().unwrap();
                let value = vec![number[0] + 1].into();
                match store.write(vec![Write::Put { key: "n".into(), value, expected: Expected::Version(version) }]) {
                    Ok(()) => won += 1,
                    lost => assert!(is_conflict(lost, "n")),
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|writer| drop(scope.spawn(move || add(writer)))));
        assert_eq!(held(store, "n").unwrap(), vec![20]);
    });
}

#[test]
fn readers_see_whole_values_while_they_are_replaced() {
    on_each(|store| {
        store.write(vec![put("a", value(0, SEGMENT_BYTES_MIN))]).unwrap();
        std::thread::scope(|scope| {
            let writer =
                scope.spawn(|| (1..20).for_each(|seed| store.write(vec![put("a", value(seed, SEGMENT_BYTES_MIN))]).unwrap()));
            while !writer.is_finished() {
                let read = held(store, "a").unwrap();
                assert_eq!(read, value(read[0], SEGMENT_BYTES_MIN));
            }
        });
    });
}

/// Key; seed and whether large, none to delete; expected: 0 any, 1 absent, 2 what it is, 3 what it is not.
type RandomWrite = (u8, Option<(u8, bool)>, u8);

/// One step of a random run. Keys are few, so that steps meet.
#[derive(Clone, Debug)]
enum Step {
    Write(Vec<RandomWrite>),
    /// Key and seed of each.
    Adopt(Vec<(u8, u8)>),
    Unstage,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (
        0..6u8,
        proptest::option::of((any::<u8>(), any::<bool>())),
        prop_oneof![8 => Just(0u8), 1 => Just(1), 3 => Just(2), 1 => Just(3)],
    );
    prop_oneof![
        6 => proptest::collection::vec(write, 0..4).prop_map(Step::Write),
        2 => proptest::collection::vec((0..6u8, any::<u8>()), 0..3).prop_map(Step::Adopt),
        1 => Just(Step::Unstage),
        1 => Just(Step::Reopen),
    ]
}

type Model = BTreeMap<String, Value>;

/// The writes of a step for this store, and what they make of the model: none where they conflict.
fn plan(store: &dyn Store, model: &Model, writes: &[RandomWrite]) -> (Vec<Write>, Option<Model>) {
    let (mut batch, mut after) = (Vec::new(), Some(model.clone()));
    for (key, new, expected) in writes {
        let key = format!("k{key}");
        let version = store.entry(&key).unwrap().map(|entry| entry.version);
        let expected = match (expected, version) {
            (1, _) => Expected::Absent,
            (2, Some(version)) => Expected::Version(version),
            (3, version) => Expected::Version(version.unwrap_or(0) + 1_000_000),
            _ => Expected::Any,
        };
        let untouched =
            !batch.iter().any(|write| matches!(write, Write::Put { key: k, .. } | Write::Delete { key: k, .. } if *k == key));
        let holds = match expected {
            Expected::Any => true,
            Expected::Absent => after.as_ref().is_some_and(|after| !after.contains_key(&key)),
            Expected::Version(wanted) => untouched && version == Some(wanted),
        };
        after = after.filter(|_| holds);
        let new = new.map(|(seed, large)| value(seed, if large { SEGMENT_BYTES_MIN } else { seed as usize }));
        if let Some(after) = &mut after {
            match &new {
                Some(value) => drop(after.insert(key.clone(), value.clone())),
                None => drop(after.remove(&key)),
            }
        }
        batch.push(match new {
            Some(value) => Write::Put { key, value, expected },
            None => Write::Delete { key, expected },
        });
    }
    (batch, after)
}

fn follow(mut store: Box<dyn Store>, steps: &[Step], reopen: impl Fn(Box<dyn Store>) -> Box<dyn Store>) {
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Write(writes) => {
                let (batch, after) = plan(&*store, &model, writes);
                assert_eq!(store.write(batch).is_ok(), after.is_some());
                model = after.unwrap_or(model);
            }
            Step::Adopt(values) => {
                let stage = |(key, seed): &(u8, u8)| (format!("k{key}"), store.stage(&value(*seed, 100)).unwrap());
                store.adopt(values.iter().map(stage).collect(), vec![]).unwrap();
                model.extend(values.iter().map(|(key, seed)| (format!("k{key}"), value(*seed, 100))));
            }
            Step::Unstage => store.unstage(store.stage(b"unwanted").unwrap()),
            Step::Reopen => store = reopen(store),
        }
        let held: Model =
            store.list("").unwrap().into_iter().map(|entry| (entry.key.clone(), held(&*store, &entry.key).unwrap())).collect();
        assert_eq!(held, model);
        let used = store.usage().unwrap();
        let value_bytes = model.values().map(|value| value.len() as u64).sum::<u64>();
        assert_eq!((used.keys, used.value_bytes), (model.len() as u64, value_bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn random_steps_do_as_a_map_does(steps in proptest::collection::vec(step(), 1..30)) {
        follow(Box::new(MemoryStore::new()), &steps, |store| store);
        let dir = tempfile::tempdir().unwrap();
        let open = || Box::new(DiskStore::open(dir.path()).unwrap());
        follow(open(), &steps, |store| {
            drop(store);
            open()
        });
        let files = std::fs::read_dir(dir.path().join("segments")).unwrap().count();
        prop_assert!(files <= 6, "{files} segments for at most 6 keys");
    }
}
