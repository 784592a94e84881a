use std::sync::Arc;

use super::*;
use crate::medium::{Call, LyingMedium, Trouble};
use crate::{
    CheckOptions, DiskStore, Durability, FindingKind, Medium, Put, Scrub, Store, StoreOptions, Tag, Value, Version, Write,
    check_on,
};

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 1 << 20,
        index_cache_bytes: 4 << 20,
        segment_bytes: 4 << 20,
        background: false,
        compacts: false,
        ..StoreOptions::default()
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8) as u64).map(|word| xxh3_64(&(word ^ (seed << 40)).to_le_bytes()).to_le_bytes());
    words.flatten().take(bytes).collect()
}

struct Rig {
    medium: Arc<LyingMedium>,
    store: Option<DiskStore>,
}

impl Rig {
    fn new() -> Self {
        let medium = LyingMedium::new(1, 1 << 30);
        let store = DiskStore::open_on(Arc::clone(&medium) as Arc<dyn Medium>, options()).unwrap();
        Self { medium, store: Some(store) }
    }

    fn store(&self) -> &DiskStore {
        self.store.as_ref().unwrap()
    }

    fn put(&self, key: &str, value: impl Into<Value>) {
        self.store().write(vec![Write::put(key.to_owned(), value)], Durability::Through).unwrap();
    }

    fn delete(&self, key: &str) {
        self.store().write(vec![Write::delete(key.to_owned())], Durability::Through).unwrap();
    }

    fn get(&self, key: &str) -> Value {
        self.store().get(key.as_bytes()).unwrap().unwrap().0
    }

    /// A whole round.
    fn round(&self, dedup: &mut Dedup) {
        while self.store().dedup_step(dedup, 64 << 10).unwrap().is_some_and(|bytes| {
            // One content-defined chunk may go beyond.
            assert!(bytes <= 192 << 10, "{bytes}");
            true
        }) {}
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(DiskStore::open_on(Arc::clone(&self.medium) as Arc<dyn Medium>, options()).unwrap());
    }

    /// Bytes of packs, deduplicated bytes.
    fn packed(&self) -> (u64, u64) {
        let used = self.store().usage().unwrap();
        (used.pack_bytes, used.deduplicated_bytes)
    }

    fn marker(&self) -> String {
        let file = self.medium.open("FORMAT", false).unwrap();
        let mut text = vec![0; file.len().unwrap() as usize];
        file.read(0, &mut text).unwrap();
        String::from_utf8(text).unwrap().lines().next().unwrap().to_owned()
    }

    fn check(mut self) {
        self.store = None;
        let mut report = check_on(self.medium, &CheckOptions::default(), &mut |_| {}).unwrap();
        report.findings.retain(|finding| finding.kind != FindingKind::Leftover);
        assert_eq!(report.findings, []);
    }
}

fn dedup(chunking: Chunking) -> Dedup {
    dedup_of(chunking, &[b""])
}

