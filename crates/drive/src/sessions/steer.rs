//! [`Steer`]: how far a session's next slices are taken. It gathers what the policy needs to know, and asks it
//! (`pithead_policy`, `docs/concepts/push-back.md`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pithead_device::{CountedWork, Device, unit_ns};
use pithead_door::LinkGauge;
use pithead_exec::{Bound, Hinted, RoundStats, RoundWatch, Waiting};
use pithead_model::{Adapt, ByLevel, Cores, Finished, HostState, Level, LevelRule, PushBackCause, SliceCosts};
use pithead_policy::{Allowed, DriveState, Features, LinkState, Prediction, Sample, Setup, Snapshot, Steering};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;

use crate::sessions::costs::Costs;
use crate::sessions::hinting::Searching;
use crate::sessions::meter::Spent;
use crate::sessions::rounds::RoundPolicy;

/// What a link is taken to carry that has not shown it yet, bytes a second: 10 Gbit/s.
const LINK_UNKNOWN: f64 = 1.25e9;
/// CPU time that a byte of the other inputs costs a host that takes them in, nanoseconds.
const TAKE_IN_NS: f64 = 1.0;
/// Longest that a task which has nothing to do waits before it asks again.
const CHANGE_WAIT: Duration = Duration::from_millis(10);

/// How far the slices of one session are taken.
#[derive(Debug)]
pub(crate) struct Steer {
    rule: LevelRule,
    allowed: Allowed,
    /// Whether the host has sent what slices cost before.
    is_sized: bool,
    all_or_none: bool,
    device: Arc<dyn Device>,
    costs: Arc<Costs>,
    /// What the sub-plan does with a slice, and what that was expected to take.
    expected: Option<(Features, Prediction)>,
    predicted: Option<SliceCosts>,
    state: Mutex<SteerState>,
    host: Mutex<HostState>,
    link: OnceLock<Arc<dyn LinkGauge>>,
    /// Bytes of the other datasets, which travel once if anything is handed back.
    others_bytes: f64,
    handed_back: AtomicBool,
    /// Something has changed that decisions hang on.
    pub(crate) changed: Notify,
}

#[derive(Debug)]
struct SteerState {
    steering: Steering,
    random: StdRng,
    /// For sub-plans that need whole partitions: whether level 3 was chosen.
    is_whole: Option<bool>,
    live: Vec<Live>,
    /// Whether the drive has taken a slice itself.
    is_measured: bool,
    /// Whether looking into pages pays at level 1.
    searching: Searching,
}

/// A round that runs, and what of it was told to the policy.
#[derive(Debug)]
struct Live {
    number: u64,
    level: Level,
    watch: RoundWatch,
    spent: Spent,
    told: (u32, RoundStats, u64),
}

/// The next work of a session's tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    /// By a free task; none: it has nothing to do for now.
    pub(crate) task: Option<Level>,
    /// By the carrier; none: it takes no slice for now.
    pub(crate) carry: Option<Level>,
    /// Slices that a round to level 3 should take at most.
    pub(crate) whole_max: usize,
    /// The same to level 2.
    pub(crate) filtered_max: usize,
    /// What waits at the drive, as time on its cores, milliseconds.
    pub(crate) queue_ms: u64,
}

impl Step {
    /// Everything whole.
    pub(crate) const WHOLE: Step =
        Step { task: Some(Level::Whole), carry: None, whole_max: usize::MAX, filtered_max: usize::MAX, queue_ms: 0 };
}

/// The facts of a session that steering needs.
pub(crate) struct Facts<'a> {
    pub(crate) adapt: &'a Adapt,
    pub(crate) bound: &'a Bound,
    pub(crate) policy: &'a RoundPolicy,
    /// The drive's.
    pub(crate) cores: &'a Cores,
    pub(crate) whole_partition: bool,
    pub(crate) encoding: &'a str,
    pub(crate) others_bytes: u64,
}

