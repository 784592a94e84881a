//! Dead room comes back, and no reader notices that values move.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// The bytes that the segments take on the medium.
fn taken(dir: &Path) -> u64 {
    segment_paths(dir).iter().map(|path| fs::metadata(path).unwrap().blocks() * 512).sum()
}

#[test]
fn segments_go_when_nothing_in_them_lives() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through((0..8).map(|n| put(&format!("k{n}"), value(n, 1 << 20))).collect()).unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 2);
    store.through((0..4).map(|n| delete(&format!("k{n}"))).collect()).unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 2, "the index may still name it after a crash");
    store.flush().unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 1);
    store.write((4..8).map(|n| delete(&format!("k{n}"))).collect(), Durability::Back).unwrap();
    store.unstage(store.stage(value(1, LARGE)).unwrap());
    assert_eq!(segment_paths(dir.path()).len(), 2);
    store.compact_now().unwrap();
    assert!(segment_paths(dir.path()).is_empty());
    let used = store.usage().unwrap();
    assert_eq!((used.keys, used.dead_bytes), (0, 0));
}

#[test]
fn dead_room_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = |n: u8| format!("k{n:02}");
    store.through((0..40).map(|n| put(&key(n), value(n, 1 << 19))).collect()).unwrap();
    let before = taken(dir.path());
    store.through((0..40).filter(|n| n % 10 != 0).map(|n| delete(&key(n))).collect()).unwrap();
    assert!(store.usage().unwrap().dead_bytes >= 14 << 20, "{:?}", store.usage().unwrap());
    let done = store.compact_now().unwrap();
    assert!(done.moved_bytes + done.punched_bytes > 0);
    assert!(taken(dir.path()) <= before / 5, "{} of {before}", taken(dir.path()));
    assert_eq!(store.usage().unwrap().dead_bytes, 0);
    assert_eq!(store.compact_now().unwrap(), Compacted::default(), "nothing is left to do");
    for n in (0..40).step_by(10) {
        assert_eq!(store.held(&key(n)).unwrap(), value(n, 1 << 19));
    }
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.usage().unwrap().dead_bytes, 0);
    for n in (0..40).step_by(10) {
        assert_eq!(store.held(&key(n)).unwrap(), value(n, 1 << 19));
    }
}

#[test]
fn without_holes_segments_are_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.core.work.state.lock().no_punch = true;
    let key = |n: u8| format!("k{n:02}");
    store.through((0..40).map(|n| put(&key(n), value(n, 1 << 19))).collect()).unwrap();
    store.through((0..40).filter(|n| n % 4 != 0).map(|n| delete(&key(n))).collect()).unwrap();
    let done = store.compact_now().unwrap();
    assert_eq!((done.segments, done.moved_bytes, done.punched_bytes), (5, 10 << 19, 0));
    assert_eq!(segment_paths(dir.path()).len(), 2);
    for n in (0..40).step_by(4) {
        assert_eq!(store.held(&key(n)).unwrap(), value(n, 1 << 19));
    }
    let entry = store.entry(key(0).as_bytes()).unwrap().unwrap();
    assert_eq!(entry.bytes, 1 << 19);
}

#[test]
fn a_damaged_value_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.core.work.state.lock().no_punch = true;
    store.through((0..8).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).collect()).unwrap();
    store.through((2..8).map(|n| delete(&format!("k{n}"))).collect()).unwrap();
    let path = &segment_paths(dir.path())[0];
    fs::OpenOptions::new().write(true).open(path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1, 2, 3], 1_000).unwrap();
    file.sync_all().unwrap();
    store.compact_now().unwrap();
    assert!(path.exists());
    assert!(matches!(store.get(b"k0"), Err(StoreError::Corrupt { key, .. }) if key == "k0"));
    assert_eq!(store.held("k1").unwrap(), value(1, 1 << 19));
    store.through(vec![delete("k0")]).unwrap();
    store.flush().unwrap();
    assert!(!path.exists());
}

/// The index fails, and what was written back is lost with it: the account of segments is read again before the next job.
#[test]
fn compaction_ends_after_commits_were_given_up() {
    for no_punch in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        store.core.work.state.lock().no_punch = no_punch;
        store.through((0..8).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).collect()).unwrap();
        store.write((1..8).map(|n| delete(&format!("k{n}"))).collect(), Durability::Back).unwrap();
        store.write((8..16).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).collect(), Durability::Back).unwrap();
        store.core.index.give_up_unflushed("a test");
        assert_eq!(store.keys().len(), 8);
        store.core.segments.seal(None);
        while store.compact_step(1 << 20).unwrap().is_some() {}
        assert!(store.flush().is_err(), "nobody was told");
        for n in 0..8 {
            assert_eq!(store.held(&format!("k{n}")).unwrap(), value(n, 1 << 19));
        }
        store.flush().unwrap();
        assert_eq!(store.usage().unwrap().dead_bytes, 0);
    }
}

