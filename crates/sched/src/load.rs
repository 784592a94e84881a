//! What a reactor does: its live tasks by class, those that wait for it, and where its time goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::usage::{this_thread, waited_for_a_core};

/// The class of a task. Background work gives way to foreground work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Client I/O and queries.
    Foreground,
    /// Deduplication, scrubbing, compaction, and the collection of orphans.
    Background,
}

/// What a reactor has done since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounts {
    /// Nanoseconds in foreground tasks.
    pub foreground_ns: u64,
    /// Nanoseconds in background tasks.
    pub background_ns: u64,
    /// How often a foreground task was polled after it was woken.
    pub polls: u64,
    /// Nanoseconds that these tasks waited for the reactor, in sum.
    pub delay_ns: u64,
    /// Tasks that held the reactor for longer than [`Load::STALL`].
    pub stalls: u64,
}

/// The account of one reactor.
#[derive(Debug)]
pub(crate) struct Load {
    epoch: Instant,
    /// The reactor's thread, by the system's number; 0 before it runs.
    thread: AtomicI32,
    foreground: AtomicUsize,
    background: AtomicUsize,
    /// Foreground tasks that were woken and not polled since.
    waiting: AtomicUsize,
    foreground_ns: AtomicU64,
    background_ns: AtomicU64,
    polls: AtomicU64,
    delay_ns: AtomicU64,
    stalls: AtomicU64,
    /// The task that is being polled.
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    what: &'static str,
    /// What it does for whom, if it said so.
    for_whom: Option<Arc<str>>,
    since_ns: u64,
    /// How long the thread had waited for a core when the task was first seen to take long.
    had_waited: Option<Duration>,
    was_told: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            thread: AtomicI32::new(0),
            foreground: AtomicUsize::new(0),
            background: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            foreground_ns: AtomicU64::new(0),
            background_ns: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            running: Mutex::new(None),
        }
    }
}

impl Load {
    /// How long a task may hold a reactor before it is named. Time in which other threads had the core does not count.
    pub const STALL: Duration = Duration::from_millis(250);
    /// From when on it is watched for that time, which takes a look at a file.
    const LONG: Duration = Duration::from_millis(50);

    /// This thread is the reactor's.
    pub fn is_of_this_thread(&self) {
        self.thread.store(this_thread(), Ordering::Relaxed);
    }

    pub fn live(&self, class: Class) -> usize {
        self.count(class).load(Ordering::Relaxed)
    }

    pub fn total(&self) -> usize {
        self.live(Class::Foreground) + self.live(Class::Background)
    }

    /// Foreground tasks that could run now.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Nanoseconds since the reactor was made, and never 0.
    pub fn now_ns(&self) -> u64 {
        (self.epoch.elapsed().as_nanos() as u64).max(1)
    }

    /// Counts a task until the returned value is dropped.
    pub fn enter(self: &Arc<Self>, class: Class) -> Live {
        self.count(class).fetch_add(1, Ordering::Relaxed);
        Live { load: Arc::clone(self), class }
    }

    /// A task waits for the reactor.
    pub fn woken(&self, class: Class) {
        if class == Class::Foreground {
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A task waits no more; it is polled now if `since_ns` says since when it waited.
    pub fn awaited(&self, class: Class, since_ns: Option<u64>) {
        if class == Class::Background {
            return;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(since) = since_ns {
            self.polls.fetch_add(1, Ordering::Relaxed);
            self.delay_ns.fetch_add(self.now_ns().saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// A task is polled until the returned value is dropped.
    pub fn poll(&self, class: Class, what: &'static str) -> Polled<'_> {
        let since_ns = self.now_ns();
        *self.running.lock() = Some(Running { what, for_whom: None, since_ns, had_waited: None, was_told: false });
        Polled { load: self, class, since_ns }
    }

    /// The task that is being polled works for somebody of this name.
    pub fn works_for(&self, whom: &Arc<str>) {
        if let Some(running) = self.running.lock().as_mut() {
            running.for_whom = Some(Arc::clone(whom));
        }
    }

    /// The task that has held the reactor for too long, the first time that it is seen to, and for how long it has.
    pub fn newly_stalled(&self) -> Option<(String, Duration)> {
        let mut running = self.running.lock();
        let running = running.as_mut().filter(|running| !running.was_told)?;
        let held = Duration::from_nanos(self.now_ns().saturating_sub(running.since_ns));
        if held < Self::LONG {
            return None;
        }
        let waited = waited_for_a_core(self.thread.load(Ordering::Relaxed));
        let had_waited = *running.had_waited.get_or_insert(waited);
        let held = held.saturating_sub(waited.saturating_sub(had_waited));
        if held < Self::STALL {
            return None;
        }
        running.was_told = true;
        self.stalls.fetch_add(1, Ordering::Relaxed);
        let what = match &running.for_whom {
            Some(whom) => format!("{} for {whom}", running.what),
            None => running.what.to_owned(),
        };
        Some((what, held))
    }

    /// Whether a task has held the reactor for too long.
    pub fn is_stalled(&self) -> bool {
        self.running.lock().as_ref().is_some_and(|running| running.was_told)
    }

    /// Background work took so long on another thread, for a step of this reactor's.
    pub fn spent_elsewhere(&self, took: Duration) {
        self.background_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn counts(&self) -> CoreCounts {
        let [foreground_ns, background_ns, polls, delay_ns, stalls] =
            [&self.foreground_ns, &self.background_ns, &self.polls, &self.delay_ns, &self.stalls]
                .map(|count| count.load(Ordering::Relaxed));
        CoreCounts { foreground_ns, background_ns, polls, delay_ns, stalls }
    }

    fn count(&self, class: Class) -> &AtomicUsize {
        match class {
            Class::Foreground => &self.foreground,
            Class::Background => &self.background,
        }
    }
}

/// A task that is counted.
#[derive(Debug)]
pub(crate) struct Live {
    load: Arc<Load>,
    class: Class,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.load.count(self.class).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A task that is being polled.
pub(crate) struct Polled<'a> {
    load: &'a Load,
    class: Class,
    since_ns: u64,
}

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        let took = self.load.now_ns().saturating_sub(self.since_ns);
        let spent = match self.class {
            Class::Foreground => &self.load.foreground_ns,
            Class::Background => &self.load.background_ns,
        };
        spent.fetch_add(took, Ordering::Relaxed);
        *self.load.running.lock() = None;
    }
}
