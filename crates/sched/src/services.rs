//! [`Services`]: which reactor runs the next step of which service, and how often.
//!
//! The monitoring and the core selection module of Park et al. 2022 (BTS; see `docs/bibliography.md`). What a core may give to
//! background work is a [`Governor`]'s decision; this module measures, asks it, and keeps to what it says.

mod monitor;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::load::{CoreCounts, Load};
use crate::reactor::Priority;
use crate::service::{Entry, Next};
use crate::usage::thread_cpu;
use crate::{AbortOnDrop, Pool, Service, ServiceState};
use monitor::monitor;

/// What a reactor's core did in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreLoad {
    /// The share of the interval that went to anything but background work, 0 to 1.
    pub foreground: f64,
    /// The share that went to background work, 0 to 1.
    pub background: f64,
    /// How long a foreground task that could run waited for the reactor, on average; 0 where there was none.
    pub queue_delay: Duration,
    /// Foreground tasks that came.
    pub arrivals: u64,
}

/// What a core may give to background work until the next decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Grant {
    /// The share of its time, 0 to 1.
    pub share: f64,
    /// Whether a step waits while there is a foreground task that could run.
    pub strict: bool,
    /// Whether steps that block compete with other threads for the core as their equals; if not, they have the lowest priority.
    pub equal: bool,
}

/// Decides what each core may give to background work.
pub trait Governor: Send {
    /// A grant for each core, from what each of them did in the interval that has just ended.
    fn decide(&mut self, cores: &[CoreLoad], interval: Duration) -> Vec<Grant>;

    /// What it is called.
    fn name(&self) -> String;
}

/// A core as others see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoreState {
    /// What it did in the last interval.
    pub load: CoreLoad,
    /// What it may give.
    pub grant: Grant,
    /// All that it has done.
    pub counts: CoreCounts,
    /// Steps that ran on it, and those of them whose service ran its last one elsewhere.
    pub steps: u64,
    /// See `steps`.
    pub moves: u64,
    /// The last task that held it for too long, if there was one: its name, and for how long it had when it was seen.
    pub stalled: Option<(String, Duration)>,
}

/// The background services of a pool. They end when this is dropped.
pub struct Services {
    shared: Arc<Shared>,
    _tasks: Vec<AbortOnDrop<()>>,
}

struct Shared {
    pool: Arc<Pool>,
    cores: Vec<Core>,
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Services whose next step can run.
    ready: Mutex<VecDeque<Ready>>,
    /// How many those are, for threads that must not hold the lock: drivers wait for it, and with them their reactors.
    ready_count: AtomicUsize,
    governor: Mutex<Box<dyn Governor>>,
    interval: Duration,
}

struct Ready {
    entry: Arc<Entry>,
    since: Instant,
}

/// What there is to know of a step that waits to decide which core takes it.
#[derive(Clone, Copy)]
struct Waiting {
    /// The core that ran the step before it.
    home: usize,
    since: Instant,
}

#[derive(Default)]
struct Core {
    /// A share, as the bits of an `f64`.
    share: AtomicU64,
    strict: AtomicBool,
    equal: AtomicBool,
    load: Mutex<CoreLoad>,
    /// Wakes the core's driver: there is a step, or it may give more.
    wake: Notify,
    steps: AtomicU64,
    moves: AtomicU64,
    stalled: Mutex<Option<(String, Duration)>>,
}

/// How long a step waits for the core of the one before it, which has what it needs in its caches, until any core takes it.
const STAYS: Duration = Duration::from_millis(2);
/// How long a core sleeps where there is no step. It is woken when there is one.
const IDLE: Duration = Duration::from_secs(3_600);
/// How long a core is in debt at most before it rests: timers are no finer.
const DEBT: Duration = Duration::from_millis(1);
/// How long a strict core waits at most for its foreground tasks. Some have no end.
const PATIENCE: Duration = Duration::from_millis(100);
/// A core's longest rest, so that it sees a new grant soon.
const REST_MAX: Duration = Duration::from_millis(50);
/// How long steps of one service follow each other on a thread of low priority until their driver looks again, which takes
/// time of the foreground's.
const TURN: Duration = Duration::from_millis(1);

