//! Background work on virtual cores: a simulation of discrete events that has the same outcome for the same seed.
//!
//! Foreground tasks come at random moments, or when the one before is done, each to the core that its host thread is bound to, and
//! run there first come, first served. Services run in steps on whichever core the policy gives them, as the reactors of a drive do:
//! a step is never interrupted, the next one waits behind the tasks that came meanwhile, and a core rests from steps when they had
//! their share.
//!
//! A drive may have a [`Medium`], which steps read and tasks write. Tasks that write wait for commits, as those of the store do; see
//! [`Writes`].

mod core;
mod device;
mod event;
mod run;
mod scenario;
mod task;
mod threads;
mod writing;

pub use scenario::{Arrivals, Backlog, Medium, Outcome, Scenario, Writes};

use super::BackgroundPolicy;

/// Runs the scenario under a policy, with tasks that come at random moments.
pub fn simulate(scenario: &Scenario, policy: BackgroundPolicy) -> Outcome {
    simulate_with(scenario, Arrivals::Random, policy)
}

/// The same, with tasks that come so.
pub fn simulate_with(scenario: &Scenario, arrivals: Arrivals, policy: BackgroundPolicy) -> Outcome {
    run::Run::new(scenario, arrivals, policy).finish()
}

/// The experiment of Park et al. 2022: puts of 16 KiB from so many host threads to a drive of four cores, with offline deduplication
/// derived from them. `heavy` hashes chunks of 0.5 KiB, else of 1 KiB. Times are those that make two threads keep two cores busy, as
/// the paper reports; they are not measured.
pub fn paper(threads: usize, heavy: bool) -> Scenario {
    Scenario {
        seed: 1,
        seconds: 10.0,
        cores: 4,
        beside_speed: 1.0,
        threads,
        // Each thread keeps 0.55 of a core busy with puts, and 0.34 or 0.44 with their deduplication.
        rate: 5_500.0,
        task_seconds: 100e-6,
        task_spread: 0.3,
        elsewhere_seconds: 20e-6,
        services: 4,
        backlog: Backlog::PerTask(1.0),
        step_seconds: if heavy { 80e-6 } else { 62e-6 },
        move_seconds: 5e-6,
        step_bytes: 0.0,
        read_elsewhere_seconds: 0.0,
        medium: None,
        writes: None,
        interval: 0.02,
    }
}

#[cfg(test)]
mod tests;
