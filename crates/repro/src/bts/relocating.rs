//! BTS as the slides draw it: each step of background work goes to the core that was least used, and none is left undone.
//!
//! The policy of the drive gives cores shares, and a step for which no core has time waits. Here it is done all the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pithead_policy::background::sim::Scenario;

use crate::random::Random;

/// Seconds that are simulated.
pub(super) const SECONDS: f64 = 2.0;
const PICOSECONDS: f64 = 1e12;
/// Cores whose use differs by less than this are used alike: the one with the shorter queue gets the step.
const ALIKE: f64 = 0.1;

/// Where the step goes that a put leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steps {
    /// Where the put ran, as SPDK has it.
    Stay,
    /// To the core that was least used in the interval before.
    LeastUsed,
    /// To the core where the fewest tasks are now.
    LeastBusy,
}

/// Which core a put comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Puts {
    /// The one that its host thread is bound to.
    Bound,
    /// Any, by chance.
    Anywhere,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// The mean latency of a put, in seconds.
    pub(super) mean: f64,
    /// Steps for each put.
    pub(super) steps_per_task: f64,
}

/// Puts that follow each other in each host thread, with one step each.
pub(super) fn simulate(scenario: &Scenario, puts: Puts, steps: Steps) -> Outcome {
    Run::new(scenario, puts, steps).finish()
}

/// A put, since when, and of which host thread; or a step, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Put { came: u64, thread: usize },
    Step { takes: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Sent {
        thread: usize,
    },
    Done {
        core: usize,
        work: Work,
    },
    /// An interval is over.
    Interval,
}

#[derive(Default)]
struct Core {
    queue: VecDeque<Work>,
    is_busy: bool,
    /// Picoseconds of this interval that it has worked.
    worked: u64,
    /// The share of the interval before, in whole steps of [`ALIKE`].
    used: u64,
}

struct Run<'a> {
    scenario: &'a Scenario,
    puts: Puts,
    steps: Steps,
    random: Random,
    now: u64,
    made: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    cores: Vec<Core>,
    latencies: u64,
    done: (u64, u64),
}

