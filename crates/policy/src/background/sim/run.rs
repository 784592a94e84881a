//! One run of the simulation.

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::core::{Core, Occupation, Waiting};
use super::device::Device;
use super::event::{Events, SimEvent};
use super::scenario::{Arrivals, Backlog, Outcome, Scenario};
use super::task::Task;
use super::writing::Writing;
use crate::background::{BackgroundPolicy, CoreSample, Selection};

/// How the reactors of a drive run steps; the same numbers as there.
const STAYS: f64 = 2e-3;
const DEBT: f64 = 1e-3;
const PATIENCE: f64 = 0.1;
/// How long a thread has a core before another one that waits for it, about as long as the kernel lets it.
const SLICE: f64 = 1e-3;
/// Bytes that a service reads at once, at least.
const READ_BYTES: f64 = 65_536.0;

pub(super) struct Run<'a> {
    pub scenario: &'a Scenario,
    arrivals: Arrivals,
    random: StdRng,
    pub now: f64,
    events: Events,
    hosts: Vec<Host>,
    pub cores: Vec<Core>,
    pub device: Device,
    /// Where tasks write.
    pub writing: Option<Writing>,
    /// The core of the next commit.
    pub turn: usize,
    services: Vec<Service>,
    /// Services whose next step can run, with since when.
    ready: VecDeque<(usize, f64)>,
    /// Steps that there are to do; of an endless backlog, infinitely many.
    backlog: f64,
    selection: Selection,
    times: Vec<f64>,
    last_step: f64,
    pub outcome: Outcome,
}

/// A host thread that sends one task at a time.
#[derive(Clone, Default)]
struct Host {
    waits: bool,
    /// When tasks were due that it has not sent yet.
    due: VecDeque<f64>,
}

struct Service {
    /// The core of its last step.
    home: Option<usize>,
    /// Bytes that it has read and that no step has taken.
    read_bytes: f64,
}