fn dedup_of(chunking: Chunking, scopes: &[&'static [u8]]) -> Dedup {
    let scopes = scopes.iter().map(|scope| Key::from_static(scope)).collect();
    Dedup::new(DedupOptions { chunking, scopes, memory_bytes: 16 << 20 })
}

#[test]
fn equal_values_are_stored_once_until_the_last_one_goes() {
    let mut rig = Rig::new();
    let value = noise(1, 300_000);
    assert_eq!(rig.marker(), "pithead store 4");
    for key in ["a", "b", "c"] {
        rig.put(key, value.clone());
    }
    let mut dedup = dedup(Chunking::ContentDefined);
    rig.round(&mut dedup);
    assert_eq!((rig.packed(), rig.marker().as_str()), ((300_000, 900_000), "pithead store 5"));
    for key in ["a", "b", "c"] {
        assert_eq!(rig.get(key), value);
    }
    let keys: Vec<Key> = rig.store().list(b"").unwrap().into_iter().map(|entry| entry.key).collect();
    assert_eq!((keys.len(), rig.store().usage().unwrap().keys), (3, 3));
    rig.delete("a");
    rig.put("b", "small");
    rig.reopen();
    assert_eq!((rig.get("c"), rig.packed()), (value.clone().into(), (300_000, 300_000)));
    rig.delete("c");
    assert_eq!(rig.packed(), (0, 0));
    rig.store().compact_now().unwrap();
    assert_eq!(rig.medium.list("segments").unwrap(), Vec::<String>::new());
    rig.check();
}

#[test]
fn moved_and_partly_changed_data_is_found_by_content() {
    let rig = Rig::new();
    let value = noise(2, 2 << 20);
    let mut other = [&b"something before it"[..], &value].concat();
    other[1_000_000..1_000_100].fill(7);
    let third = [&noise(3, 500_000), &value[700_000..1_500_000]].concat();
    rig.put("a", value.clone());
    rig.put("b", other.clone());
    rig.put("c", third.clone());
    rig.round(&mut dedup(Chunking::ContentDefined));
    assert!(rig.get("a") == value && rig.get("b") == other && rig.get("c") == third);
    let (packs, shared) = rig.packed();
    assert_eq!(shared, (value.len() + other.len() + third.len()) as u64);
    // Runs are followed to the very byte.
    let least = value.len() as u64 + 19 + 100 + 500_000;
    assert!(packs >= least && packs < least + 4_096, "{packs} instead of {least}");
    rig.check();
}

#[test]
fn small_values_share_fixed_chunks_in_the_index() {
    for chunking in [Chunking::Kib, Chunking::HalfKib] {
        let rig = Rig::new();
        let common = noise(4, 12 << 10);
        for number in 0..20_u64 {
            rig.put(&format!("k{number:02}"), [&common[..], &noise(100 + number, 4 << 10)].concat());
        }
        rig.round(&mut dedup(chunking));
        for number in 0..20_u64 {
            assert_eq!(rig.get(&format!("k{number:02}")), [&common[..], &noise(100 + number, 4 << 10)].concat());
        }
        assert_eq!(rig.packed(), ((16 + 19 * 4) << 10, (20 * 16) << 10));
        rig.check();
    }
}

#[test]
fn what_does_not_save_an_eighth_stays_in_one_piece() {
    let rig = Rig::new();
    let common = noise(5, 100_000);
    rig.put("a", [&common[..], &noise(6, 1_000_000)].concat());
    rig.put("b", [&noise(7, 1_000_000)[..], &common].concat());
    rig.put("small", noise(5, 2_000));
    rig.put("smaller", noise(5, 2_000));
    rig.round(&mut dedup(Chunking::ContentDefined));
    assert_eq!((rig.packed(), rig.marker().as_str()), ((0, 0), "pithead store 4"));
    rig.check();
}

#[test]
fn scopes_share_nothing_with_one_another() {
    let rig = Rig::new();
    let value = noise(8, 200_000);
    for key in ["a/1", "a/2", "b/1", "b/2", "c/1", "c/2"] {
        rig.put(key, value.clone());
    }
    let mut dedup = dedup_of(Chunking::ContentDefined, &[b"a/", b"b/"]);
    rig.round(&mut dedup);
    assert_eq!(rig.packed(), (400_000, 800_000));
    rig.delete("a/1");
    rig.delete("a/2");
    assert_eq!(rig.packed(), (200_000, 400_000));
    rig.check();
}

#[test]
fn what_only_deleted_values_had_is_given_back() {
    let rig = Rig::new();
    let value = noise(9, 1 << 20);
    rig.put("whole", value.clone());
    rig.put("part", [&value[100_000..400_000], &noise(10, 50_000)[..]].concat());
    let mut dedup = dedup(Chunking::ContentDefined);
    rig.round(&mut dedup);
    assert_eq!(rig.packed().0, (1 << 20) + 50_000);
    rig.delete("whole");
    rig.round(&mut dedup);
    let (packs, shared) = rig.packed();
    assert!(packs < 352_000 && shared == 350_000, "{packs} {shared}");
    assert_eq!(rig.get("part"), [&value[100_000..400_000], &noise(10, 50_000)[..]].concat());
    // The new pack is known: the same bytes come to it once more.
    rig.put("again", value[100_000..400_000].to_vec());
    rig.round(&mut dedup);
    assert_eq!(rig.packed(), (packs, shared + 300_000));
    rig.check();
}

#[test]
fn versions_and_tags_stay_and_a_replaced_value_is_not_shared() {
    let rig = Rig::new();
    let value: Value = noise(11, 100_000).into();
    let tag = Tag { algorithm: 3, bytes: Value::from_static(b"tag") };
    let put = |key: &'static str| {
        let (version, tag) = (Version::from_static(b"v7"), tag.clone());
        Write::Put(Put { version, tag, ..Put::forced(key, value.clone()) })
    };
    rig.store().write(vec![put("a"), put("b"), put("c")], Durability::Through).unwrap();
    let before = rig.store().entry(b"b").unwrap().unwrap();
    let mut work = dedup(Chunking::ContentDefined);
    // The value of c is replaced when it was read and not yet shared.
    while !matches!(&work.work, Some(Work::Value(_))) || work.after() != Some(&Key::from_static(b"c")) {
        rig.store().dedup_step(&mut work, 4_096).unwrap().unwrap();
    }
    rig.store().dedup_step(&mut work, 64 << 10).unwrap();
    rig.put("c", "another");
    rig.round(&mut work);
    assert_eq!(rig.store().entry(b"b").unwrap().unwrap(), before);
    assert_eq!((rig.get("a"), rig.get("b"), rig.get("c")), (value.clone(), value, Value::from_static(b"another")));
    assert_eq!(rig.packed(), (100_000, 200_000));
    rig.check();
}

