//! Commits that are in the journal's log and not yet in the index.

use std::sync::Arc;

use super::*;
use crate::index::COMMIT;
use crate::medium::{Call, LyingMedium, Medium, Trouble};
use crate::{CheckOptions, CheckReport, FindingKind, check_on};

const LOG: &str = "journal/0000000000000001.log";
const KEYS: &str = "journal/0000000000000001.log-keys";

fn open_on(medium: &Arc<LyingMedium>) -> Result<DiskStore, StoreError> {
    DiskStore::open_on(Arc::clone(medium) as Arc<dyn Medium>, quiet())
}

fn checked(medium: &Arc<LyingMedium>, repair: bool) -> CheckReport {
    check_on(Arc::clone(medium) as Arc<dyn Medium>, &CheckOptions { repair }, &mut |_| {}).unwrap()
}

fn commit_of(store: &DiskStore) -> u64 {
    store.core.index.fact(COMMIT).unwrap().unwrap()
}

/// Values in the index, and newer ones in the log alone: `a` to `e`, each replaced, and `gone`, deleted.
fn filled() -> (Arc<LyingMedium>, DiskStore) {
    let medium = LyingMedium::new(3, 1 << 30);
    let store = open_on(&medium).unwrap();
    store.through(["a", "b", "c", "d", "e", "gone"].map(|key| put(key, value(1, 3_000))).to_vec()).unwrap();
    for (number, key) in (10..).zip(["a", "b", "c", "d", "e"]) {
        store.through(vec![put(key, value(number, 3_000)), put(&format!("large/{key}"), value(number, LARGE))]).unwrap();
    }
    store.through(vec![delete("gone")]).unwrap();
    assert_eq!(commit_of(&store) - store.core.index.durable_commit(), 6, "the index was flushed for each");
    (medium, store)
}

fn assert_all(store: &DiskStore, except: &str) {
    for (number, key) in (10..).zip(["a", "b", "c", "d", "e"]) {
        let held = store.held(key);
        if key != except {
            assert_eq!(held.unwrap(), value(number, 3_000), "{key}");
        } else {
            assert_eq!(held, None, "an older value came back");
        }
        assert_eq!(store.held(&format!("large/{key}")).unwrap(), value(number, LARGE));
    }
    assert_eq!(store.held("gone"), None);
}

#[test]
fn a_kill_or_a_power_failure_costs_nothing_that_is_in_the_log() {
    let (medium, store) = filled();
    store.write(vec![put("back", value(7, 100))], Durability::Back).unwrap();
    let killed = medium.fork();
    let report = checked(&killed.fork(), false);
    assert_eq!((report.findings, report.keys), (vec![], 10));
    let cut = medium.crash();
    drop(store);
    for medium in [killed, cut] {
        let commit = {
            let store = open_on(&medium).unwrap();
            assert_all(&store, "");
            assert_eq!(store.held("back"), None);
            assert_eq!(store.core.index.durable_commit(), commit_of(&store));
            assert_eq!(store.usage().unwrap().value_bytes, 5 * 3_000 + 5 * LARGE as u64);
            commit_of(&store)
        };
        let store = open_on(&medium).unwrap();
        assert_all(&store, "");
        assert_eq!(commit_of(&store), commit, "it was applied twice");
        store.through(vec![put("more", value(9, 10))]).unwrap();
        drop(store);
        assert_eq!(checked(&medium, false).findings, []);
    }
}

/// After a clean end the journal is not needed, as before.
#[test]
fn a_closed_store_needs_no_log() {
    let (medium, store) = filled();
    drop(store);
    for name in medium.list("journal").unwrap() {
        medium.remove(&format!("journal/{name}")).unwrap();
    }
    assert_all(&open_on(&medium).unwrap(), "");
}

