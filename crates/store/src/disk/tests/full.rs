//! A full medium refuses puts; reads and deletes go on.

use super::*;

/// Once a write has failed, redb refuses all further calls, including reads; the store must not.
#[test]
fn a_full_medium_refuses_puts_and_takes_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_path_buf();
    let tried = std::thread::spawn(move || mount_small(&dir).then(|| fill(&dir)));
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
