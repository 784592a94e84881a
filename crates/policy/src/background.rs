//! What each core of a drive may give to background work: the core selection module of Park et al. 2022 (BTS; see
//! `docs/bibliography.md`), and others beside it.
//!
//! [`Selection`] is asked once in each interval. [`sim`] runs it over virtual cores.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub mod sim;
mod tail;

use tail::Tail;

/// How background work is placed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum BackgroundPolicy {
    /// On the core that handles most of the foreground, where both compete as equals: what SPDK does by itself.
    None,
    /// On idle cores; where there are none, on the least busy one.
    Bts,
    /// This share of each core's time, whatever else it does, and [`FLOOR`] at least.
    Shares(f64),
    /// On idle cores; on busy ones as much as keeps the waits of foreground tasks within this factor of what they are without
    /// background work. Foreground tasks that could run go first.
    Tail(f64),
}

/// What a core did in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreSample {
    /// The share of its time that went to anything but background work.
    pub foreground: f64,
    /// The share that went to background work.
    pub background: f64,
    /// How long a foreground task waited for the core, on average, in seconds; 0 where none came.
    pub queue_delay: f64,
    /// Foreground tasks that came.
    pub arrivals: u64,
}

/// What a core may give.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreGrant {
    /// The share of its time.
    pub share: f64,
    /// Whether a step waits while there is a foreground task that could run.
    pub strict: bool,
    /// Whether a step competes with others for the core as their equal; if not, the system runs it where nobody else would run.
    pub equal: bool,
}

/// What background work gets on a core that has no time for it, so that it ends some day.
pub const FLOOR: f64 = 0.005;
/// Below this share of foreground work a core becomes idle, above the other one it is busy again: a move costs what the caches
/// of the old core had.
const IDLE_BELOW: f64 = 0.3;
const BUSY_ABOVE: f64 = 0.6;
/// The seconds over which shares are smoothed.
const SMOOTH_SECONDS: f64 = 0.1;
/// A core with fewer tasks than this share of the busiest one's does not count as one that handles foreground work.
const ACTIVE_SHARE: f64 = 0.05;

/// A policy and what it remembers of the cores.
#[derive(Clone, Debug)]
pub struct Selection {
    policy: BackgroundPolicy,
    cores: Vec<Core>,
    /// Where `none` has put background work.
    placed: Vec<bool>,
}

#[derive(Clone, Debug, Default)]
struct Core {
    foreground: f64,
    is_idle: bool,
    tail: Tail,
}

impl Selection {
    /// A policy that knows nothing yet.
    pub fn new(policy: BackgroundPolicy) -> Selection {
        Selection { policy, cores: Vec::new(), placed: Vec::new() }
    }

    /// The policy.
    pub fn policy(&self) -> BackgroundPolicy {
        self.policy
    }

    /// A grant for each core, after an interval of so many seconds in which they did this.
    pub fn decide(&mut self, samples: &[CoreSample], seconds: f64) -> Vec<CoreGrant> {
        self.observe(samples, seconds);
        // What is given on idle cores, whose foreground may come back at any time, is given up to it.
        let grant = |share: f64, equal: bool| CoreGrant { share, strict: false, equal };
        match self.policy {
            BackgroundPolicy::None => {
                self.follow_foreground(samples);
                self.placed.iter().map(|placed| grant(if *placed { 1.0 } else { 0.0 }, true)).collect()
            }
            BackgroundPolicy::Shares(share) => vec![grant(share.max(FLOOR), true); samples.len()],
            BackgroundPolicy::Bts => {
                let group = self.idle_group();
                group.iter().map(|idle| grant(if *idle { 1.0 } else { 0.0 }, false)).collect()
            }
            BackgroundPolicy::Tail(goal) => {
                let cores = self.cores.iter_mut().zip(samples);
                cores.map(|(core, sample)| core.tail.grant(goal, core.is_idle, sample, seconds)).collect()
            }
        }
    }

    fn observe(&mut self, samples: &[CoreSample], seconds: f64) {
        if self.cores.len() != samples.len() {
            // Nothing is known of any of them: they count as busy until they are seen not to be.
            self.cores = vec![Core { foreground: 1.0, ..Core::default() }; samples.len()];
            self.placed = (0..samples.len()).map(|core| core == 0).collect();
        }
        let weight = 1.0 - (-seconds / SMOOTH_SECONDS).exp();
        for (core, sample) in self.cores.iter_mut().zip(samples) {
            core.foreground += weight * (sample.foreground - core.foreground);
            core.is_idle = core.foreground < if core.is_idle { BUSY_ABOVE } else { IDLE_BELOW };
        }
    }

    /// The idle cores, or the least busy one.
    fn idle_group(&self) -> Vec<bool> {
        let mut group: Vec<bool> = self.cores.iter().map(|core| core.is_idle).collect();
        if !group.contains(&true) {
            let least = (0..group.len()).min_by(|a, b| self.cores[*a].foreground.total_cmp(&self.cores[*b].foreground));
            least.into_iter().for_each(|least| group[least] = true);
        }
        group
    }

    fn follow_foreground(&mut self, samples: &[CoreSample]) {
        let most = samples.iter().map(|sample| sample.arrivals).max().unwrap_or(0);
        if most > 0 {
            let active = samples.iter().map(|sample| sample.arrivals as f64 >= (most as f64 * ACTIVE_SHARE).max(1.0));
            self.placed = active.collect();
        }
    }
}

/// How much longer than without background work a foreground task's wait may be, unless somebody says otherwise.
const TAIL_GOAL: f64 = 1.2;

