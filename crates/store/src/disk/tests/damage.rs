//! Damage to values and to the index makes the damaged keys fail, and no others.

use std::os::unix::fs::FileExt as _;

use super::*;
use crate::{Dedup, DedupOptions, Key};

fn is_corrupt(store: &DiskStore, key: &str) -> bool {
    let read = store.get(key.as_bytes());
    matches!(&read, Err(StoreError::Corrupt { key: named, .. }) if named == key)
}

fn writable(path: &Path) -> fs::File {
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn a_damaged_value_fails_its_key_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for (seed, key) in ["good", "flipped", "also good", "cut off"].iter().enumerate() {
        store.through(vec![put(key, value(seed as u8, LARGE))]).unwrap();
    }
    drop(store);
    let file = writable(&segment_paths(dir.path())[0]);
    let room = LARGE.next_multiple_of(4_096) as u64;
    file.write_all_at(b"\xff\x00\xff", room + 65_536).unwrap();
    file.set_len(3 * room + 100).unwrap();
    let store = open(dir.path());
    assert!(is_corrupt(&store, "flipped"));
    assert!(is_corrupt(&store, "flipped"), "a second time, too");
    assert!(is_corrupt(&store, "cut off"));
    let error = store.get(b"flipped").unwrap_err().to_string();
    assert!(error.contains("0000000000000001.seg") && error.contains(&room.to_string()), "{error}");
    assert_eq!(store.held("good").unwrap(), value(0, LARGE));
    assert_eq!(store.held("also good").unwrap(), value(2, LARGE));
    assert_eq!(store.list(b"").unwrap().len(), 4);
    store.through(vec![put("flipped", value(9, LARGE)), delete("cut off")]).unwrap();
    assert_eq!(store.held("flipped").unwrap(), value(9, LARGE));
}

#[test]
fn a_check_sees_damage_behind_what_is_kept_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through(vec![put("k", value(1, LARGE))]).unwrap();
    assert_eq!(store.held("k").unwrap(), value(1, LARGE));
    store.check(b"k").unwrap();
    writable(&segment_paths(dir.path())[0]).write_all_at(b"\xff\x00\xff", 65_536).unwrap();
    assert_eq!(store.held("k").unwrap(), value(1, LARGE), "it is kept in memory");
    assert!(matches!(store.check(b"k"), Err(StoreError::Corrupt { key, .. }) if key == "k"));
    store.check(b"nothing").unwrap();
}

#[test]
fn a_missing_segment_fails_its_keys_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through((0..6).map(|n| put(&format!("k{n}"), value(n, 1 << 20))).collect()).unwrap();
    drop(store);
    fs::remove_file(&segment_paths(dir.path())[0]).unwrap();
    let store = open(dir.path());
    assert!((0..4).all(|n| is_corrupt(&store, &format!("k{n}"))));
    assert_eq!(store.held("k4").unwrap(), value(4, 1 << 20));
    store.through((0..4).map(|n| delete(&format!("k{n}"))).collect()).unwrap();
    assert_eq!(store.keys(), ["k4", "k5"]);
}

/// Puts 64 values of 6,013 bytes, each on a page of its own of the index, and damages the pages of some.
fn with_damaged_pages(dir: &Path, damaged: &[u8]) {
    let store = open(dir);
    let batch = (0..64u8).map(|n| put(&format!("k{n:02}"), [&b"the value of "[..], &[n; 6_000]].concat().into()));
    store.through(batch.collect()).unwrap();
    drop(store);
    let path = dir.join("index.redb");
    let bytes = fs::read(&path).unwrap();
    let file = writable(&path);
    for n in damaged {
        let wanted = [&b"the value of "[..], &[*n; 100]].concat();
        let copies: Vec<usize> = (0..bytes.len() - wanted.len()).filter(|&at| bytes[at..].starts_with(&wanted)).collect();
        assert!(!copies.is_empty());
        copies.iter().for_each(|&at| file.write_all_at(&[99], at as u64 + 50).unwrap());
    }
}

/// The key and the value of an inline record are in one page of the index, whose checksum shows the damage.
#[test]
fn a_damaged_page_of_the_index_fails_its_keys_alone() {
    let dir = tempfile::tempdir().unwrap();
    with_damaged_pages(dir.path(), &[17]);
    let store = open(dir.path());
    let bad: Vec<u8> = (0..64).filter(|n| store.get(format!("k{n:02}").as_bytes()).is_err()).collect();
    assert!(bad.contains(&17) && bad.len() <= 4, "{bad:?}");
    assert!(is_corrupt(&store, "k17"), "{:?}", store.get(b"k17"));
    for n in (0..64).filter(|n| !bad.contains(n)) {
        assert_eq!(store.held(&format!("k{n:02}")).unwrap()[13..], [n; 6_000]);
    }
    store.through(vec![put("k63", value(1, 10)), put("z", value(2, LARGE))]).unwrap();
    assert_eq!(store.held("z").unwrap(), value(2, LARGE));
    assert!(store.through(vec![put("k17", value(1, 10))]).is_err(), "its page cannot be changed");
    assert_eq!(store.held("k63").unwrap(), value(1, 10));
}

/// A list that met a damaged page went on behind the last one.
#[test]
fn what_lies_between_damaged_pages_is_listed_and_read() {
    let dir = tempfile::tempdir().unwrap();
    with_damaged_pages(dir.path(), &[17, 30, 45]);
    let store = Arc::new(open(dir.path()));
    let keys = (0..64u8).map(|n| format!("k{n:02}"));
    let good: Vec<String> = keys.filter(|key| store.get(key.as_bytes()).is_ok()).collect();
    assert!(good.len() >= 64 - 3 * 4, "{good:?}");
    let mut seen = Vec::new();
    let note = |entry: &Entry| seen.push(String::from_utf8(entry.key.to_vec()).unwrap());
    let is_whole = crate::each_readable_entry(&*store, "k", note);
    assert_eq!((is_whole.unwrap(), &seen), (false, &good));
    let mut scrub = crate::Scrub::new(store);
    let (mut bytes, mut holes) = (0, 0);
    while let Some(read) = scrub.step(64 << 10).unwrap() {
        (bytes, holes) = (bytes + read, scrub.holes());
    }
    assert_eq!((bytes, holes), (good.len() as u64 * 6_013, 3));
}

/// A round failed at the first damaged page, each time that it was tried.
#[test]
fn what_lies_between_damaged_pages_is_deduplicated() {
    let dir = tempfile::tempdir().unwrap();
    with_damaged_pages(dir.path(), &[17, 30, 45]);
    let store = open(dir.path());
    let good = (0..64u8).filter(|n| store.get(format!("k{n:02}").as_bytes()).is_ok()).count() as u64;
    let scopes = vec![Key::from_static(b"k")];
    let options = DedupOptions { chunking: crate::Chunking::ContentDefined, scopes, memory_bytes: 1 << 20 };
    let (mut dedup, mut looked_at) = (Dedup::new(options), (0, 0));
    while store.dedup_step(&mut dedup, 64 << 10).unwrap().is_some() {
        looked_at = dedup.progress();
    }
    assert_eq!(looked_at, (good * 6_013, good * 6_013));
}

#[test]
fn an_index_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    for bytes in [&b""[..], b"short", &[7; 10_000]] {
        fs::write(dir.path().join("index.redb"), bytes).unwrap();
        assert!(DiskStore::open(dir.path(), quiet()).is_err());
    }
}
