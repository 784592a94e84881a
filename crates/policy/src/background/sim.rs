//! Background work on virtual cores: a simulation of discrete events that has the same outcome for the same seed.
//!
//! Foreground tasks come at random moments, or when the one before is done, each to the core that its host thread is bound to, and
//! run there first come, first served. Services run in steps on whichever core the policy gives them, as the reactors of a drive do: a step is never
//! interrupted, the next one waits behind the tasks that came meanwhile, and a core rests from steps when they had their share.

mod run;

use serde::{Deserialize, Serialize};

use super::BackgroundPolicy;

/// What to simulate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The seed of all that is random.
    pub seed: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// The drive's cores.
    pub cores: usize,
    /// Host threads; each is bound to one core, in turn.
    pub threads: usize,
    /// Foreground tasks that each of them sends in a second, where these come at random moments.
    pub rate: f64,
    /// The mean time of a foreground task on its core, in seconds.
    pub task_seconds: f64,
    /// The standard deviation of its logarithm.
    pub task_spread: f64,
    /// Seconds that a task takes besides, on no core: the medium, and the way there and back.
    pub elsewhere_seconds: f64,
    /// Services, each of which has one step running at most.
    pub services: usize,
    /// How much there is for them to do.
    pub backlog: Backlog,
    /// The time of a step, in seconds.
    pub step_seconds: f64,
    /// What the first step on another core takes besides.
    pub move_seconds: f64,
    /// The seconds from one decision to the next.
    pub interval: f64,
}

/// How much services have to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Backlog {
    /// Nothing.
    None,
    /// Always more.
    Endless,
    /// So many steps for each foreground task that has ended. Under [`BackgroundPolicy::None`] they wait behind it on its core, as
    /// an event of SPDK's does.
    PerTask(f64),
}

/// When a host thread sends its next task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At random moments, whatever became of earlier ones.
    Random,
    /// When the one before is done, as `db_bench` does.
    Closed,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Foreground tasks that ended.
    pub tasks: u64,
    /// Their mean time, in seconds.
    pub mean: f64,
    /// Percentiles of their times, in seconds.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// See `p50`.
    pub p999: f64,
    /// The share of each core's time that went to foreground tasks.
    pub foreground: Vec<f64>,
    /// The share of each core's time that went to steps.
    pub background: Vec<f64>,
    /// Steps that ended.
    pub steps: u64,
    /// Steps on another core than their service's last one.
    pub moves: u64,
    /// The longest time without the end of a step, in seconds, while there was something to do.
    pub starved: f64,
}

/// Runs the scenario under a policy, with tasks that come at random moments.
pub fn simulate(scenario: &Scenario, policy: BackgroundPolicy) -> Outcome {
    simulate_with(scenario, Arrivals::Random, policy)
}

/// The same, with tasks that come so.
pub fn simulate_with(scenario: &Scenario, arrivals: Arrivals, policy: BackgroundPolicy) -> Outcome {
    run::Run::new(scenario, arrivals, policy).finish()
}

impl Outcome {
    /// Steps that were done for each foreground task: a policy that leaves steps undone has shorter queues for that, too.
    pub fn steps_per_task(&self) -> f64 {
        self.steps as f64 / (self.tasks as f64).max(1.0)
    }
}

/// The experiment of Park et al. 2022: puts of 16 KiB from so many host threads to a drive of four cores, with offline deduplication
/// derived from them. `heavy` hashes chunks of 0.5 KiB, else of 1 KiB. Times are those that make two threads keep two cores busy, as
/// the paper reports; they are not measured.
pub fn paper(threads: usize, heavy: bool) -> Scenario {
    Scenario {
        seed: 1,
        seconds: 10.0,
        cores: 4,
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
        interval: 0.02,
    }
}

#[cfg(test)]
mod tests;