/// What was given up does not come back out of the log.
#[test]
fn void_commits_stay_void() {
    let (medium, store) = filled();
    store.write(vec![put("void", value(1, 100)), delete("a")], Durability::Back).unwrap();
    store.core.index.give_up_unflushed("a test");
    assert_all(&store, "");
    assert!(store.flush().is_err(), "nobody was told");
    let killed = medium.fork();
    store.through(vec![put("after", value(2, 100))]).unwrap();
    for medium in [killed, medium.fork()] {
        let store = open_on(&medium).unwrap();
        assert_all(&store, "");
        assert_eq!(store.held("void"), None);
    }
    assert_eq!(open_on(&medium.crash()).unwrap().held("after").unwrap(), value(2, 100));
}

/// The offset in the log of the newest copy of these bytes.
fn place_of(medium: &LyingMedium, bytes: &[u8]) -> u64 {
    let file = medium.open(LOG, false).unwrap();
    let mut all = vec![0; file.len().unwrap() as usize];
    file.read(0, &mut all).unwrap();
    all.windows(bytes.len()).rposition(|part| part == bytes).unwrap() as u64
}

#[test]
fn damage_to_what_only_the_log_has_is_told() {
    let (medium, store) = filled();
    let medium = medium.fork();
    drop(store);
    for (number, key) in (10..).zip(["a", "b", "c", "d", "e"]) {
        let damaged = medium.fork();
        damaged.flip(LOG, place_of(&damaged, &value(number, 3_000)) + 1_500, 4);
        let error = open_on(&damaged).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { what, .. } if what.contains("which the index lacks")), "{error}");
        assert!(error.to_string().contains(&format!("{key}, ")), "{error}");
        let report = checked(&damaged, false);
        let names = |report: &CheckReport, kind| {
            let found = report.findings.iter().filter(|finding| finding.kind == kind);
            found.filter_map(|finding| finding.key.clone()).collect::<Vec<String>>()
        };
        assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::Journal), "{report:?}");
        assert_eq!(names(&report, FindingKind::LostKey), [key]);
        assert!(open_on(&damaged).is_err(), "a check without a repair has changed something");
        let report = checked(&damaged, true);
        assert_eq!(names(&report, FindingKind::LostKey), [key]);
        assert_all(&open_on(&damaged).unwrap(), key);
        assert_eq!(checked(&damaged, false).findings, []);
    }
}

/// The log is cut off at each of its blocks: the account of keys knows what it had.
#[test]
fn a_log_that_is_cut_off_or_gone_is_told() {
    let (medium, store) = filled();
    let medium = medium.fork();
    drop(store);
    let end = medium.open(LOG, false).unwrap().len().unwrap();
    for at in [9_000, 20_000, 24_500, 28_000, 30_000, end - 40, end - 8] {
        let damaged = medium.fork();
        damaged.open(LOG, false).unwrap().set_len(at.min(end - 8)).unwrap();
        let error = open_on(&damaged).unwrap_err();
        assert!(matches!(&error, StoreError::Damaged { .. }), "cut at {at}: {error}");
        let report = checked(&damaged, true);
        let store = open_on(&damaged).unwrap();
        for (number, key) in (10..).zip(["a", "b", "c", "d", "e"]) {
            let named =
                report.findings.iter().any(|found| found.kind == FindingKind::LostKey && found.key.as_deref() == Some(key));
            let held = store.held(key);
            assert!(held == Some(value(number, 3_000)) || (held.is_none() && named), "cut at {at}: {key}, {report:?}");
            assert_eq!(store.held(&format!("large/{key}")).unwrap(), value(number, LARGE), "cut at {at}");
        }
        assert_eq!(store.held("gone"), None, "cut at {at}");
    }
    for both in [false, true] {
        let damaged = medium.fork();
        damaged.remove(LOG).unwrap();
        if both {
            damaged.remove(KEYS).unwrap();
        }
        assert!(matches!(open_on(&damaged), Err(StoreError::Damaged { .. })));
        let report = checked(&damaged, true);
        assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::LostKey), "{report:?}");
        open_on(&damaged).unwrap();
        assert_eq!(checked(&damaged, false).findings, []);
    }
}

