//! Stores with every kind of damage that a check knows.

use std::fs;
use std::os::unix::fs::FileExt as _;

use super::*;
use crate::bounds::SEGMENT_BYTES_MIN;
use crate::conformance::{Through as _, delete, put, small_options, value};
use crate::{DiskStore, Store as _, StoreOptions, store_facts};

const LARGE: usize = SEGMENT_BYTES_MIN + 100;

fn open(dir: &Path) -> DiskStore {
    DiskStore::open(dir, StoreOptions { background: false, ..small_options() }).unwrap()
}

/// 40 small values of 2,000 bytes and 8 large ones.
fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through((0..40).map(|n| put(&format!("small/{n:02}"), value(n, 2_000))).collect()).unwrap();
    store.through((0..8).map(|n| put(&format!("large/{n}"), value(n, LARGE))).collect()).unwrap();
    dir
}

fn checked(dir: &Path, repair: bool) -> CheckReport {
    let mut steps = Vec::new();
    let report = check(dir, &CheckOptions { repair }, &mut |progress| {
        assert!(progress.done <= progress.total.max(progress.done));
        steps.push(progress.step);
    });
    assert!(steps.contains(&CheckStep::Index) && steps.contains(&CheckStep::Values));
    report.unwrap()
}

fn kinds(report: &CheckReport) -> Vec<FindingKind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

/// Overwrites one byte of each place in the file that contains `wanted`.
fn damage(path: &Path, wanted: &[u8], at: u64) {
    let bytes = fs::read(path).unwrap();
    let places: Vec<usize> = (0..bytes.len() - wanted.len()).filter(|&at| bytes[at..].starts_with(wanted)).collect();
    assert!(!places.is_empty());
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    places.iter().for_each(|place| file.write_all_at(&[bytes[place + at as usize] ^ 0x55], *place as u64 + at).unwrap());
}

#[test]
fn a_whole_store_has_no_findings() {
    let dir = filled();
    let report = checked(dir.path(), false);
    assert_eq!(report.findings, []);
    assert_eq!((report.keys, report.value_bytes), (48, 40 * 2_000 + 8 * LARGE as u64));
    let store = open(dir.path());
    assert_eq!(report.drive, Some(store.drive_id()));
    store.through(vec![delete("large/3"), put("large/4", value(9, LARGE))]).unwrap();
    store.compact_now().unwrap();
    drop(store);
    assert_eq!(checked(dir.path(), true).findings, []);
}

#[test]
fn an_open_store_and_none_at_all_are_refused() {
    let dir = filled();
    let store = open(dir.path());
    let busy = check(dir.path(), &CheckOptions::default(), &mut |_| ());
    assert!(matches!(busy, Err(StoreError::InUse { .. })));
    drop(store);
    let nowhere = dir.path().join("nowhere");
    assert!(check(&nowhere, &CheckOptions::default(), &mut |_| ()).is_err());
    assert!(!nowhere.exists());
}

#[test]
fn a_damaged_value_is_named_and_stays() {
    let dir = filled();
    let path = dir.path().join("segments/0000000000000001.seg");
    let room = LARGE.next_multiple_of(4_096) as u64;
    fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"\xff\x00\xff", 2 * room + 5_000).unwrap();
    for repair in [false, true] {
        let report = checked(dir.path(), repair);
        assert_eq!(kinds(&report), [FindingKind::Value], "{:?}", report.findings);
        let finding = &report.findings[0];
        assert_eq!(finding.key.as_deref(), Some("large/2"));
        assert_eq!(finding.file.as_deref(), Some("segments/0000000000000001.seg"));
        assert!(!finding.repaired);
    }
    let store = open(dir.path());
    assert!(matches!(store.get(b"large/2"), Err(StoreError::Corrupt { .. })));
    assert_eq!(store.held("large/3").unwrap(), value(3, LARGE));
}

#[test]
fn leftover_files_are_unlinked() {
    let dir = filled();
    let path = dir.path().join("segments/00000000000000aa.seg");
    fs::write(&path, b"nobody's").unwrap();
    let report = checked(dir.path(), false);
    assert_eq!(kinds(&report), [FindingKind::Leftover]);
    assert!(path.exists() && !report.findings[0].repaired);
    assert!(checked(dir.path(), true).findings[0].repaired);
    assert!(!path.exists());
}

