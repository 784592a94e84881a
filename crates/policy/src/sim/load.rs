//! What others use of a resource.

use serde::{Deserialize, Serialize};

/// Periods that are stepped through one by one; beyond, the mean is used.
const PERIODS_MAX: u32 = 10_000;

/// A share of a resource that others use: all the time, from some time on, or on and off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The share that they use, from 0 to below 1.
    pub share: f64,
    /// When they begin.
    pub from_ns: f64,
    /// From then on, they use the share in the first half of each period of this length. 0: all the time.
    pub period_ns: f64,
}

impl Load {
    /// Others use nothing.
    pub const NONE: Load = Load { share: 0.0, from_ns: 0.0, period_ns: 0.0 };

    /// Others use `share` all the time.
    pub fn steady(share: f64) -> Load {
        Load { share, ..Load::NONE }
    }

    /// The share that is left at a time, from 0 to 1.
    pub fn free(&self, at_ns: f64) -> f64 {
        if at_ns < self.from_ns {
            return 1.0;
        }
        let on = self.period_ns <= 0.0 || ((at_ns - self.from_ns) / self.period_ns).fract() < 0.5;
        if on { 1.0 - self.share } else { 1.0 }
    }

    /// When work that takes `work_ns` alone, begun at `at_ns`, is done.
    pub fn done_at(&self, at_ns: f64, work_ns: f64) -> f64 {
        let (mut at, mut work) = (at_ns, work_ns);
        for _ in 0..PERIODS_MAX {
            let free = self.free(at);
            let next = self.next_step(at);
            if work <= (next - at) * free {
                return at + work / free;
            }
            work -= (next - at) * free;
            at = next;
        }
        at + work / (1.0 - self.share / 2.0)
    }

    fn next_step(&self, at_ns: f64) -> f64 {
        if at_ns < self.from_ns {
            self.from_ns
        } else if self.period_ns <= 0.0 {
            f64::INFINITY
        } else {
            let half = self.period_ns / 2.0;
            let next = self.from_ns + (((at_ns - self.from_ns) / half).floor() + 1.0) * half;
            if next > at_ns { next } else { at_ns + half }
        }
    }
}
