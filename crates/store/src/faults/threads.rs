//! Several writers at once, and the power fails under them.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::each_seed;
use super::model::{Model, random_batch, random_large_value};
use super::run::options;
use crate::medium::{LyingMedium, Medium};
use crate::{DiskStore, Durability, Key, Store, StoreError, StoreOptions, Tag, Version, Write, check_on};

const WRITERS: u8 = 4;

/// What one writer did until the power failed.
struct Done {
    /// The states after each of its calls that were acknowledged; the last may be that of a call that was not.
    states: Vec<Model>,
    /// The first of these states that may be there after the crash.
    durable: usize,
}

#[test]
fn when_the_power_fails_under_many_writers_each_loses_only_what_was_written_back() {
    each_seed(60, |seed| {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut medium = LyingMedium::new(rng.random(), 1 << 30);
        let mut models = vec![Model::default(); usize::from(WRITERS)];
        for _ in 0..3 {
            let store = open(&medium);
            let run_for = Duration::from_micros(rng.random_range(500..20_000));
            let seed: u64 = rng.random();
            let (after, done) = std::thread::scope(|scope| {
                let writer = |(number, model): (u8, &Model)| {
                    let (store, model) = (&store, model.clone());
                    scope.spawn(move || write_until_it_fails(store, number, model, seed))
                };
                let writers: Vec<_> = (0..WRITERS).zip(&models).map(writer).collect();
                std::thread::sleep(run_for);
                let after = medium.crash();
                let done: Vec<Done> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
                (after, done)
            });
            drop(store);
            medium = after;
            models = judge(&open(&medium), &done);
            let report = check_on(Arc::clone(&medium) as Arc<dyn Medium>, &crate::CheckOptions::default(), &mut |_| {});
            let findings = report.unwrap().findings;
            assert!(findings.is_empty(), "{findings:?}");
        }
    });
}

fn open(medium: &Arc<LyingMedium>) -> DiskStore {
    let options = StoreOptions { background: true, ..options() };
    DiskStore::open_on(Arc::clone(medium) as Arc<dyn Medium>, options).unwrap()
}

/// Each writer has keys of its own.
fn own(number: u8, key: &[u8]) -> Key {
    let kept = key.len().min(crate::KEY_BYTES_MAX - 1);
    [&[number], &key[..kept]].concat().into()
}

fn write_until_it_fails(store: &DiskStore, number: u8, model: Model, seed: u64) -> Done {
    let mut rng = StdRng::seed_from_u64(seed ^ u64::from(number));
    // No two writers, and no two runs, then put the same value.
    let mut next = ((seed << 8) | u64::from(number)) << 16;
    let mut done = Done { states: vec![model], durable: 0 };
    loop {
        let model = done.states.last().unwrap();
        let (after, result, durable) = match rng.random_range(0..10) {
            0 => (Some(model.clone()), store.flush(), true),
            1 => {
                next += 1;
                let (key, value) = (own(number, b"adopted"), random_large_value(&mut rng, next));
                let mut after = model.clone();
                after.0.insert(key.clone(), (value.clone(), Version::new(), Tag::default()));
                let result = store.stage(value).and_then(|staged| store.adopt(vec![(key, staged)], Vec::new()));
                (Some(after), result, true)
            }
            _ => {
                let mut batch = random_batch(&mut rng, &Model::default(), &mut next);
                for write in &mut batch {
                    match write {
                        Write::Put(crate::Put { key, .. }) | Write::Delete { key, .. } => *key = own(number, key),
                        Write::Copy { from, to, .. } => (*from, *to) = (own(number, from), own(number, to)),
                    }
                }
                let through = rng.random_bool(0.5);
                let durability = if through { Durability::Through } else { Durability::Back };
                (model.after(&batch), store.write(batch, durability), through)
            }
        };
        match (result, after) {
            (Ok(()), Some(after)) => done.states.push(after),
            (Err(StoreError::Conflict { .. }), None) => continue,
            (Ok(()), None) => panic!("a batch in conflict was written"),
            // The call may have succeeded all the same.
            (Err(StoreError::Io { .. } | StoreError::Index { .. }), after) => {
                done.states.extend(after);
                return done;
            }
            (Err(error), _) => panic!("{error}"),
        }
        if durable {
            done.durable = done.states.len() - 1;
        }
    }
}

/// The contents of each writer's keys now: a state that the writer may have left.
fn judge(store: &DiskStore, done: &[Done]) -> Vec<Model> {
    let found = Model::read(store).unwrap();
    let of_writer = |number: u8| {
        Model(found.0.iter().filter(|(key, _)| key[0] == number).map(|(key, stored)| (key.clone(), stored.clone())).collect())
    };
    let models: Vec<Model> = (0..WRITERS).map(of_writer).collect();
    for (number, (model, done)) in models.iter().zip(done).enumerate() {
        let possible = &done.states[done.durable..];
        assert!(
            possible.contains(model),
            "writer {number} finds\n  {}\nafter {} states, of which {} is durable:\n  {}\nthe last being\n  {}",
            model.show(),
            done.states.len(),
            done.durable,
            done.states[done.durable].show(),
            done.states.last().unwrap().show()
        );
    }
    models
}
