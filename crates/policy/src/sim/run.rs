//! One run: events in the order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pithead_model::Level;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::sim::{BUFFER_BYTES, Outcome, Policy, Scenario};
use crate::snapshot::{ByLevel, DriveState, HostState, LinkState, Setup, SliceCosts, Snapshot};
use crate::split::split;
use crate::steering::{Sample, Steering};

/// What happens at a point in time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// A worker may take a slice.
    WorkerFree,
    /// A worker has finished its slice.
    Worked { slice: usize, level: Level, drive_ns: f64 },
    /// The carrier may take a slice.
    CarrierFree,
    /// The carrier has read its slice.
    Carried { slice: usize, level: Level, resident: bool, drive_ns: f64 },
    /// The host has received all of a slice.
    Arrived { slice: usize, level: Level },
    /// The host has finished a slice.
    Through { level: Level, host_ns: f64 },
}

/// Events by time, then by the order in which they were made.
struct Timed {
    at_ns: f64,
    order: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        self.at_ns.total_cmp(&other.at_ns).then(self.order.cmp(&other.order))
    }
}

/// The factor by which a slice takes more or less than the mean.
#[derive(Clone, Copy)]
struct Noise {
    cpu: f64,
    size: f64,
}

/// A round that runs at the drive.
struct Running {
    slice: usize,
    level: Level,
    from_ns: f64,
}

pub struct Run<'a> {
    scenario: &'a Scenario,
    policy: Policy,
    steering: Steering,
    noise: Vec<Noise>,
    now_ns: f64,
    events: BinaryHeap<Reverse<Timed>>,
    order: u64,
    taken: usize,
    resident: u32,
    workers_idle: u32,
    carrier_idle: bool,
    running: Vec<Running>,
    worked: u32,
    paid: ByLevel<bool>,
    /// When the link is free, and the output that is still on its way: when each has arrived, and its size.
    link_free_ns: f64,
    sending: Vec<(f64, f64)>,
    host_free_ns: Vec<f64>,
    at_host: ByLevel<u32>,
    outcome: Outcome,
    worker_was: Option<Level>,
    carrier_was: Option<Option<Level>>,
}

