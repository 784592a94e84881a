//! One run of the simulation.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Arrivals, Backlog, Outcome, Scenario};
use crate::background::{BackgroundPolicy, CoreGrant, CoreSample, Selection};

/// How the reactors of a drive run steps; the same numbers as there.
const STAYS: f64 = 2e-3;
const DEBT: f64 = 1e-3;
const PATIENCE: f64 = 0.1;

pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    arrivals: Arrivals,
    random: StdRng,
    now: f64,
    events: BinaryHeap<Event>,
    sequence: u64,
    cores: Vec<Core>,
    services: Vec<Service>,
    /// Services whose next step can run, with since when.
    ready: VecDeque<(usize, f64)>,
    /// Steps that there are to do; of an endless backlog, infinitely many.
    backlog: f64,
    selection: Selection,
    times: Vec<f64>,
    last_step: f64,
    outcome: Outcome,
}

#[derive(Default)]
struct Core {
    queue: VecDeque<Waiting>,
    is_busy: bool,
    grant: CoreGrant,
    /// Tasks before the core's driver, which runs steps; none: it does not want to run.
    ahead: Option<usize>,
    /// Since when the driver has given way to tasks.
    gives_way_since: Option<f64>,
    debt: f64,
    rests_until: f64,
    /// Whether it is to look for steps again soon.
    looks: bool,
    sample: CoreSample,
    delay: f64,
    foreground: f64,
    background: f64,
}

/// What waits for a core.
enum Waiting {
    /// A foreground task.
    Task(Task),
    /// A step that a task left behind where it ran.
    Step,
}

#[derive(Clone, Copy)]
struct Task {
    came: f64,
    thread: usize,
}

struct Service {
    home: Option<usize>,
}

/// What happens in the simulation.
enum SimEvent {
    /// A host thread sends a task.
    Arrival(usize),
    /// A core is done with a task.
    TaskDone(usize, Task),
    /// A core is done with a step of a service, which took so long.
    StepDone(usize, usize, f64),
    /// A core is done with a step that a task left there.
    LeftStepDone(usize),
    /// A core looks for steps again.
    Look(usize),
    /// The policy decides.
    Decide,
}

struct Event {
    at: f64,
    sequence: u64,
    what: SimEvent,
}