#[test]
fn a_round_goes_on_after_a_restart_and_packs_are_known_again() {
    let mut rig = Rig::new();
    for key in ["a", "b", "x"] {
        rig.put(key, noise(12, 200_000));
    }
    let mut first = dedup(Chunking::ContentDefined);
    while first.after() != Some(&Key::from_static(b"x")) {
        rig.store().dedup_step(&mut first, 64 << 10).unwrap().unwrap();
    }
    assert_eq!(rig.packed(), (200_000, 400_000));
    rig.reopen();
    let mut second = dedup(Chunking::ContentDefined);
    second.go_on_after(Key::from_static(b"b"), 400_000);
    rig.round(&mut second);
    assert_eq!(rig.packed(), (200_000, 600_000));
    rig.check();
}

#[test]
fn a_scrub_and_a_cache_read_values_with_recipes() {
    let rig = Rig::new();
    let value = noise(13, 400_000);
    let other = [&value[..300_000], &noise(14, 90_000)].concat();
    rig.put("a", value.clone());
    rig.put("b", other.clone());
    rig.round(&mut dedup(Chunking::ContentDefined));
    assert!(rig.packed().1 > 0);
    for _ in 0..2 {
        assert!(rig.get("a") == value && rig.get("b") == other);
    }
    assert!(rig.store().cache_usage().hits >= 2);
    let store: Arc<dyn Store> = Arc::new(rig.store.unwrap());
    store.check(b"b").unwrap();
    let (mut scrub, mut bytes) = (Scrub::new(store), 0);
    while let Some(step) = scrub.step(64 << 10).unwrap() {
        assert!(step <= 64 << 10);
        bytes += step;
        assert_eq!(scrub.damaged().0, 0);
    }
    assert_eq!(bytes, 790_000);
}

/// Two equal values and one that has a part of them.
fn shared() -> (Rig, Vec<(&'static str, Vec<u8>)>) {
    let rig = Rig::new();
    let value = noise(15, 300_000);
    let part = [&value[50_000..250_000], &noise(16, 70_000)[..]].concat();
    let values = vec![("a", value.clone()), ("b", value), ("c", part)];
    for (key, value) in &values {
        rig.put(key, value.clone());
    }
    rig.round(&mut dedup(Chunking::ContentDefined));
    assert_eq!(rig.packed(), (370_000, 870_000));
    (rig, values)
}

fn repaired(rig: &mut Rig) -> Vec<FindingKind> {
    rig.store = None;
    let medium = || Arc::clone(&rig.medium) as Arc<dyn Medium>;
    let found = check_on(medium(), &CheckOptions { repair: true }, &mut |_| {}).unwrap();
    assert!(found.findings.iter().all(|finding| finding.repaired), "{:?}", found.findings);
    assert_eq!(check_on(medium(), &CheckOptions::default(), &mut |_| {}).unwrap().findings, []);
    found.findings.into_iter().map(|finding| finding.kind).collect()
}

#[test]
fn an_index_that_is_lost_comes_back_with_its_recipes() {
    let (mut rig, values) = shared();
    rig.store().flush().unwrap();
    rig.store = None;
    rig.medium.remove("index.redb").unwrap();
    rig.medium.remove("FORMAT").unwrap();
    let kinds = repaired(&mut rig);
    assert!(kinds.contains(&FindingKind::Index) && kinds.contains(&FindingKind::Format), "{kinds:?}");
    assert_eq!(rig.marker(), "pithead store 5");
    rig.reopen();
    assert_eq!(rig.packed(), (370_000, 870_000));
    assert!(values.iter().all(|(key, value)| rig.get(key) == *value));
    values.iter().for_each(|(key, _)| rig.delete(key));
    assert_eq!(rig.packed(), (0, 0));
}

#[test]
fn a_wrong_count_is_found_and_put_right() {
    let (mut rig, values) = shared();
    let uses = rig.store().core().index.uses().unwrap();
    let (pack, key) = uses.first().unwrap().clone();
    rig.store()
        .core()
        .index
        .change(|transaction| {
            let mut table = transaction.open_table(crate::index::USES)?;
            table.remove((pack, &key[..]))?;
            table.insert((77, &b"nobody"[..]), ())?;
            Ok(())
        })
        .unwrap();
    let kinds = repaired(&mut rig);
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == FindingKind::Account), "{kinds:?}");
    rig.reopen();
    assert_eq!(rig.store().core().index.uses().unwrap(), uses);
    assert!(values.iter().all(|(key, value)| rig.get(key) == *value));
}

