//! Stores of format 1 that an earlier release has written: `tests/stores/format-1`.

use super::*;

fn copied(number: u32) -> tempfile::TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/stores/format-1/drive-{number}"));
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("segments")).unwrap();
    for name in ["FORMAT", "index.redb"] {
        fs::copy(from.join(name), dir.path().join(name)).unwrap();
    }
    for entry in fs::read_dir(from.join("segments")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.path().join("segments").join(entry.file_name())).unwrap();
    }
    dir
}

/// All values are read, so that all their checksums are verified.
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
        assert!(fs::read(dir.path().join("FORMAT")).unwrap().starts_with(b"pithead store 2\ndrive "));
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["FORMAT", "LOCK", "index.redb", "segments"]);
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
