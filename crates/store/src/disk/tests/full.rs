//! A full medium refuses puts; reads and deletes go on.

use std::sync::Arc;

use super::*;
use crate::medium::{LyingMedium, Medium, Trouble};

/// Once a write has failed, redb refuses all further calls, including reads; the store must not.
#[test]
fn a_full_medium_refuses_puts_and_takes_deletes() {
    on_a_small_medium(fill);
}

/// Runs a test on a small medium, where mounting one is allowed.
fn on_a_small_medium(test: fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_path_buf();
    let tried = std::thread::spawn(move || mount_small(&dir).then(|| test(&dir)));
    if tried.join().unwrap().is_none() {
        eprintln!("not tried: no permission to mount a small medium");
    }
}

/// Mounts 40 MiB of memory at `dir`, visible to the calling thread only. False if that is not allowed.
fn mount_small(dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let c = |text: &[u8]| std::ffi::CString::new(text).unwrap();
    let (tmpfs, root, at, options) = (c(b"tmpfs"), c(b"/"), c(dir.as_os_str().as_bytes()), c(b"size=40m"));
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: all pointers are to C strings that outlive the calls, or null where the calls allow it.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(std::ptr::null(), root.as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0
            && libc::mount(tmpfs.as_ptr(), at.as_ptr(), tmpfs.as_ptr(), 0, options.as_ptr().cast()) == 0
    }
}

fn fill(dir: &Path) {
    let options = StoreOptions { segment_bytes: 256 << 20, ..quiet() };
    let store = DiskStore::open(dir, options).unwrap();
    let key = |number: usize| format!("k{number}");
    let mut written = 0;
    let refused = loop {
        match store.through(vec![put(&key(written), value(written as u8, 1 << 20))]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace { needed, .. } if needed >= 1 << 20), "{refused}");
    assert!(written > 20, "{written}");
    assert!(matches!(store.stage(value(1, 1 << 20)), Err(StoreError::NoSpace { .. })));
    let many = |seed: u8| (0..200).map(|n| put(&format!("s{n}"), value(seed, 60_000))).collect::<Vec<_>>();
    assert!(matches!(store.through(many(0)), Err(StoreError::NoSpace { .. })));
    // What has to be noted before something can go has room all the same.
    let fillers = (0..).map(|number| store.through(vec![put(&format!("filler/{number}"), value(1, 60_000))]));
    let added = fillers.take_while(Result::is_ok).count();
    let note = || vec![put("note", value(1, 60_000))];
    assert!(matches!(store.through(note()), Err(StoreError::NoSpace { .. })));
    store.write(note(), Durability::Reserved).unwrap();
    store.through((0..added).map(|number| delete(&format!("filler/{number}"))).chain([delete("note")]).collect()).unwrap();
    // Another program uses up the store's reserve.
    let mut other = fs::File::create(dir.join("other")).unwrap();
    while std::io::Write::write_all(&mut other, &[1; 4096]).is_ok() {}
    assert!(matches!(store.stage(value(1, 1 << 20)), Err(StoreError::NoSpace { .. })));
    // The write is past the check for room, as if the room had been used up only then.
    let batch = || {
        let changes = many(1).into_iter().map(|write| match write {
            Write::Put(put) => crate::index::Change {
                key: put.key,
                expected: put.expected,
                action: crate::index::Action::Put {
                    version: put.version,
                    tag: put.tag,
                    value: crate::index::NewValue::Inline(put.value),
                },
            },
            Write::Delete { .. } | Write::Copy { .. } => unreachable!(),
        });
        changes.collect::<Vec<_>>()
    };
    let direct = store.core.index.commit(vec![batch()], crate::index::Depth::Logged);
    assert!(matches!(direct, Err((StoreError::NoSpace { .. }, _))), "{direct:?}");
    for number in 0..written {
        assert_eq!(store.held(&key(number)).unwrap(), value(number as u8, 1 << 20));
    }
    drop(other);
    fs::remove_file(dir.join("other")).unwrap();
    assert_eq!(store.entry(b"s0").unwrap(), None);
    // The value is in the middle of the only segment, and its room must come back all the same.
    store.through((3..7).map(|number| delete(&key(number))).collect()).unwrap();
    let before = store.usage().unwrap();
    let again = store.through(vec![put(&key(3), value(7, 1 << 20))]);
    assert!(again.is_ok(), "{again:?}: {before:?} before, {:?} after", store.usage());
    assert_eq!(store.held(&key(3)).unwrap(), value(7, 1 << 20));
    for round in 0..3 * written {
        let key = key(7 + round % 8);
        store.through(vec![delete(&key)]).unwrap();
        store.through(vec![put(&key, value(round as u8, 1 << 20))]).unwrap();
        assert_eq!(store.held(&key).unwrap(), value(round as u8, 1 << 20));
    }
    drop(store);
    let store = open(dir);
    assert_eq!(store.usage().unwrap().keys as usize, written - 3);
    assert_eq!(store.held(&key(0)).unwrap(), value(0, 1 << 20));
}

