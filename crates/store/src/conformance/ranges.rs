//! Order: ranges, prefixes, neighbours.

use std::ops::Bound;

use super::*;
use crate::KeyRange;

fn keys_of(store: &dyn Store, range: &KeyRange) -> Vec<Key> {
    store.range(range).unwrap().into_iter().map(|entry| entry.key).collect()
}

fn key(text: &'static str) -> Key {
    Key::from_static(text.as_bytes())
}

fn filled(store: &dyn Store) {
    let sizes = [0, 3, SEGMENT_BYTES_MIN, 1, 2];
    let writes = ["", "a", "b", "c", "d"].iter().zip(sizes).map(|(key, bytes)| put(key, value(0, bytes)));
    store.through(writes.collect()).unwrap();
}

#[test]
fn ranges_hold_to_their_bounds() {
    on_each(|store| {
        filled(store);
        let (included, excluded, open) = (|k| Bound::Included(key(k)), |k| Bound::Excluded(key(k)), Bound::Unbounded);
        let cases: [(Bound<Key>, Bound<Key>, &[&str]); 12] = [
            (open.clone(), open.clone(), &["", "a", "b", "c", "d"]),
            (included("a"), included("c"), &["a", "b", "c"]),
            (excluded("a"), included("c"), &["b", "c"]),
            (included("a"), excluded("c"), &["a", "b"]),
            (excluded("a"), excluded("c"), &["b"]),
            (excluded("a"), excluded("b"), &[]),
            (excluded(""), open.clone(), &["a", "b", "c", "d"]),
            (open.clone(), included(""), &[""]),
            (open.clone(), excluded(""), &[]),
            (included("aa"), included("bb"), &["b"]),
            (included("e"), open.clone(), &[]),
            (included("b"), included("b"), &["b"]),
        ];
        for (start, end, found) in cases {
            for reverse in [false, true] {
                let mut found: Vec<&str> = found.to_vec();
                if reverse {
                    found.reverse();
                }
                for limit in [0, 1, 2, usize::MAX] {
                    let range = KeyRange { start: start.clone(), end: end.clone(), reverse, limit };
                    assert_eq!(keys_of(store, &range), found[..limit.min(found.len())], "{range:?}");
                }
            }
        }
    });
}

/// Clients may ask for ranges that end before they start; these are empty.
#[test]
fn ranges_turned_around_are_empty() {
    on_each(|store| {
        filled(store);
        let bounds = |k| [Bound::Included(key(k)), Bound::Excluded(key(k))];
        for start in bounds("c") {
            for end in bounds("a") {
                let range = KeyRange { start: start.clone(), end, ..KeyRange::all() };
                assert!(keys_of(store, &range).is_empty(), "{range:?}");
            }
        }
        for (start, end) in [(0, 1), (1, 0), (1, 1)] {
            let range = KeyRange { start: bounds("b")[start].clone(), end: bounds("b")[end].clone(), ..KeyRange::all() };
            assert!(keys_of(store, &range).is_empty(), "{range:?}");
        }
    });
}

#[test]
fn neighbours_are_found() {
    on_each(|store| {
        let next = |key: &str| store.next(key.as_bytes()).unwrap().map(|entry| entry.key);
        let previous = |key: &str| store.previous(key.as_bytes()).unwrap().map(|entry| entry.key);
        assert_eq!((next(""), previous("z")), (None, None));
        filled(store);
        assert_eq!(next("").unwrap(), "a");
        assert_eq!(next("a").unwrap(), "b");
        assert_eq!(next("aa").unwrap(), "b");
        assert_eq!(next("d"), None);
        assert_eq!(previous("d").unwrap(), "c");
        assert_eq!(previous("bb").unwrap(), "b");
        assert_eq!(previous("a").unwrap(), "");
        assert_eq!(previous(""), None);
        assert_eq!(store.next(b"a").unwrap().unwrap().bytes, SEGMENT_BYTES_MIN as u64);
    });
}

#[test]
fn lists_are_in_order_and_of_their_prefix() {
    on_each(|store| {
        let keys: [&[u8]; 12] =
            [b"", b"\0", b"a", b"a/", b"a/1", b"a/10", b"a/2", b"a0", b"b", b"\xff", b"\xff\xff", b"\xff\xff\x01"];
        store.through(keys.iter().rev().map(|key| Write::put(*key, value(0, key.len()))).collect()).unwrap();
        let listed = |prefix: &[u8]| -> Vec<Key> { store.list(prefix).unwrap().into_iter().map(|entry| entry.key).collect() };
        assert_eq!(listed(b""), keys);
        assert_eq!(listed(b"a/"), ["a/", "a/1", "a/10", "a/2"]);
        assert_eq!(listed(b"\xff"), keys[9..]);
        assert_eq!(listed(b"\xff\xff"), keys[10..]);
        assert!(listed(b"c").is_empty());
        assert_eq!(store.list(b"a/10").unwrap()[0].bytes, 4);
    });
}
