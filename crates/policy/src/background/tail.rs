//! [`Tail`]: how much background work a busy core bears.

use super::{CoreGrant, CoreSample, FLOOR};

/// A core under a goal for its foreground's waits. What they are without background work is measured now and then, while there is
/// next to none. With it, its share grows by small steps while the goal is met and is halved when it is not.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    share: f64,
    /// Waits with next to no background work, in seconds.
    alone: Option<f64>,
    /// Waits with it.
    beside: Option<f64>,
    /// Seconds since `alone` was measured.
    age: f64,
    /// Seconds for which there has been next to no background work.
    quiet: f64,
}

/// The share of an interval from which background work counts.
const SOME: f64 = 0.02;
/// A measurement of the waits alone is good for so many seconds, and takes so many.
const FRESH_SECONDS: f64 = 2.0;
const PROBE_SECONDS: f64 = 0.06;
/// The weight of a new interval.
const WEIGHT: f64 = 0.3;
/// Waits below this are too short to be felt, and to be measured.
const SHORT: f64 = 20e-6;
const GROWTH: f64 = 1.15;
/// From this share of foreground work on a core has no time to give.
const FULL: f64 = 0.9;

impl Default for Tail {
    fn default() -> Tail {
        Tail { share: FLOOR, alone: None, beside: None, age: f64::INFINITY, quiet: 0.0 }
    }
}

impl Tail {
    pub fn grant(&mut self, goal: f64, is_idle: bool, sample: &CoreSample, seconds: f64) -> CoreGrant {
        self.measure(sample, seconds);
        if is_idle {
            // Strictness alone keeps the waits to one step.
            return CoreGrant { share: 1.0, strict: true, equal: false };
        }
        if sample.foreground >= FULL {
            self.share = FLOOR;
            return CoreGrant { share: FLOOR, strict: false, equal: false };
        }
        if self.age > FRESH_SECONDS && self.quiet < PROBE_SECONDS {
            return CoreGrant { share: FLOOR, strict: true, equal: false };
        }
        let room = 1.0 - sample.foreground;
        let meets = match (self.beside, self.alone) {
            (Some(beside), Some(alone)) => beside <= (alone * goal).max(SHORT),
            _ => true,
        };
        let wanted = if meets { self.share * GROWTH } else { self.share / 2.0 };
        self.share = wanted.clamp(FLOOR, room.max(FLOOR));
        CoreGrant { share: self.share, strict: true, equal: false }
    }

    fn measure(&mut self, sample: &CoreSample, seconds: f64) {
        self.age += seconds;
        let is_quiet = sample.background < SOME;
        self.quiet = if is_quiet { self.quiet + seconds } else { 0.0 };
        if sample.arrivals == 0 {
            return;
        }
        let known = if is_quiet { &mut self.alone } else { &mut self.beside };
        *known = Some(known.map_or(sample.queue_delay, |known| known + WEIGHT * (sample.queue_delay - known)));
        if is_quiet && self.quiet >= PROBE_SECONDS {
            self.age = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(background: f64, queue_delay: f64) -> CoreSample {
        CoreSample { foreground: 0.5, background, queue_delay, arrivals: 100 }
    }

    #[test]
    fn the_share_grows_while_the_goal_is_met_and_shrinks_when_it_is_not() {
        let mut tail = Tail::default();
        let mut shares = Vec::new();
        for _ in 0..200 {
            let share = shares.last().copied().unwrap_or(FLOOR);
            // Waits grow with the share: 100 µs alone, 10 µs more for each tenth.
            shares.push(tail.grant(1.2, false, &sample(share, 100e-6 + share * 100e-6), 0.02).share);
        }
        let settled = &shares[50..];
        assert!(settled.iter().all(|share| *share < 0.5), "{shares:?}");
        assert!(settled.iter().sum::<f64>() / settled.len() as f64 > 0.05, "{shares:?}");
        assert!(
            settled.iter().filter(|share| **share == FLOOR).count() < settled.len() / 2,
            "it is measured now and then only"
        );
    }

    #[test]
    fn a_full_core_keeps_the_floor() {
        let mut tail = Tail::default();
        let full = CoreSample { foreground: 0.97, background: 0.0, queue_delay: 1e-3, arrivals: 9 };
        assert_eq!(tail.grant(1.2, false, &full, 0.02), CoreGrant { share: FLOOR, strict: false, equal: false });
        assert_eq!(tail.grant(1.2, true, &full, 0.02), CoreGrant { share: 1.0, strict: true, equal: false });
    }
}