#[test]
fn a_wrong_account_is_made_anew() {
    let dir = filled();
    let store = open(dir.path());
    let row = SegmentRow { written: 1 << 20, live: 4_096, punched: 0 };
    store.core().index.put_segments(&BTreeMap::from([(1, row), (7, row)])).unwrap();
    store.core().index.set_fact(crate::index::VALUE_BYTES, 1).unwrap();
    drop(store);
    let report = checked(dir.path(), false);
    assert_eq!(kinds(&report), [FindingKind::Account; 3], "{:?}", report.findings);
    assert!(checked(dir.path(), true).findings.iter().all(|finding| finding.repaired));
    assert_eq!(checked(dir.path(), false).findings, []);
    assert_eq!(open(dir.path()).usage().unwrap().value_bytes, 40 * 2_000 + 8 * LARGE as u64);
}

/// A page of the index is damaged: the keys beside it survive, and those on it are missing afterwards.
#[test]
fn a_damaged_index_is_made_anew_from_what_can_be_read() {
    let dir = filled();
    let facts = store_facts(dir.path()).unwrap();
    damage(&dir.path().join("index.redb"), &value(17, 2_000), 1_000);
    let report = checked(dir.path(), false);
    assert_eq!(kinds(&report), [FindingKind::LostKey, FindingKind::Index], "{:?}", report.findings);
    assert!(report.findings[0].what.contains("records between small/"), "{:?}", report.findings);
    assert!((40..48).contains(&report.keys), "{}", report.keys);
    let repaired = checked(dir.path(), true);
    assert!(repaired.findings.iter().all(|finding| finding.repaired), "{:?}", repaired.findings);
    assert_eq!(repaired.restored_keys, 48 - report.keys);
    let again = checked(dir.path(), false);
    assert_eq!(again.findings, []);
    assert_eq!(again.keys, 48);
    assert!(dir.path().join("index.damaged.1").exists(), "the old index is kept");
    let store = open(dir.path());
    assert_eq!(store.drive_id(), facts.drive);
    for n in 0..40 {
        assert_eq!(store.held(&format!("small/{n:02}")).unwrap(), value(n, 2_000));
    }
    for n in 0..8 {
        assert_eq!(store.held(&format!("large/{n}")).unwrap(), value(n, LARGE));
    }
}

/// The page with the records of large values is damaged: the table of places still has their keys.
#[test]
fn lost_keys_of_large_values_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.through((0..3).map(|n| put(&format!("a/{n}"), value(n, 3_000))).collect()).unwrap();
    store.through((0..2).map(|n| put(&format!("b/{n}"), value(n, LARGE))).collect()).unwrap();
    let marked = crate::Put { version: "the version of b/1".into(), ..crate::Put::forced("b/1", value(1, LARGE)) };
    store.through(vec![crate::Write::Put(marked)]).unwrap();
    store.through((0..3).map(|n| put(&format!("c/{n}"), value(n, 3_000))).collect()).unwrap();
    drop(store);
    damage(&dir.path().join("index.redb"), b"the version of b/1", 3);
    let report = checked(dir.path(), true);
    let lost: Vec<&str> =
        report.findings.iter().filter(|f| f.kind == FindingKind::LostKey).filter_map(|f| f.key.as_deref()).collect();
    assert!(lost.contains(&"b/1"), "{:?}", report.findings);
    // Values whose keys are lost no longer have an owner.
    let left = checked(dir.path(), false);
    assert!(kinds(&left).iter().all(|kind| *kind == FindingKind::Leftover), "{:?}", left.findings);
    assert_eq!(open(dir.path()).held("a/0").unwrap(), value(0, 3_000));
}

/// Without a journal, as after a repair by hand, the keys beside the damaged page survive, and those on it are missing.
#[test]
fn without_a_journal_the_keys_of_a_damaged_page_are_lost() {
    let dir = filled();
    fs::remove_dir_all(dir.path().join("journal")).unwrap();
    damage(&dir.path().join("index.redb"), &value(17, 2_000), 1_000);
    let report = checked(dir.path(), false);
    let found = [FindingKind::Journal, FindingKind::LostKey, FindingKind::Index];
    assert_eq!(kinds(&report), found, "{:?}", report.findings);
    let repaired = checked(dir.path(), true);
    assert!(!repaired.findings[1].repaired && repaired.findings[2].repaired, "{:?}", repaired.findings);
    let again = checked(dir.path(), false);
    assert_eq!((again.findings, again.keys), (vec![], report.keys));
    let store = open(dir.path());
    assert_eq!(store.held("small/17"), None);
    assert_eq!(store.held("small/39").unwrap(), value(39, 2_000));
}