impl Default for BackgroundPolicy {
    fn default() -> Self {
        BackgroundPolicy::Tail(TAIL_GOAL)
    }
}

impl FromStr for BackgroundPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<BackgroundPolicy, String> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let expected = || format!("expected none, bts, shares:SHARE (0 to 1) or tail:FACTOR (1 or more), got {text:?}");
        let number = number.map(|number| number.parse::<f64>().map_err(|_| expected())).transpose()?;
        match (name, number) {
            ("none", None) => Ok(BackgroundPolicy::None),
            ("bts", None) => Ok(BackgroundPolicy::Bts),
            ("shares", share) if share.is_none_or(|share| (0.0..=1.0).contains(&share)) => {
                Ok(BackgroundPolicy::Shares(share.unwrap_or(0.2)))
            }
            ("tail", goal) if goal.is_none_or(|goal| (1.0..1e6).contains(&goal)) => {
                Ok(BackgroundPolicy::Tail(goal.unwrap_or(TAIL_GOAL)))
            }
            _ => Err(expected()),
        }
    }
}

impl fmt::Display for BackgroundPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackgroundPolicy::None => f.write_str("none"),
            BackgroundPolicy::Bts => f.write_str("bts"),
            BackgroundPolicy::Shares(share) => write!(f, "shares:{share}"),
            BackgroundPolicy::Tail(goal) => write!(f, "tail:{goal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(foreground: f64, arrivals: u64) -> CoreSample {
        CoreSample { foreground, arrivals, ..CoreSample::default() }
    }

    fn settled(policy: BackgroundPolicy, samples: &[CoreSample]) -> Vec<f64> {
        let mut selection = Selection::new(policy);
        (0..100).for_each(|_| drop(selection.decide(samples, 0.02)));
        selection.decide(samples, 0.02).iter().map(|grant| grant.share).collect()
    }

    #[test]
    fn policies_are_written_as_they_are_read() {
        for text in ["none", "bts", "shares:0.2", "tail:1.5"] {
            assert_eq!(text.parse::<BackgroundPolicy>().unwrap().to_string(), text);
        }
        assert_eq!("tail".parse(), Ok(BackgroundPolicy::Tail(1.2)));
        for bad in [
            "",
            "btss",
            "bts:1",
            "none:",
            "shares:2",
            "shares:-1",
            "shares:NaN",
            "tail:0.9",
            "tail:NaN",
            "tail:inf",
            "shares:x",
        ] {
            assert!(bad.parse::<BackgroundPolicy>().is_err(), "{bad}");
        }
    }

    #[test]
    fn none_stays_where_the_foreground_put_it() {
        let mut selection = Selection::new(BackgroundPolicy::None);
        let shares = |grants: Vec<CoreGrant>| grants.iter().map(|grant| grant.share).collect::<Vec<_>>();
        assert_eq!(shares(selection.decide(&[busy(0.9, 100), busy(0.0, 0), busy(0.8, 90)], 0.02)), [1.0, 0.0, 1.0]);
        assert_eq!(shares(selection.decide(&[busy(0.0, 0); 3], 0.02)), [1.0, 0.0, 1.0], "it is never moved");
        assert_eq!(shares(selection.decide(&[busy(0.0, 0), busy(0.5, 9), busy(0.0, 0)], 0.02)), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn shares_are_what_was_asked_for_and_never_nothing() {
        assert_eq!(settled(BackgroundPolicy::Shares(0.3), &[busy(0.9, 100), busy(0.1, 5)]), [0.3, 0.3]);
        for text in ["shares:0", "shares:1e-30"] {
            assert_eq!(settled(text.parse().unwrap(), &[busy(0.9, 100)]), [FLOOR], "{text}");
        }
    }

    #[test]
    fn bts_takes_idle_cores_and_else_the_least_busy_one() {
        let some = [busy(0.9, 100), busy(0.1, 5), busy(0.8, 90), busy(0.0, 0)];
        assert_eq!(settled(BackgroundPolicy::Bts, &some), [0.0, 1.0, 0.0, 1.0]);
        assert_eq!(settled(BackgroundPolicy::Bts, &[busy(0.9, 100), busy(0.8, 100), busy(1.0, 100)]), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn what_is_to_be_an_equal_is_one() {
        let equals =
            |policy| Selection::new(policy).decide(&[busy(0.95, 9), busy(0.1, 9)], 0.02).iter().all(|grant| grant.equal);
        let policies =
            [BackgroundPolicy::None, BackgroundPolicy::Shares(0.5), BackgroundPolicy::Bts, BackgroundPolicy::Tail(1.2)];
        assert_eq!(policies.map(equals), [true, true, false, false]);
    }

    #[test]
    fn a_core_between_idle_and_busy_stays_what_it_is() {
        let mut selection = Selection::new(BackgroundPolicy::Bts);
        let other = busy(0.0, 0);
        let mut after = |foreground: f64| {
            (0..50).for_each(|_| drop(selection.decide(&[busy(foreground, 9), other], 0.02)));
            selection.decide(&[busy(foreground, 9), other], 0.02)[0].share
        };
        assert_eq!(after(0.5), 0.0, "at first");
        assert_eq!([after(0.1), after(0.5), after(0.7), after(0.5), after(0.2)], [1.0, 1.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn the_number_of_cores_may_change() {
        let mut selection = Selection::new(BackgroundPolicy::Tail(1.2));
        assert_eq!(selection.decide(&[busy(0.5, 1); 4], 0.02).len(), 4);
        assert_eq!(selection.decide(&[busy(0.5, 1); 2], 0.02).len(), 2);
        assert_eq!(selection.decide(&[], 0.02), []);
    }
}
