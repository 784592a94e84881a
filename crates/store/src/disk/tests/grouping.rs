//! Commits of several writers that are made together.

use super::*;
use crate::index::{Action, Change, Depth, NewValue};
use crate::{Expected, Tag, Version};

fn change(key: &'static str, seed: u8, expected: Expected) -> Change {
    let value = NewValue::Inline(value(seed, 10));
    let action = Action::Put { version: Version::from(vec![seed]), tag: Tag::default(), value };
    Change { key: key.into(), expected, action }
}

/// Batches of one group are applied in order, each whole or not at all, and each sees those before it.
#[test]
fn a_batch_in_conflict_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let is = |seed: u8| Expected::Version(Version::from(vec![seed]));
    let batches = vec![
        vec![change("a", 1, Expected::Absent), change("b", 1, Expected::Absent)],
        vec![change("c", 2, Expected::Absent), change("a", 2, Expected::Absent)],
        vec![change("a", 3, is(1)), change("d", 3, Expected::Absent)],
        vec![change("a", 4, is(1))],
        vec![change("e", 5, is(1))],
        vec![],
    ];
    let committed = store.core.index.commit(batches, Depth::Logged).unwrap();
    let won: Vec<bool> = committed.outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(won, [true, false, true, false, false, true]);
    assert!(matches!(&committed.outcomes[1], Err(StoreError::Conflict { key }) if key == "a"));
    assert_eq!(store.keys(), ["a", "b", "d"]);
    assert_eq!(store.held("a").unwrap(), value(3, 10));
    assert_eq!(store.usage().unwrap().value_bytes, 30);
}

#[test]
fn commits_have_rising_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let store = open(dir.path());
        for depth in [Depth::Logged, Depth::Back, Depth::Logged, Depth::Indexed] {
            let number = store.core.index.commit(vec![vec![change("a", 1, Expected::Any)]], depth).unwrap().number;
            assert!(number > last);
            last = number;
        }
    }
}

/// Many durable writers at once make fewer commits than writes.
#[test]
fn writers_that_come_at_once_share_commits() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let number = || store.core.index.fact(crate::index::COMMIT).unwrap().unwrap_or(0);
    let before = number();
    let all = std::sync::Barrier::new(16);
    let write = &|writer: u8| {
        all.wait();
        for n in 0..10u8 {
            let bytes = if n % 5 == 0 { LARGE } else { 100 };
            store.through(vec![put(&format!("{writer}/{n}"), value(writer, bytes))]).unwrap();
        }
    };
    // Where a flush takes no time, it may be that no two writers meet.
    let shares = |round: u64| {
        std::thread::scope(|scope| (0..16).for_each(|writer| drop(scope.spawn(move || write(writer)))));
        assert_eq!(store.usage().unwrap().keys, 160);
        number() - before < (round + 1) * 160
    };
    assert!((0..100).any(shares), "{} commits", number() - before);
}

/// The index fails and is opened again: data that was written back before is still there.
#[test]
fn what_was_written_back_outlives_a_failure_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through(vec![put("a", value(1, 10))]).unwrap();
    store.write(vec![put("b", value(2, LARGE)), delete("a")], Durability::Back).unwrap();
    store.write(vec![put("c", value(3, 10))], Durability::Back).unwrap();
    store.core.index.fail_for_test();
    assert_eq!(store.held("b").unwrap(), value(2, LARGE));
    assert_eq!(store.keys(), ["b", "c"]);
    store.write(vec![put("d", value(4, 10))], Durability::Back).unwrap();
    store.core.index.fail_for_test();
    store.flush().unwrap();
    drop(store);
    assert_eq!(open(dir.path()).keys(), ["b", "c", "d"]);
}