/// It was taken for what a crash leaves, and the store for whole.
#[test]
fn a_journal_that_lacks_its_end_is_told_and_made_anew() {
    for (account, share) in [("log", 0), ("log", 2), ("log-keys", 0), ("log-keys", 2)] {
        let dir = filled();
        let path = dir.path().join("journal/0000000000000001").with_extension(account);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let bytes = file.metadata().unwrap().len();
        file.set_len(bytes.checked_div(share).unwrap_or(0)).unwrap();
        let report = checked(dir.path(), false);
        assert_eq!((kinds(&report), report.keys), (vec![FindingKind::Journal], 48), "{account}: {:?}", report.findings);
        let what = &report.findings[0].what;
        assert!(what.starts_with("it ends with commit ") && what.ends_with(" was durable"), "{what}");
        assert!(checked(dir.path(), true).findings[0].repaired);
        assert_eq!(checked(dir.path(), true).findings, []);
    }
    let dir = filled();
    fs::remove_dir_all(dir.path().join("journal")).unwrap();
    let found = checked(dir.path(), true);
    assert_eq!((kinds(&found), found.findings[0].what.as_str()), (vec![FindingKind::Journal], "it is missing"));
    assert_eq!(checked(dir.path(), false).findings, []);
}

/// A folder that refuses writes, with a store that was not closed: a check changes nothing.
#[test]
fn looking_changes_nothing() {
    let dir = filled();
    let store = open(dir.path());
    store.through(vec![put("last", value(2, 100))]).unwrap();
    // This one is in the log alone.
    store.through(vec![put("last", value(1, 100))]).unwrap();
    let copy = tempfile::tempdir().unwrap();
    let log = "journal/0000000000000001.log";
    let files = ["FORMAT", "index.redb", "segments/0000000000000001.seg", log, "journal/0000000000000001.log-keys"];
    fs::create_dir(copy.path().join("segments")).unwrap();
    fs::create_dir(copy.path().join("journal")).unwrap();
    for name in files {
        fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    let read = || files.map(|name| fs::read(copy.path().join(name)).unwrap());
    let before = read();
    let report = checked(copy.path(), false);
    assert_eq!((report.findings, report.keys), (vec![], 49));
    assert_eq!(store_facts(copy.path()).unwrap().keys, 49);
    assert_eq!(crate::segment_facts(copy.path(), 1).unwrap().extents.len(), 8);
    let looked = DiskStore::open_read_only(copy.path(), StoreOptions::default()).unwrap();
    assert_eq!(looked.held("last").unwrap(), value(1, 100));
    assert_eq!(looked.held("large/3").unwrap(), value(3, LARGE));
    assert!(matches!(looked.through(vec![put("more", value(1, 10))]), Err(StoreError::Io { .. })));
    assert!(looked.stage(value(1, LARGE)).is_err());
    drop(looked);
    assert!(before == read(), "a file was changed");
    assert_eq!(fs::read_dir(copy.path()).unwrap().count(), 4, "a file was made");
    assert_eq!(fs::read_dir(copy.path().join("journal")).unwrap().count(), 2, "a file was made");
}

#[test]
fn facts_say_what_is_there() {
    let dir = filled();
    let store = open(dir.path());
    store.through(vec![delete("large/0"), delete("large/3")]).unwrap();
    let (id, used) = (store.drive_id(), store.usage().unwrap());
    drop(store);
    let facts = store_facts(dir.path()).unwrap();
    assert_eq!((facts.format, facts.drive, facts.keys, facts.value_bytes), (4, id, 46, used.value_bytes));
    let room = LARGE.next_multiple_of(4_096) as u64;
    assert_eq!(facts.dead_bytes, 2 * room);
    assert_eq!(facts.segments.len(), 1);
    assert_eq!((facts.segments[0].values, facts.segments[0].live_bytes), (6, 6 * room));
    let segment = crate::segment_facts(dir.path(), 1).unwrap();
    assert_eq!((segment.bytes, segment.live_bytes, segment.extents.len()), (8 * room, 6 * room, 8));
    assert_eq!(segment.extents[0], crate::Extent { offset: 0, bytes: room, key: None });
    let second = crate::Extent { offset: room, bytes: LARGE as u64, key: Some("large/1".to_string()) };
    assert_eq!(segment.extents[1], second);
    assert!(crate::segment_facts(dir.path(), 9).is_err());
    assert!(store_facts(&dir.path().join("nowhere")).is_err());
}