fn open_on(medium: &Arc<LyingMedium>, reserve_bytes: u64) -> DiskStore {
    let options = StoreOptions { reserve_bytes, segment_bytes: 8 << 20, ..quiet() };
    DiskStore::open_on(Arc::clone(medium) as Arc<dyn Medium>, options).unwrap()
}

/// Another program takes room until so many bytes are free.
fn leave_free(medium: &LyingMedium, free: u64) {
    let file = medium.open("other", true).unwrap();
    let taken = medium.free_bytes().unwrap().checked_sub(free).unwrap();
    file.write(file.len().unwrap(), &vec![1; taken as usize / 4_096 * 4_096]).unwrap();
}

/// Takes compaction to its end, or to its error.
fn compact(store: &DiskStore) -> Result<u64, StoreError> {
    store.core.segments.seal(None);
    store.core.make_durable().unwrap();
    let mut bytes = 0;
    while let Some(did) = store.compact_step(1 << 20)? {
        bytes += did;
    }
    Ok(bytes)
}

/// The same, as the service does it, which tries again: the kernel gives the room of a removed file back once its last request is
/// over, which may be a moment later.
fn compact_in_time(store: &DiskStore) {
    for _ in 0..500 {
        match compact(store) {
            Err(StoreError::NoSpace { .. }) => std::thread::sleep(std::time::Duration::from_millis(10)),
            done => {
                done.unwrap();
                return;
            }
        }
    }
    panic!("no room came back");
}

/// Of the first segment less than an eighth stays, in one piece that is larger than what is free. Of the second one a part
/// stays, in small pieces.
fn crowd(store: &DiskStore, pieces: u8, leave_free: impl FnOnce()) {
    let first = (0..4).map(|n| put(&format!("a{n}"), value(n, if n == 0 { 800_000 } else { 2 << 20 })));
    store.through(first.collect()).unwrap();
    store.core.segments.seal(None);
    store.through((0..pieces).map(|n| put(&format!("b{n}"), value(n, 100_000))).collect()).unwrap();
    store.through((1..4).map(|n| delete(&format!("a{n}"))).collect()).unwrap();
    store.through((pieces / 4..pieces).map(|n| delete(&format!("b{n}"))).collect()).unwrap();
    store.flush().unwrap();
    leave_free();
    compact_in_time(store);
    store.flush().unwrap();
    assert_eq!(store.usage().unwrap().dead_bytes, 0);
    assert!(store.held("a0").unwrap() == value(0, 800_000));
    assert!((0..pieces / 4).all(|n| store.held(&format!("b{n}")).unwrap() == value(n, 100_000)));
}

/// The value that is to be moved first has no room, and a job that needs none was never chosen.
#[test]
fn room_comes_back_where_a_value_finds_none_to_move_to() {
    let medium = LyingMedium::new(1, 64 << 20);
    crowd(&open_on(&medium, 0), 64, || leave_free(&medium, 600_000));
    let after = medium.free_bytes().unwrap();
    assert!(after > 8 << 20, "{after}");
}