/// The index itself has an account that is not what its records name. No job can put that right, and none goes on for ever.
#[test]
fn compaction_ends_with_an_account_that_is_wrong() {
    for (no_punch, live) in [(false, 1 << 19), (true, 4_096), (false, 4_096)] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        store.through((0..8).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).collect()).unwrap();
        let mut rows: std::collections::BTreeMap<_, _> = store.core.index.segments().unwrap().into_iter().collect();
        rows.values_mut().for_each(|row| row.live = live);
        let unnamed = crate::index::SegmentRow { written: 1 << 20, live, punched: 0 };
        rows.insert(1_000, unnamed);
        store.core.index.put_segments(&rows).unwrap();
        drop(store);
        let store = open(dir.path());
        store.core.work.state.lock().no_punch = no_punch;
        fs::write(dir.path().join("segments/00000000000003e8.seg"), vec![0; 1 << 20]).unwrap();
        store.compact_now().unwrap();
        for n in 0..8 {
            assert_eq!(store.held(&format!("k{n}")).unwrap(), value(n, 1 << 19));
        }
    }
}

/// Steps until there is nothing to do, however often they look.
fn steps(store: &DiskStore) -> u64 {
    let round = || std::iter::from_fn(|| store.compact_step(1 << 18).unwrap()).sum::<u64>();
    (0..3).map(|_| round()).sum()
}

/// A store that nobody fills kept the dead room of its newest segment for ever, however often it was opened.
#[test]
fn dead_room_of_the_open_segment_comes_back_once_nobody_writes_to_it() {
    for (no_punch, reopens) in [(false, false), (false, true), (true, false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        // Half of a segment, so that the next process goes on with it.
        store.through((0..4).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).collect()).unwrap();
        store.through((1..4).map(|n| delete(&format!("k{n}"))).collect()).unwrap();
        if reopens {
            drop(store);
            store = open(dir.path());
        }
        store.core.work.state.lock().no_punch = no_punch;
        assert_eq!(store.compact_step(1 << 18).unwrap(), None, "somebody may be writing");
        assert_eq!(store.usage().unwrap().dead_bytes, 3 << 19);
        assert!(steps(&store) >= 1 << 19);
        store.flush().unwrap();
        let used = store.usage().unwrap();
        assert_eq!((used.dead_bytes, used.given_back_bytes), (0, 3 << 19), "{no_punch} {reopens}");
        assert!(store.core.segments.open_one().is_none_or(|open| open.row.written == 1 << 19), "only what was copied");
        drop(store);
        assert!(taken(dir.path()) < 1 << 20, "{} {no_punch} {reopens}", taken(dir.path()));
        let store = open(dir.path());
        assert_eq!(store.held("k0").unwrap(), value(0, 1 << 19));
        assert_eq!(store.keys(), ["k0"]);
        store.through(vec![put("k9", value(9, 1 << 19))]).unwrap();
        assert_eq!(store.held("k9").unwrap(), value(9, 1 << 19), "it goes on as ever");
    }
}

#[test]
fn an_open_segment_stays_while_it_is_written_to_or_hardly_anything_in_it_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through(vec![put("k", value(0, 1 << 19))]).unwrap();
    for n in 1..6 {
        store.through(vec![put("k", value(n, 1 << 19))]).unwrap();
        assert_eq!(store.compact_step(1 << 18).unwrap(), None, "{n}: written to since the last look");
    }
    assert_eq!(segment_paths(dir.path()).len(), 1);
    assert!(steps(&store) > 0);
    store.through((0..8).map(|n| put(&format!("other{n}"), value(n, LARGE))).collect()).unwrap();
    store.through(vec![delete("other1")]).unwrap();
    assert_eq!(steps(&store), 0, "an eighth is dead");
    assert!(store.core.segments.open_one().is_some());
}