/// Damage to the account of keys, or to the part of the log that the index has, costs nothing.
#[test]
fn other_damage_to_the_journal_costs_nothing() {
    let (medium, store) = filled();
    let medium = medium.fork();
    drop(store);
    for at in medium.written(KEYS) {
        let damaged = medium.fork();
        damaged.flip(KEYS, at + 100, 1);
        assert_all(&open_on(&damaged).unwrap(), "");
    }
    let damaged = medium.fork();
    damaged.flip(LOG, 8_192 + 200, 1);
    assert_all(&open_on(&damaged).unwrap(), "");
}

/// A flush of the log that fails says nothing about what is durable: the index is flushed instead.
#[test]
fn when_the_log_fails_the_index_is_flushed() {
    for call in [Call::Flush, Call::Write] {
        let (medium, store) = filled();
        medium.set_trouble(vec![Trouble::io(&[call], 0)]);
        store.through(vec![put("new", value(5, 100))]).unwrap();
        assert_eq!(store.core.index.durable_commit(), commit_of(&store));
        store.through(vec![put("newer", value(6, 100))]).unwrap();
        assert_eq!(store.core.index.durable_commit(), commit_of(&store), "there is no log to write to");
        let after = medium.crash();
        drop(store);
        let store = open_on(&after).unwrap();
        assert_all(&store, "");
        assert_eq!((store.held("new").unwrap(), store.held("newer").unwrap()), (value(5, 100), value(6, 100)));
        store.through(vec![put("one", value(5, 100))]).unwrap();
        store.through(vec![put("two", value(5, 100))]).unwrap();
        assert!(store.core.index.durable_commit() < commit_of(&store), "it has a log again");
    }
}

/// Everything fails after the commit was written to the log: it may be there or not, and the store says so.
#[test]
fn a_commit_that_may_be_in_the_log_is_shown() {
    let (medium, store) = filled();
    medium.set_trouble(vec![Trouble { times: 3, ..Trouble::io(&[Call::Flush], 0) }]);
    let error = store.through(vec![put("a", value(50, 100))]).unwrap_err();
    assert!(error.to_string().contains("not known"), "{error}");
    medium.set_trouble(vec![]);
    assert_eq!(store.held("a").unwrap(), value(50, 100), "it could come back after a crash");
    store.through(vec![put("b", value(51, 100))]).unwrap();
    let after = medium.crash();
    drop(store);
    let store = open_on(&after).unwrap();
    assert_eq!((store.held("a").unwrap(), store.held("b").unwrap()), (value(50, 100), value(51, 100)));
}

/// What an open has to apply is bounded, even if nobody flushes the index.
#[test]
fn the_index_is_never_far_behind() {
    let medium = LyingMedium::new(4, 4 << 30);
    let store = open_on(&medium).unwrap();
    let mut behind = 0;
    for number in 0..1_300 {
        store.through(vec![put(&format!("{}", number % 40), value(number as u8, 60_000))]).unwrap();
        behind = behind.max(store.core.index.unflushed_bytes().unwrap_or(0));
    }
    assert!(behind > 60 << 20 && behind < 66 << 20, "{behind} bytes");
    assert!(store.core.index.durable_commit() > 1_000);
}

/// A mark that was written while newer commits are in the log alone does not make them void.
#[test]
fn a_mark_does_not_undo_what_is_in_the_log() {
    let (medium, store) = filled();
    store.core.index.journal().unwrap().mark(store.core.index.durable_commit());
    store.through(vec![put("f", value(20, 100))]).unwrap();
    let killed = medium.fork();
    let again = open_on(&killed).unwrap();
    assert_all(&again, "");
    assert_eq!(again.held("f").unwrap(), value(20, 100));
    drop(again);
    // And if the index is lost, too.
    let lost = medium.fork();
    lost.remove("index.redb").unwrap();
    let report = checked(&lost, true);
    assert!(report.findings.iter().all(|finding| finding.kind != FindingKind::LostKey), "{report:?}");
    let again = open_on(&lost).unwrap();
    assert_all(&again, "");
    assert_eq!(again.held("f").unwrap(), value(20, 100));
}