/// How busy the drive is with this session and others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    /// Tasks of the session.
    pub(crate) tasks: usize,
    /// Reactors of the drive.
    pub(crate) reactors: usize,
    /// Tasks of all sessions.
    pub(crate) live: usize,
    /// Sessions that run and send over the same link.
    pub(crate) sessions: usize,
    /// Bytes of the session that wait to be sent.
    pub(crate) queued_bytes: f64,
}

impl Steer {
    pub(crate) fn new(facts: &Facts<'_>, device: &Arc<dyn Device>, costs: &Arc<Costs>) -> Steer {
        let Facts { adapt, bound, .. } = facts;
        let rule = rule(facts, device.cpu_share());
        let allowed = allowed(rule, bound);
        let mut expected = None;
        let host_over_drive = host_over_drive(&adapt.host, device.cpu_share());
        if rule == LevelRule::Auto {
            // Measured as time of a core, of which the device may get a share.
            let share = device.cpu_share();
            let features = bound.features(adapt.expected, &adapt.calls).map(|found| Features {
                encoding: facts.encoding.to_owned(),
                scan_calls_ns: found.scan_calls_ns / share,
                rest_calls_ns: found.rest_calls_ns / share,
                ..found
            });
            expected = features.map(|features| {
                let prediction = costs.predict(&features);
                (features, prediction)
            });
        }
        let predicted = expected.as_ref().map(|(_, prediction)| prediction.costs(host_over_drive));
        let seeds = adapt.costs.clone().or(predicted.clone()).unwrap_or_default();
        let mut steering = Steering::new(seeds, adapt.costs.is_some());
        steering.set_speed(1.0, host_over_drive);
        steering.set_workers(facts.policy.tasks as u32);
        let random = StdRng::seed_from_u64(match rule {
            LevelRule::Random(seed) => seed,
            _ => 0,
        });
        Steer {
            rule,
            allowed,
            is_sized: adapt.costs.is_some(),
            all_or_none: facts.whole_partition,
            device: Arc::clone(device),
            costs: Arc::clone(costs),
            expected,
            predicted,
            state: Mutex::new(SteerState {
                steering,
                random,
                is_whole: None,
                live: vec![],
                is_measured: false,
                searching: Searching::new(rule != LevelRule::Auto),
            }),
            host: Mutex::new(adapt.host.clone()),
            link: OnceLock::new(),
            others_bytes: facts.others_bytes as f64,
            handed_back: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Whether all slices are taken whole, and nothing needs to be asked or counted for it.
    pub(crate) fn is_plain(&self) -> bool {
        self.rule == LevelRule::Only(Level::Whole)
    }

    /// Whether anything may be handed back, so that a carrier is of use.
    pub(crate) fn may_carry(&self) -> bool {
        self.allowed.carried() && !self.is_plain()
    }

    /// Over what its answer travels.
    pub(crate) fn over(&self, link: Arc<dyn LinkGauge>) {
        let _ = self.link.set(link);
    }

    /// The host says how it is.
    pub(crate) fn tell(&self, host: HostState) {
        {
            let mut state = self.state.lock();
            for finished in &host.finished {
                state.steering.measure_host(finished.level, finished.slices, finished.cpu_ns as f64);
                if matches!(finished.level, Level::Bytes | Level::Hints) && !state.is_measured {
                    self.infer(&mut state, &host, finished);
                }
            }
        }
        *self.host.lock() = host;
        self.changed.notify_waiters();
    }

    /// Infers the drive's costs from those of the host for whole slices, scaled by their speeds, as long as the drive has taken no
    /// slice itself. A wrong expectation is so corrected even where it keeps the drive from trying. The drive's own measurements
    /// stay, since a host may say anything.
    fn infer(&self, state: &mut SteerState, host: &HostState, finished: &Finished) {
        let Some((_, prediction)) = &self.expected else { return };
        let drive_ns = finished.cpu_ns as f64 / host_over_drive(host, self.device.cpu_share());
        let share = prediction.scan_ns / (prediction.scan_ns + prediction.rest_ns).max(1.0);
        let scan_ns = drive_ns * share;
        state.steering.measure(&Sample {
            level: Level::Whole,
            slices: finished.slices,
            drive_ns,
            scan_ns,
            link_bytes: f64::NAN,
            scan_bytes: f64::NAN,
            stored_bytes: f64::NAN,
        });
    }

    /// Why work is handed back.
    pub(crate) fn cause(&self) -> PushBackCause {
        if self.rule == LevelRule::Auto { PushBackCause::Sooner } else { PushBackCause::Asked }
    }

    /// Whether a session whose slices must all be in one round is taken to level 3. Asked first, and decided once: a part of them
    /// cannot be handed back later.
    pub(crate) fn is_whole(&self, waiting: &Waiting, busy: Busy) -> bool {
        if let Some(is_whole) = self.state.lock().is_whole {
            return is_whole;
        }
        let is_whole = match self.rule {
            _ if waiting.slices == 0 => true,
            LevelRule::Only(level) => match level {
                Level::Whole => true,
                level => !self.allowed.get(level),
            },
            LevelRule::Random(_) => {
                !(self.allowed.filtered || self.allowed.carried()) || self.state.lock().random.random_bool(0.4)
            }
            LevelRule::Auto => self.decide(waiting, busy).task == Some(Level::Whole),
        };
        *self.state.lock().is_whole.get_or_insert(is_whole)
    }

    /// Waits until something is other than it was, or for a moment.
    pub(crate) async fn wait_for_change(&self) {
        let _ = tokio::time::timeout(CHANGE_WAIT, self.changed.notified()).await;
    }

    /// The next step. The tasks answer for slices that their bounds rule out, which costs nothing.
    pub(crate) fn next(&self, waiting: &Waiting, busy: Busy) -> Step {
        let whole = Step::WHOLE;
        if waiting.slices == 0 {
            return match self.all_or_none {
                false => whole,
                // The rest of a whole partition that is handed back.
                true => Step { task: self.allowed.filtered.then_some(Level::Filtered), carry: Some(Level::Bytes), ..whole },
            };
        }
        match self.rule {
            LevelRule::Only(Level::Filtered) if self.allowed.filtered => Step { task: Some(Level::Filtered), ..whole },
            LevelRule::Only(level @ (Level::Hints | Level::Bytes)) if self.allowed.get(level) => {
                Step { task: None, carry: Some(level), ..whole }
            }
            LevelRule::Only(_) => whole,
            LevelRule::Random(_) => self.random(),
            LevelRule::Auto => self.decide(waiting, busy),
        }
    }

    fn random(&self) -> Step {
        let random = &mut self.state.lock().random;
        let may_be_whole = !self.all_or_none;
        let mut levels = Vec::new();
        levels.extend(may_be_whole.then_some(Level::Whole));
        levels.extend(self.allowed.filtered.then_some(Level::Filtered));
        let task = if levels.is_empty() { None } else { Some(levels[random.random_range(0..levels.len())]) };
        let carried: Vec<Level> = [Level::Hints, Level::Bytes].into_iter().filter(|level| self.allowed.get(*level)).collect();
        let carries = !carried.is_empty() && (task.is_none() || random.random_bool(0.5));
        let carry = carries.then(|| carried[random.random_range(0..carried.len())]);
        Step { task, carry, whole_max: random.random_range(1..4), filtered_max: random.random_range(1..4), queue_ms: 0 }
    }

    fn decide(&self, waiting: &Waiting, busy: Busy) -> Step {
        let mut state = self.state.lock();
        let SteerState { steering, is_whole, live, .. } = &mut *state;
        let share = self.device.cpu_share();
        let mut received = 1.0_f64;
        for live in live.iter_mut() {
            if let Some(sample) = live.sample(share) {
                steering.measure(&self.on_link(sample));
            }
            received = received.min(live.received());
        }
        let cores = (busy.tasks as f64 * (busy.reactors as f64 / busy.live.max(1) as f64).min(1.0) * received).max(0.01);
        let costs = steering.costs();
        let busy_ns: f64 = live.iter().map(|live| live.ahead_ns(*costs.drive_ns.get(live.level), share)).sum();
        let mut allowed = self.allowed;
        if *is_whole == Some(false) {
            allowed.whole = false;
        }
        let host = self.host.lock().clone();
        let snapshot = Snapshot {
            left: waiting.slices,
            resident: waiting.held,
            costs: costs.clone(),
            setup: self.setup(),
            drive: DriveState { cores, busy_ns },
            link: self.link_state(busy),
            host: pithead_policy::HostState { cores: host.cores, backlog_ns: host.backlog_ns },
            allowed,
            whole_is_all_or_none: self.all_or_none,
        };
        let decision = steering.decide(&snapshot);
        let chosen = &decision.split.slices;
        tracing::trace!(?snapshot, ?decision, "decided");
        let whole_max = match self.all_or_none || chosen.whole >= waiting.slices {
            true => usize::MAX,
            false => (chosen.whole as usize).div_ceil(busy.tasks.max(1)).max(1),
        };
        let filtered_max = (chosen.filtered as usize).div_ceil(busy.tasks.max(1)).max(1);
        Step { task: decision.worker, carry: decision.carry, whole_max, filtered_max, queue_ms: (busy_ns / cores / 1e6) as u64 }
    }

    fn setup(&self) -> ByLevel<Setup> {
        if self.handed_back.load(Ordering::Relaxed) {
            return ByLevel::default();
        }
        let others = Setup { link_bytes: self.others_bytes, host_ns: self.others_bytes * TAKE_IN_NS, drive_ns: 0.0 };
        ByLevel { whole: Setup::default(), filtered: others, hints: others, bytes: others }
    }

    /// A round's sample, with its rows as large as the link has them: they may be compressed there.
    fn on_link(&self, sample: Sample) -> Sample {
        let share = self.link.get().map_or(1.0, |link| link.rows_share());
        Sample { link_bytes: sample.link_bytes * share, scan_bytes: sample.scan_bytes * share, ..sample }
    }

    /// The rate of the link to the host, bytes a second; none within a process, and before it has shown one.
    pub(crate) fn link_rate(&self) -> Option<f64> {
        let paced = self.device.link_bits_per_second().map(|bits| bits / 8.0);
        paced.or_else(|| self.link.get()?.read().map(|read| read.bytes_per_s))
    }

    fn link_state(&self, busy: Busy) -> LinkState {
        let sessions = busy.sessions.max(1) as f64;
        let queued = busy.queued_bytes;
        if let Some(bits) = self.device.link_bits_per_second() {
            // What others have booked goes before this session's, so the rate is not divided as well.
            return LinkState { bytes_per_s: bits / 8.0, backlog_bytes: self.device.link_backlog_bytes() + queued };
        }
        match self.link.get() {
            None => LinkState { bytes_per_s: f64::INFINITY, backlog_bytes: 0.0 },
            Some(link) => match link.read() {
                None => LinkState { bytes_per_s: LINK_UNKNOWN / sessions, backlog_bytes: queued },
                Some(read) => {
                    LinkState { bytes_per_s: read.bytes_per_s / sessions, backlog_bytes: read.backlog_bytes + queued }
                }
            },
        }
    }

    /// A round begins. The number ends it.
    pub(crate) fn begin(&self, level: Level, watch: RoundWatch, spent: &Spent) -> u64 {
        let mut state = self.state.lock();
        let number = state.live.iter().map(|live| live.number + 1).max().unwrap_or(0);
        state.live.push(Live { number, level, watch, spent: spent.clone(), told: Default::default() });
        number
    }

    /// A round is over, and gave so many bytes.
    pub(crate) fn end(&self, number: u64, bytes: u64) {
        let mut state = self.state.lock();
        let Some(place) = state.live.iter().position(|live| live.number == number) else { return };
        let mut live = state.live.swap_remove(place);
        if live.level < Level::Whole {
            self.handed_back.store(true, Ordering::Relaxed);
        }
        let share = self.device.cpu_share();
        state.is_measured |= read(&live.watch.stats()) > 0;
        if let Some(sample) = live.rest(share, bytes) {
            state.steering.measure(&self.on_link(sample));
        }
        drop(state);
        self.learn(&live, share);
        self.changed.notify_waiters();
    }

    /// A slice was handed back as it is stored.
    pub(crate) fn carried(&self, bytes: u64, cpu_ns: u64) {
        self.handed_back.store(true, Ordering::Relaxed);
        // It is no work that a device counts, so one that takes what is counted does not slow it.
        let counts = self.device.takes(&CountedWork::default()).is_some();
        let drive_ns = cpu_ns as f64 / if counts { 1.0 } else { self.device.cpu_share() };
        let bytes = bytes as f64;
        let sample = Sample {
            level: Level::Bytes,
            slices: 1,
            drive_ns,
            scan_ns: 0.0,
            link_bytes: bytes,
            scan_bytes: 0.0,
            stored_bytes: bytes,
        };
        self.state.lock().steering.measure(&sample);
    }

    /// Whether one slice's bounds should be looked at to know what level 1 would send.
    pub(crate) fn wants_to_know_hints(&self) -> bool {
        self.rule == LevelRule::Auto && self.allowed.hints && !self.is_sized
    }

    /// So many bytes of a slice are in columns and pages that may be needed, by their bounds.
    pub(crate) fn expect_hints(&self, bytes: u64) {
        self.state.lock().steering.expect_hints(bytes as f64);
        self.changed.notify_waiters();
    }

    /// Whether pages of the next slice at level 1 are looked into.
    pub(crate) fn searches(&self) -> bool {
        self.state.lock().searching.pays()
    }

    /// A slice was taken to level 1.
    pub(crate) fn hinted(&self, hinted: &Hinted, sent: u64, cpu_ns: u64) {
        self.handed_back.store(true, Ordering::Relaxed);
        let drive_ns = cpu_ns as f64 / self.device.cpu_share();
        let ns_per_byte = self.link_rate().map_or(0.0, |rate| 1e9 / rate.max(1.0));
        let mut state = self.state.lock();
        state.searching.took(hinted, drive_ns, ns_per_byte);
        state.steering.measure(&Sample {
            level: Level::Hints,
            slices: 1,
            drive_ns,
            scan_ns: f64::NAN,
            link_bytes: sent as f64,
            scan_bytes: f64::NAN,
            stored_bytes: f64::NAN,
        });
        drop(state);
        self.changed.notify_waiters();
    }

    /// Learns the costs of the drive's operators from a round.
    fn learn(&self, live: &Live, share: f64) {
        let Some((features, _)) = &self.expected else { return };
        let stats = live.watch.stats();
        let slices = f64::from(read(&stats));
        if slices == 0.0 || live.level < Level::Whole {
            return;
        }
        let (share, scan_ns) = (live.spent.share(share), stats.scan.cpu_ns as f64);
        let rest_ns = (live.spent.cpu_ns() as f64 - scan_ns).max(0.0);
        self.costs.learn(features, scan_ns / share / slices, rest_ns / share / slices);
    }

    /// The expected costs of slices, and the measured ones where they are known well by now.
    pub(crate) fn costs(&self) -> (Option<SliceCosts>, Option<SliceCosts>) {
        let state = self.state.lock();
        let settled = self.rule == LevelRule::Auto && state.steering.is_settled();
        (self.predicted.clone(), settled.then(|| state.steering.costs().clone()))
    }
}

impl Live {
    /// The costs of the slices that the round has done since the policy was told last.
    fn sample(&mut self, share: f64) -> Option<Sample> {
        let stats = self.watch.stats();
        // The last slice that it took is not done.
        let done = read(&stats).saturating_sub(1);
        if done <= self.told.0 {
            return None;
        }
        Some(self.since(done, stats, share, None))
    }

    /// The rest, at its end.
    fn rest(&mut self, share: f64, bytes: u64) -> Option<Sample> {
        let stats = self.watch.stats();
        let done = read(&stats);
        if done == 0 {
            return None;
        }
        if done <= self.told.0 {
            // All slices were told of; the rest of the work belongs to them, too.
            return None;
        }
        let each = bytes as f64 / f64::from(done);
        Some(self.since(done, stats, share, Some(each)))
    }

    fn since(&mut self, done: u32, stats: RoundStats, share: f64, bytes_each: Option<f64>) -> Sample {
        let share = self.spent.share(share);
        let cpu_ns = self.spent.cpu_ns();
        let (before, told, told_ns) = &self.told;
        let slices = done - before;
        let scan_bytes = (stats.scan.bytes - told.scan.bytes) as f64;
        let sent = match self.level {
            Level::Whole => bytes_each.map_or(f64::NAN, |each| each * f64::from(slices)),
            _ => scan_bytes,
        };
        let sample = Sample {
            level: self.level,
            slices,
            drive_ns: (cpu_ns - told_ns) as f64 / share,
            scan_ns: (stats.scan.cpu_ns - told.scan.cpu_ns) as f64 / share,
            link_bytes: sent,
            scan_bytes,
            stored_bytes: f64::NAN,
        };
        self.told = (done, stats, cpu_ns);
        sample
    }

    /// Work that it has taken and not done.
    fn ahead_ns(&self, slice_ns: f64, share: f64) -> f64 {
        let taken = f64::from(read(&self.watch.stats()));
        (taken * slice_ns - self.spent.cpu_ns() as f64 / self.spent.share(share)).clamp(0.0, slice_ns.max(0.0))
    }

    /// The share of its core that it got while it ran.
    fn received(&self) -> f64 {
        let (cpu, polled) = (self.spent.cpu_ns() as f64, self.spent.polled_ns() as f64);
        if polled < 5e6 { 1.0 } else { (cpu / polled).clamp(0.05, 1.0) }
    }
}

/// Slices that were read, begun ones too.
fn read(stats: &RoundStats) -> u32 {
    (stats.slices.len() as u32).saturating_sub(stats.slices_skipped)
}

/// Who decides. A host on the drive's own cores gains nothing from work that comes back, unless those of the drive are paced.
/// Nor does one that wants the first rows only, or all of an empty partition.
fn rule(facts: &Facts<'_>, cpu_share: f64) -> LevelRule {
    let Facts { adapt, bound, policy, cores, .. } = facts;
    let shares_cores = cpu_share == 1.0 && adapt.cores.overlap(cores);
    match adapt.level {
        LevelRule::Auto if shares_cores || policy.rows_enough.is_some() || bound.waiting().slices == 0 => {
            LevelRule::Only(Level::Whole)
        }
        rule => rule,
    }
}

fn allowed(rule: LevelRule, bound: &Bound) -> Allowed {
    match rule {
        LevelRule::Only(Level::Whole) => Allowed::only(Level::Whole),
        _ => {
            let carried = bound.can_carry();
            Allowed { whole: true, filtered: bound.can_filter(), hints: carried, bytes: carried }
        }
    }
}

/// How many times the drive's time the host needs for the same work.
fn host_over_drive(host: &HostState, cpu_share: f64) -> f64 {
    let ratio = host.unit_ns / (unit_ns() / cpu_share);
    if ratio.is_finite() && ratio > 0.0 { ratio } else { cpu_share }
}