#[test]
fn an_open_segment_goes_when_nothing_in_it_lives() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through((0..4).map(|n| put(&format!("k{n}"), value(n, LARGE))).collect()).unwrap();
    let staged = store.stage(value(4, LARGE)).unwrap();
    store.through((0..4).map(|n| delete(&format!("k{n}"))).collect()).unwrap();
    steps(&store);
    store.flush().unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 1, "a value in it may still get a key");
    store.adopt(vec![("k4".into(), staged)], vec![]).unwrap();
    steps(&store);
    assert_eq!((store.held("k4").unwrap(), store.usage().unwrap().dead_bytes), (value(4, LARGE), 0));
    store.through(vec![delete("k4")]).unwrap();
    steps(&store);
    store.flush().unwrap();
    assert!(segment_paths(dir.path()).is_empty());
}

/// The last values in a segment die while holes are being punched into it.
#[test]
fn a_segment_may_go_while_it_is_punched() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through((0..8).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).collect()).unwrap();
    store.through(vec![delete("k1")]).unwrap();
    store.core.segments.seal(None);
    assert_eq!(store.compact_step(1 << 20).unwrap(), Some(0), "the step that finds the holes");
    let before = segment_paths(dir.path()).len();
    store.through((0..8).map(|n| delete(&format!("k{n}"))).collect()).unwrap();
    store.flush().unwrap();
    assert!(segment_paths(dir.path()).len() < before);
    while store.compact_step(1 << 20).unwrap().is_some() {}
    store.flush().unwrap();
    assert!(segment_paths(dir.path()).is_empty());
}

/// A value becomes one that is shared, under a key of its own, after its segment's values were listed.
#[test]
fn values_that_are_shared_meanwhile_move_as_well() {
    for steps in 1..4 {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        store.core.work.state.lock().no_punch = true;
        store.through((0..8).map(|n| put(&format!("k{n}"), value(n, 1 << 19))).collect()).unwrap();
        store.through((2..8).map(|n| delete(&format!("k{n}"))).collect()).unwrap();
        store.core.segments.seal(None);
        let before = segment_paths(dir.path());
        (0..steps).for_each(|_| assert!(store.compact_step(1 << 18).unwrap().is_some()));
        let copy = |from: &'static str, to: &'static str| Write::Copy { from: from.into(), to: to.into(), splice: None };
        store.through(vec![copy("k0", "copy")]).unwrap();
        store.compact_now().unwrap();
        store.flush().unwrap();
        assert!(store.core.work.state.lock().stuck.is_empty(), "after {steps} steps");
        assert!(before.iter().all(|path| !path.exists()), "after {steps} steps");
        for (key, n) in [("k0", 0), ("copy", 0), ("k1", 1)] {
            assert_eq!(store.held(key).unwrap(), value(n, 1 << 19));
        }
    }
}

/// Signals that a thread is over, whether it succeeded or failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Readers and writers go on while values move, and no reader gets another key's value.
#[test]
fn compaction_is_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    /// By then compaction has had its turn, or it never moves anything.
    const ROUNDS_MAX: u32 = 1_000_000;
    // Nothing is cached, so that all reads go to the segments.
    let options = StoreOptions { segment_bytes: 1 << 20, cache_bytes: 0, ..quiet() };
    for no_punch in [false, true] {
        let store = DiskStore::open(dir.path(), options.clone()).unwrap();
        store.core.work.state.lock().no_punch = no_punch;
        let key = |n: u8| format!("k{n:02}");
        store.through((0..24).map(|n| put(&key(n), value(n, LARGE))).collect()).unwrap();
        let (written, over, has_moved) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _written = Ends(&written);
                // On a fast medium the writer would be over before the compacting thread has had its turn.
                let is_enough = |round| round >= 150 && (has_moved.load(Ordering::Relaxed) || over.load(Ordering::Relaxed));
                for round in (0..ROUNDS_MAX).take_while(|round| !is_enough(*round)) {
                    let n = (round * 7 % 24) as u8;
                    if !n.is_multiple_of(8) {
                        store.through(vec![put(&key(n), value(round as u8, LARGE))]).unwrap();
                    }
                }
            });
            let compacter = scope.spawn(|| {
                let _over = Ends(&over);
                let mut moved = 0;
                while !written.load(Ordering::Relaxed) {
                    let done = store.compact_now().unwrap();
                    moved += done.moved_bytes + done.punched_bytes;
                    has_moved.store(moved > 0, Ordering::Relaxed);
                }
                moved
            });
            let read = || {
                while !over.load(Ordering::Relaxed) {
                    for n in 0..24 {
                        let held = store.held(&key(n)).unwrap();
                        assert_eq!(held, value(held[0], LARGE));
                        assert!(n % 8 != 0 || held[0] == n);
                    }
                }
            };
            (0..2).for_each(|_| drop(scope.spawn(read)));
            assert!(compacter.join().unwrap() > 0);
        });
        store.compact_now().unwrap();
    }
}
