//! Commits go on while the index is made durable.

use std::sync::Arc;

use super::*;
use crate::medium::{LyingMedium, Medium};

fn on(medium: &Arc<LyingMedium>) -> DiskStore {
    DiskStore::open_on(Arc::clone(medium) as Arc<dyn Medium>, quiet()).unwrap()
}

/// The values of `a`, `b`, …, as far as they are there.
fn found(store: &DiskStore) -> Vec<Value> {
    store.keys().into_iter().map(|key| store.get(&key).unwrap().unwrap().0).collect()
}

#[test]
fn commits_go_on_before_a_snapshot_is_durable() {
    let medium = LyingMedium::new(7, 1 << 30);
    let store = on(&medium);
    // The first commit makes the index name its log.
    store.write(vec![put("0", value(0, 10))], Durability::Through).unwrap();
    let back = |key: &'static str, seed: u8| store.write(vec![put(key, value(seed, 10))], Durability::Back).unwrap();
    back("a", 1);
    let snapshot = store.core.index.snapshot(|| ()).unwrap();
    assert!(store.core.index.unflushed_bytes().is_some(), "nothing has waited for the medium");
    back("b", 2);
    store.write(vec![put("c", value(3, 10))], Durability::Through).unwrap();
    back("d", 4);
    assert_eq!(found(&store), [0, 1, 2, 3, 4].map(|seed| value(seed, 10)));
    assert_eq!(found(&on(&medium.fork())).len(), 4, "what the log has sealed is there");
    store.core.index.secure(&snapshot).unwrap();
    assert_eq!(store.core.index.kept_for_test(), 3, "what came later is not durable in the index");
    assert_eq!(found(&on(&medium.fork()))[..4], [0, 1, 2, 3].map(|seed| value(seed, 10)));
    store.flush().unwrap();
    assert_eq!(store.core.index.unflushed_bytes(), None);
    assert_eq!(found(&on(&medium.crash())).len(), 5);
}

/// A file that was opened again has nothing of what was lined up, so its being there says nothing.
#[test]
fn a_snapshot_does_not_outlive_a_failure_of_the_index() {
    let medium = LyingMedium::new(8, 1 << 30);
    let store = on(&medium);
    store.write(vec![put("a", value(1, 10))], Durability::Through).unwrap();
    store.write(vec![put("b", value(2, 10))], Durability::Back).unwrap();
    let snapshot = store.core.index.snapshot(|| ()).unwrap();
    store.core.index.fail_for_test();
    assert!(store.core.index.secure(&snapshot).is_err());
    assert!(store.core.index.unflushed_bytes().is_some(), "it does not count as durable");
    assert_eq!(found(&store), [1, 2].map(|seed| value(seed, 10)));
    store.flush().unwrap();
    assert_eq!(found(&on(&medium.crash())), [1, 2].map(|seed| value(seed, 10)));
}
