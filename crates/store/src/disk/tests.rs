//! What only a store on a medium can show: reopening, crashes, damage and a full medium.

mod compacting;
mod damage;
mod full;
mod grouping;
mod logged;
mod rounds;
mod snapshots;
mod upgrading;

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::bounds::SEGMENT_BYTES_MIN;
use crate::conformance::{Through as _, delete, put, small_options, value};

const LARGE: usize = SEGMENT_BYTES_MIN + 100;

fn open(dir: &Path) -> DiskStore {
    DiskStore::open(dir, quiet()).unwrap()
}

/// Options with which nothing happens that a test does not ask for.
fn quiet() -> StoreOptions {
    StoreOptions { background: false, ..small_options() }
}

fn segment_paths(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir.join("segments")) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Looks share the table of keys as a commit has left it, until the next commit.
#[test]
fn whoever_looks_after_a_commit_sees_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let committed = std::sync::atomic::AtomicU64::new(0);
    let number = |found: Option<Value>| found.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()));
    let look = || number(store.get(b"key").unwrap().map(|(value, _)| value));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while last < 300 {
                    let least = committed.load(std::sync::atomic::Ordering::Acquire);
                    let found = look();
                    assert!(found >= least && found >= last, "{found} after {last}, and after a commit of {least}");
                    last = found;
                }
            });
        }
        for number in 1_u64..=300 {
            store.write(vec![put("key", Value::copy_from_slice(&number.to_le_bytes()))], Durability::Back).unwrap();
            assert_eq!(look(), number);
            committed.store(number, std::sync::atomic::Ordering::Release);
        }
    });
}

#[test]
fn a_store_opened_again_is_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("not/yet/there");
    let store = open(&dir);
    store.through(vec![put("small", value(1, 10)), put("large", value(2, LARGE)), put("gone", value(3, LARGE))]).unwrap();
    store.adopt(vec![("staged".into(), store.stage(value(4, LARGE)).unwrap())], vec![delete("gone")]).unwrap();
    store.write(vec![put("back", value(5, LARGE))], Durability::Back).unwrap();
    let (id, entries, used) = (store.drive_id(), store.list(b"").unwrap(), store.usage().unwrap());
    drop(store);
    let store = open(&dir);
    assert_eq!(store.drive_id(), id);
    assert_eq!(store.list(b"").unwrap(), entries);
    assert_eq!(store.usage().unwrap().value_bytes, used.value_bytes);
    assert_eq!(store.held("small").unwrap(), value(1, 10));
    assert_eq!(store.held("large").unwrap(), value(2, LARGE));
    assert_eq!(store.held("staged").unwrap(), value(4, LARGE));
    assert_eq!(store.held("back").unwrap(), value(5, LARGE));
}

#[test]
fn large_values_are_packed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for number in 0..20 {
        store.through(vec![put(&format!("k{number}"), value(number, LARGE))]).unwrap();
    }
    assert_eq!(segment_paths(dir.path()).len(), 1);
    drop(store);
    let bytes = fs::metadata(&segment_paths(dir.path())[0]).unwrap().len();
    assert_eq!(bytes, 20 * LARGE.next_multiple_of(4_096) as u64, "what was set aside is given back");
    let store = open(dir.path());
    store.through(vec![put("more", value(1, LARGE))]).unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 1, "the last segment is gone on with");
    for number in 0..20 {
        assert_eq!(store.held(&format!("k{number}")).unwrap(), value(number, LARGE));
    }
    store.through((0..40).map(|n| put(&format!("n{n}"), value(n, 1 << 20))).collect()).unwrap();
    assert_eq!(segment_paths(dir.path()).len(), 11, "4 MiB each");
}

#[test]
fn stores_have_identities_of_their_own() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    assert_ne!(open(a.path()).drive_id(), open(b.path()).drive_id());
}

#[test]
fn a_store_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert!(matches!(DiskStore::open(dir.path(), quiet()), Err(StoreError::InUse { .. })));
    drop(store);
    open(dir.path());
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    fs::write(dir.path().join("FORMAT"), "pithead store 6\n").unwrap();
    let refused = DiskStore::open(dir.path(), quiet()).unwrap_err();
    assert!(matches!(&refused, StoreError::Format { found, newest: 5, .. } if found == "6"), "{refused}");
}

#[test]
fn a_lost_index_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through(vec![put("a", value(1, LARGE))]).unwrap();
    drop(store);
    fs::remove_file(dir.path().join("index.redb")).unwrap();
    assert!(matches!(DiskStore::open(dir.path(), quiet()), Err(StoreError::Damaged { .. })));
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    assert!(matches!(DiskStore::open(dir.path(), quiet()), Err(StoreError::Damaged { .. })));
    assert_eq!(segment_paths(dir.path()).len(), 1);
}

#[test]
fn making_a_store_can_be_cut_short_at_any_step() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("index.redb"), "").unwrap();
    fs::write(dir.path().join("FORMAT.new"), "pith").unwrap();
    drop(open(dir.path()));
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    drop(open(dir.path()));
    assert!(fs::read(dir.path().join("FORMAT")).unwrap().starts_with(b"pithead store 4\ndrive "));
}

/// A crash between staging and adopting leaves complete files, and a crash during staging leaves a torn file. Neither
/// has a name in the index.
#[test]
fn what_was_staged_and_not_adopted_is_gone_when_the_store_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through(vec![put("a", value(1, LARGE))]).unwrap();
    let staged = store.stage(value(2, LARGE)).unwrap();
    fs::write(dir.path().join("segments/00000000000000aa.seg"), b"torn").unwrap();
    fs::write(dir.path().join("segments/notes.txt"), b"not ours").unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(segment_paths(dir.path()).len(), 2);
    assert_eq!(store.held("a").unwrap(), value(1, LARGE));
    assert!(store.adopt(vec![("b".into(), staged)], vec![]).is_err());
    store.through((0..8).map(|n| put(&format!("b{n}"), value(3, 1 << 20))).collect()).unwrap();
    assert!(dir.path().join("segments/00000000000000ab.seg").exists(), "numbers go on after the last one seen");
}

#[test]
fn values_come_from_the_cache_until_they_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through(vec![put("a", value(1, LARGE))]).unwrap();
    for _ in 0..3 {
        assert_eq!(store.held("a").unwrap(), value(1, LARGE));
    }
    let used = store.cache_usage();
    assert_eq!((used.misses, used.hits, used.values), (1, 2, 1));
    let (one, other) = (store.held("a").unwrap(), store.held("a").unwrap());
    assert_eq!(one.as_ptr(), other.as_ptr(), "no copy");
    store.through(vec![put("a", value(2, LARGE))]).unwrap();
    assert_eq!(store.cache_usage().values, 0);
    assert_eq!(store.held("a").unwrap(), value(2, LARGE));
}

/// Written back data is durable after a second without anybody asking.
#[test]
fn the_background_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let store = DiskStore::open(dir.path(), small_options()).unwrap();
    store.write(vec![put("a", value(1, LARGE))], Durability::Back).unwrap();
    let waited = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        store.core.index.unflushed_bytes().is_none()
    });
    assert!(waited, "30 seconds were not enough");
    assert_eq!(store.held("a").unwrap(), value(1, LARGE));
}