impl<'a> Run<'a> {
    pub fn new(scenario: &'a Scenario, arrivals: Arrivals, policy: BackgroundPolicy) -> Run<'a> {
        let cores = scenario.cores.max(1);
        let mut run = Run {
            scenario,
            arrivals,
            random: StdRng::seed_from_u64(scenario.seed),
            now: 0.0,
            events: BinaryHeap::new(),
            sequence: 0,
            cores: (0..cores).map(|_| Core::default()).collect(),
            services: (0..scenario.services).map(|_| Service { home: None }).collect(),
            ready: (0..scenario.services).map(|service| (service, 0.0)).collect(),
            backlog: if scenario.backlog == Backlog::Endless { f64::INFINITY } else { 0.0 },
            selection: Selection::new(policy),
            times: Vec::new(),
            last_step: 0.0,
            outcome: Outcome::default(),
        };
        for thread in 0..scenario.threads {
            match arrivals {
                Arrivals::Random => run.next_arrival(thread),
                Arrivals::Closed => run.add(0.0, SimEvent::Arrival(thread)),
            }
        }
        run.add(0.0, SimEvent::Decide);
        run
    }

    pub fn finish(mut self) -> Outcome {
        while let Some(Event { at, what, .. }) = self.events.pop() {
            if at > self.scenario.seconds {
                break;
            }
            self.now = at;
            self.happen(what);
        }
        let seconds = self.scenario.seconds;
        let times = &mut self.times;
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))).copied();
        let mean = times.iter().sum::<f64>() / (times.len() as f64).max(1.0);
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| at(share).unwrap_or(0.0));
        let foreground = self.cores.iter().map(|core| core.foreground / seconds).collect();
        let background = self.cores.iter().map(|core| core.background / seconds).collect();
        Outcome { tasks: times.len() as u64, mean, p50, p99, p999, foreground, background, ..self.outcome }
    }

    fn add(&mut self, after: f64, what: SimEvent) {
        self.sequence += 1;
        self.events.push(Event { at: self.now + after, sequence: self.sequence, what });
    }

    fn next_arrival(&mut self, thread: usize) {
        let after = -(1.0 - self.random.random::<f64>()).ln() / self.scenario.rate;
        self.add(after, SimEvent::Arrival(thread));
    }

    fn happen(&mut self, what: SimEvent) {
        match what {
            SimEvent::Arrival(thread) => {
                let core = thread % self.cores.len();
                self.cores[core].queue.push_back(Waiting::Task(Task { came: self.now, thread }));
                if self.arrivals == Arrivals::Random {
                    self.next_arrival(thread);
                }
                self.go_on(core);
            }
            SimEvent::TaskDone(core, task) => {
                let elsewhere = self.scenario.elsewhere_seconds;
                self.times.push(self.now - task.came + elsewhere);
                if self.arrivals == Arrivals::Closed {
                    self.add(elsewhere, SimEvent::Arrival(task.thread));
                }
                self.cores[core].is_busy = false;
                self.leave_steps(core);
                self.go_on(core);
            }
            SimEvent::LeftStepDone(core) => {
                self.outcome.steps += 1;
                self.cores[core].is_busy = false;
                self.go_on(core);
            }
            SimEvent::StepDone(core, service, took) => self.step_done(core, service, took),
            SimEvent::Look(core) => {
                self.cores[core].looks = false;
                self.wake(core);
                self.go_on(core);
            }
            SimEvent::Decide => self.decide(),
        }
    }

    /// What is to be done because a task has ended. Where nobody places it, it follows on the same core, as an equal.
    fn leave_steps(&mut self, core: usize) {
        let Backlog::PerTask(steps) = self.scenario.backlog else { return };
        self.backlog += steps;
        if self.selection.policy() == BackgroundPolicy::None {
            while self.backlog >= 1.0 {
                self.backlog -= 1.0;
                self.cores[core].queue.push_back(Waiting::Step);
            }
        } else {
            self.wake_all();
        }
    }

    fn step_done(&mut self, index: usize, service: usize, took: f64) {
        self.outcome.steps += 1;
        self.outcome.starved = self.outcome.starved.max(self.now - self.last_step);
        self.last_step = self.now;
        self.ready.push_back((service, self.now));
        let (now, core) = (self.now, &mut self.cores[index]);
        core.is_busy = false;
        core.debt += took * (1.0 - core.grant.share) / core.grant.share.max(1e-9);
        if core.debt > DEBT {
            core.rests_until = now + core.debt;
            let rest = std::mem::take(&mut core.debt);
            self.add(rest, SimEvent::Look(index));
        } else {
            core.ahead = Some(core.queue.len());
        }
        self.wake_all();
        self.go_on(index);
    }

    fn decide(&mut self) {
        let interval = self.scenario.interval;
        let samples: Vec<CoreSample> = self.cores.iter_mut().map(|core| core.take_sample(interval)).collect();
        let grants = self.selection.decide(&samples, interval);
        for (core, grant) in self.cores.iter_mut().zip(grants) {
            if grant.share > core.grant.share {
                core.rests_until = self.now;
            }
            core.grant = grant;
        }
        self.add(interval, SimEvent::Decide);
        self.wake_all();
        (0..self.cores.len()).for_each(|core| self.go_on(core));
    }

    /// The driver of a core wants to run, unless it rests or may not.
    fn wake(&mut self, index: usize) {
        let core = &mut self.cores[index];
        if core.ahead.is_none() && core.grant.share > 0.0 && self.now >= core.rests_until {
            core.ahead = Some(core.queue.len());
        }
    }

    fn wake_all(&mut self) {
        for index in 0..self.cores.len() {
            self.wake(index);
            if !self.cores[index].is_busy && self.cores[index].queue.is_empty() {
                self.go_on(index);
            }
        }
    }

    /// Runs what is next on a core that is free.
    fn go_on(&mut self, index: usize) {
        while !self.cores[index].is_busy {
            if self.cores[index].ahead == Some(0) && self.try_step(index) {
                return;
            }
            match self.cores[index].queue.pop_front() {
                Some(Waiting::Task(task)) => self.run_task(index, task),
                Some(Waiting::Step) => {
                    let took = self.scenario.step_seconds;
                    self.occupy_with_step(index, took);
                    self.add(took, SimEvent::LeftStepDone(index));
                }
                None => return,
            }
        }
    }

    fn run_task(&mut self, index: usize, task: Task) {
        let spread = self.scenario.task_spread;
        // A logarithmic normal distribution of this mean, its normal one by Box and Muller.
        let [a, b] = [(); 2].map(|()| self.random.random::<f64>());
        let normal = (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        let took = self.scenario.task_seconds * (spread * normal - spread * spread / 2.0).exp();
        let core = &mut self.cores[index];
        core.ahead = core.ahead.map(|ahead| ahead.saturating_sub(1));
        core.is_busy = true;
        core.foreground += took;
        core.sample.foreground += took;
        core.sample.arrivals += 1;
        core.delay += self.now - task.came;
        self.add(took, SimEvent::TaskDone(index, task));
    }

    /// The driver of a core has its turn; whether it runs a step.
    fn try_step(&mut self, index: usize) -> bool {
        let (now, core) = (self.now, &mut self.cores[index]);
        if core.grant.share <= 0.0 || now < core.rests_until {
            core.ahead = None;
            return false;
        }
        if core.grant.strict && !core.queue.is_empty() {
            let since = *core.gives_way_since.get_or_insert(now);
            if now - since < PATIENCE {
                core.ahead = Some(core.queue.len());
                return false;
            }
        }
        core.gives_way_since = None;
        core.ahead = None;
        let Some(service) = self.take_service(index) else { return false };
        let is_moved = self.services[service].home.is_some_and(|home| home != index);
        self.services[service].home = Some(index);
        self.outcome.moves += u64::from(is_moved);
        let took = self.scenario.step_seconds + if is_moved { self.scenario.move_seconds } else { 0.0 };
        self.occupy_with_step(index, took);
        self.add(took, SimEvent::StepDone(index, service, took));
        true
    }

    fn occupy_with_step(&mut self, index: usize, took: f64) {
        let core = &mut self.cores[index];
        core.is_busy = true;
        core.background += took;
        core.sample.background += took;
    }

    /// A service whose next step is this core's to run: its last one ran here, or that core has no time for it.
    fn take_service(&mut self, index: usize) -> Option<usize> {
        if self.backlog < 1.0 {
            self.last_step = self.now;
            return None;
        }
        let mine = self.cores[index].grant.share;
        let is_for_me = |(service, since): &(usize, f64)| match self.services[*service].home {
            None => true,
            Some(home) => home == index || self.cores[home].grant.share < mine / 2.0 || self.now - since > STAYS,
        };
        match self.ready.iter().position(is_for_me) {
            Some(position) => {
                self.backlog -= 1.0;
                self.ready.remove(position).map(|(service, _)| service)
            }
            None => {
                if !self.ready.is_empty() && !std::mem::replace(&mut self.cores[index].looks, true) {
                    self.add(STAYS, SimEvent::Look(index));
                }
                None
            }
        }
    }
}

impl Core {
    fn take_sample(&mut self, interval: f64) -> CoreSample {
        let sample = std::mem::take(&mut self.sample);
        let delay = std::mem::take(&mut self.delay);
        CoreSample {
            foreground: (sample.foreground / interval).min(1.0),
            background: (sample.background / interval).min(1.0),
            queue_delay: delay / (sample.arrivals as f64).max(1.0),
            arrivals: sample.arrivals,
        }
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest event is the greatest.
impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        other.at.total_cmp(&self.at).then_with(|| other.sequence.cmp(&self.sequence))
    }
}