impl<'a> Run<'a> {
    pub fn new(scenario: &'a Scenario, arrivals: Arrivals, policy: BackgroundPolicy) -> Run<'a> {
        let cores = scenario.cores.max(1);
        let mut run = Run {
            scenario,
            arrivals,
            random: StdRng::seed_from_u64(scenario.seed),
            now: 0.0,
            events: Events::default(),
            hosts: vec![Host::default(); scenario.threads],
            cores: (0..cores).map(|_| Core::default()).collect(),
            device: Device::new(scenario.medium),
            writing: scenario.writes.map(Writing::new),
            turn: 0,
            services: (0..scenario.services).map(|_| Service { home: None, read_bytes: scenario.step_bytes }).collect(),
            ready: (0..scenario.services).map(|service| (service, 0.0)).collect(),
            backlog: if scenario.backlog == Backlog::Endless { f64::INFINITY } else { 0.0 },
            selection: Selection::new(policy),
            times: Vec::new(),
            last_step: 0.0,
            outcome: Outcome::default(),
        };
        for thread in 0..scenario.threads {
            match arrivals {
                Arrivals::Random | Arrivals::Queued => run.next_arrival(thread),
                Arrivals::Closed => run.add(0.0, SimEvent::Arrival(thread)),
            }
        }
        run.add(0.0, SimEvent::Decide);
        run
    }

    pub fn finish(mut self) -> Outcome {
        while let Some((at, what)) = self.events.next() {
            if at > self.scenario.seconds {
                break;
            }
            self.now = at;
            self.happen(what);
            self.settle_speeds();
        }
        let seconds = self.scenario.seconds;
        self.cores.iter_mut().for_each(|core| core.stop(seconds));
        let times = &mut self.times;
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))).copied();
        let mean = times.iter().sum::<f64>() / (times.len() as f64).max(1.0);
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| at(share).unwrap_or(0.0));
        let foreground = self.cores.iter().map(|core| core.foreground / seconds).collect();
        let background = self.cores.iter().map(|core| core.background / seconds).collect();
        let (medium_bytes, medium) = (self.device.bytes, self.device.busy(seconds) / seconds);
        let tasks = times.len() as u64;
        let commits = self.writing.map_or(0, |writing| writing.commits);
        Outcome { tasks, mean, p50, p99, p999, foreground, background, commits, medium_bytes, medium, ..self.outcome }
    }

    pub fn add(&mut self, after: f64, what: SimEvent) {
        self.events.add(self.now + after, what);
    }

    fn next_arrival(&mut self, thread: usize) {
        let after = -(1.0 - self.random.random::<f64>()).ln() / self.scenario.rate;
        self.add(after, SimEvent::Arrival(thread));
    }

    fn happen(&mut self, what: SimEvent) {
        match what {
            SimEvent::Arrival(thread) => self.arrive(thread),
            SimEvent::CoreDone(core, number) => self.core_done(core, number),
            SimEvent::Answered(thread) => match self.hosts[thread].due.pop_front() {
                Some(came) => self.send(Task { came, queued: self.now, thread }),
                None => self.hosts[thread].waits = false,
            },
            SimEvent::StepRead(service) => {
                self.ready.push_back((service, self.now));
                self.wake_all();
            }
            SimEvent::Written => self.write_on(Writing::written),
            SimEvent::RoundDue => self.write_on(Writing::round_due),
            SimEvent::Look(core) => {
                self.cores[core].looks = false;
                self.wake(core);
                self.go_on(core);
            }
            SimEvent::Decide => self.decide(),
        }
    }

    fn core_done(&mut self, core: usize, number: u64) {
        let Some((what, took)) = self.cores[core].end(number) else { return };
        match what {
            Occupation::Task(task) => {
                match self.writing.is_some() {
                    true => self.write_on(|writing, _| writing.wait_for_commit(task)),
                    false => self.answered(task),
                }
                self.leave_steps(core);
            }
            Occupation::Step(service) => self.step_done(core, service, took),
            Occupation::LeftStep => self.outcome.steps += 1,
            Occupation::Thread(work, left) if left > 0.0 => {
                let core = if work.is_pinned() { core } else { self.freest() };
                self.queue_thread(core, work, left);
            }
            Occupation::Thread(work, _) => self.work_done(work),
        }
        self.go_on(core);
    }

    /// Begins what takes so long at full speed.
    fn occupy(&mut self, index: usize, what: Occupation, seconds: f64) {
        let speed = self.speed(index);
        let (takes, number) = self.cores[index].begin(self.now, what, seconds, speed);
        self.add(takes, SimEvent::CoreDone(index, number));
    }

    fn speed(&self, index: usize) -> f64 {
        let is_shared = self.cores.get(index ^ 1).is_some_and(Core::is_busy);
        if is_shared { self.scenario.beside_speed } else { 1.0 }
    }

    /// Whatever runs goes on as fast as the other core of its pair lets it.
    fn settle_speeds(&mut self) {
        if self.scenario.beside_speed == 1.0 {
            return;
        }
        for index in 0..self.cores.len() {
            let speed = self.speed(index);
            if let Some((left, number)) = self.cores[index].change_speed(self.now, speed) {
                self.add(left, SimEvent::CoreDone(index, number));
            }
        }
    }

    fn arrive(&mut self, thread: usize) {
        if self.arrivals != Arrivals::Closed {
            self.next_arrival(thread);
        }
        let (now, host) = (self.now, &mut self.hosts[thread]);
        if self.arrivals == Arrivals::Queued && std::mem::replace(&mut host.waits, true) {
            return host.due.push_back(now);
        }
        self.send(Task { came: now, queued: now, thread });
    }

    /// The core that a host thread is bound to.
    pub fn core_of(&self, thread: usize) -> usize {
        thread % self.cores.len()
    }

    /// A task has come to its core.
    pub fn queue_task(&mut self, task: Task) {
        let core = self.core_of(task.thread);
        self.cores[core].queue.push_back(Waiting::Task(Task { queued: self.now, ..task }));
        self.go_on(core);
    }

    pub fn answered(&mut self, task: Task) {
        let elsewhere = self.scenario.elsewhere_seconds;
        self.times.push(self.now - task.came + elsewhere);
        match self.arrivals {
            Arrivals::Random => {}
            Arrivals::Queued => self.add(elsewhere, SimEvent::Answered(task.thread)),
            Arrivals::Closed => self.add(elsewhere, SimEvent::Arrival(task.thread)),
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
        self.read_ahead(service);
        let (now, core) = (self.now, &mut self.cores[index]);
        core.debt += took * (1.0 - core.grant.share) / core.grant.share.max(1e-9);
        if core.debt > DEBT {
            core.rests_until = now + core.debt;
            let rest = std::mem::take(&mut core.debt);
            self.add(rest, SimEvent::Look(index));
        } else {
            core.ahead = Some(core.queue.len());
        }
        self.wake_all();
    }

    /// A service reads what its next step needs, unless it has that.
    fn read_ahead(&mut self, index: usize) {
        let bytes = self.scenario.step_bytes;
        let service = &mut self.services[index];
        service.read_bytes -= bytes;
        if service.read_bytes >= bytes {
            return self.ready.push_back((index, self.now));
        }
        let missing = READ_BYTES.max(bytes);
        service.read_bytes += missing;
        let read_at = self.device.read(self.now, missing);
        let ready_at = read_at + self.scenario.read_elsewhere_seconds;
        if ready_at > self.now {
            self.add(ready_at - self.now, SimEvent::StepRead(index));
        } else {
            self.ready.push_back((index, self.now));
        }
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
            if !self.cores[index].is_busy() && self.cores[index].queue.is_empty() {
                self.go_on(index);
            }
        }
    }

    /// Runs what is next on a core that is free.
    pub fn go_on(&mut self, index: usize) {
        while !self.cores[index].is_busy() {
            if self.cores[index].ahead == Some(0) && self.try_step(index) {
                return;
            }
            match self.cores[index].queue.pop_front() {
                Some(Waiting::Task(task)) => self.run_task(index, task),
                Some(Waiting::Thread(work, left)) => {
                    let takes = left.min(SLICE);
                    self.go_ahead(index);
                    self.occupy(index, Occupation::Thread(work, left - takes), takes);
                }
                Some(Waiting::Step) => self.occupy(index, Occupation::LeftStep, self.scenario.step_seconds),
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
        self.go_ahead(index);
        let core = &mut self.cores[index];
        core.sample.arrivals += 1;
        core.delay += self.now - task.queued;
        self.occupy(index, Occupation::Task(task), took);
    }

    /// One less is before the core's driver.
    fn go_ahead(&mut self, index: usize) {
        let core = &mut self.cores[index];
        core.ahead = core.ahead.map(|ahead| ahead.saturating_sub(1));
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
        self.occupy(index, Occupation::Step(service), took);
        true
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