impl Services {
    /// Starts a driver on each reactor of the pool, and the monitor, which asks the governor once in each interval.
    pub fn start(pool: &Arc<Pool>, governor: Box<dyn Governor>, interval: Duration) -> Services {
        let cores = (0..pool.reactors()).map(|_| Core::default()).collect();
        let shared = Arc::new(Shared {
            pool: Arc::clone(pool),
            cores,
            entries: Mutex::default(),
            ready: Mutex::default(),
            ready_count: AtomicUsize::new(0),
            governor: Mutex::new(governor),
            interval,
        });
        let drivers = (0..pool.reactors()).map(|index| {
            let driver = drive(Arc::clone(&shared), index);
            pool.spawn_driver(index, driver).abort_on_drop()
        });
        let mut tasks: Vec<_> = drivers.collect();
        tasks.push(pool.spawn_control(monitor(Arc::clone(&shared))).abort_on_drop());
        Services { shared, _tasks: tasks }
    }

    /// Adds a service, which runs at once unless it is to be `paused` at first. A second one of the same name takes its place.
    pub fn add(&self, name: &str, service: Box<dyn Service>, paused: bool) {
        let entry = Arc::new(Entry::new(name, service));
        if paused {
            entry.pause();
        }
        let mut entries = self.shared.entries.lock();
        entries.retain(|other| {
            if &*other.name == name {
                other.stop_for_good();
            }
            &*other.name != name
        });
        entries.push(Arc::clone(&entry));
        drop(entries);
        self.shared.place(&entry);
    }

    /// Ends a service and lets go of what it holds, after the step that runs now, for which this waits. False: there is none of that
    /// name.
    pub fn remove(&self, name: &str) -> bool {
        let mut entries = self.shared.entries.lock();
        let Some(index) = entries.iter().position(|entry| &*entry.name == name) else { return false };
        let entry = entries.remove(index);
        drop(entries);
        entry.end();
        true
    }

    /// All services, in the order in which they were added.
    pub fn list(&self) -> Vec<ServiceState> {
        self.shared.entries.lock().iter().map(|entry| entry.state()).collect()
    }

    /// The service goes on where it is, or begins anew if it was stopped. False: there is none of that name, or it is broken.
    pub fn resume(&self, name: &str) -> bool {
        let Some(entry) = self.entry(name) else { return false };
        let may = entry.start();
        self.shared.place(&entry);
        may
    }

    /// The service rests where it is once its step has ended. False: there is none of that name.
    pub fn pause(&self, name: &str) -> bool {
        self.entry(name).inspect(|entry| entry.pause()).is_some()
    }

    /// The service rests, and forgets where it is. False: there is none of that name.
    pub fn stop(&self, name: &str) -> bool {
        let Some(entry) = self.entry(name) else { return false };
        entry.stop();
        self.shared.place(&entry);
        true
    }

    /// The bytes a second that the service may take at most; none: as many as the cores give. False: there is none of that name.
    pub fn limit(&self, name: &str, bytes_per_second: Option<u64>) -> bool {
        self.entry(name).inspect(|entry| entry.limit(bytes_per_second)).is_some()
    }

    /// The cores, in the order of the pool's reactors.
    pub fn cores(&self) -> Vec<CoreState> {
        let state = |(index, core): (usize, &Core)| CoreState {
            load: *core.load.lock(),
            grant: core.grant(),
            counts: self.shared.pool.counts(index),
            steps: core.steps.load(Ordering::Relaxed),
            moves: core.moves.load(Ordering::Relaxed),
            stalled: core.stalled.lock().clone(),
        };
        self.shared.cores.iter().enumerate().map(state).collect()
    }

    /// What the governor is called.
    pub fn governor(&self) -> String {
        self.shared.governor.lock().name()
    }

    /// Another governor decides from the next interval on.
    pub fn govern(&self, governor: Box<dyn Governor>) {
        *self.shared.governor.lock() = governor;
    }

    fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.shared.entries.lock().iter().find(|entry| &*entry.name == name).cloned()
    }
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").field("list", &self.list()).finish_non_exhaustive()
    }
}

impl Core {
    fn grant(&self) -> Grant {
        let share = self.share();
        let [strict, equal] = [&self.strict, &self.equal].map(|flag| flag.load(Ordering::Relaxed));
        Grant { share, strict, equal }
    }

    fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Acquire))
    }

    fn set(&self, grant: Grant) {
        let share = if grant.share.is_finite() { grant.share.clamp(0.0, 1.0) } else { 0.0 };
        self.strict.store(grant.strict, Ordering::Relaxed);
        self.equal.store(grant.equal, Ordering::Relaxed);
        self.share.store(share.to_bits(), Ordering::Release);
    }
}

impl Ready {
    fn waiting(&self) -> Waiting {
        Waiting { home: self.entry.home.load(Ordering::Relaxed), since: self.since }
    }
}

impl Shared {
    /// Queues the next step of a service that has just been started.
    fn place(&self, entry: &Arc<Entry>) {
        if entry.place() {
            self.push(Arc::clone(entry));
        }
    }

    fn push(&self, entry: Arc<Entry>) {
        let waiting = Waiting { home: entry.home.load(Ordering::Relaxed), since: Instant::now() };
        let mut ready = self.ready.lock();
        ready.push_back(Ready { entry, since: waiting.since });
        self.ready_count.store(ready.len(), Ordering::Relaxed);
        drop(ready);
        self.wake_for(&[waiting]);
    }

    /// Wakes the cores that may take one of the steps that wait: because they were given more, or the steps have waited for
    /// long enough.
    fn wake(&self) {
        let waiting: Vec<Waiting> = self.ready.lock().iter().map(Ready::waiting).collect();
        self.wake_for(&waiting);
    }

    /// No other core is woken: each wake takes time of the foreground there.
    fn wake_for(&self, waiting: &[Waiting]) {
        for (index, core) in self.cores.iter().enumerate() {
            if waiting.iter().any(|step| self.may_take(index, *step)) {
                core.wake.notify_one();
            }
        }
    }

    /// Whether a step is for a core: its last one ran there, or its own core has no time for it.
    fn may_take(&self, core: usize, step: Waiting) -> bool {
        let mine = self.cores[core].share();
        let is_for_it = |home: &Core| home.share() < mine / 2.0 || step.since.elapsed() > STAYS;
        mine > 0.0 && (step.home == core || self.cores.get(step.home).is_none_or(is_for_it))
    }

    /// The next step for a core.
    fn pop(&self, core: usize) -> Option<Arc<Entry>> {
        let mut ready = self.ready.lock();
        let index = ready.iter().position(|ready| self.may_take(core, ready.waiting()))?;
        let taken = ready.remove(index);
        self.ready_count.store(ready.len(), Ordering::Relaxed);
        taken.map(|ready| ready.entry)
    }
}

/// Runs steps on one reactor.
async fn drive(shared: Arc<Shared>, index: usize) {
    let core = &shared.cores[index];
    let load = Arc::clone(shared.pool.load(index));
    let mut debt = Duration::ZERO;
    loop {
        let grant = core.grant();
        if grant.share <= 0.0 {
            core.wake.notified().await;
            continue;
        }
        if grant.strict {
            be_patient(&load).await;
        }
        let Some(entry) = shared.pop(index) else {
            // Steps of other cores may become this one's.
            let is_idle = shared.ready.lock().is_empty();
            let pause = if is_idle { IDLE } else { STAYS };
            let _ = tokio::time::timeout(pause, core.wake.notified()).await;
            continue;
        };
        if entry.home.swap(index, Ordering::Relaxed) != index {
            core.moves.fetch_add(1, Ordering::Relaxed);
        }
        let (next, took) = step(&shared, index, &entry, grant).await;
        follow(&shared, entry, next);
        debt = debt.saturating_add(owed(took, grant.share));
        match debt > DEBT {
            true => rest(&shared, index, &mut debt).await,
            false => tokio::task::yield_now().await,
        }
    }
}

