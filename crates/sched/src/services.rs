//! [`Services`]: which reactor runs the next step of which service, and how often.
//!
//! The monitoring and the core selection module of Park et al. 2022 (BTS; see `docs/bibliography.md`). What a core may give to
//! background work is a [`Governor`]'s decision; this module measures, asks it, and keeps to what it says.

mod monitor;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::load::{CoreCounts, Load};
use crate::service::{Entry, Next};
use crate::usage::thread_cpu;
use crate::{AbortOnDrop, Class, Pool, Service, ServiceState};
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
    governor: Mutex<Box<dyn Governor>>,
    interval: Duration,
}

struct Ready {
    entry: Arc<Entry>,
    since: Instant,
}

#[derive(Default)]
struct Core {
    /// A share, as the bits of an `f64`.
    share: AtomicU64,
    strict: AtomicBool,
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

impl Services {
    /// Starts a driver on each reactor of the pool, and the monitor, which asks the governor once in each interval.
    pub fn start(pool: &Arc<Pool>, governor: Box<dyn Governor>, interval: Duration) -> Services {
        let cores = (0..pool.reactors()).map(|_| Core::default()).collect();
        let (entries, ready) = (Mutex::default(), Mutex::default());
        let shared = Shared { pool: Arc::clone(pool), cores, entries, ready, governor: Mutex::new(governor), interval };
        let shared = Arc::new(shared);
        let drivers = (0..pool.reactors()).map(|index| {
            let driver = drive(Arc::clone(&shared), index);
            pool.spawn_on(index, Class::Background, driver).abort_on_drop()
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
        Grant { share: f64::from_bits(self.share.load(Ordering::Relaxed)), strict: self.strict.load(Ordering::Relaxed) }
    }

    fn set(&self, grant: Grant) {
        let share = if grant.share.is_finite() { grant.share.clamp(0.0, 1.0) } else { 0.0 };
        self.strict.store(grant.strict, Ordering::Relaxed);
        let before = f64::from_bits(self.share.swap(share.to_bits(), Ordering::Relaxed));
        if share > before {
            self.wake.notify_one();
        }
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
        self.ready.lock().push_back(Ready { entry, since: Instant::now() });
        for core in &self.cores {
            core.wake.notify_one();
        }
    }

    /// The next step for a core: one whose last step ran here, or one that its core has no time for.
    fn pop(&self, core: usize) -> Option<Arc<Entry>> {
        let mine = self.cores[core].grant().share;
        let mut ready = self.ready.lock();
        let is_for_me = |ready: &Ready| match ready.entry.home.load(Ordering::Relaxed) {
            home if home == core || home >= self.cores.len() => true,
            home => self.cores[home].grant().share < mine / 2.0 || ready.since.elapsed() > STAYS,
        };
        let index = ready.iter().position(is_for_me)?;
        ready.remove(index).map(|ready| ready.entry)
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
        core.steps.fetch_add(1, Ordering::Relaxed);
        let (next, took) = step(&shared.pool, &load, &entry).await;
        follow(&shared, entry, next);
        debt = debt.saturating_add(owed(took, grant.share));
        match debt > DEBT {
            true => rest(core, &mut debt).await,
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
async fn rest(core: &Core, debt: &mut Duration) {
    let since = Instant::now();
    let share = core.grant().share;
    while since.elapsed() < *debt && core.grant().share <= share {
        tokio::time::sleep((*debt - since.elapsed().min(*debt)).clamp(DEBT, REST_MAX)).await;
    }
    *debt = Duration::ZERO;
}

async fn step(pool: &Pool, load: &Load, entry: &Arc<Entry>) -> (Next, Duration) {
    if !entry.blocks() {
        load.works_for(&entry.name);
        return entry.step();
    }
    let blocking = Arc::clone(entry);
    // While it waits for the medium, it takes no core.
    let timed = move || {
        let before = thread_cpu();
        let (next, _) = blocking.step();
        (next, thread_cpu().saturating_sub(before))
    };
    match pool.spawn_blocking(timed).await {
        Ok((next, took)) => {
            load.spent_elsewhere(took);
            (next, took)
        }
        // The pool ends.
        Err(_) => (Next::Rests, Duration::ZERO),
    }
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
