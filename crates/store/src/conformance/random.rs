//! Random steps, compared with a plain map.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{Chunking, Dedup, DedupOptions};

/// The key; the seed and whether the value is large, none to delete; the condition: 0 any, 1 absent, 2 the right
/// version, 3 a wrong one.
type RandomWrite = (u8, Option<(u8, bool)>, u8);

/// One step of a random run. There are few keys, so that steps meet.
#[derive(Clone, Debug)]
enum Step {
    Write(Vec<RandomWrite>, bool),
    /// Key and seed of each.
    Adopt(Vec<(u8, u8)>),
    /// From one key to others; what of it, in 256ths, and how much is new before and behind.
    Copy(u8, Vec<u8>, Option<(u8, u8, u16, u16)>),
    Unstage,
    Flush,
    Compact,
    Deduplicate,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (
        0..6u8,
        proptest::option::of((any::<u8>(), any::<bool>())),
        prop_oneof![8 => Just(0u8), 1 => Just(1), 3 => Just(2), 1 => Just(3)],
    );
    prop_oneof![
        6 => (proptest::collection::vec(write, 0..4), any::<bool>()).prop_map(|(writes, back)| Step::Write(writes, back)),
        2 => proptest::collection::vec((0..6u8, any::<u8>()), 0..3).prop_map(Step::Adopt),
        2 => copy_step(),
        1 => Just(Step::Unstage),
        1 => Just(Step::Flush),
        1 => Just(Step::Compact),
        2 => Just(Step::Deduplicate),
        1 => Just(Step::Reopen),
    ]
}

fn copy_step() -> impl Strategy<Value = Step> {
    let around = prop_oneof![3 => 0..200u16, 1 => Just(u16::MAX)];
    let splice = proptest::option::of((any::<u8>(), any::<u8>(), around.clone(), around));
    let to = proptest::collection::vec(0..6u8, 1..3);
    (0..6u8, to, splice).prop_map(|(from, to, splice)| Step::Copy(from, to, splice))
}

/// A part of a value; of another one if it is empty.
fn splice(of: Option<&Value>, (start, end, head, tail): (u8, u8, u16, u16)) -> Splice {
    let of = of.filter(|value| !value.is_empty()).cloned().unwrap_or_else(|| value(7, 300));
    let at = |share: u8| (of.len() * usize::from(share) / 256) as u64;
    let kept = at(start.min(end))..at(start.max(end)) + 1;
    Splice::new(&of, value(start, usize::from(head)), kept, value(end, usize::from(tail))).unwrap()
}

/// Value and version of each key.
type Model = BTreeMap<Key, (Value, Version)>;

/// The writes of a step, and the model after them; none if they are in conflict.
fn plan(model: &Model, writes: &[RandomWrite], count: &mut u32) -> (Vec<Write>, Option<Model>) {
    let (mut batch, mut after) = (Vec::new(), Some(model.clone()));
    for (key, new, expected) in writes {
        let key = Key::from(format!("k{key}"));
        let before = after.as_ref().and_then(|after| after.get(&key)).map(|(_, version)| version.clone());
        let expected = match (expected, &before) {
            (1, _) => Expected::Absent,
            (2, Some(version)) => Expected::Version(version.clone()),
            (3, _) => is("none has this"),
            (4, _) => Expected::Unversioned,
            _ => Expected::Any,
        };
        let holds = match &expected {
            Expected::Any => true,
            Expected::Absent => before.is_none(),
            Expected::Version(wanted) => before.as_ref() == Some(wanted),
            Expected::Unversioned => before.as_ref().is_none_or(Version::is_empty),
        };
        after = after.filter(|_| holds);
        *count += 1;
        let version = Version::copy_from_slice(&count.to_be_bytes());
        let new = new.map(|(seed, large)| value(seed, if large { SEGMENT_BYTES_MIN } else { seed as usize }));
        if let Some(after) = &mut after {
            match &new {
                Some(value) => drop(after.insert(key.clone(), (value.clone(), version.clone()))),
                None => drop(after.remove(&key)),
            }
        }
        batch.push(match new {
            Some(value) => Write::Put(Put { key, value, version, tag: Tag::default(), expected }),
            None => Write::Delete { key, expected },
        });
    }
    (batch, after)
}

