//! Random operations with random faults, on a medium that loses data on demand, compared with plain maps.
//!
//! `PITHEAD_FAULT_CASES` sets how many cases each test runs, and `PITHEAD_SEED` which is the first. A failure prints
//! its seed.

mod cuts;
mod damage;
mod model;
mod rot;
mod run;
mod threads;
mod unclosed;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use self::run::{Faults, Run};

/// Runs `case` with many seeds. Prints the seed of a failure.
fn each_seed(cases: u64, case: impl Fn(u64)) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("PITHEAD_SEED").unwrap_or(1);
    let cases = number("PITHEAD_FAULT_CASES").unwrap_or(cases);
    for seed in first..first + cases {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(seed))) {
            eprintln!("this was seed {seed}: PITHEAD_SEED={seed} PITHEAD_FAULT_CASES=1 runs it alone");
            resume_unwind(panic);
        }
    }
}

#[test]
fn crashes_lose_nothing_that_was_acknowledged() {
    each_seed(120, |seed| Run::new(seed, Faults { crashes: true, ..Faults::default() }).steps(60));
}

#[test]
fn errors_change_nothing_or_all() {
    each_seed(120, |seed| Run::new(seed, Faults { errors: true, ..Faults::default() }).steps(60));
}

#[test]
fn a_medium_that_fills_up_refuses_puts_alone() {
    each_seed(60, |seed| Run::new(seed, Faults { crashes: true, full: true, ..Faults::default() }).steps(60));
}

#[test]
fn crashes_and_errors_together() {
    each_seed(200, |seed| {
        Run::new(seed, Faults { crashes: true, errors: true, full: seed.is_multiple_of(4), dedup: false }).steps(60)
    });
}

#[test]
fn deduplication_changes_nothing_that_is_read() {
    each_seed(60, |seed| Run::new(seed, Faults { dedup: true, ..Faults::default() }).steps(60));
}

#[test]
fn deduplication_loses_nothing_by_crashes_and_errors() {
    let faults =
        |seed: u64| Faults { crashes: true, errors: seed.is_multiple_of(2), full: seed.is_multiple_of(8), dedup: true };
    each_seed(120, |seed| Run::new(seed, faults(seed)).steps(60));
}
