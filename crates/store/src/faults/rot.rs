//! Bits that change on the medium, in values and in the index.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::each_seed;
use super::model::{Model, Stored, random_batch};
use super::run::options;
use crate::medium::{LyingMedium, Medium};
use crate::{
    CheckOptions, CheckReport, DiskStore, Durability, Entry, Key, Store, StoreError, Value, Write, check_on, show_key,
};

/// A store with random contents, flushed.
fn filled(rng: &mut StdRng) -> (Arc<LyingMedium>, DiskStore, Model) {
    let medium = LyingMedium::new(rng.random(), 1 << 30);
    let store = open(&medium).unwrap();
    let (mut model, mut next) = (Model::default(), 0);
    for _ in 0..20 {
        let mut batch = random_batch(rng, &model, &mut next);
        // Each value lies in a place of its own.
        batch.retain(|write| !matches!(write, Write::Copy { .. }));
        if let Some(after) = model.after(&batch) {
            store.write(batch, Durability::Through).unwrap();
            model = after;
        }
    }
    (medium, store, model)
}

fn flip(medium: &LyingMedium, rng: &mut StdRng, name: &str) {
    let pages = medium.written(name);
    let page = pages[rng.random_range(0..pages.len())];
    medium.flip(name, page + rng.random_range(0..4_096), 1 << rng.random_range(0..8));
}

/// Checks that each key has its value, or fails as damaged. Returns those that fail.
fn damaged(store: &DiskStore, model: &Model) -> BTreeSet<Key> {
    let is_damaged = |(key, stored): (&Key, &Stored)| match store.get(key) {
        Ok(Some(found)) => {
            assert_is(found, key, stored);
            None
        }
        Ok(None) => panic!("{} is gone without a word", key.escape_ascii()),
        Err(StoreError::Corrupt { .. }) => Some(key.clone()),
        Err(error) => panic!("{error}"),
    };
    let damaged = model.0.iter().filter_map(is_damaged).collect();
    if let Ok(found) = Model::read(store) {
        assert!(found == *model, "a range shows something else");
    }
    damaged
}

fn assert_is((value, entry): (Value, Entry), key: &Key, stored: &Stored) {
    let found = (value, entry.version, entry.tag);
    assert!(entry.key == *key && found == *stored, "{} has a wrong value", key.escape_ascii());
}

fn open(medium: &Arc<LyingMedium>) -> Result<DiskStore, StoreError> {
    DiskStore::open_on(Arc::clone(medium) as Arc<dyn Medium>, options())
}

fn check(medium: &Arc<LyingMedium>, repair: bool) -> Result<CheckReport, StoreError> {
    check_on(Arc::clone(medium) as Arc<dyn Medium>, &CheckOptions { repair }, &mut |_| {})
}

#[test]
fn a_bit_of_a_large_value_damages_that_value_alone() {
    each_seed(60, |seed| {
        let mut rng = StdRng::seed_from_u64(seed);
        let (medium, store, model) = filled(&mut rng);
        let names = medium.list("segments").unwrap();
        if names.is_empty() {
            return;
        }
        let name = format!("segments/{}", names[rng.random_range(0..names.len())]);
        flip(&medium, &mut rng, &name);
        assert!(damaged(&store, &model).len() <= 1);
        drop(store);
        let store = open(&medium).unwrap();
        let keys: Vec<Option<String>> = damaged(&store, &model).iter().map(|key| Some(show_key(key))).collect();
        assert!(keys.len() <= 1);
        drop(store);
        let report = check(&medium, seed.is_multiple_of(2)).unwrap();
        let named: Vec<Option<String>> = report.findings.iter().map(|finding| finding.key.clone()).collect();
        assert_eq!(named, keys, "{:?}", report.findings);
    });
}

#[test]
fn a_bit_of_the_index_never_gives_a_wrong_answer() {
    each_seed(100, |seed| {
        let mut rng = StdRng::seed_from_u64(seed);
        let (medium, store, model) = filled(&mut rng);
        if rng.random() {
            flip(&medium, &mut rng, "index.redb");
            damaged(&store, &model);
        }
        drop(store);
        flip(&medium, &mut rng, "index.redb");
        match open(&medium) {
            Ok(store) => drop(damaged(&store, &model)),
            Err(StoreError::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    });
}

/// Lost data stays lost, but the rest is there again, and nothing else.
#[test]
fn a_repaired_index_holds_what_could_be_read() {
    let (mut repaired, mut lost, mut hopeless) = (0, 0, 0);
    let counts = RefCell::new((&mut repaired, &mut lost, &mut hopeless));
    each_seed(100, |seed| {
        let mut rng = StdRng::seed_from_u64(seed);
        let (medium, store, model) = filled(&mut rng);
        drop(store);
        flip(&medium, &mut rng, "index.redb");
        let report = match check(&medium, true) {
            Ok(report) => report,
            Err(StoreError::Corrupt { .. } | StoreError::Index { .. }) => {
                *counts.borrow_mut().2 += 1;
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let store = match open(&medium) {
            Ok(store) => store,
            Err(error) => panic!("{error} after {:?}", report.findings),
        };
        let found = Model::read(&store).unwrap();
        for (key, stored) in &found.0 {
            assert!(model.0.get(key) == Some(stored), "{} has a wrong value", key.escape_ascii());
        }
        let missing = model.0.len() - found.0.len();
        assert!(missing == 0 || !report.findings.is_empty(), "{missing} keys are gone without a word");
        *counts.borrow_mut().0 += 1;
        *counts.borrow_mut().1 += missing;
        let written = store.write(vec![Write::put("after", "repair")], Durability::Through);
        assert!(written.is_ok(), "{written:?} after {:?}", report.findings);
        drop(store);
        let again = check(&medium, false).unwrap();
        assert!(again.findings.is_empty(), "{:?} is left after {:?}", again.findings, report.findings);
    });
    println!("{repaired} stores repaired, {lost} keys lost, {hopeless} stores beyond repair");
}
