//! [`Core`]: what it runs, how fast, and what waits for it.

use std::collections::VecDeque;

use super::task::{Task, Work};
use crate::background::{CoreGrant, CoreSample};

#[derive(Default)]
pub(super) struct Core {
    pub queue: VecDeque<Waiting>,
    running: Option<Running>,
    /// What it has begun or gone on with at another speed.
    begun: u64,
    pub grant: CoreGrant,
    /// Tasks before the core's driver, which runs steps; none: it does not want to run.
    pub ahead: Option<usize>,
    /// Since when the driver has given way to tasks.
    pub gives_way_since: Option<f64>,
    pub debt: f64,
    pub rests_until: f64,
    /// Whether it is to look for steps again soon.
    pub looks: bool,
    pub sample: CoreSample,
    pub delay: f64,
    pub foreground: f64,
    pub background: f64,
}

/// What waits for a core.
pub(super) enum Waiting {
    /// A foreground task.
    Task(Task),
    /// A step that a task left behind where it ran.
    Step,
    /// A thread, with the time that its work still takes.
    Thread(Work, f64),
}

/// What a core runs.
#[derive(Clone, Copy)]
pub(super) enum Occupation {
    Task(Task),
    /// A step of a service.
    Step(usize),
    /// A step that a task left there.
    LeftStep,
    /// A thread, whose work takes so much longer.
    Thread(Work, f64),
}

struct Running {
    what: Occupation,
    /// Seconds that were left of it at full speed.
    left: f64,
    since: f64,
    speed: f64,
    /// Seconds that it takes in all, as it is foreseen.
    takes: f64,
}

impl Core {
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// What it has to do, with what it runs.
    pub fn load(&self) -> usize {
        self.queue.len() + usize::from(self.is_busy())
    }

    /// Begins what takes so long at full speed. The seconds that it takes, and its number.
    pub fn begin(&mut self, now: f64, what: Occupation, seconds: f64, speed: f64) -> (f64, u64) {
        let takes = seconds / speed;
        self.account(&what, takes);
        self.running = Some(Running { what, left: seconds, since: now, speed, takes });
        self.begun += 1;
        (takes, self.begun)
    }

    /// Goes on at another speed. If there is something to go on with, the seconds that it still takes, and its new number.
    pub fn change_speed(&mut self, now: f64, speed: f64) -> Option<(f64, u64)> {
        let mut running = self.running.take_if(|running| running.speed != speed)?;
        let was_left = running.left / running.speed - (now - running.since);
        let left = (was_left * running.speed).max(0.0);
        let more = left / speed - was_left;
        self.account(&running.what, more);
        running.takes += more;
        (running.left, running.since, running.speed) = (left, now, speed);
        self.running = Some(running);
        self.begun += 1;
        Some((left / speed, self.begun))
    }

    /// Ends what it runs, and tells how long it took; none: that has changed its speed since.
    pub fn end(&mut self, number: u64) -> Option<(Occupation, f64)> {
        let is_meant = self.begun == number;
        self.running.take_if(|_| is_meant).map(|running| (running.what, running.takes))
    }

    /// Takes back what was counted of what it runs for the time after this moment, at which all ends.
    pub fn stop(&mut self, now: f64) {
        if let Some(running) = self.running.take() {
            let after = running.since + running.left / running.speed - now;
            self.account(&running.what, -after.max(0.0));
        }
    }

    fn account(&mut self, what: &Occupation, seconds: f64) {
        match what {
            Occupation::Task(_) | Occupation::Thread(..) => {
                self.foreground += seconds;
                self.sample.foreground += seconds;
            }
            Occupation::Step(_) | Occupation::LeftStep => {
                self.background += seconds;
                self.sample.background += seconds;
            }
        }
    }

    pub fn take_sample(&mut self, interval: f64) -> CoreSample {
        let sample = std::mem::take(&mut self.sample);
        let delay = std::mem::take(&mut self.delay);
        let share = |seconds: f64| (seconds / interval).clamp(0.0, 1.0);
        CoreSample {
            foreground: share(sample.foreground),
            background: share(sample.background),
            queue_delay: delay / (sample.arrivals as f64).max(1.0),
            arrivals: sample.arrivals,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_takes_longer_at_a_lower_speed_and_all_of_it_counts() {
        let mut core = Core::default();
        assert_eq!(core.begin(1.0, Occupation::LeftStep, 4.0, 1.0), (4.0, 1));
        assert_eq!(core.change_speed(2.0, 1.0), None, "it is as fast as before");
        // After one second at full speed, three are left, which take six.
        assert_eq!(core.change_speed(2.0, 0.5), Some((6.0, 2)));
        // After two of these, two are left.
        assert_eq!(core.change_speed(4.0, 1.0), Some((2.0, 3)));
        assert_eq!((core.background, core.foreground), (5.0, 0.0));
        assert!(core.end(2).is_none() && core.is_busy());
        assert!(matches!(core.end(3), Some((Occupation::LeftStep, 5.0))) && !core.is_busy());
        assert_eq!(core.change_speed(6.0, 0.5), None);
    }

    #[test]
    fn what_would_run_after_the_end_does_not_count() {
        let mut core = Core::default();
        core.begin(1.0, Occupation::LeftStep, 4.0, 1.0);
        assert!(core.change_speed(2.0, 0.5).is_some(), "it would end at 8");
        core.stop(5.0);
        assert_eq!((core.background, core.is_busy()), (4.0, false));
        core.stop(6.0);
        assert_eq!(core.background, 4.0);
    }
}