impl<'a> Run<'a> {
    pub fn new(scenario: &'a Scenario, policy: Policy) -> Run<'a> {
        let mut rng = StdRng::seed_from_u64(scenario.seed);
        let mut steering = Steering::new(prior(scenario), false);
        steering.set_workers(scenario.drive_cores);
        let noise = (0..scenario.slices)
            .map(|_| Noise { cpu: lognormal(&mut rng, scenario.noise), size: lognormal(&mut rng, scenario.noise / 2.0) })
            .collect();
        Run {
            scenario,
            policy,
            steering,
            noise,
            now_ns: 0.0,
            events: BinaryHeap::new(),
            order: 0,
            taken: 0,
            resident: scenario.resident.min(scenario.slices),
            workers_idle: scenario.drive_cores.max(1),
            carrier_idle: true,
            running: Vec::new(),
            worked: 0,
            paid: ByLevel::default(),
            link_free_ns: 0.0,
            sending: Vec::new(),
            host_free_ns: vec![0.0; scenario.host_cores.max(1) as usize],
            at_host: ByLevel::default(),
            outcome: Outcome { finish_ns: 0.0, slices: ByLevel::default(), decisions: 0, changes: 0 },
            worker_was: None,
            carrier_was: None,
        }
    }

    pub fn finish(mut self) -> Outcome {
        self.ask();
        while let Some(Reverse(next)) = self.events.pop() {
            self.now_ns = next.at_ns;
            self.step(next.event);
            self.ask();
        }
        if self.left() > 0 {
            self.outcome.finish_ns = f64::INFINITY;
        }
        self.outcome
    }

    fn left(&self) -> u32 {
        self.scenario.slices - self.taken as u32
    }

    fn at(&mut self, at_ns: f64, event: Event) {
        if at_ns.is_finite() {
            self.order += 1;
            self.events.push(Reverse(Timed { at_ns, order: self.order, event }));
        } else if !matches!(event, Event::WorkerFree | Event::CarrierFree) {
            self.outcome.finish_ns = f64::INFINITY;
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::WorkerFree => self.workers_idle += 1,
            Event::CarrierFree => self.carrier_idle = true,
            Event::Worked { slice, level, drive_ns } => self.worked(slice, level, drive_ns),
            Event::Carried { slice, level, resident: true, .. } => self.arrived(slice, level),
            Event::Carried { slice, level, resident: false, drive_ns } => {
                let bytes = self.bytes(slice, level);
                self.carried(level, drive_ns, bytes);
                let begins = self.now_ns.max(self.link_free_ns);
                self.send(slice, level, bytes);
                self.at(begins, Event::CarrierFree);
            }
            Event::Arrived { slice, level } => self.arrived(slice, level),
            Event::Through { level, host_ns } => {
                *self.at_host.get_mut(level) -= 1;
                self.steering.measure_host(level, 1, host_ns);
                self.outcome.finish_ns = self.outcome.finish_ns.max(self.now_ns);
            }
        }
    }

    /// Asks the policy for every idle worker and the carrier, until none of them takes a slice.
    fn ask(&mut self) {
        while self.left() > 0 && (self.workers_idle > 0 || self.carrier_idle) {
            let (worker, carry) = self.decide();
            if self.workers_idle > 0
                && let Some(level) = worker
            {
                self.work(level);
            } else if let (true, Some(level)) = (self.carrier_idle, carry) {
                self.carry(level);
            } else {
                return;
            }
        }
    }

    fn decide(&mut self) -> (Option<Level>, Option<Level>) {
        let (worker, carry) = match self.policy {
            Policy::Fixed(level @ (Level::Bytes | Level::Hints)) => (None, Some(level)),
            Policy::Fixed(level) => (Some(level), None),
            Policy::Adaptive => {
                let decision = self.steering.decide(&self.snapshot(self.steering.costs().clone()));
                (decision.worker, decision.carry)
            }
            Policy::Oracle => {
                let slices = split(&self.snapshot(self.scenario.costs.clone())).slices;
                let first = |levels: [Level; 2]| levels.into_iter().find(|level| *slices.get(*level) > 0);
                (first([Level::Whole, Level::Filtered]), first([Level::Hints, Level::Bytes]))
            }
        };
        self.outcome.decisions += 1;
        if worker.is_some() && self.worker_was.is_some() && worker != self.worker_was {
            self.outcome.changes += 1;
        }
        if self.carrier_was.is_some_and(|was| was != carry) {
            self.outcome.changes += 1;
        }
        self.worker_was = worker.or(self.worker_was);
        self.carrier_was = Some(carry);
        (worker, carry)
    }

    /// What the session knows now; it knows loads as they were a little earlier.
    fn snapshot(&self, costs: SliceCosts) -> Snapshot {
        let known = (self.now_ns - self.scenario.notice_ns).max(0.0);
        let free = self.scenario.drive_load.free(known);
        let speed = |running: &Running| {
            let done = (self.now_ns - running.from_ns) * free;
            (costs.drive_ns.get(running.level) - done).max(0.0)
        };
        let backlog_ns =
            ByLevel::<f64>::LEVELS.iter().map(|level| f64::from(*self.at_host.get(*level)) * costs.host_ns.get(*level));
        let unsent = self.sending.iter().filter(|(done, _)| *done > self.now_ns).map(|(_, bytes)| bytes).sum();
        let mut allowed = self.scenario.allowed;
        // A whole partition of which a slice was handed back cannot be executed whole any more.
        let slices = &self.outcome.slices;
        allowed.whole &= !self.scenario.whole_is_all_or_none || slices.filtered + slices.hints + slices.bytes == 0;
        Snapshot {
            left: self.left(),
            resident: self.resident,
            setup: ByLevel::from_fn(
                |level| if *self.paid.get(level) { Setup::default() } else { *self.scenario.setup.get(level) },
            ),
            drive: DriveState {
                cores: f64::from(self.scenario.drive_cores) * free,
                busy_ns: self.running.iter().map(speed).sum(),
            },
            link: LinkState {
                bytes_per_s: self.scenario.link_bytes_per_s * self.scenario.link_load.free(known),
                backlog_bytes: unsent,
            },
            host: HostState {
                cores: f64::from(self.scenario.host_cores) * self.scenario.host_load.free(known),
                backlog_ns: backlog_ns.sum(),
            },
            allowed,
            whole_is_all_or_none: self.scenario.whole_is_all_or_none,
            costs,
        }
    }

    fn take(&mut self, level: Level) -> usize {
        let slice = self.taken;
        self.taken += 1;
        // Workers take the slices that the host has in its cache last.
        let is_carried = matches!(level, Level::Hints | Level::Bytes);
        self.resident = if is_carried { self.resident.saturating_sub(1) } else { self.resident.min(self.left()) };
        *self.outcome.slices.get_mut(level) += 1;
        slice
    }

    /// Pays the one-off costs before the first slice at a level, and returns the drive's part of them.
    fn pay(&mut self, level: Level) -> f64 {
        if std::mem::replace(self.paid.get_mut(level), true) {
            return 0.0;
        }
        let setup = *self.scenario.setup.get(level);
        let sent = self.link(self.now_ns, setup.link_bytes);
        for lane in &mut self.host_free_ns {
            *lane = self.scenario.host_load.done_at(lane.max(sent), setup.host_ns);
        }
        setup.drive_ns
    }

    fn work(&mut self, level: Level) {
        self.workers_idle -= 1;
        let slow = if self.worked < self.scenario.slow_first { self.scenario.slow_factor } else { 1.0 };
        let slice = self.take(level);
        self.worked += 1;
        let drive_ns = self.scenario.costs.drive_ns.get(level) * self.noise(slice).cpu * slow + self.pay(level);
        self.running.push(Running { slice, level, from_ns: self.now_ns });
        let done = self.scenario.drive_load.done_at(self.now_ns, drive_ns);
        self.at(done, Event::Worked { slice, level, drive_ns });
    }

    fn worked(&mut self, slice: usize, level: Level, drive_ns: f64) {
        self.running.retain(|running| running.slice != slice);
        let costs = &self.scenario.costs.drive_ns;
        let link_bytes = self.bytes(slice, level);
        let lie = self.scenario.lies.get(self.worked as usize % self.scenario.lies.len().max(1)).copied();
        let told = lie.unwrap_or(drive_ns);
        self.steering.measure(&Sample {
            level,
            slices: 1,
            drive_ns: told,
            scan_ns: if level == Level::Whole { told * costs.filtered / costs.whole } else { told },
            link_bytes,
            scan_bytes: self.bytes(slice, Level::Filtered),
            stored_bytes: self.bytes(slice, Level::Bytes),
        });
        self.send(slice, level, link_bytes);
        let free = self.room_at();
        self.at(free, Event::WorkerFree);
    }

    /// What the drive reports of a slice that the carrier has sent.
    fn carried(&mut self, level: Level, drive_ns: f64, link_bytes: f64) {
        let lie = self.scenario.lies.get(self.taken % self.scenario.lies.len().max(1)).copied();
        let drive_ns = lie.unwrap_or(drive_ns);
        let (scan_ns, scan_bytes) = (f64::NAN, f64::NAN);
        let stored_bytes = if level == Level::Bytes { link_bytes } else { f64::NAN };
        self.steering.measure(&Sample { level, slices: 1, drive_ns, scan_ns, link_bytes, scan_bytes, stored_bytes });
    }

    /// When no more than the buffer's bytes will wait for the link.
    fn room_at(&self) -> f64 {
        let mut waiting: f64 = self.sending.iter().map(|(_, bytes)| bytes).sum();
        let mut at = self.now_ns;
        for (done, bytes) in &self.sending {
            if waiting <= BUFFER_BYTES {
                break;
            }
            (at, waiting) = (*done, waiting - bytes);
        }
        at.max(self.now_ns)
    }

    /// Of what the host holds, only the name travels.
    fn carry(&mut self, level: Level) {
        self.carrier_idle = false;
        let resident = self.resident > 0;
        let slice = self.take(level);
        let costs = &self.scenario.costs.drive_ns;
        let drive_ns = if resident { costs.bytes } else { *costs.get(level) } * self.noise(slice).cpu + self.pay(level);
        let read = self.scenario.drive_load.done_at(self.now_ns, drive_ns);
        self.at(read, Event::Carried { slice, level, resident, drive_ns });
        if resident {
            self.at(read, Event::CarrierFree);
        }
    }

    /// Sends the output of a slice.
    fn send(&mut self, slice: usize, level: Level, bytes: f64) {
        let done = self.link(self.now_ns, bytes);
        self.sending.retain(|(done, _)| *done > self.now_ns);
        self.sending.push((done, bytes));
        self.at(done, Event::Arrived { slice, level });
    }

    fn link(&mut self, at_ns: f64, bytes: f64) -> f64 {
        if bytes > 0.0 {
            let alone = bytes / self.scenario.link_bytes_per_s * 1e9;
            self.link_free_ns = self.scenario.link_load.done_at(at_ns.max(self.link_free_ns), alone);
            self.link_free_ns
        } else {
            at_ns
        }
    }

    fn arrived(&mut self, slice: usize, level: Level) {
        *self.at_host.get_mut(level) += 1;
        let host_ns = self.scenario.costs.host_ns.get(level) * self.noise(slice).cpu;
        let now = self.now_ns;
        let load = self.scenario.host_load;
        let first = self.host_free_ns.iter_mut().min_by(|a, b| a.total_cmp(b));
        let done = first.map_or(now, |lane| {
            *lane = load.done_at(lane.max(now), host_ns);
            *lane
        });
        self.at(done, Event::Through { level, host_ns });
    }

    fn noise(&self, slice: usize) -> Noise {
        self.noise.get(slice).copied().unwrap_or(Noise { cpu: 1.0, size: 1.0 })
    }

    fn bytes(&self, slice: usize, level: Level) -> f64 {
        self.scenario.costs.link_bytes.get(level) * self.noise(slice).size
    }
}

/// The cost model's prediction before any measurement.
fn prior(scenario: &Scenario) -> SliceCosts {
    let (costs, time, size) = (&scenario.costs, scenario.time_error, scenario.size_error);
    SliceCosts {
        drive_ns: ByLevel::from_fn(|level| costs.drive_ns.get(level) * time),
        host_ns: ByLevel::from_fn(|level| costs.host_ns.get(level) * time),
        link_bytes: ByLevel::from_fn(|level| {
            // The stored bytes are known exactly, and bounds are looked at before the first slice.
            costs.link_bytes.get(level) * if matches!(level, Level::Bytes | Level::Hints) { 1.0 } else { size }
        }),
    }
}

/// A log-normal sample of mean 1, made from a normal one by the method of Box and Muller 1958.
fn lognormal(rng: &mut StdRng, deviation: f64) -> f64 {
    let (u, v): (f64, f64) = (rng.random_range(f64::MIN_POSITIVE..1.0), rng.random());
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    (deviation * normal - deviation * deviation / 2.0).exp()
}