fn picoseconds(seconds: f64) -> u64 {
    (seconds * PICOSECONDS).round() as u64
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, puts: Puts, steps: Steps) -> Self {
        let mut run = Self {
            scenario,
            puts,
            steps,
            random: Random::new(scenario.seed),
            now: 0,
            made: 0,
            events: BinaryHeap::new(),
            cores: (0..scenario.cores.max(1)).map(|_| Core::default()).collect(),
            latencies: 0,
            done: (0, 0),
        };
        (0..scenario.threads).for_each(|thread| run.add(0, Event::Sent { thread }));
        run.add(picoseconds(scenario.interval), Event::Interval);
        run
    }

    fn add(&mut self, after: u64, event: Event) {
        self.made += 1;
        self.events.push(Reverse((self.now + after, self.made, event)));
    }

    fn finish(mut self) -> Outcome {
        let end = picoseconds(SECONDS);
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        let (puts, steps) = (self.done.0.max(1) as f64, self.done.1 as f64);
        Outcome { mean: self.latencies as f64 / PICOSECONDS / puts, steps_per_task: steps / puts }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Sent { thread } => {
                let core = match self.puts {
                    Puts::Bound => thread % self.cores.len(),
                    Puts::Anywhere => self.random.below(self.cores.len() as u32) as usize,
                };
                self.put(core, Work::Put { came: self.now, thread });
            }
            Event::Done { core, work } => {
                self.cores[core].is_busy = false;
                match work {
                    Work::Put { came, thread } => self.put_done(core, came, thread),
                    Work::Step { .. } => self.done.1 += 1,
                }
                self.go_on(core);
            }
            Event::Interval => {
                let alike = (picoseconds(self.scenario.interval) as f64 * ALIKE) as u64;
                for core in &mut self.cores {
                    core.used = (core.worked + alike / 2) / alike.max(1);
                    core.worked = 0;
                }
                self.add(picoseconds(self.scenario.interval), Event::Interval);
            }
        }
    }

    fn put_done(&mut self, core: usize, came: u64, thread: usize) {
        let elsewhere = picoseconds(self.scenario.elsewhere_seconds);
        self.latencies += self.now - came + elsewhere;
        self.done.0 += 1;
        self.add(elsewhere, Event::Sent { thread });
        let other = match self.steps {
            Steps::Stay => core,
            Steps::LeastUsed => self.least(core, |used, tasks| (used, tasks)),
            Steps::LeastBusy => self.least(core, |_, tasks| (0, tasks)),
        };
        let moves = if other == core { 0.0 } else { self.scenario.move_seconds };
        self.put(other, Work::Step { takes: picoseconds(self.scenario.step_seconds + moves) });
    }

    /// The core that is first by how it was used and how many tasks it has; among equal ones, the one that the step is from.
    fn least(&self, from: usize, order: impl Fn(u64, usize) -> (u64, usize)) -> usize {
        let key = |core: usize| {
            let Core { used, queue, is_busy, .. } = &self.cores[core];
            (order(*used, queue.len() + usize::from(*is_busy)), core != from)
        };
        (0..self.cores.len()).min_by_key(|core| key(*core)).unwrap_or(from)
    }

    fn put(&mut self, core: usize, work: Work) {
        self.cores[core].queue.push_back(work);
        self.go_on(core);
    }

    fn go_on(&mut self, core: usize) {
        if self.cores[core].is_busy {
            return;
        }
        let Some(work) = self.cores[core].queue.pop_front() else { return };
        let takes = match work {
            Work::Put { .. } => self.put_takes(),
            Work::Step { takes } => takes,
        };
        self.cores[core].is_busy = true;
        self.cores[core].worked += takes;
        self.add(takes, Event::Done { core, work });
    }

    /// A logarithmic normal distribution of the scenario's mean, its normal one by Box and Muller.
    fn put_takes(&mut self) -> u64 {
        let [a, b] = [(); 2].map(|()| self.random.share());
        let normal = (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        let spread = self.scenario.task_spread;
        picoseconds(self.scenario.task_seconds * (spread * normal - spread * spread / 2.0).exp())
    }
}

#[cfg(test)]
mod tests {
    use pithead_policy::background::sim::paper;

    use super::*;

    fn saved(threads: usize, heavy: bool) -> f64 {
        let scenario = paper(threads, heavy);
        let [stay, relocate] = [Steps::Stay, Steps::LeastUsed].map(|steps| simulate(&scenario, Puts::Bound, steps));
        for outcome in [stay, relocate] {
            assert!((outcome.steps_per_task - 1.0).abs() < 0.01, "no step is left undone: {outcome:?}");
        }
        1.0 - relocate.mean / stay.mean
    }

    /// With one thread a step that goes elsewhere spares the next put the rest of it, and nothing else happens.
    #[test]
    fn one_thread_is_spared_the_rest_of_a_step() {
        for heavy in [false, true] {
            let scenario = paper(1, heavy);
            let (task, step, elsewhere) = (scenario.task_seconds, scenario.step_seconds, scenario.elsewhere_seconds);
            let expected = (step - elsewhere) / (task + step);
            assert!((saved(1, heavy) - expected).abs() < 0.02, "{} {expected}", saved(1, heavy));
        }
    }

    #[test]
    fn cores_that_are_full_gain_nothing() {
        assert!(saved(2, true) > 0.2, "{}", saved(2, true));
        assert!(saved(8, true).abs() < 0.03, "{}", saved(8, true));
    }

    #[test]
    fn the_same_seed_has_the_same_outcome() {
        let scenario = paper(3, true);
        let once = || simulate(&scenario, Puts::Anywhere, Steps::LeastUsed);
        assert_eq!(once(), once());
        assert_ne!(once(), simulate(&scenario, Puts::Bound, Steps::LeastUsed));
        assert_ne!(once(), simulate(&scenario, Puts::Anywhere, Steps::LeastBusy));
    }
}
