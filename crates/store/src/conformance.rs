//! What every [`Store`] must do. Each test here runs on every kind of store.

mod batches;
mod random;
mod ranges;
mod together;

use std::ops::Range;

use crate::bounds::SEGMENT_BYTES_MIN;
use crate::{
    DiskStore, Durability, Expected, KEY_BYTES_MAX, Key, MemoryStore, Put, Splice, Staged, Store, StoreError, StoreOptions,
    TAG_BYTES_MAX, Tag, VALUE_BYTES_MAX, VERSION_BYTES_MAX, Value, Version, Write,
};

/// Runs a check on a new store of each kind.
fn on_each(check: impl Fn(&dyn Store)) {
    check(&MemoryStore::new());
    let dir = tempfile::tempdir().unwrap();
    check(&DiskStore::open(dir.path(), small_options()).unwrap());
}

/// The sizes are small, so that a test meets the cases that a large store meets.
pub(crate) fn small_options() -> StoreOptions {
    StoreOptions { cache_bytes: 8 << 20, index_cache_bytes: 4 << 20, segment_bytes: 4 << 20, ..StoreOptions::default() }
}

/// A value of this many bytes that differs from others by its seed.
pub(crate) fn value(seed: u8, bytes: usize) -> Value {
    (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect::<Vec<u8>>().into()
}

pub(crate) fn put(key: &str, value: Value) -> Write {
    Write::put(key.to_string(), value)
}

pub(crate) fn delete(key: &str) -> Write {
    Write::delete(key.to_string())
}

/// A put with a version and a condition.
fn put_if(key: &str, value: Value, version: &'static str, expected: Expected) -> Write {
    Write::Put(Put { key: Key::copy_from_slice(key.as_bytes()), value, version: version.into(), tag: Tag::default(), expected })
}

fn delete_if(key: &str, expected: Expected) -> Write {
    Write::Delete { key: Key::copy_from_slice(key.as_bytes()), expected }
}

fn is(version: &'static str) -> Expected {
    Expected::Version(Version::from_static(version.as_bytes()))
}

pub(crate) trait Through {
    fn through(&self, batch: Vec<Write>) -> Result<(), StoreError>;
    fn held(&self, key: &str) -> Option<Value>;
    fn keys(&self) -> Vec<Key>;
}

impl<S: Store + ?Sized> Through for S {
    fn through(&self, batch: Vec<Write>) -> Result<(), StoreError> {
        self.write(batch, Durability::Through)
    }

    fn held(&self, key: &str) -> Option<Value> {
        self.get(key.as_bytes()).unwrap().map(|(value, _)| value)
    }

    fn keys(&self) -> Vec<Key> {
        self.list(b"").unwrap().into_iter().map(|entry| entry.key).collect()
    }
}

fn is_conflict(done: Result<(), StoreError>, on: &str) -> bool {
    matches!(done, Err(StoreError::Conflict { key }) if key == on)
}

#[test]
fn values_of_all_sizes_come_back() {
    on_each(|store| {
        let sizes = [0, 1, 4_096, SEGMENT_BYTES_MIN - 1, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MIN + 1, 3 << 20, 9 << 20];
        for (number, bytes) in sizes.into_iter().enumerate() {
            let key = format!("k{number}");
            store.through(vec![put(&key, value(number as u8, bytes))]).unwrap();
            assert_eq!(store.held(&key).unwrap(), value(number as u8, bytes), "{bytes} bytes");
            assert_eq!(store.entry(key.as_bytes()).unwrap().unwrap().bytes, bytes as u64);
        }
        assert_eq!(store.get(b"none").unwrap(), None);
        assert_eq!(store.entry(b"none").unwrap(), None);
    });
}

#[test]
fn versions_and_tags_are_kept_as_given() {
    on_each(|store| {
        for (key, bytes) in [("small", 3), ("large", SEGMENT_BYTES_MIN)] {
            let tag = Tag { algorithm: -7, bytes: value(1, TAG_BYTES_MAX) };
            let put = Put {
                key: key.into(),
                value: value(2, bytes),
                version: value(3, VERSION_BYTES_MAX),
                tag: tag.clone(),
                expected: Expected::Absent,
            };
            store.through(vec![Write::Put(put.clone())]).unwrap();
            let (held, entry) = store.get(key.as_bytes()).unwrap().unwrap();
            assert_eq!((&held, &entry.version, &entry.tag, entry.bytes), (&put.value, &put.version, &tag, bytes as u64));
            assert_eq!(store.entry(key.as_bytes()).unwrap().unwrap(), entry);
            assert_eq!(store.list(key.as_bytes()).unwrap(), [entry]);
            store.through(vec![Write::put(key, "v")]).unwrap();
            let entry = store.entry(key.as_bytes()).unwrap().unwrap();
            assert_eq!((entry.version, entry.tag), (Version::new(), Tag::default()));
        }
    });
}

#[test]
fn bounds_are_held() {
    on_each(|store| {
        let longest = "k".repeat(KEY_BYTES_MAX);
        store.through(vec![put("", value(1, 3)), put(&longest, value(2, 3))]).unwrap();
        assert_eq!(store.held("").unwrap(), value(1, 3));
        assert_eq!(store.held(&longest).unwrap(), value(2, 3));
        let too_long = format!("{longest}k");
        let staged = store.stage(value(1, 1)).unwrap();
        let mut long_version = Put::forced("a", "v");
        long_version.version = value(0, VERSION_BYTES_MAX + 1);
        let mut long_tag = Put::forced("a", "v");
        long_tag.tag.bytes = value(0, TAG_BYTES_MAX + 1);
        for refused in [
            store.through(vec![put("a", value(1, 1)), put(&too_long, Value::new())]),
            store.through(vec![put("a", value(1, 1)), delete(&too_long)]),
            store.through(vec![put("a", value(1, 1)), put("b", vec![0; VALUE_BYTES_MAX + 1].into())]),
            store.through(vec![Write::Put(long_version)]),
            store.through(vec![Write::Put(long_tag)]),
            store.adopt(vec![(too_long.clone().into(), staged)], vec![]),
            store.stage(vec![0; VALUE_BYTES_MAX + 1].into()).map(drop),
        ] {
            assert!(matches!(refused, Err(StoreError::TooLarge(_))), "{refused:?}");
        }
        assert_eq!(store.usage().unwrap().keys, 2);
    });
}

#[test]
fn the_largest_value_fits() {
    on_each(|store| {
        store.through(vec![put("a", value(1, VALUE_BYTES_MAX))]).unwrap();
        assert!(store.held("a").unwrap() == value(1, VALUE_BYTES_MAX));
    });
}

#[test]
fn writes_written_back_are_seen_at_once() {
    on_each(|store| {
        for (seed, bytes) in [(1, 10), (2, SEGMENT_BYTES_MIN), (3, 20)] {
            store.write(vec![put("a", value(seed, bytes))], Durability::Back).unwrap();
            assert_eq!(store.held("a").unwrap(), value(seed, bytes));
        }
        store.flush().unwrap();
        store.flush().unwrap();
        store.write(vec![delete("a")], Durability::Back).unwrap();
        assert_eq!(store.held("a"), None);
        store.write(vec![], Durability::Through).unwrap();
        assert_eq!(store.held("a"), None);
    });
}

#[test]
fn staged_values_appear_with_their_batch() {
    on_each(|store| {
        store.through(vec![put("slice/1", value(9, 10)), put_if("manifest", value(1, 1), "1", Expected::Any)]).unwrap();
        let staged = vec![
            ("slice/1".into(), store.stage(value(1, SEGMENT_BYTES_MIN)).unwrap()),
            ("slice/2".into(), store.stage(value(2, 7)).unwrap()),
            ("slice/3".into(), store.stage(Value::new()).unwrap()),
            ("slice/4".into(), store.stage(Value::new()).unwrap()),
        ];
        assert_eq!(staged[1].1.bytes(), 7);
        assert_eq!(store.usage().unwrap().keys, 2);
        store.adopt(staged, vec![put_if("manifest", value(2, 1), "2", is("1"))]).unwrap();
        assert_eq!(store.held("slice/1").unwrap(), value(1, SEGMENT_BYTES_MIN));
        assert_eq!(store.held("slice/2").unwrap(), value(2, 7));
        assert_eq!(store.held("slice/3").unwrap(), Value::new());
        assert_eq!(store.held("manifest").unwrap(), value(2, 1));
        let late = vec![("slice/5".into(), store.stage(value(4, 10)).unwrap())];
        assert!(is_conflict(store.adopt(late, vec![put_if("manifest", value(3, 1), "3", is("1"))]), "manifest"));
        assert_eq!(store.held("slice/5"), None);
        assert_eq!(store.usage().unwrap().keys, 5);
    });
}

#[test]
fn only_what_is_staged_can_be_adopted() {
    on_each(|store| {
        let staged = store.stage(value(1, 10)).unwrap();
        let copy = Staged { ..staged };
        store.unstage(staged);
        assert!(matches!(store.adopt(vec![("a".into(), copy)], vec![]), Err(StoreError::Corrupt { .. })));
        let never = Staged { file: 1 << 40, offset: 0, bytes: 1, checksum: 0 };
        let both = vec![("a".into(), store.stage(value(1, 1)).unwrap()), ("b".into(), never)];
        assert!(store.adopt(both, vec![]).is_err());
        assert_eq!(store.usage().unwrap().keys, 0);
        let spent = store.stage(value(2, 10)).unwrap();
        let copy = Staged { ..spent };
        store.adopt(vec![("a".into(), spent)], vec![]).unwrap();
        assert!(store.adopt(vec![("b".into(), copy)], vec![]).is_err());
        assert_eq!(store.keys(), ["a"]);
    });
}

fn copy(from: &str, to: &str) -> Write {
    spliced(from, to, None)
}

fn spliced(from: &str, to: &str, splice: Option<Splice>) -> Write {
    Write::Copy { from: Key::copy_from_slice(from.as_bytes()), to: Key::copy_from_slice(to.as_bytes()), splice }
}

#[test]
fn copies_have_the_value_and_outlive_it() {
    on_each(|store| {
        let (large, small) = (value(1, 3 * SEGMENT_BYTES_MIN), value(2, 100));
        store.through(vec![put("large", large.clone()), put_if("small", small.clone(), "v", Expected::Any)]).unwrap();
        store.through(vec![copy("large", "a"), copy("small", "b"), copy("large", "c")]).unwrap();
        // A copy of a copy, over a value that is there.
        store.through(vec![copy("a", "small2"), put("d", small.clone())]).unwrap();
        store.through(vec![copy("b", "small2")]).unwrap();
        let (_, entry) = store.get(b"b").unwrap().unwrap();
        assert_eq!((entry.version.len(), entry.bytes), (0, 100));
        store.through(vec![delete("large"), delete("a"), delete("small")]).unwrap();
        assert_eq!(
            (store.held("c"), store.held("b"), store.held("small2")),
            (Some(large.clone()), Some(small.clone()), Some(small))
        );
        store.through(vec![put("c", value(3, 70_000))]).unwrap();
        assert_eq!(store.held("c"), Some(value(3, 70_000)));
        store.compact().unwrap();
        assert_eq!(store.usage().unwrap().pack_bytes, 0, "nobody has the value any more");
    });
}

#[test]
fn copies_of_nothing_and_of_what_is_written_are_refused() {
    on_each(|store| {
        store.through(vec![put("k", value(1, 70_000))]).unwrap();
        is_conflict(store.through(vec![put("x", value(2, 10)), copy("nothing", "y")]), "nothing");
        for batch in [
            vec![copy("k", "k")],
            vec![put("k", value(2, 10)), copy("k", "y")],
            vec![copy("k", "y"), delete("y")],
            vec![copy("k", "y"), copy("y", "z")],
        ] {
            assert!(matches!(store.through(batch), Err(StoreError::TooLarge(_))));
        }
        assert_eq!(store.keys(), [Key::from("k")]);
    });
}

/// Parts of `from`: the first bytes, those between, and the last.
fn parts(from: &Value) -> [(Splice, Value); 3] {
    let bytes = from.len() as u64;
    let of = |head: &[u8], kept: Range<u64>, tail: &[u8]| {
        let whole = [head, &from[kept.start as usize..kept.end as usize], tail].concat().into();
        (Splice::new(from, head.to_vec(), kept, tail.to_vec()).unwrap(), whole)
    };
    [of(b"", 0..bytes - 1, b"behind"), of(b"before", 64..bytes - 64, &[7; SEGMENT_BYTES_MIN]), of(b"", bytes - 10..bytes, b"")]
}

#[test]
fn parts_of_values_stand_between_new_bytes_and_outlive_them() {
    on_each(|store| {
        for (name, from) in [("large", value(1, 3 * SEGMENT_BYTES_MIN)), ("small", value(2, 300))] {
            store.through(vec![put(name, from.clone())]).unwrap();
            for (splice, whole) in parts(&from) {
                store.through(vec![spliced(name, "part", Some(splice)), copy(name, "copy")]).unwrap();
                let held = [store.held("part"), store.held("copy"), store.held(name)];
                assert_eq!(held, [Some(whole), Some(from.clone()), Some(from.clone())]);
            }
            // A part of a part that begins in what was put before it, and ends in what it kept.
            let [_, (splice, whole), _] = parts(&from);
            store.through(vec![spliced(name, "part", Some(splice))]).unwrap();
            let again = Splice::new(&whole, "x", 3..100, "").unwrap();
            let expected = again.apply(&whole);
            store.through(vec![spliced("part", "again", Some(again))]).unwrap();
            store.through(vec![delete(name), delete("part"), delete("copy")]).unwrap();
            store.compact().unwrap();
            assert_eq!(store.held("again"), expected);
            store.through(vec![delete("again")]).unwrap();
            assert_eq!(store.usage().unwrap().pack_bytes, 0, "nobody has any of it any more");
        }
    });
}

#[test]
fn parts_of_other_values_are_refused() {
    on_each(|store| {
        let whole = value(1, 70_000);
        store.through(vec![put("k", whole.clone())]).unwrap();
        let part = |of: &Value, head: Value| Splice::new(of, head, 1..2, "");
        is_conflict(store.through(vec![put("x", value(2, 10)), spliced("k", "y", part(&value(3, 70_000), "h".into()))]), "k");
        is_conflict(store.through(vec![spliced("nothing", "y", part(&whole, "h".into()))]), "nothing");
        let long = store.through(vec![spliced("k", "y", part(&whole, vec![0; VALUE_BYTES_MAX].into()))]);
        assert!(matches!(long, Err(StoreError::TooLarge(_))));
        assert_eq!((store.keys(), store.held("k")), (vec![Key::from("k")], Some(whole)));
    });
    for kept in [5..5, Range { start: 6, end: 5 }, 0..11, u64::MAX - 1..u64::MAX] {
        assert_eq!(Splice::new(&[1; 10], "head", kept, "tail"), None);
    }
}

#[test]
fn values_of_too_many_parts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path(), small_options()).unwrap();
    let mut whole = value(1, 70_000);
    store.through(vec![put("0", whole.clone())]).unwrap();
    for number in 0.. {
        let splice = Splice::new(&whole, "h", 0..whole.len() as u64, "t").unwrap();
        let next = splice.apply(&whole).unwrap();
        let write = spliced(&number.to_string(), &(number + 1).to_string(), Some(splice));
        match store.write(vec![write], Durability::Back) {
            Ok(()) => whole = next,
            Err(refused) => {
                assert!(matches!(&refused, StoreError::TooLarge(what) if what.contains("parts")), "{refused:?}");
                assert!(number > 1_000, "{number} values");
                assert_eq!(store.held(&number.to_string()), Some(whole));
                break;
            }
        }
    }
}