/// The same where segments can only be emptied: one of which little is alive makes room for the other.
#[test]
fn room_comes_back_where_no_holes_can_be_punched() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_path_buf();
    let tried = std::thread::spawn(move || {
        if !mount_small(&dir) {
            return false;
        }
        let options = StoreOptions { reserve_bytes: 0, segment_bytes: 8 << 20, ..quiet() };
        let store = DiskStore::open(&dir, options).unwrap();
        store.core.work.state.lock().no_punch = true;
        crowd(&store, 16, || {
            let free = store.core.medium.free_bytes().unwrap();
            fs::write(dir.join("other"), vec![1; free as usize - 600_000]).unwrap();
        });
        true
    });
    if !tried.join().unwrap() {
        eprintln!("not tried: no permission to mount a small medium");
    }
}

/// The room that is set aside for large values counts as free, and small ones were refused for want of it.
#[test]
fn small_values_get_the_room_that_is_set_aside_for_large_ones() {
    let store = open_on(&LyingMedium::new(1, 64 << 20), 0);
    store.through(vec![put("large", value(1, 100_000))]).unwrap();
    let aside = || store.core.segments.spare().1;
    assert!(aside() > 1 << 20, "{}", aside());
    assert_eq!((store.core.reclaim(60_000), aside()), (true, 0));
    assert!(!store.core.reclaim(60_000), "there is no more");

    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_path_buf();
    let tried = std::thread::spawn(move || {
        if !mount_small(&dir) {
            return false;
        }
        let store = DiskStore::open(&dir, StoreOptions { reserve_bytes: 0, ..quiet() }).unwrap();
        store.through(vec![put("large", value(1, 100_000))]).unwrap();
        let free = store.core.medium.free_bytes().unwrap();
        fs::write(dir.join("other"), vec![1; free as usize - 40_000]).unwrap();
        store.through(vec![put("small", value(2, 60_000))]).unwrap();
        assert_eq!(store.held("small").unwrap(), value(2, 60_000));
        true
    });
    if !tried.join().unwrap() {
        eprintln!("not tried: no permission to mount a small medium");
    }
}

/// All that is left to do needs room that is not there: compaction says so each time, and goes on once there is room.
#[test]
fn compaction_without_room_says_so_and_goes_on_later() {
    let medium = LyingMedium::new(1, 64 << 20);
    let store = open_on(&medium, 0);
    store.core.work.state.lock().no_punch = true;
    let values = (0..4).map(|n| put(&format!("a{n}"), value(n, if n == 0 { 800_000 } else { 2 << 20 })));
    store.through(values.collect()).unwrap();
    store.through((1..4).map(|n| delete(&format!("a{n}"))).collect()).unwrap();
    store.core.segments.seal(None);
    leave_free(&medium, 600_000);
    assert!((0..3).all(|_| matches!(compact(&store), Err(StoreError::NoSpace { .. }))));
    medium.open("other", false).unwrap().set_len(0).unwrap();
    assert_eq!(compact(&store).unwrap(), 800_000);
    store.flush().unwrap();
    assert_eq!(store.usage().unwrap().dead_bytes, 0);
    assert!(store.held("a0").unwrap() == value(0, 800_000));
}

/// The reserve was a share of what was free: a store that was full when it was opened kept next to none.
#[test]
fn a_full_store_that_is_opened_again_keeps_its_reserve() {
    let medium = LyingMedium::new(1, 260 << 20);
    let reserve = open_on(&medium, 64 << 20).core.reserve_bytes;
    assert_eq!(reserve, (260 << 20) / 50);
    leave_free(&medium, 40 << 20);
    assert_eq!(open_on(&medium, 64 << 20).core.reserve_bytes, reserve);
    assert_eq!(open_on(&LyingMedium::new(1, 16 << 20), 64 << 20).core.reserve_bytes, 4 << 20, "a small one");
}

fn unfinished_bases(medium: &LyingMedium) -> usize {
    medium.list("journal").unwrap().iter().filter(|name| name.starts_with("new")).count()
}