/// The rest that pays for a step: with it, the step has taken this share of the core's time.
fn owed(took: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(took.as_secs_f64() * (1.0 - share) / share).unwrap_or(Duration::MAX)
}

/// Waits until no foreground task could run.
async fn be_patient(load: &Load) {
    let since = Instant::now();
    while load.waiting() > 0 && since.elapsed() < PATIENCE {
        tokio::task::yield_now().await;
    }
}

/// Waits until the core has given the time that the steps have taken.
async fn rest(shared: &Shared, index: usize, debt: &mut Duration) {
    let core = &shared.cores[index];
    let (since, share) = (Instant::now(), core.share());
    let mut pause = STAYS;
    while since.elapsed() < *debt && core.share() <= share {
        tokio::time::sleep((*debt - since.elapsed().min(*debt)).clamp(DEBT, pause)).await;
        if pause == STAYS && since.elapsed() > STAYS {
            // The next step need not wait for this core.
            shared.wake();
            pause = REST_MAX;
        }
    }
    *debt = Duration::ZERO;
}

/// Runs a step on a core, or some that follow each other there; what becomes of the service, and the time of the core's
/// that they took.
async fn step(shared: &Arc<Shared>, index: usize, entry: &Arc<Entry>, grant: Grant) -> (Next, Duration) {
    let load = shared.pool.load(index);
    if !entry.blocks() {
        load.works_for(&entry.name);
        shared.cores[index].steps.fetch_add(1, Ordering::Relaxed);
        return entry.step();
    }
    let priority = priority_of(entry, grant);
    let (weak, blocking) = (Arc::downgrade(shared), Arc::clone(entry));
    let run = move || {
        let shared = weak.upgrade()?;
        Some(run_blocking(&shared, index, &blocking, grant, priority))
    };
    match shared.pool.spawn_behind(index, priority, run).await {
        Ok(Some((next, took))) => {
            load.spent_elsewhere(took);
            (next, took)
        }
        // The pool ends.
        Ok(None) | Err(_) => (Next::Rests, Duration::ZERO),
    }
}

/// What holds locks of the store for long is not kept from the core by others, for foreground work may wait for it.
fn priority_of(entry: &Entry, grant: Grant) -> Priority {
    match grant.equal || !entry.only_reads() {
        true => Priority::Equal,
        false => Priority::Low,
    }
}

/// Runs steps on a thread that they may block. While one waits for the medium, it takes no core.
fn run_blocking(shared: &Shared, index: usize, entry: &Entry, grant: Grant, priority: Priority) -> (Next, Duration) {
    let (since, before) = (Instant::now(), thread_cpu());
    loop {
        let (next, _) = entry.step();
        shared.cores[index].steps.fetch_add(1, Ordering::Relaxed);
        let took = thread_cpu().saturating_sub(before);
        let has_time = priority == Priority::Low && since.elapsed() < TURN && owed(took, grant.share) < DEBT;
        if !has_time || !matches!(next, Next::Ready) || !may_go_on(shared, index, entry, grant, priority) {
            return (next, took);
        }
    }
}

/// Whether nobody else wants what the next step of a service would take, which is of the same kind as the last one.
fn may_go_on(shared: &Shared, index: usize, entry: &Entry, grant: Grant, priority: Priority) -> bool {
    let nobody_waits = shared.pool.load(index).waiting() == 0 && shared.ready_count.load(Ordering::Relaxed) == 0;
    let is_same = entry.blocks() && priority_of(entry, grant) == priority;
    nobody_waits && is_same && shared.cores[index].grant() == grant
}

/// Queues the step after this one when it is due.
fn follow(shared: &Arc<Shared>, entry: Arc<Entry>, next: Next) {
    match next {
        Next::Ready => shared.push(entry),
        Next::Rests => {}
        Next::After(pause) => {
            let shared = Arc::downgrade(shared);
            tokio::spawn(async move {
                entry.wait(pause).await;
                if let Some(shared) = shared.upgrade() {
                    shared.push(entry);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