#[test]
fn a_copy_writes_no_value() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path(), small_options()).unwrap();
    let large = value(1, 3 * SEGMENT_BYTES_MIN);
    store.through(vec![put("from", large.clone())]).unwrap();
    let files = |dir: &std::path::Path| -> u64 {
        std::fs::read_dir(dir.join("segments")).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
    };
    let before = files(dir.path());
    store.through((0..50).map(|number| copy("from", &format!("to {number}"))).collect()).unwrap();
    assert_eq!(files(dir.path()), before);
    let used = store.usage().unwrap();
    assert_eq!((used.keys, used.stored_bytes()), (51, large.len() as u64));
    drop(store);
    let store = DiskStore::open(dir.path(), small_options()).unwrap();
    assert_eq!(store.held("to 49"), Some(large));
}

#[test]
fn values_handed_out_outlive_their_key() {
    on_each(|store| {
        store.through(vec![put("a", value(1, 1 << 20)), put("b", value(2, 100))]).unwrap();
        let (large, small) = (store.held("a").unwrap(), store.held("b").unwrap());
        store.through(vec![put("a", value(3, 1 << 20)), delete("b")]).unwrap();
        assert_eq!((large, small), (value(1, 1 << 20), value(2, 100)));
        assert_eq!(store.held("a").unwrap(), value(3, 1 << 20));
    });
}

#[test]
fn use_counts_what_is_there() {
    on_each(|store| {
        store.through(vec![put("a", value(1, 10)), put("b", value(2, 1 << 20)), put("a", value(3, 20))]).unwrap();
        let used = store.usage().unwrap();
        assert_eq!((used.keys, used.value_bytes), (2, 20 + (1 << 20)));
        assert!(used.free_bytes > 0);
        store.through(vec![delete("a"), delete("b"), delete("never")]).unwrap();
        let used = store.usage().unwrap();
        assert_eq!((used.keys, used.value_bytes), (0, 0));
    });
}
