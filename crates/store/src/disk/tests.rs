//! What only a store on a medium can show: reopening, crashes, damage, a full medium.

use std::os::unix::fs::FileExt as _;

use super::*;
use crate::conformance::{delete, put, value};

const LARGE: usize = SEGMENT_BYTES_MIN + 100;

fn held(store: &DiskStore, key: &str) -> Value {
    store.get(key).unwrap().unwrap().0
}

fn segment_paths(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir.join("segments")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn a_store_opened_again_is_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("not/yet/there");
    let store = DiskStore::open(&dir).unwrap();
    store.write(vec![put("small", value(1, 10)), put("large", value(2, LARGE)), put("gone", value(3, LARGE))]).unwrap();
    store.adopt(vec![("staged".into(), store.stage(&value(4, LARGE)).unwrap())], vec![delete("gone")]).unwrap();
    let (id, entries, used) = (store.drive_id(), store.list("").unwrap(), store.usage().unwrap());
    drop(store);
    let store = DiskStore::open(&dir).unwrap();
    assert_eq!(store.drive_id(), id);
    assert_eq!(store.list("").unwrap(), entries);
    assert_eq!(store.usage().unwrap().value_bytes, used.value_bytes);
    assert_eq!(held(&store, "small"), value(1, 10));
    assert_eq!(held(&store, "large"), value(2, LARGE));
    assert_eq!(held(&store, "staged"), value(4, LARGE));
    store.write(vec![put("large", value(5, LARGE))]).unwrap();
    assert!(store.entry("large").unwrap().unwrap().version > entries.iter().map(|entry| entry.version).max().unwrap());
}

#[test]
fn stores_have_identities_of_their_own() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert_ne!(DiskStore::open(a.path()).unwrap().drive_id(), DiskStore::open(b.path()).unwrap().drive_id());
}

#[test]
fn a_store_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path()).unwrap();
    assert!(matches!(DiskStore::open(dir.path()), Err(StoreError::InUse { .. })));
    drop(store);
    DiskStore::open(dir.path()).unwrap();
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(DiskStore::open(dir.path()).unwrap());
    fs::write(dir.path().join("FORMAT"), "pithead store 2\n").unwrap();
    let refused = DiskStore::open(dir.path()).unwrap_err();
    assert!(matches!(&refused, StoreError::Format { found, expected: 1, .. } if found == "2"), "{refused}");
}

#[test]
fn a_lost_index_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path()).unwrap();
    store.write(vec![put("a", value(1, LARGE))]).unwrap();
    drop(store);
    fs::remove_file(dir.path().join("index.redb")).unwrap();
    assert!(matches!(DiskStore::open(dir.path()), Err(StoreError::Io { .. })));
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    assert!(matches!(DiskStore::open(dir.path()), Err(StoreError::Corrupt { .. })));
    assert_eq!(segment_paths(dir.path()).len(), 1);
}

#[test]
fn making_a_store_can_be_cut_short_at_any_step() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("index.redb"), "").unwrap();
    fs::write(dir.path().join("FORMAT.new"), "pith").unwrap();
    drop(DiskStore::open(dir.path()).unwrap());
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    DiskStore::open(dir.path()).unwrap();
}

/// A crash between staging and adopting leaves whole files, one while staging a torn file; both without a name.
#[test]
fn what_was_staged_and_not_adopted_is_gone_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path()).unwrap();
    store.write(vec![put("a", value(1, LARGE))]).unwrap();
    let staged = store.stage(&value(2, LARGE)).unwrap();
    fs::write(dir.path().join("segments/00000000000000aa.seg"), b"torn").unwrap();
    fs::write(dir.path().join("segments/notes.txt"), b"not ours").unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 4);
    drop(store);
    let store = DiskStore::open(dir.path()).unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 2);
    assert_eq!(held(&store, "a"), value(1, LARGE));
    assert!(store.adopt(vec![("b".into(), staged)], vec![]).is_err());
    store.write(vec![put("b", value(3, LARGE))]).unwrap();
    assert!(dir.path().join("segments/00000000000000ab.seg").exists(), "numbers go on after the last one seen");
}

#[test]
fn segments_go_when_their_key_does() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path()).unwrap();
    store.write(vec![put("a", value(1, LARGE)), put("b", value(2, LARGE)), put("b", value(3, LARGE))]).unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 2);
    store.write(vec![put("a", value(1, 5)), delete("b")]).unwrap();
    assert!(segment_paths(dir.path()).is_empty());
    store.unstage(store.stage(&value(1, LARGE)).unwrap());
    let conflict = Write::Put { key: "c".into(), value: value(1, LARGE), expected: Expected::Version(1) };
    assert!(store.write(vec![put("d", value(2, LARGE)), conflict]).is_err());
    assert!(segment_paths(dir.path()).is_empty());
}