#[test]
fn damage_to_a_pack_is_told_of_each_key_that_has_a_part_of_it() {
    let (mut rig, values) = shared();
    let pack = rig.store().core().index.packs(None, 1).unwrap()[0].0;
    let (place, _) = rig.store().core().index.place(&crate::recipe::pack_key(pack)).unwrap().unwrap();
    let file = rig.medium.open(&crate::segments::file_name(place.file), false).unwrap();
    file.write(place.offset + 100_000, b"damage").unwrap();
    for (key, _) in &values {
        let error = rig.store().get(key.as_bytes()).unwrap_err();
        assert!(matches!(error, crate::StoreError::Corrupt { .. }), "{error}");
    }
    rig.store = None;
    let report = check_on(Arc::clone(&rig.medium) as Arc<dyn Medium>, &CheckOptions::default(), &mut |_| {}).unwrap();
    let named: Vec<&str> = report.findings.iter().filter_map(|finding| finding.key.as_deref()).collect();
    assert_eq!(named, ["a", "b", "c", &format!("pack {pack} of deduplicated values")]);
    assert_eq!(report.keys, 3);
}

/// One record of the index that could not be read ended each round before its first value.
#[test]
fn records_that_cannot_be_read_are_passed_over() {
    let rig = Rig::new();
    let value = noise(1, 200_000);
    for key in ["a/1", "a/2", "b/1", "b/2"] {
        rig.put(key, value.clone());
    }
    rig.round(&mut dedup_of(Chunking::ContentDefined, &[b"a/"]));
    assert_eq!(rig.packed(), (200_000, 400_000));
    let index = &rig.store().core().index;
    let damaged = [Key::from_static(b"a/0"), crate::recipe::pack_key(index.packs(None, 1).unwrap()[0].0)];
    index
        .change(|transaction| {
            let mut entries = transaction.open_table(crate::index::ENTRIES)?;
            for key in &damaged {
                entries.insert(&key[..], &b"?"[..])?;
            }
            Ok(())
        })
        .unwrap();
    rig.round(&mut dedup_of(Chunking::ContentDefined, &[b"a/", b"b/"]));
    assert_eq!(rig.packed(), (400_000, 800_000));
    assert!(rig.get("b/1") == value && rig.get("b/2") == value);
}

/// A pack was written and its flush failed. Its room stayed pinned, so that its segment was never given back.
#[test]
fn a_pack_that_cannot_be_flushed_leaves_nothing_pinned() {
    let mut failed = 0;
    for after in 0..6 {
        let rig = Rig::new();
        let shared = noise(1, 200_000);
        for key in 0..3_u64 {
            rig.put(&format!("k{key}"), [&shared[..], &noise(2 + key, 200_000)].concat());
        }
        rig.store().flush().unwrap();
        rig.medium.set_trouble(vec![Trouble::io(&[Call::Flush], after)]);
        let mut dedup = dedup(Chunking::ContentDefined);
        let stepped = loop {
            match rig.store().dedup_step(&mut dedup, 64 << 10) {
                Ok(Some(_)) => {}
                ended => break ended,
            }
        };
        failed += u32::from(stepped.is_err());
        drop(dedup);
        rig.medium.set_trouble(vec![]);
        // Flushes of what was written back may fail, too, and are told once.
        let _ = rig.store().flush();
        let segments = &rig.store().core().segments;
        segments.seal(None);
        assert_eq!(segments.sealed().len(), rig.medium.list("segments").unwrap().len(), "after {after} flushes");
    }
    assert!(failed > 0, "no flush has failed");
}
