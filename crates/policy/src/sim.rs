//! The policy in virtual time: one session at one drive, as a simulation of discrete events that has the same outcome
//! for the same seed.
//!
//! Workers execute slices at level 3 or 2, and a carrier sends slices at level 1 or 0. Their output goes over a link, first
//! come, first served, and then to the host's cores. A worker waits while more than [`BUFFER_BYTES`] of earlier output
//! are still on their way.

mod grid;
mod load;
mod run;

use pithead_model::Level;
use serde::{Deserialize, Serialize};

pub use grid::grid;
pub use load::Load;

use crate::snapshot::{Allowed, ByLevel, Setup, SliceCosts};

/// The most bytes that may wait before the link.
pub const BUFFER_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// A session to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The scenario's name, for people.
    pub name: String,
    /// The seed of the noise.
    pub seed: u64,
    /// Slices of the partition.
    pub slices: u32,
    /// The number of these that the host has in its cache already.
    pub resident: u32,
    /// The true mean cost of a slice.
    pub costs: SliceCosts,
    /// The one-off costs before the first slice at a level.
    pub setup: ByLevel<Setup>,
    /// The number of the drive's cores, and of its workers.
    pub drive_cores: u32,
    /// Cores of the host.
    pub host_cores: u32,
    /// The link's rate. Infinite within a process.
    pub link_bytes_per_s: f64,
    /// The share of the drive's CPU that others use.
    pub drive_load: Load,
    /// The share of the link that others use.
    pub link_load: Load,
    /// The share of the host's CPU that others use.
    pub host_load: Load,
    /// Standard deviation of the logarithm of a slice's CPU time.
    pub noise: f64,
    /// The number of first slices at the drive that are slow.
    pub slow_first: u32,
    /// How many times slower they are.
    pub slow_factor: f64,
    /// The cost model's prediction of CPU time, over the true value.
    pub time_error: f64,
    /// The cost model's prediction of the bytes of levels 3 and 2, over the true value.
    pub size_error: f64,
    /// How old the session's knowledge of loads is, in nanoseconds.
    pub notice_ns: f64,
    /// CPU times that the drive reports in turn instead of what it measured. Empty: it reports what it measured.
    pub lies: Vec<f64>,
    /// The levels that may be chosen.
    pub allowed: Allowed,
    /// Level 3 is for all slices or for none.
    pub whole_is_all_or_none: bool,
}

/// Who chooses the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Nobody: every slice is executed at this level.
    Fixed(Level),
    /// [`Steering`](crate::Steering), from the cost model's prediction and from measurements.
    Adaptive,
    /// [`split`](crate::split()), from the true mean costs.
    Oracle,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// When the last slice was finished, in nanoseconds. Infinite if it never was.
    pub finish_ns: f64,
    /// The number of slices executed at each level.
    pub slices: ByLevel<u32>,
    /// How often the session asked the policy.
    pub decisions: u32,
    /// How often workers changed between levels 3 and 2, and how often the carrier was switched on or off.
    pub changes: u32,
}

/// The adaptive finish beside those of the fixed levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Regret {
    /// The adaptive run.
    pub adaptive: Outcome,
    /// Each fixed level's finish. Infinite where it is not allowed or cannot end.
    pub fixed_ns: ByLevel<f64>,
    /// The level that was fastest alone.
    pub best_fixed: Level,
    /// The adaptive finish over that of the fastest fixed level.
    pub regret: f64,
}

/// Runs `scenario` to its end in virtual time.
pub fn simulate(scenario: &Scenario, policy: Policy) -> Outcome {
    run::Run::new(scenario, policy).finish()
}

/// Runs `scenario` adaptively and at each level that is allowed, with the same noise for all.
pub fn regret(scenario: &Scenario) -> Regret {
    median_regret(scenario, 1)
}

/// The same comparison, with the medians of `runs` runs. Each run has noise of its own, from the scenario's seed and
/// those that follow it, as a repeated measurement would have.
pub fn median_regret(scenario: &Scenario, runs: u64) -> Regret {
    let seeded = |run: u64| Scenario { seed: scenario.seed.wrapping_add(run << 32), ..scenario.clone() };
    let scenarios: Vec<Scenario> = (0..runs.max(1)).map(seeded).collect();
    let median = |policy: Policy| {
        let mut outcomes: Vec<Outcome> = scenarios.iter().map(|scenario| simulate(scenario, policy)).collect();
        outcomes.sort_by(|a, b| a.finish_ns.total_cmp(&b.finish_ns));
        outcomes.swap_remove(outcomes.len() / 2)
    };
    let fixed_ns =
        ByLevel::from_fn(
            |level| {
                if scenario.allowed.get(level) { median(Policy::Fixed(level)).finish_ns } else { f64::INFINITY }
            },
        );
    let adaptive = median(Policy::Adaptive);
    let mut best_fixed = Level::Whole;
    for level in ByLevel::<f64>::LEVELS {
        if fixed_ns.get(level) < fixed_ns.get(best_fixed) {
            best_fixed = level;
        }
    }
    let regret = adaptive.finish_ns / fixed_ns.get(best_fixed);
    Regret { adaptive, fixed_ns, best_fixed, regret }
}
