//! Conditions, and batches that are applied whole or not at all.

use super::*;

#[test]
fn conditions_hold_or_refuse() {
    on_each(|store| {
        for bytes in [1, SEGMENT_BYTES_MIN] {
            let v = || value(1, bytes);
            store.through(vec![put_if("a", v(), "1", Expected::Absent)]).unwrap();
            assert!(is_conflict(store.through(vec![put_if("a", v(), "2", Expected::Absent)]), "a"));
            assert!(is_conflict(store.through(vec![put_if("a", v(), "2", is("0"))]), "a"));
            assert!(is_conflict(store.through(vec![put_if("b", v(), "2", is("1"))]), "b"));
            assert!(is_conflict(store.through(vec![delete_if("b", is("1"))]), "b"));
            assert!(is_conflict(store.through(vec![delete_if("a", Expected::Absent)]), "a"));
            store.through(vec![put_if("a", v(), "2", is("1"))]).unwrap();
            assert!(is_conflict(store.through(vec![delete_if("a", is("1"))]), "a"));
            store.through(vec![delete_if("a", is("2"))]).unwrap();
            store.through(vec![delete("a"), delete_if("a", Expected::Absent)]).unwrap();
            assert_eq!(store.held("a"), None);
        }
    });
}

#[test]
fn without_a_version_means_absent_or_of_the_empty_version() {
    on_each(|store| {
        let put_a = |version: &'static str| store.through(vec![put_if("a", value(1, 1), version, Expected::Unversioned)]);
        put_a("").unwrap();
        put_a("1").unwrap();
        assert!(is_conflict(put_a("2"), "a"));
        assert!(is_conflict(store.through(vec![delete_if("a", Expected::Unversioned)]), "a"));
        let replaced = vec![delete("a"), put_if("a", value(2, 1), "3", Expected::Unversioned)];
        store.through(replaced).unwrap();
        assert_eq!(store.entry(b"a").unwrap().unwrap().version, "3");
    });
}

#[test]
fn the_empty_version_is_a_version() {
    on_each(|store| {
        assert!(is_conflict(store.through(vec![put_if("a", value(1, 1), "", is(""))]), "a"));
        store.through(vec![put("a", value(1, 1))]).unwrap();
        store.through(vec![put_if("a", value(2, 1), "1", is(""))]).unwrap();
        assert!(is_conflict(store.through(vec![delete_if("a", is(""))]), "a"));
    });
}

#[test]
fn writes_see_those_before_them_in_their_batch() {
    on_each(|store| {
        store
            .through(vec![
                put_if("a", value(1, 1), "1", Expected::Absent),
                put_if("a", value(2, SEGMENT_BYTES_MIN), "2", is("1")),
                put_if("b", value(3, SEGMENT_BYTES_MIN), "1", Expected::Absent),
                delete_if("b", is("1")),
                put_if("b", value(4, 4), "2", Expected::Absent),
                put_if("c", value(5, SEGMENT_BYTES_MIN), "1", Expected::Any),
                delete("c"),
            ])
            .unwrap();
        assert_eq!(store.held("a").unwrap(), value(2, SEGMENT_BYTES_MIN));
        assert_eq!(store.held("b").unwrap(), value(4, 4));
        assert_eq!(store.keys(), ["a", "b"]);
        assert_eq!(store.usage().unwrap().value_bytes, SEGMENT_BYTES_MIN as u64 + 4);
    });
}

#[test]
fn a_batch_in_conflict_changes_nothing() {
    on_each(|store| {
        store.through(vec![put_if("a", value(1, 1), "1", Expected::Any), put("b", value(1, SEGMENT_BYTES_MIN))]).unwrap();
        let (before, used) = (store.list(b"").unwrap(), store.usage().unwrap());
        for (key, expected) in [("a", Expected::Absent), ("a", is("9")), ("c", is("1"))] {
            for durability in [Durability::Through, Durability::Back] {
                for last in [put_if(key, value(3, SEGMENT_BYTES_MIN), "3", expected.clone()), delete_if(key, expected.clone())]
                {
                    // `a` meets the batch's own put; the condition fails all the same.
                    let batch = vec![put("b", value(2, SEGMENT_BYTES_MIN)), delete("a"), put("a", value(4, 1)), last];
                    assert!(is_conflict(store.write(batch, durability), key), "{key} {expected:?}");
                    assert_eq!(store.list(b"").unwrap(), before);
                }
            }
        }
        assert_eq!(store.held("b").unwrap(), value(1, SEGMENT_BYTES_MIN));
        let after = store.usage().unwrap();
        assert_eq!((after.keys, after.value_bytes), (used.keys, used.value_bytes));
    });
}

#[test]
fn an_empty_batch_is_no_error() {
    on_each(|store| {
        store.through(vec![]).unwrap();
        store.write(vec![], Durability::Back).unwrap();
        store.adopt(vec![], vec![]).unwrap();
        assert_eq!(store.usage().unwrap().keys, 0);
    });
}
