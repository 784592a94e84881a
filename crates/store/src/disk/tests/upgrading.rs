//! Stores of older formats, written by earlier releases: `crates/e2e/suites/stores`.

use super::*;

fn copied(number: u32) -> tempfile::TempDir {
    copied_from(&format!("format-1/drive-{number}"))
}

fn copied_from(name: &str) -> tempfile::TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/suites/stores").join(name);
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("segments")).unwrap();
    for name in ["FORMAT", "index.redb"] {
        fs::copy(from.join(name), dir.path().join(name)).unwrap();
    }
    for folder in ["segments", "journal"] {
        let Ok(entries) = fs::read_dir(from.join(folder)) else { continue };
        fs::create_dir_all(dir.path().join(folder)).unwrap();
        for entry in entries {
            let entry = entry.unwrap();
            fs::copy(entry.path(), dir.path().join(folder).join(entry.file_name())).unwrap();
        }
    }
    dir
}

/// Reads all values, so that all their checksums are verified.
fn values(store: &DiskStore) -> Vec<(Key, Vec<u8>, u64)> {
    let values = store.list(b"").unwrap().into_iter().map(|entry| {
        let (value, again) = store.get(&entry.key).unwrap().unwrap();
        assert_eq!(again, entry);
        (entry.key, entry.version.to_vec(), value.len() as u64)
    });
    values.collect()
}

#[test]
fn stores_of_format_1_are_upgraded() {
    for number in 0..2 {
        let dir = copied(number);
        let store = open(dir.path());
        let found = values(&store);
        let in_segments = found.iter().filter(|(key, ..)| store.core.index.place(key).unwrap().is_some()).count();
        assert_eq!(in_segments, segment_paths(dir.path()).len());
        assert!(in_segments > 0 && in_segments < found.len(), "{found:?}");
        assert!(found.iter().all(|(_, version, _)| version.len() == 8), "{found:?}");
        let id = store.drive_id();
        store.through(vec![put("new", value(1, LARGE))]).unwrap();
        drop(store);
        assert!(fs::read(dir.path().join("FORMAT")).unwrap().starts_with(b"pithead store 4\ndrive "));
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["FORMAT", "LOCK", "index.redb", "journal", "segments"]);
        let store = open(dir.path());
        assert_eq!(store.drive_id(), id);
        assert_eq!(store.held("new").unwrap(), value(1, LARGE));
        store.through(vec![delete("new")]).unwrap();
        assert_eq!(values(&store), found);
        // And all room of the old files comes back with their values.
        store.through(found.into_iter().map(|(key, ..)| Write::delete(key)).collect()).unwrap();
        store.compact_now().unwrap();
        assert!(segment_paths(dir.path()).is_empty());
    }
}

/// The calls that made the sample: 12 small values, 2 large ones, one adopted, one deleted, and one with a version and
/// a tag.
#[test]
fn stores_of_format_2_get_a_journal() {
    let dir = copied_from("format-2/drive-0");
    let looked = DiskStore::open_read_only(dir.path(), quiet()).unwrap();
    let found = values(&looked);
    drop(looked);
    assert_eq!(found.len(), 15);
    assert!(!dir.path().join("journal").exists());
    drop(open(dir.path()));
    assert!(fs::read(dir.path().join("FORMAT")).unwrap().starts_with(b"pithead store 4\ndrive "));
    fs::remove_file(dir.path().join("index.redb")).unwrap();
    let error = DiskStore::open(dir.path(), quiet()).unwrap_err();
    assert!(matches!(&error, StoreError::Damaged { .. }) && error.to_string().contains("pithead check --repair"), "{error}");
    let report = crate::check(dir.path(), &crate::CheckOptions { repair: true }, &mut |_| {}).unwrap();
    assert_eq!((report.keys, report.restored_keys), (15, 15), "{report:?}");
    let store = open(dir.path());
    assert_eq!(values(&store), found);
    assert_eq!(store.entry(b"marked").unwrap().unwrap().version, "version 7");
    assert_eq!(store.entry(b"marked").unwrap().unwrap().tag, crate::Tag { algorithm: 2, bytes: "tag".into() });
    assert_eq!(store.held("staged").unwrap(), value(4, LARGE));
    assert_eq!(store.held("small/03"), None);
}

/// The sample was made like that of format 2, and one small value was replaced. Its journal is gone on with.
#[test]
fn stores_of_format_3_get_a_new_marker() {
    let dir = copied_from("format-3/drive-0");
    let looked = DiskStore::open_read_only(dir.path(), quiet()).unwrap();
    let found = values(&looked);
    drop(looked);
    assert_eq!(found.len(), 15);
    let store = open(dir.path());
    assert_eq!(values(&store), found);
    assert_eq!((store.held("small/04").unwrap(), store.held("small/03")), (value(44, 500), None));
    assert_eq!(store.held("staged").unwrap(), value(4, LARGE));
    for number in 0..3 {
        store.through(vec![put("new", value(number, 100))]).unwrap();
    }
    assert!(store.core.index.durable_commit() < store.core.index.fact(crate::index::COMMIT).unwrap().unwrap());
    // As after a kill.
    let killed = tempfile::tempdir().unwrap();
    for folder in ["", "segments", "journal"] {
        fs::create_dir_all(killed.path().join(folder)).unwrap();
        for entry in fs::read_dir(dir.path().join(folder)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), killed.path().join(folder).join(entry.file_name())).unwrap();
            }
        }
    }
    let again = open(killed.path());
    assert!(fs::read(killed.path().join("FORMAT")).unwrap().starts_with(b"pithead store 4\ndrive "));
    assert_eq!(again.held("new").unwrap(), value(2, 100));
    assert_eq!(again.usage().unwrap().keys, 16);
    drop(again);
    let report = crate::check(killed.path(), &crate::CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.findings.is_empty() && report.keys == 16, "{report:?}");
}

#[test]
fn an_upgrade_can_be_cut_short_at_any_step() {
    let whole = copied(0);
    let expected = values(&open(whole.path()));
    let built = whole.path().join("index.redb");
    let marker = whole.path().join("FORMAT");
    type Cut<'a> = Box<dyn Fn(&Path) + 'a>;
    let cuts: [Cut; 5] = [
        Box::new(|dir| fs::write(dir.join("index.building"), b"half of it").unwrap()),
        Box::new(|dir| assert!(fs::copy(&built, dir.join("index.building")).is_ok())),
        Box::new(|dir| assert!(fs::copy(&built, dir.join("index.2")).is_ok())),
        Box::new(|dir| {
            fs::copy(&built, dir.join("index.2")).unwrap();
            fs::write(dir.join("FORMAT.new"), b"pithead").unwrap();
        }),
        Box::new(|dir| {
            fs::copy(&built, dir.join("index.2")).unwrap();
            fs::copy(&marker, dir.join("FORMAT")).unwrap();
        }),
    ];
    for (step, cut) in cuts.iter().enumerate() {
        let dir = copied(0);
        cut(dir.path());
        assert_eq!(values(&open(dir.path())), expected, "cut {step}");
        assert!(!dir.path().join("index.2").exists() && !dir.path().join("index.building").exists());
    }
}
