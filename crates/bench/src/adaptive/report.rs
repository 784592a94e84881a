//! What was measured and simulated, for people and for programs.

use serde::Serialize;

use super::AdaptiveOptions;
use super::measure::Measured;
use super::simulated::Simulated;
use super::streams::Streams;
use crate::machine::Machine;
use crate::report::table;
use crate::timing::{Spread, geometric_mean};

/// The share of cells that the regret is told for.
const MOST: f64 = 0.9;

/// Everything.
#[derive(Debug, Serialize)]
pub(super) struct AdaptiveReport {
    machine: Machine,
    slices: usize,
    slice_rows: usize,
    runs: usize,
    /// In virtual time.
    simulated: Option<Simulated>,
    /// For real.
    cells: Vec<Measured>,
    streams: Vec<Streams>,
    summary: AdaptiveSummary,
}

/// The figures that later versions are compared by. None: not run, or not all of it.
#[derive(Debug, Default, Serialize)]
struct AdaptiveSummary {
    worst_regret_simulated: Option<f64>,
    mean_regret_simulated: Option<f64>,
    share_over_1_05_simulated: Option<f64>,
    worst_single_run_regret_simulated: Option<f64>,
    p90_regret: Option<f64>,
    median_regret: Option<f64>,
    mean_regret: Option<f64>,
    worst_regret: Option<f64>,
    worst_cell: Option<String>,
    p90_first_run_regret: Option<f64>,
    best_split_gain: Option<f64>,
    best_split_cell: Option<String>,
    /// The slowest stream over the fastest one, adaptively.
    streams_4_max_over_min: Option<f64>,
    streams_16_max_over_min: Option<f64>,
    /// All streams adaptively, over the best fixed level.
    streams_16_regret: Option<f64>,
}

impl AdaptiveReport {
    pub(super) fn new(
        machine: Machine,
        options: &AdaptiveOptions,
        simulated: Option<Simulated>,
        cells: Vec<Measured>,
        streams: Vec<Streams>,
    ) -> Self {
        let summary = AdaptiveSummary::of(simulated.as_ref(), &cells, &streams);
        let AdaptiveOptions { slices, slice_rows, runs, .. } = *options;
        Self { machine, slices, slice_rows, runs, simulated, cells, streams, summary }
    }

    /// All of it as tables.
    pub(super) fn text(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.simulated.as_ref().map(Simulated::text));
        if !self.cells.is_empty() {
            let header = [
                "cell",
                "level 3 ms",
                "level 2 ms",
                "level 1 ms",
                "level 0 ms",
                "auto ms",
                "first",
                "slices 3/2/1/0",
                "auto/best",
                "spread",
            ];
            parts.push(table(&header, &self.cells.iter().map(row).collect::<Vec<_>>()));
            parts.push(format!("medians of {} runs; spread: the slowest adaptive run over the fastest", self.runs));
        }
        if !self.streams.is_empty() {
            let row = |streams: &Streams| {
                vec![
                    format!("{} streams, level {}", streams.streams, streams.level),
                    format!("{:.0}", streams.all_s * 1e3),
                    format!("{:.2}", streams.max_over_min),
                ]
            };
            parts.push(table(&["streams", "ms", "slowest/fastest"], &self.streams.iter().map(row).collect::<Vec<_>>()));
        }
        parts.push(serde_json::to_string_pretty(&self.summary).unwrap_or_default());
        parts.join("\n\n")
    }
}

impl AdaptiveSummary {
    fn of(simulated: Option<&Simulated>, cells: &[Measured], streams: &[Streams]) -> AdaptiveSummary {
        let mut summary = AdaptiveSummary {
            worst_regret_simulated: simulated.map(|it| it.worst),
            mean_regret_simulated: simulated.map(|it| it.mean),
            share_over_1_05_simulated: simulated.map(|it| it.share_over_aim),
            worst_single_run_regret_simulated: simulated.map(|it| it.worst_single),
            ..AdaptiveSummary::default()
        };
        let best = |a: &&Measured, b: &&Measured| a.regret.total_cmp(&b.regret);
        if let (Some(worst), Some(split)) = (cells.iter().max_by(best), cells.iter().min_by(best)) {
            let regrets: Vec<f64> = cells.iter().map(|cell| cell.regret).collect();
            summary.p90_regret = Some(quantile(regrets.clone(), MOST));
            summary.median_regret = Some(quantile(regrets.clone(), 0.5));
            summary.mean_regret = Some(geometric_mean(regrets));
            (summary.worst_regret, summary.worst_cell) = (Some(worst.regret), Some(worst.name.clone()));
            summary.p90_first_run_regret = Some(quantile(cells.iter().map(|cell| cell.regret_first).collect(), MOST));
            (summary.best_split_gain, summary.best_split_cell) = (Some(1.0 / split.regret), Some(split.name.clone()));
        }
        let auto = |count: usize| streams.iter().find(|it| it.streams == count && it.level == "auto");
        summary.streams_4_max_over_min = auto(4).map(|it| it.max_over_min);
        summary.streams_16_max_over_min = auto(16).map(|it| it.max_over_min);
        summary.streams_16_regret = auto(16).map(|auto| {
            let fixed = streams.iter().filter(|it| it.streams == auto.streams && it.level != auto.level);
            auto.all_s / fixed.map(|it| it.all_s).fold(f64::INFINITY, f64::min)
        });
        summary
    }
}

/// The smallest value that a share of the values does not exceed. `values` are not empty.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let nth = (values.len() as f64 * share).ceil() as usize;
    values.get(nth.max(1) - 1).copied().unwrap_or(f64::NAN)
}

fn row(cell: &Measured) -> Vec<String> {
    let ms = |spread: &Spread| format!("{:.0}", spread.median * 1e3);
    let slices = cell.auto_slices;
    vec![
        cell.name.clone(),
        ms(&cell.level_3_s),
        ms(&cell.level_2_s),
        ms(&cell.level_1_s),
        ms(&cell.level_0_s),
        ms(&cell.auto_s),
        format!("{:.0}", cell.auto_first_s * 1e3),
        format!("{:.0}/{:.0}/{:.0}/{:.0}", slices.whole, slices.filtered, slices.hints, slices.bytes),
        format!("{:.2}", cell.regret),
        format!("{:.2}", cell.auto_s.max / cell.auto_s.min),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_cells_are_at_most_the_quantile() {
        let values: Vec<f64> = (1..=36).map(f64::from).collect();
        assert_eq!((quantile(values.clone(), MOST), quantile(values, 0.5)), (33.0, 18.0));
        assert_eq!(quantile(vec![2.0], MOST), 2.0);
    }
}
