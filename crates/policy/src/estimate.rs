//! An estimate of one measured quantity that a few bad samples cannot throw off.

use std::collections::VecDeque;

use crate::fluid::sane;

/// The number of samples in the window.
const WINDOW: usize = 9;
/// A sample that is further off than this factor counts as if it were off by this factor, until the next sample
/// confirms it.
const STEP_MAX: f64 = 4.0;
/// The weight of the first sample once there are others: the first slices can be abnormally slow (Montana et al. 2023,
/// Skytether, section 6.3; see `docs/bibliography.md`).
const FIRST_WEIGHT: f64 = 0.25;
/// The factor by which the weight of samples falls for each decision without a new sample.
const FADING: f64 = 0.95;

/// The range of what a slice may take, relative to the estimate: before the first sample, with a few samples, and
/// later.
const PRIOR_LOW: f64 = 0.35;
const FEW_RANGE: (f64, f64) = (0.4, 1.5);
const KNOWN_RANGE: (f64, f64) = (0.85, 1.2);
const FEW: u32 = 8;
/// Two samples in succession that are off by more than this factor to the same side begin a new window, because
/// conditions have changed.
const SHIFT: f64 = 1.8;

/// A windowed, weighted median of samples and of a prior whose weight fades as samples come.
#[derive(Clone, Debug)]
pub struct Estimate {
    prior: f64,
    prior_weight: f64,
    /// Differences below this value are noise.
    floor: f64,
    /// Value and weight.
    window: VecDeque<(f64, f64)>,
    seen: u32,
    idle: u32,
    off: Off,
}

/// On which side the last sample was too far off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Off {
    No,
    Above,
    Below,
}

impl Estimate {
    /// `prior_weight` counts in samples.
    pub fn new(prior: f64, prior_weight: f64, floor: f64) -> Estimate {
        Estimate { prior: sane(prior), prior_weight, floor, window: VecDeque::new(), seen: 0, idle: 0, off: Off::No }
    }

    pub fn seen(&self) -> u32 {
        self.seen
    }

    pub fn set_prior(&mut self, prior: f64) {
        self.prior = sane(prior);
    }

    /// Notes that a decision passed without a sample.
    pub fn fade(&mut self) {
        self.idle = self.idle.saturating_add(1);
    }

    /// Adds a sample: the mean of `slices` slices. Ignores a value that is not a number.
    pub fn push(&mut self, sample: f64, slices: u32) {
        if sample.is_nan() {
            return;
        }
        let (sample, now) = (sane(sample) + self.floor, self.value() + self.floor);
        let off = match sample / now {
            ratio if ratio > STEP_MAX => Off::Above,
            ratio if ratio < 1.0 / STEP_MAX => Off::Below,
            _ => Off::No,
        };
        let taken = if off == self.off { sample } else { sample.clamp(now / STEP_MAX, now * STEP_MAX) };
        self.off = off;
        let value = (taken - self.floor).max(0.0);
        let side = |sample: f64| match (sample + self.floor) / now {
            ratio if ratio > SHIFT => 1,
            ratio if ratio < 1.0 / SHIFT => -1,
            _ => 0,
        };
        if side(value) != 0 && self.window.back().is_some_and(|(last, _)| side(*last) == side(value)) {
            self.window.drain(..self.window.len() - 1);
        }
        if self.seen == 1
            && let Some(first) = self.window.front_mut()
        {
            first.1 = first.1.min(FIRST_WEIGHT);
        }
        self.window.push_back((value, f64::from(slices.clamp(1, 9)).sqrt()));
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        self.seen = self.seen.saturating_add(1);
        self.idle = 0;
    }

    pub fn value(&self) -> f64 {
        median(&mut self.weighted())
    }

    /// The least and the most that a slice may take, relative to the present value. Samples and prior differ, and
    /// differ more while there are few samples. `worst` is the most before the first sample.
    pub fn range(&self, worst: f64) -> (f64, f64) {
        if self.seen == 0 {
            return (PRIOR_LOW, worst);
        }
        let ((wider_low, wider_high), prior) =
            if self.seen < FEW { (FEW_RANGE, Some(self.prior)) } else { (KNOWN_RANGE, None) };
        let now = self.value() + self.floor;
        let known = || self.window.iter().map(|(value, _)| *value).chain(prior);
        let low = known().fold(now, f64::min) + self.floor;
        let high = known().fold(0.0, f64::max) + self.floor;
        ((low / now * wider_low).min(1.0), (high / now * wider_high).max(1.0))
    }

    /// The distance between the quartiles, relative to the median.
    pub fn spread(&self) -> f64 {
        let mut samples: Vec<f64> = self.window.iter().map(|(value, _)| *value).collect();
        samples.sort_by(f64::total_cmp);
        let at = |share: usize| samples.get(samples.len() * share / 4).copied().unwrap_or(0.0);
        (at(3) - at(1)) / (at(2) + self.floor)
    }

    fn weighted(&self) -> Vec<(f64, f64)> {
        let fading = FADING.powi(self.idle.min(200) as i32);
        let prior = (self.prior, self.prior_weight / (1.0 + f64::from(self.seen)));
        let samples = self.window.iter().map(|(value, weight)| (*value, weight * fading));
        std::iter::once(prior).chain(samples).collect()
    }
}

/// The weighted median; where it falls between two values, their mean.
fn median(values: &mut [(f64, f64)]) -> f64 {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    let mut pairs = values.iter().peekable();
    while let Some((value, weight)) = pairs.next() {
        below += weight;
        if (below - half).abs() <= 1e-9 * half {
            return pairs.peek().map_or(*value, |next| (value + next.0) / 2.0);
        }
        if below > half {
            return *value;
        }
    }
    values.last().map_or(0.0, |(value, _)| *value)
}