/// A base was written until the medium had no byte left for deletes, and stayed there.
#[test]
fn a_base_of_the_journal_that_does_not_fit_costs_nothing() {
    let medium = LyingMedium::new(1, 128 << 20);
    let store = open_on(&medium, 4 << 20);
    let key = |n: usize| format!("k{n:03}");
    store.through((0..150).map(|n| put(&key(n), value(n as u8, 60_000))).collect()).unwrap();
    store.flush().unwrap();
    let write_base = || store.core.write_base(store.core.index.journal().unwrap());
    // The base needs about 9 MB.
    leave_free(&medium, 10 << 20);
    let before = medium.free_bytes().unwrap();
    for _ in 0..3 {
        let refused = write_base();
        assert!(matches!(&refused, Err(StoreError::NoSpace { needed, .. }) if *needed > 9_000_000), "{refused:?}");
    }
    let after = medium.free_bytes().unwrap();
    assert!(after + (1 << 20) > before, "{before} before, {after} after");
    store.through((0..150).step_by(2).map(|n| delete(&key(n))).collect()).unwrap();
    // Half of them need half of it, and the room is there now.
    write_base().unwrap();
    drop(store);
    let store = open_on(&medium, 4 << 20);
    assert!((0..150).all(|n| store.held(&key(n)) == (n % 2 == 1).then(|| value(n as u8, 60_000))));
}

#[test]
fn a_base_that_fails_or_is_cut_short_does_not_stay() {
    let filled = || {
        let medium = LyingMedium::new(1, 128 << 20);
        let store = open_on(&medium, 4 << 20);
        store.through((0..60).map(|n| put(&format!("k{n}"), value(n, 60_000))).collect()).unwrap();
        store.flush().unwrap();
        (medium, store)
    };
    let mut failed = 0;
    for after in 0..40 {
        let (medium, store) = filled();
        medium.set_trouble(vec![Trouble::no_space(after, 1, true)]);
        let written = store.core.write_base(store.core.index.journal().unwrap());
        medium.set_trouble(vec![]);
        assert_eq!(unfinished_bases(&medium), 0, "after {after}: {written:?}");
        failed += u32::from(matches!(written, Err(StoreError::NoSpace { .. })));
        drop(store);
        let store = open_on(&medium, 4 << 20);
        assert!((0..60).all(|n| store.held(&format!("k{n}")).unwrap() == value(n, 60_000)));
    }
    assert!(failed > 10, "{failed}");
    // The process is killed in the midst of one.
    let (medium, store) = filled();
    for name in ["journal/new", "journal/new-keys"] {
        medium.open(name, true).unwrap().write(0, &[7; 100_000]).unwrap();
    }
    let killed = medium.fork();
    drop(store);
    assert_eq!(unfinished_bases(&killed), 2);
    let store = open_on(&killed, 4 << 20);
    assert_eq!(unfinished_bases(&killed), 0);
    assert!((0..60).all(|n| store.held(&format!("k{n}")).unwrap() == value(n, 60_000)));
}

/// Segments that nothing names wait to be unlinked. Who needs their room does not wait for the store's thread.
#[test]
fn segments_that_wait_to_be_unlinked_give_their_room_to_who_needs_it() {
    on_a_small_medium(fill_again);
}

fn fill_again(dir: &Path) {
    let options = StoreOptions { segment_bytes: 256 << 20, ..quiet() };
    let key = |number: usize| format!("k{number}");
    let write = |store: &DiskStore, number: usize| store.through(vec![put(&key(number), value(number as u8, 1 << 20))]);
    let store = DiskStore::open(dir, options.clone()).unwrap();
    let written = (0..).take_while(|number| write(&store, *number).is_ok()).count();
    drop(store);
    let store = DiskStore::open(dir, options).unwrap();
    store.core().segments.seal(None);
    // The first commit makes the index durable, and so it forgets the only segment.
    store.write((0..written).map(|number| delete(&key(number))).collect(), Durability::Reserved).unwrap();
    assert_eq!((segment_paths(dir).len(), store.core().segments.spare().0), (1, 0));
    write(&store, 0).unwrap();
    assert_eq!(segment_paths(dir).len(), 1, "the old one is gone, and there is a new one");
    assert!((1..written).all(|number| write(&store, number).is_ok()));
}
