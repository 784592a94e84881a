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

/// What the journal costs a durable commit of one value of 4 KiB: `--ignored --nocapture` shows it.
#[test]
#[ignore = "a measurement"]
fn commits_with_and_without_a_journal() {
    use crate::index::{Action, Change, Index, NewValue};
    const COMMITS: u32 = 1_000;
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let index = |number: usize| {
        let medium: Arc<dyn Medium> = crate::FolderMedium::open(dirs[number].path()).unwrap();
        let index = Index::open(medium.clone(), crate::index::INDEX, true, 64 << 20).unwrap();
        if number == 1 {
            index.set_journal(Arc::new(Journal::open(medium, DRIVE, 0).unwrap())).unwrap();
        }
        index
    };
    let indexes = [index(0), index(1)];
    let mut spent = [std::time::Duration::ZERO; 2];
    for commit in 0..COMMITS {
        for (index, spent) in indexes.iter().zip(&mut spent) {
            let value = NewValue::Inline(crate::conformance::value(commit as u8, 4_096));
            let action = Action::Put { version: crate::Version::new(), tag: crate::Tag::default(), value };
            let change = Change { key: format!("key {commit}").into(), expected: crate::Expected::Any, action };
            let began = std::time::Instant::now();
            index.commit(vec![vec![change]], true).unwrap();
            *spent += began.elapsed();
        }
    }
    println!("{COMMITS} commits: {:?} each without a journal, {:?} with", spent[0] / COMMITS, spent[1] / COMMITS);
}
