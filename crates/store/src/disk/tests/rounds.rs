//! What the store's thread is told to do, and does.

use std::time::{Duration, Instant};

use super::*;

/// Commits wait while redb prepares what is made durable, so that is done a little at a time.
#[test]
fn some_bytes_are_enough_for_a_round_unless_one_has_just_begun() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let is_told = || store.core().work.state.lock().flush;
    let write = |number: u8| {
        let key = format!("key {number}");
        store.write(vec![put(&key, value(number, SEGMENT_BYTES_MIN - 1_000))], Durability::Back).unwrap();
    };
    (0..4).for_each(write);
    assert!(!is_told(), "there are few");
    (4..40).for_each(write);
    assert!(is_told());
    {
        let mut state = store.core().work.state.lock();
        (state.flush, state.began) = (false, Some(Instant::now() + Duration::from_secs(3_600)));
    }
    write(40);
    assert!(!is_told());
    store.core().work.state.lock().began = None;
    write(41);
    assert!(is_told());
}

/// A file system takes its time for a large file.
#[test]
fn no_commit_waits_until_a_segment_is_unlinked() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through(vec![put("large", value(1, LARGE))]).unwrap();
    drop(store);
    let store = open(dir.path());
    store.core().segments.seal(None);
    // The first commit makes the index durable.
    store.through(vec![delete("large")]).unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 1);
    store.flush().unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 0);
}
