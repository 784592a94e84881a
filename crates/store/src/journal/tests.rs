use std::sync::Arc;

use pithead_model::DriveId;

use super::*;
use crate::medium::{LyingMedium, Medium};

const DRIVE: DriveId = DriveId(5);

fn put(key: &'static str, record: &str) -> Row {
    (Key::from_static(key.as_bytes()), Some(record.as_bytes().to_vec()))
}

fn delete(key: &'static str) -> Row {
    (Key::from_static(key.as_bytes()), None)
}

fn open(medium: &Arc<LyingMedium>, commit: u64) -> Journal {
    Journal::open(Arc::clone(medium) as Arc<dyn Medium>, DRIVE, commit).unwrap()
}

fn held(medium: &LyingMedium) -> Vec<(Key, String)> {
    let replayed = replay(medium).unwrap().unwrap();
    let held = replayed.keys().map(|key| (key.clone(), String::from_utf8(replayed.record(key).unwrap().unwrap()).unwrap()));
    held.collect()
}

fn pairs(pairs: &[(&'static str, &str)]) -> Vec<(Key, String)> {
    pairs.iter().map(|(key, record)| (Key::from_static(key.as_bytes()), record.to_string())).collect()
}

#[test]
fn a_journal_says_what_was_last_committed() {
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    journal.append(1, &[put("a", "1"), put("b", "1")]);
    journal.append(2, &[delete("a"), put("c", "2")]);
    journal.close(2);
    assert_eq!(held(&medium), pairs(&[("b", "1"), ("c", "2")]));
    let journal = open(&medium, 2);
    assert!(!journal.wants_base());
    journal.append(3, &[put("a", "3")]);
    journal.close(3);
    let replayed = replay(&*medium).unwrap().unwrap();
    assert!(replayed.is_whole(Some(3)) && !replayed.is_whole(Some(4)));
    assert_eq!((replayed.commit, replayed.marked, replayed.header.unwrap().drive), (3, 3, DRIVE));
    assert_eq!(held(&medium), pairs(&[("a", "3"), ("b", "1"), ("c", "2")]));
}

fn inline(key: &'static str, value: &str) -> Row {
    let body = crate::record::Body::Inline(value.as_bytes());
    let record = crate::record::Record { version: b"v", tag_algorithm: 1, tag: b"t", checksum: 7, body };
    (Key::from_static(key.as_bytes()), Some(record.encode(key.as_bytes())))
}

/// Damages the bytes of a file in which a key is.
fn damage(medium: &LyingMedium, name: &str, key: &str) {
    let file = medium.open(name, false).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read(0, &mut bytes).unwrap();
    let at = bytes.windows(key.len()).rposition(|part| part == key.as_bytes()).unwrap();
    file.write(at as u64, b"??").unwrap();
}

/// Where the records of a change are damaged, the account of keys knows what was deleted, what was replaced, and all of a record
/// that has no value of its own.
#[test]
fn one_account_knows_what_the_other_one_has_lost() {
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    journal.append(1, &[inline("gone", "old"), inline("small", "old"), put("large", "1"), inline("kept", "k")]);
    for (number, row) in [(2, delete("gone")), (3, inline("small", "new")), (4, put("large", "2"))] {
        journal.append(number, &[row]);
    }
    journal.close(4);
    let records = "journal/0000000000000001.log";
    for key in ["gone", "small", "large"] {
        damage(&medium, records, key);
    }
    let replayed = replay(&*medium).unwrap().unwrap();
    let keys: Vec<&[u8]> = replayed.keys().map(|key| &key[..]).collect();
    assert_eq!(keys, [&b"kept"[..], b"large"]);
    assert_eq!(replayed.record(&Key::from_static(b"large")).unwrap().unwrap(), b"2");
    assert_eq!(replayed.outdated, [(Key::from_static(b"small"), 3)]);
    assert!(!replayed.gaps && !replayed.is_whole(None) && !replayed.damage.is_empty());

    // And the other way round: then nothing is lost.
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    journal.append(1, &[inline("small", "old")]);
    journal.append(2, &[inline("small", "new")]);
    journal.close(2);
    damage(&medium, "journal/0000000000000001.log-keys", "small");
    let replayed = replay(&*medium).unwrap().unwrap();
    assert!(replayed.outdated.is_empty() && replayed.is_whole(Some(2)) && !replayed.damage.is_empty());
    assert!(replayed.record(&Key::from_static(b"small")).unwrap().unwrap().ends_with(b"new"));
}

/// A commit failed after its changes were written, and its number went to another one. Where a gap in the keys hides this, the records
/// still say it.
#[test]
fn a_gap_in_the_keys_makes_no_void_change_good() {
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    journal.append(1, &[inline("kept", "k")]);
    journal.append(2, &[delete("kept")]);
    journal.append(2, &[inline("other", "o")]);
    journal.close(2);
    damage(&medium, "journal/0000000000000001.log-keys", "other");
    let replayed = replay(&*medium).unwrap().unwrap();
    let keys: Vec<&[u8]> = replayed.keys().map(|key| &key[..]).collect();
    assert_eq!(keys, [&b"kept"[..], b"other"]);
    assert!(replayed.is_whole(Some(2)) && !replayed.damage.is_empty());
}

/// The journal of an earlier release has no account of keys. It is made anew, with both.
#[test]
fn a_journal_without_an_account_of_keys_wants_a_base() {
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    journal.append(1, &[put("a", "1")]);
    journal.close(1);
    drop(journal);
    assert!(!open(&medium.fork(), 1).wants_base());
    medium.remove("journal/0000000000000001.log-keys").unwrap();
    assert_eq!(held(&medium), pairs(&[("a", "1")]));
    assert!(open(&medium, 1).wants_base());
}

/// The index did not make the commit, or gave it up, and uses its number again.
#[test]
fn what_was_not_committed_is_void() {
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    journal.append(1, &[put("a", "1")]);
    journal.append(2, &[put("a", "2"), put("b", "2")]);
    journal.append(3, &[put("c", "3")]);
    journal.append(2, &[put("d", "2 again")]);
    assert_eq!(held(&medium), pairs(&[("a", "1"), ("d", "2 again")]));
    journal.append(3, &[put("e", "3 again")]);
    journal.close(2);
    assert_eq!(held(&medium), pairs(&[("a", "1"), ("d", "2 again")]));
}

#[test]
fn a_journal_that_does_not_end_where_the_index_does_wants_a_base() {
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    journal.append(1, &[put("a", "1")]);
    drop(journal);
    assert!(!open(&medium.fork(), 1).wants_base(), "a kill loses nothing that was written");
    assert!(open(&medium.fork(), 0).wants_base(), "the index did not make the commit");
    assert!(open(&medium.fork(), 2).wants_base(), "the journal is behind");
    let journal = open(&medium, 1);
    journal.close(1);
    let regressed = Journal::open(Arc::clone(&medium) as Arc<dyn Medium>, DRIVE, 0);
    assert!(matches!(regressed, Err(crate::StoreError::Corrupt { .. })), "{regressed:?}");
}

/// The store's thread marks an earlier commit as durable after the changes of the next one were written, and before the index
/// makes it. They are no less good for that.
#[test]
fn a_mark_does_not_undo_a_commit_that_is_being_made() {
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    journal.append(1, &[put("a", "1")]);
    journal.append(2, &[put("a", "2"), put("b", "2")]);
    journal.mark(1);
    let all = pairs(&[("a", "2"), ("b", "2")]);
    assert_eq!(held(&medium), all);
    assert!(!open(&medium.fork(), 2).wants_base(), "the journal ends where the index does");
    journal.append(3, &[delete("b")]);
    journal.mark(2);
    let replayed = replay(&*medium).unwrap().unwrap();
    assert!(replayed.is_whole(Some(3)) && replayed.damage.is_empty(), "{replayed:?}");
    assert_eq!((replayed.commit, replayed.marked), (3, 2));
    assert_eq!(held(&medium), pairs(&[("a", "2")]));
    // The index did not make the last one, and the store is closed.
    journal.close(2);
    assert_eq!(held(&medium), all);
}

/// What the journal costs a commit of one value of 4 KiB that is durable by the index, and what a commit takes that is durable by
/// the log, where the index is made durable every second: `--ignored --nocapture` shows it. The three take turns.
#[test]
#[ignore = "a measurement"]
fn commits_with_and_without_a_journal() {
    use std::time::{Duration, Instant};

    use crate::index::{Action, Change, Depth, Index, NewValue};
    const COMMITS: u32 = 2_000;
    const INDEX_AFTER: Duration = Duration::from_secs(1);
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let index = |number: usize| {
        let medium: Arc<dyn Medium> = crate::FolderMedium::open(dirs[number].path()).unwrap();
        let index = Index::open(medium.clone(), crate::index::INDEX, true, 64 << 20).unwrap();
        if number > 0 {
            index.set_journal(Arc::new(Journal::open(medium, DRIVE, 0).unwrap())).unwrap();
        }
        index
    };
    let indexes = [index(0), index(1), index(2)];
    let mut spent: [Vec<Duration>; 3] = Default::default();
    let mut indexed = Duration::ZERO;
    for commit in 0..COMMITS {
        for (number, (index, spent)) in indexes.iter().zip(&mut spent).enumerate() {
            let value = NewValue::Inline(crate::conformance::value(commit as u8, 4_096));
            let action = Action::Put { version: crate::Version::new(), tag: crate::Tag::default(), value };
            let change = Change { key: format!("key {commit}").into(), expected: crate::Expected::Any, action };
            let began = Instant::now();
            index.commit(vec![vec![change]], if number == 2 { Depth::Logged } else { Depth::Indexed }).unwrap();
            if number == 2 {
                indexed += began.elapsed();
                if indexed > INDEX_AFTER {
                    index.commit(vec![], Depth::Indexed).unwrap();
                    indexed = Duration::ZERO;
                }
            }
            spent.push(began.elapsed());
        }
    }
    for (what, mut spent) in ["no journal", "a journal", "the journal flushed instead"].into_iter().zip(spent) {
        let mean = spent.iter().sum::<Duration>() / COMMITS;
        spent.sort();
        println!("{what}: {mean:?} a commit, median {:?}, a tenth below {:?}", spent[1_000], spent[200]);
    }
}

/// What the journal's second account takes beside the first one, for values of 4 KiB: `--ignored --nocapture` shows it.
#[test]
#[ignore = "a measurement"]
fn bytes_of_both_accounts() {
    let medium = LyingMedium::new(1, 1 << 30);
    let journal = open(&medium, 0);
    let value = "v".repeat(4_096);
    for number in 1..=1_000 {
        journal.append(number, &[inline("a key of some thirty characters", &value)]);
    }
    let bytes = |name: &str| medium.open(name, false).unwrap().len().unwrap();
    println!("{} {}", bytes("journal/0000000000000001.log"), bytes("journal/0000000000000001.log-keys"));
}