/// What one kind of store can do and others cannot.
struct StoreKind<S> {
    reopen: Box<dyn Fn(S) -> S>,
    compact: Box<dyn Fn(&S)>,
    deduplicate: Box<dyn Fn(&S)>,
}

fn follow<S: Store>(mut store: S, steps: &[Step], kind: &StoreKind<S>) {
    let mut model = Model::new();
    let mut count = 0;
    for step in steps {
        match step {
            Step::Write(writes, back) => {
                let (batch, after) = plan(&model, writes, &mut count);
                let durability = if *back { Durability::Back } else { Durability::Through };
                assert_eq!(store.write(batch, durability).is_ok(), after.is_some());
                model = after.unwrap_or(model);
            }
            Step::Adopt(values) => {
                let stage = |(key, seed): &(u8, u8)| (Key::from(format!("k{key}")), store.stage(value(*seed, 100)).unwrap());
                store.adopt(values.iter().map(stage).collect(), vec![]).unwrap();
                let adopted = |(key, seed): &(u8, u8)| (Key::from(format!("k{key}")), (value(*seed, 100), Version::new()));
                model.extend(values.iter().map(adopted));
            }
            Step::Copy(from, to, part) => {
                let key = |key: &u8| Key::from(format!("k{key}"));
                let (from, to): (Key, BTreeSet<Key>) = (key(from), to.iter().filter(|to| *to != from).map(key).collect());
                let there = model.get(&from).map(|(value, _)| value.clone());
                let splice = part.map(|part| splice(there.as_ref(), part));
                let copy = |to: &Key| Write::Copy { from: from.clone(), to: to.clone(), splice: splice.clone() };
                let copies = to.iter().map(copy).collect();
                let value = there.and_then(|there| splice.as_ref().map_or(Some(there.clone()), |splice| splice.apply(&there)));
                assert_eq!(store.write(copies, Durability::Through).is_ok(), to.is_empty() || value.is_some());
                if let Some(value) = value {
                    model.extend(to.into_iter().map(|to| (to, (value.clone(), Version::new()))));
                }
            }
            Step::Unstage => store.unstage(store.stage(value(1, 8)).unwrap()),
            Step::Flush => store.flush().unwrap(),
            Step::Compact => (kind.compact)(&store),
            Step::Deduplicate => (kind.deduplicate)(&store),
            Step::Reopen => store = (kind.reopen)(store),
        }
        check(&store, &model);
    }
}

fn check(store: &impl Store, model: &Model) {
    let entries = store.list(b"").unwrap().into_iter();
    let held: Model = entries
        .map(|entry| {
            let (value, _) = store.get(&entry.key).unwrap().unwrap();
            assert_eq!(entry.bytes, value.len() as u64);
            (entry.key, (value, entry.version))
        })
        .collect();
    assert_eq!(&held, model);
    let used = store.usage().unwrap();
    let value_bytes = model.values().map(|(value, _)| value.len() as u64).sum::<u64>();
    assert_eq!((used.keys, used.value_bytes), (model.len() as u64, value_bytes));
}

/// A whole round.
fn deduplicate(store: &impl Store) {
    let (chunking, scopes) = (Chunking::Kib, vec![Key::new()]);
    let mut dedup = Dedup::new(DedupOptions { chunking, scopes, memory_bytes: 1 << 20 });
    while store.dedup_step(&mut dedup, 64 << 10).unwrap().is_some() {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn random_steps_do_as_a_map_does(steps in proptest::collection::vec(step(), 1..30)) {
        let memory = StoreKind { reopen: Box::new(|store| store), compact: Box::new(|_| ()), deduplicate: Box::new(deduplicate) };
        follow(MemoryStore::new(), &steps, &memory);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_path_buf();
        let options = StoreOptions { segment_bytes: 256 << 10, ..small_options() };
        let open = move || DiskStore::open(&path, options.clone()).unwrap();
        let kind = StoreKind {
            reopen: Box::new({
                let open = open.clone();
                move |store| {
                    drop(store);
                    open()
                }
            }),
            compact: Box::new(|store: &DiskStore| {
                store.compact_now().unwrap();
            }),
            deduplicate: Box::new(deduplicate),
        };
        follow(open(), &steps, &kind);
        let store = open();
        store.compact_now().unwrap();
        drop(store);
        let files = std::fs::read_dir(dir.path().join("segments")).map_or(0, Iterator::count);
        prop_assert!(files <= 6, "{files} segments for at most 6 keys");
    }
}