/// The journal gets a new base while the log has more than the index. The old log is unlinked, and nothing needs it.
#[test]
fn a_new_base_may_come_at_any_time() {
    let (medium, store) = filled();
    let index = &store.core.index;
    store.core.write_base(index.journal().unwrap()).unwrap();
    assert!(medium.open(LOG, false).is_err());
    store.through(vec![put("f", value(20, 100))]).unwrap();
    store.through(vec![put("g", value(21, 100))]).unwrap();
    assert!(index.durable_commit() < commit_of(&store));
    for medium in [medium.fork(), medium.crash()] {
        let store = open_on(&medium).unwrap();
        assert_all(&store, "");
        assert_eq!((store.held("f").unwrap(), store.held("g").unwrap()), (value(20, 100), value(21, 100)));
    }
}

/// A value in a segment that was written back is flushed before a new base makes the index durable that names it.
#[test]
fn a_new_base_flushes_values_before_the_index_that_names_them() {
    for seed in 0..30 {
        let medium = LyingMedium::new(seed, 1 << 30);
        let store = open_on(&medium).unwrap();
        store.through(vec![put("a", value(1, 100))]).unwrap();
        store.write(vec![put("back", value(2, LARGE)), put("small", value(3, 100))], Durability::Back).unwrap();
        store.core.write_base(store.core.index.journal().unwrap()).unwrap();
        let cut = medium.crash();
        drop(store);
        let store = open_on(&cut).unwrap();
        assert_eq!(store.held("back").unwrap(), value(2, LARGE), "seed {seed}");
        assert_eq!((store.held("a").unwrap(), store.held("small").unwrap()), (value(1, 100), value(3, 100)));
    }
}

/// If the values cannot be flushed, there is no new base, and what was written back is lost with a word.
#[test]
fn a_new_base_fails_with_the_values_that_it_names() {
    let (medium, store) = filled();
    store.write(vec![put("back", value(2, LARGE)), delete("a")], Durability::Back).unwrap();
    medium.set_trouble(vec![Trouble::io(&[Call::Flush], 0)]);
    assert!(store.core.write_base(store.core.index.journal().unwrap()).is_err());
    assert!(store.flush().is_err(), "nobody was told");
    for store in [open_on(&medium.fork()).unwrap(), store] {
        assert_all(&store, "");
        assert_eq!(store.held("back"), None);
    }
}

/// A flush of the log fails when the store is closed, and so may what comes after it. The kernel shows data that is not on the
/// medium; the next process must not build on it.
#[test]
fn a_log_that_was_not_flushed_is_not_taken_for_flushed() {
    for (seed, after) in (0..8).flat_map(|seed| (0..60).map(move |after| (seed, after))) {
        let medium = LyingMedium::new(seed, 1 << 30);
        let store = open_on(&medium).unwrap();
        store.through(vec![put("a", value(1, 3_000))]).unwrap();
        store.through(vec![put("b", value(2, 3_000))]).unwrap();
        let calls = [Call::Write, Call::Flush, Call::Names];
        medium.set_trouble(vec![Trouble { times: 1 + after % 5, ..Trouble::io(&calls, after / 2) }]);
        drop(store);
        medium.set_trouble(vec![]);
        let store = open_on(&medium).unwrap();
        store.through(vec![put("c", value(3, 3_000))]).unwrap();
        store.through(vec![put("a", value(4, 3_000))]).unwrap();
        let cut = medium.crash();
        drop(store);
        let what = format!("seed {seed}, after {after}");
        assert_eq!(checked(&cut.fork(), false).findings, [], "{what}");
        let store = open_on(&cut).unwrap_or_else(|error| panic!("{what}: {error}"));
        for (key, number) in [("a", 4), ("b", 2), ("c", 3)] {
            assert_eq!(store.held(key), Some(value(number, 3_000)), "{what}: {key}");
        }
    }
}