#[test]
fn a_damaged_segment_fails_its_key_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path()).unwrap();
    for (seed, key) in ["flipped", "short", "missing", "good"].iter().enumerate() {
        store.write(vec![put(key, value(seed as u8, LARGE))]).unwrap();
    }
    drop(store);
    let paths = segment_paths(dir.path());
    fs::OpenOptions::new().write(true).open(&paths[0]).unwrap().write_all_at(b"\xff\x00\xff", 65_536).unwrap();
    fs::OpenOptions::new().write(true).open(&paths[1]).unwrap().set_len(LARGE as u64 - 1).unwrap();
    fs::remove_file(&paths[2]).unwrap();
    let store = DiskStore::open(dir.path()).unwrap();
    for damaged in ["flipped", "short", "missing"] {
        let read = store.get(damaged);
        assert!(matches!(&read, Err(StoreError::Corrupt { key, .. }) if key == damaged), "{read:?}");
    }
    assert_eq!(held(&store, "good"), value(3, LARGE));
    assert_eq!(store.list("").unwrap().len(), 4);
    store.write(vec![put("flipped", value(9, LARGE)), delete("short"), delete("missing")]).unwrap();
    assert_eq!(held(&store, "flipped"), value(9, LARGE));
}

#[test]
fn a_damaged_inline_value_fails_its_key_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path()).unwrap();
    store.write(vec![put("a", Value::from_static(b"the value that will be damaged")), put("b", value(1, 9))]).unwrap();
    drop(store);
    let path = dir.path().join("index.redb");
    let mut bytes = fs::read(&path).unwrap();
    let copies: Vec<usize> =
        (0..bytes.len() - 30).filter(|&at| &bytes[at..at + 30] == b"the value that will be damaged").collect();
    assert!(!copies.is_empty());
    copies.into_iter().for_each(|at| bytes[at + 9] ^= 1);
    fs::write(&path, bytes).unwrap();
    let store = DiskStore::open(dir.path()).unwrap();
    assert!(matches!(store.get("a"), Err(StoreError::Corrupt { key, .. }) if key == "a"));
    assert_eq!(held(&store, "b"), value(1, 9));
}

#[test]
fn an_index_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(DiskStore::open(dir.path()).unwrap());
    for bytes in [&b""[..], b"short", &[7; 10_000]] {
        fs::write(dir.path().join("index.redb"), bytes).unwrap();
        assert!(DiskStore::open(dir.path()).is_err());
    }
}

/// Once a write has failed, redb refuses all further calls, reads included; the store must not.
#[test]
fn a_full_medium_refuses_puts_and_takes_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_path_buf();
    let tried = std::thread::spawn(move || mount_small(&dir).then(|| fill(&dir)));
    if tried.join().unwrap().is_none() {
        eprintln!("not tried: no permission to mount a small medium");
    }
}

/// Mounts 24 MiB of memory at `dir`, seen by the calling thread only. False where that is not allowed.
fn mount_small(dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let c = |text: &[u8]| std::ffi::CString::new(text).unwrap();
    let (tmpfs, root, at, options) = (c(b"tmpfs"), c(b"/"), c(dir.as_os_str().as_bytes()), c(b"size=24m"));
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: all pointers are to C strings that outlive the calls, or null where the calls allow it.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(std::ptr::null(), root.as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0
            && libc::mount(tmpfs.as_ptr(), at.as_ptr(), tmpfs.as_ptr(), 0, options.as_ptr().cast()) == 0
    }
}

fn fill(dir: &Path) {
    let store = DiskStore::open(dir).unwrap();
    let mut written = 0;
    let refused = loop {
        match store.write(vec![put(&format!("k{written}"), value(written as u8, 1 << 20))]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace { .. }), "{refused}");
    assert!(matches!(store.stage(&value(1, 1 << 20)), Err(StoreError::NoSpace { .. })));
    // Another program takes what the store keeps in reserve.
    let mut other = fs::File::create(dir.join("other")).unwrap();
    while std::io::Write::write_all(&mut other, &[1; 4096]).is_ok() {}
    let direct = store.segments.stage("direct", &value(1, 1 << 20));
    assert!(matches!(direct, Err(StoreError::NoSpace { needed, .. }) if needed == 1 << 20));
    assert_eq!(segment_paths(dir).len(), written);
    let change =
        |seed: u8| Change { key: "big".into(), expected: Expected::Any, new: Some(NewValue::Inline(value(seed, 60_000))) };
    let many: Vec<_> = (0..200).map(change).collect();
    let direct = store.index.commit(&many);
    assert!(matches!(direct, Err(StoreError::NoSpace { .. })), "{direct:?}");
    for key in 0..written {
        assert_eq!(held(&store, &format!("k{key}")), value(key as u8, 1 << 20));
    }
    drop(other);
    fs::remove_file(dir.join("other")).unwrap();
    assert_eq!(store.entry("big").unwrap(), None);
    store.write(vec![delete("k0"), delete("k1")]).unwrap();
    store.write(vec![put("k0", value(7, 1 << 20))]).unwrap();
    assert_eq!(held(&store, "k0"), value(7, 1 << 20));
}
