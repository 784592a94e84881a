//! The rates that a release ships with, and how a learned rate moves.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The number of ratios that a rate remembers.
const RATIOS: usize = 31;
/// The most by which a rate moves at once, and the most by which it may differ from the shipped rate.
const STEP_MAX: f64 = 4.0;
const DRIFT_MAX: f64 = 1e4;
/// The weight of one observation in the long run.
const GAIN_MIN: f64 = 0.1;

/// The kind of work that a rate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Decoding columns.
    Scan,
    /// Comparing values.
    Filter,
    /// Computing and copying what passes the filter.
    Project,
    /// Aggregate functions, with or without groups.
    Aggregate,
    /// Probing a join.
    Join,
    /// Selecting the first rows in an order.
    TopK,
}

impl Operator {
    /// All operators, in the order in which a slice passes through them.
    pub const ALL: [Operator; 6] =
        [Operator::Scan, Operator::Filter, Operator::Project, Operator::Aggregate, Operator::Join, Operator::TopK];

    /// The unit of work that the rate is for.
    pub fn unit(self) -> &'static str {
        match self {
            Operator::Scan => "decoded byte",
            Operator::Filter => "row and predicate",
            Operator::Project => "row and expression",
            Operator::Aggregate => "row and function",
            Operator::Join => "row and join",
            Operator::TopK => "row",
        }
    }

    /// Whether the operator runs at level 2, and not only at level 3.
    pub fn is_scan(self) -> bool {
        matches!(self, Operator::Scan | Operator::Filter | Operator::Project)
    }

    /// Nanoseconds for a unit on the machine on which the rates were measured: x86-64-v3 at 3 GHz.
    pub(crate) fn default_ns(self, encoding: &str) -> f64 {
        match self {
            Operator::Scan if encoding == "arrow" => 0.05,
            Operator::Scan => 0.12,
            Operator::Filter => 0.5,
            Operator::Project => 1.0,
            Operator::Aggregate => 1.5,
            Operator::Join => 30.0,
            Operator::TopK => 3.0,
        }
    }
}

impl std::fmt::Display for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Operator::Scan => "scan",
            Operator::Filter => "filter",
            Operator::Project => "project",
            Operator::Aggregate => "aggregate",
            Operator::Join => "join",
            Operator::TopK => "top_k",
        })
    }
}

/// A learned rate, as a factor of the shipped one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rate {
    /// The logarithm of the factor, so that a factor that is read from a disk cannot be negative.
    log_factor: f64,
    pub predictions: u64,
    /// Ratios of predicted to actual cost, the newest last.
    ratios: VecDeque<f64>,
}

impl Rate {
    pub fn factor(&self) -> f64 {
        let bound = DRIFT_MAX.ln();
        if self.log_factor.is_nan() { 1.0 } else { self.log_factor.clamp(-bound, bound).exp() }
    }

    /// Moves the rate towards `actual / predicted`, by the more the larger the rate's `share` of the prediction is.
    pub fn learn(&mut self, predicted: f64, actual: f64, share: f64) {
        let ratio = (actual / predicted).clamp(1.0 / STEP_MAX, STEP_MAX);
        let gain = (1.0 / (1.0 + self.predictions as f64)).max(GAIN_MIN);
        let bound = DRIFT_MAX.ln();
        self.log_factor = (self.factor().ln() + gain * share.clamp(0.0, 1.0) * ratio.ln()).clamp(-bound, bound);
        self.predictions = self.predictions.saturating_add(1);
        self.ratios.push_back(predicted / actual);
        while self.ratios.len() > RATIOS {
            self.ratios.pop_front();
        }
    }

    /// The median of predicted over actual cost, over the last predictions.
    pub fn median_ratio(&self) -> Option<f64> {
        let mut ratios: Vec<f64> = self.ratios.iter().copied().collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }
}
