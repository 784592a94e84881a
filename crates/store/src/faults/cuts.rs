//! The power fails at each operation of the medium in turn.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::each_seed;
use super::model::{Model, random_batch};
use super::run::options;
use crate::medium::{Call, LyingMedium, Medium, Trouble};
use crate::{CheckOptions, DiskStore, Durability, FindingKind, Store, StoreError, check_on};

const STEPS: usize = 24;
/// The operation at which a case gives up looking for the end of the steps.
const OPERATIONS_MAX: u64 = 20_000;

fn open(medium: &Arc<LyingMedium>) -> Result<DiskStore, StoreError> {
    DiskStore::open_on(Arc::clone(medium) as Arc<dyn Medium>, options())
}

/// All calls fail after so many.
fn cut(medium: &LyingMedium, after: u64) {
    let calls = vec![Call::Read, Call::Write, Call::Flush, Call::Reserve, Call::Names];
    medium.set_trouble(vec![Trouble { calls, after, times: u64::MAX, errno: libc::EIO, partial: true }]);
}

/// Executes steps that follow from the seed until one fails. Returns the states that may be there afterwards, the durable
/// one first, and whether all steps succeeded.
fn steps(store: &DiskStore, seed: u64) -> (Vec<Model>, bool) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut states, mut next) = (vec![Model::default()], 0);
    for step in 0..STEPS {
        let visible = states.last().unwrap().clone();
        let (after, result, durable) = match rng.random_range(0..10) {
            0 => (Some(visible), store.flush(), true),
            // A new base of the journal, while the log has more than the index, and something is written back.
            1 if step > STEPS / 3 => {
                let core = store.core();
                let tended = core.index.journal().map_or(Ok(()), |journal| core.write_base(journal));
                (Some(visible), tended, false)
            }
            2 if step > STEPS / 2 => (Some(visible), store.compact_now().map(drop), false),
            // As a drive does, until the open segment has been sealed for what is dead in it.
            3 if step > STEPS / 3 => {
                let stepped = (0..40).try_for_each(|_| store.compact_step(64 << 10).map(drop));
                (Some(visible), stepped, false)
            }
            kind => {
                let batch = random_batch(&mut rng, &visible, &mut next);
                let durability = if kind < 8 { Durability::Through } else { Durability::Back };
                (visible.after(&batch), store.write(batch, durability), durability == Durability::Through)
            }
        };
        match (result, after) {
            (Ok(()), Some(after)) if durable => states = vec![after],
            (Ok(()), Some(after)) => states.push(after),
            (Err(StoreError::Conflict { .. }), None) => {}
            (Ok(()), None) => panic!("a batch in conflict was written"),
            (Err(_), after) => {
                states.extend(after);
                return (states, false);
            }
        }
    }
    (states, true)
}

/// One case; whether the steps ended before the power failed.
fn fails_at(seed: u64, at: u64) -> bool {
    let medium = LyingMedium::new(seed.wrapping_mul(1_000_003) ^ at, 1 << 30);
    let store = open(&medium).unwrap();
    cut(&medium, at);
    let (states, ended) = steps(&store, seed);
    let mut medium = medium.crash();
    drop(store);
    let what = format!("seed {seed}, operation {at}");
    let report = check_on(medium.fork(), &CheckOptions::default(), &mut |_| {}).unwrap_or_else(|e| panic!("{what}: {e}"));
    let strange: Vec<_> = report.findings.iter().filter(|found| found.kind != FindingKind::Leftover).collect();
    assert!(strange.is_empty(), "{what}: {strange:?}");
    // The power may fail again while the log is applied.
    for round in 0..at % 3 {
        cut(&medium, (at * 7 + round * 13) % 90);
        let opened = open(&medium);
        medium = medium.crash();
        drop(opened);
    }
    for _ in 0..2 {
        let store = open(&medium).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = Model::read(&store).unwrap_or_else(|error| panic!("{what}: {error}"));
        let shown: Vec<String> = states.iter().map(Model::show).collect();
        assert!(states.contains(&found), "{what} shows\n  {}\nand not one of\n  {}", found.show(), shown.join("\n  "));
        let bytes: u64 = found.0.values().map(|stored| stored.0.len() as u64).sum();
        let usage = store.usage().unwrap();
        assert_eq!((usage.keys, usage.value_bytes), (found.0.len() as u64, bytes), "{what}");
    }
    ended
}

#[test]
fn the_power_may_fail_at_every_operation() {
    each_seed(2, |seed| {
        let cases = (0..OPERATIONS_MAX).take_while(|at| !fails_at(seed, *at)).count();
        assert!(cases > 100, "only {cases} operations");
    });
}