/// A batch in conflict is not kept until the index is durable, and each commit counts towards that.
#[test]
fn a_batch_in_conflict_takes_no_memory() {
    let (_medium, store) = filled();
    let before = (store.core.index.kept_for_test(), store.core.index.unflushed_bytes().unwrap());
    for number in 0..100 {
        let conflict = crate::Put { expected: crate::Expected::Absent, ..crate::Put::forced("a", value(number, 60_000)) };
        assert!(store.through(vec![Write::Put(conflict)]).is_err());
    }
    assert_eq!(store.core.index.kept_for_test(), before.0);
    assert!(store.core.index.unflushed_bytes().unwrap() >= before.1 + 100 * 512);
}

/// An index that shows an older commit than a mark has lost commits; the log does not make up for that.
#[test]
fn an_index_that_is_older_than_a_mark_is_refused() {
    let (medium, store) = filled();
    let older = medium.fork();
    store.flush().unwrap();
    store.core.index.journal().unwrap().mark(store.core.index.durable_commit());
    let newer = medium.fork();
    let mut index = vec![0; older.open("index.redb", false).unwrap().len().unwrap() as usize];
    older.open("index.redb", false).unwrap().read(0, &mut index).unwrap();
    let file = newer.open("index.redb", false).unwrap();
    file.set_len(0).unwrap();
    file.write(0, &index).unwrap();
    let error = open_on(&newer).unwrap_err();
    assert!(error.to_string().contains("was durable"), "{error}");
    let report = checked(&newer, true);
    assert_eq!(report.keys, 10, "{report:?}");
    assert_all(&open_on(&newer).unwrap(), "");
}

/// Durable puts of 4 KiB by the log and by the index, and appends to a bare file, in turns: `--ignored --nocapture` shows them.
#[test]
#[ignore = "a measurement"]
fn durable_puts_by_the_log_and_by_the_index() {
    use std::time::{Duration, Instant};

    use crate::index::{Action, Change, Depth, NewValue};
    use crate::segments::Pinned;
    const TURNS: u32 = 20;
    const PUTS: u32 = 100;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let stores = [0, 1].map(|number: usize| DiskStore::open(dirs[number].path(), StoreOptions::default()).unwrap());
    let bare = fs::File::create(dirs[2].path().join("bare")).unwrap();
    let put = |way: usize, number: u32| {
        let value = value(number as u8, 4_096);
        if way == 2 {
            std::io::Write::write_all(&mut &bare, &value).unwrap();
            return bare.sync_data().unwrap();
        }
        let action = Action::Put { version: crate::Version::new(), tag: crate::Tag::default(), value: NewValue::Inline(value) };
        let change = Change { key: format!("key {number}").into(), expected: crate::Expected::Any, action };
        let core = &stores[way].core;
        let depth = if way == 0 { Depth::Logged } else { Depth::Indexed };
        core.submit(vec![change], Pinned::new(core.segments.clone()), depth).unwrap();
    };
    let mut spent = [Duration::ZERO; 3];
    for turn in 0..TURNS {
        for (way, spent) in spent.iter_mut().enumerate() {
            let began = Instant::now();
            (0..PUTS).for_each(|number| put(way, turn * PUTS + number));
            *spent += began.elapsed();
        }
    }
    let rates = spent.map(|spent| f64::from(TURNS * PUTS) / spent.as_secs_f64());
    println!("puts a second: {:.0} by the log, {:.0} by the index, {:.0} to a bare file", rates[0], rates[1], rates[2]);
    println!("bytes of both indexes: {:?}", stores.map(|store| store.core.index.bytes().unwrap()));
}

/// What the store's own thread could not make durable is told to the next writer who asks.
#[test]
fn values_that_were_written_back_and_lost_are_told_to_a_writer() {
    let (medium, store) = filled();
    store.write(vec![put("lost", value(1, LARGE))], Durability::Back).unwrap();
    medium.set_trouble(vec![Trouble { times: 4, ..Trouble::io(&[Call::Flush], 0) }]);
    assert!(store.core.make_durable().is_err());
    medium.set_trouble(Vec::new());
    store.core.make_durable().unwrap();
    store.core.compact(&|| true).unwrap();
    store.core.keep_journal();
    assert_eq!(store.held("lost"), None);
    let told = store.flush().unwrap_err().to_string();
    assert!(told.contains("lost"), "{told}");
    store.flush().unwrap();
}
