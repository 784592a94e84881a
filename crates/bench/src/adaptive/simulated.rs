//! The policy over its whole grid, in virtual time.

use pithead_policy::sim::{grid, median_regret, regret};
use serde::Serialize;

use crate::timing::geometric_mean;

/// Runs of each scenario, each with other noise; their medians count, as in the cells that are measured.
const RUNS: u64 = 5;
/// A regret that is over this is told of.
pub(super) const AIM: f64 = 1.05;
/// Scenarios that are named.
const NAMED: usize = 20;

/// What the simulation gave. Nothing of it was measured.
#[derive(Debug, Serialize)]
pub(super) struct Simulated {
    scenarios: usize,
    /// Runs of each, whose medians were compared.
    runs: u64,
    pub(super) worst: f64,
    pub(super) mean: f64,
    pub(super) best: f64,
    /// The share of scenarios that are over the aim.
    pub(super) share_over_aim: f64,
    /// The same with one run of each scenario, where one unlucky slice counts.
    pub(super) worst_single: f64,
    pub(super) share_over_aim_single: f64,
    /// Those with the highest regret, highest first.
    worst_scenarios: Vec<Simulation>,
}

/// One scenario.
#[derive(Debug, Serialize)]
struct Simulation {
    name: String,
    /// The adaptive finish over the best fixed level's.
    regret: f64,
}

impl Simulated {
    /// Simulates the grid; takes about a minute.
    pub(super) fn run() -> Simulated {
        let grid = grid();
        let (mut all, mut single) = (Vec::with_capacity(grid.len()), Vec::with_capacity(grid.len()));
        for scenario in grid {
            single.push(regret(&scenario).regret);
            let regret = median_regret(&scenario, RUNS).regret;
            all.push(Simulation { name: scenario.name, regret });
        }
        all.sort_by(|a, b| b.regret.total_cmp(&a.regret));
        let regrets: Vec<f64> = all.iter().map(|simulation| simulation.regret).collect();
        let worst = |regrets: &[f64]| regrets.iter().copied().fold(0.0, f64::max);
        let over = |regrets: &[f64]| regrets.iter().filter(|it| **it > AIM).count() as f64 / regrets.len().max(1) as f64;
        all.truncate(NAMED);
        Simulated {
            scenarios: regrets.len(),
            runs: RUNS,
            worst: worst(&regrets),
            mean: geometric_mean(regrets.iter().copied()),
            best: regrets.iter().copied().fold(f64::INFINITY, f64::min),
            share_over_aim: over(&regrets),
            worst_single: worst(&single),
            share_over_aim_single: over(&single),
            worst_scenarios: all,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let worst: Vec<String> =
            self.worst_scenarios.iter().take(5).map(|it| format!("  {:.3} {}", it.regret, it.name)).collect();
        format!(
            "Simulated, {} scenarios, medians of {} runs: regret {:.3} in the mean, {:.3} at worst, {:.3} at best; {:.1}% are over {AIM}. \
             One run each: {:.3} at worst, {:.1}% over {AIM}.\n{}",
            self.scenarios,
            self.runs,
            self.mean,
            self.worst,
            self.best,
            self.share_over_aim * 100.0,
            self.worst_single,
            self.share_over_aim_single * 100.0,
            worst.join("\n")
        )
    }
}
