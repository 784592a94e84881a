//! [`Service`]: background work, cut in steps. The next step, and not a thread with its data, moves between cores.
//!
//! After Park et al. 2022 (BTS; see `docs/bibliography.md`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Background work that goes on in steps.
pub trait Service: Send {
    /// The next piece of work: about 50 µs, and 64 KiB of data at most.
    fn step(&mut self) -> Stepped;

    /// Whether the next step may wait for a medium or for a lock, so that it must not hold a reactor.
    fn blocks(&self) -> bool;

    /// Whether the next step, if it may wait, only reads: it holds nothing for long that the foreground waits for, such as the
    /// store's commits. So it may run at a priority at which it takes long where others want the core.
    fn only_reads(&self) -> bool {
        false
    }

    /// How far it is.
    fn progress(&self) -> Progress;

    /// Where it is, in a few words, to go on after a restart of the process.
    fn position(&self) -> Vec<u8>;

    /// Forgets where it is: the next step is the first one.
    fn restart(&mut self);
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// It did a part of the work, over so many bytes.
    Did {
        /// Bytes read or written.
        bytes: u64,
    },
    /// There is nothing to do for so long.
    Idle {
        /// When to look again.
        pause: Duration,
    },
    /// It could not be done; the next step tries again after the pause.
    Failed {
        /// What went wrong.
        why: String,
        /// When to try again.
        pause: Duration,
    },
}

/// How far a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of this round that are done.
    pub done_bytes: u64,
    /// Bytes of this round; 0 where that is not known.
    pub total_bytes: u64,
    /// What it has found, in its own count: damaged values, bytes saved, …
    pub found: u64,
}

/// What a service is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Its steps are run as cores have time for them.
    Running,
    /// It has nothing to do at the moment.
    Idle,
    /// It was paused, and goes on where it is.
    Paused,
    /// It was stopped, and will begin anew.
    Stopped,
    /// Its last step failed, for this reason; it tries again.
    Failed(String),
    /// A step panicked, with this message. It runs no more.
    Broken(String),
}

/// A service as others see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceState {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub activity: Activity,
    /// How far it is.
    pub progress: Progress,
    /// Bytes a second of the last seconds.
    pub bytes_per_second: f64,
    /// The bytes a second that it may take at most.
    pub limit: Option<u64>,
    /// Steps since it was added.
    pub steps: u64,
    /// Bytes of these steps.
    pub bytes: u64,
    /// Time of its steps, on all cores.
    pub busy: Duration,
    /// Where it is.
    pub position: Vec<u8>,
}

impl ServiceState {
    /// The time that the rest of the round takes at this rate.
    pub fn left(&self) -> Option<Duration> {
        let left = self.progress.total_bytes.saturating_sub(self.progress.done_bytes) as f64;
        let is_known = self.progress.total_bytes > 0 && self.bytes_per_second > 0.0;
        is_known.then(|| Duration::try_from_secs_f64(left / self.bytes_per_second).unwrap_or(Duration::MAX))
    }
}

/// The seconds over which a rate is told.
const RATE_SECONDS: f64 = 5.0;

/// A service and its account.
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    /// The core that ran its last step.
    pub(crate) home: AtomicUsize,
    /// Ends its pause.
    wake: Notify,
    service: Mutex<Box<dyn Service>>,
    kept: Mutex<ServiceAccount>,
}

/// In the place of a service that was ended.
struct Ended;

/// How long the end of a service waits for a step that runs.
const END_WAIT: Duration = Duration::from_secs(10);

/// What a service may take, and what it has taken.
struct ServiceAccount {
    activity: Activity,
    /// Whether it waits in the queue, is being stepped, or sleeps: it is in one place only.
    is_placed: bool,
    restarts: bool,
    limit: Option<u64>,
    /// Bytes that it may take at once; below 0 it has to wait.
    allowance: f64,
    filled: Instant,
    progress: Progress,
    position: Vec<u8>,
    /// Steps since it was added, their bytes and their time. They are counted together, so that whoever asks between two steps sees
    /// the bytes of exactly these steps.
    steps: u64,
    bytes: u64,
    busy: Duration,
    /// When bytes were done, for the rate.
    done: VecDeque<(Instant, u64)>,
}

/// What becomes of an entry after a step.
pub(crate) enum Next {
    /// Its next step may follow.
    Ready,
    /// Not before this time.
    After(Duration),
    /// Not before somebody starts it.
    Rests,
}

impl Entry {
    pub(crate) fn new(name: &str, service: Box<dyn Service>) -> Entry {
        let kept = ServiceAccount {
            activity: Activity::Running,
            is_placed: false,
            restarts: false,
            limit: None,
            allowance: 0.0,
            filled: Instant::now(),
            progress: service.progress(),
            position: service.position(),
            steps: 0,
            bytes: 0,
            busy: Duration::ZERO,
            done: VecDeque::new(),
        };
        let service = Mutex::new(service);
        Entry { name: name.into(), home: AtomicUsize::new(usize::MAX), wake: Notify::new(), service, kept: Mutex::new(kept) }
    }

    /// Whether the next step must not hold a reactor.
    pub(crate) fn blocks(&self) -> bool {
        self.service.lock().blocks()
    }

    /// Whether the next step may run at a low priority.
    pub(crate) fn only_reads(&self) -> bool {
        self.service.lock().only_reads()
    }

    /// Runs a step, unless it rests; how long it took.
    pub(crate) fn step(&self) -> (Next, Duration) {
        let start = Instant::now();
        let mut service = self.service.lock();
        {
            let mut kept = self.kept.lock();
            if std::mem::take(&mut kept.restarts) {
                service.restart();
            }
            if kept.rests() {
                // It may have been stopped just now, and tells where it would begin.
                (kept.progress, kept.position) = (service.progress(), service.position());
                kept.is_placed = false;
                return (Next::Rests, start.elapsed());
            }
        }
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            let stepped = service.step();
            (stepped, service.progress(), service.position())
        }));
        drop(service);
        let took = start.elapsed();
        let mut kept = self.kept.lock();
        kept.steps += 1;
        kept.busy += took;
        let (stepped, progress, position) = match stepped {
            Ok(stepped) => stepped,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into());
                tracing::error!(service = &*self.name, text, "a background service panicked, and runs no more");
                kept.activity = Activity::Broken(text);
                kept.is_placed = false;
                return (Next::Rests, took);
            }
        };
        (kept.progress, kept.position) = (progress, position);
        if let Stepped::Did { bytes } = stepped {
            kept.bytes += bytes;
        }
        let next = kept.after(stepped, &self.name);
        kept.is_placed = !matches!(next, Next::Rests);
        (next, took)
    }

    /// Whether it has to be put in the queue now.
    pub(crate) fn place(&self) -> bool {
        let mut kept = self.kept.lock();
        let is_new = !kept.is_placed && (!kept.rests() || kept.restarts);
        kept.is_placed |= is_new;
        is_new
    }

    /// Waits for so long, or until the service is told something.
    pub(crate) async fn wait(&self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.wake.notified()).await;
    }

    /// Goes on, or begins anew after a stop. Not if it is broken.
    pub(crate) fn start(&self) -> bool {
        let mut kept = self.kept.lock();
        let may = !matches!(kept.activity, Activity::Broken(_));
        if may && kept.rests() {
            kept.activity = Activity::Running;
        }
        self.wake.notify_one();
        may
    }

    pub(crate) fn pause(&self) {
        let mut kept = self.kept.lock();
        if !matches!(kept.activity, Activity::Broken(_) | Activity::Stopped) {
            kept.activity = Activity::Paused;
            self.wake.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        let mut kept = self.kept.lock();
        if !matches!(kept.activity, Activity::Broken(_)) {
            kept.activity = Activity::Stopped;
            kept.restarts = true;
            self.wake.notify_one();
        }
    }

    /// It is never started again.
    pub(crate) fn stop_for_good(&self) {
        let mut kept = self.kept.lock();
        (kept.activity, kept.restarts) = (Activity::Broken("it was ended".into()), false);
        self.wake.notify_one();
    }

    /// It runs no more, and what it holds is let go once a step that runs now has ended.
    pub(crate) fn end(&self) {
        self.stop_for_good();
        match self.service.try_lock_for(END_WAIT) {
            Some(mut service) => *service = Box::new(Ended),
            None => tracing::error!(service = &*self.name, "a step of a background service does not end"),
        }
    }

    pub(crate) fn limit(&self, bytes_per_second: Option<u64>) {
        let mut kept = self.kept.lock();
        (kept.limit, kept.allowance, kept.filled) = (bytes_per_second, 0.0, Instant::now());
        self.wake.notify_one();
    }

    pub(crate) fn state(&self) -> ServiceState {
        let mut kept = self.kept.lock();
        ServiceState {
            name: self.name.to_string(),
            activity: kept.activity.clone(),
            progress: kept.progress,
            bytes_per_second: kept.rate(),
            limit: kept.limit,
            steps: kept.steps,
            bytes: kept.bytes,
            busy: kept.busy,
            position: kept.position.clone(),
        }
    }
}

impl ServiceAccount {
    fn rests(&self) -> bool {
        matches!(self.activity, Activity::Paused | Activity::Stopped | Activity::Broken(_))
    }

    fn after(&mut self, stepped: Stepped, name: &str) -> Next {
        if self.rests() {
            // Told so while the step ran. A stop has it placed once more, to begin anew.
            return if self.restarts { Next::Ready } else { Next::Rests };
        }
        match stepped {
            Stepped::Did { bytes } => {
                self.activity = Activity::Running;
                self.did(bytes)
            }
            Stepped::Idle { pause } => {
                self.activity = Activity::Idle;
                Next::After(pause)
            }
            Stepped::Failed { why, pause } => {
                if self.activity != Activity::Failed(why.clone()) {
                    tracing::warn!(service = name, why, "a step of a background service failed");
                }
                self.activity = Activity::Failed(why);
                Next::After(pause)
            }
        }
    }

    fn did(&mut self, bytes: u64) -> Next {
        let now = Instant::now();
        match self.done.back_mut() {
            // A rate needs no finer grain.
            Some((at, sum)) if now.duration_since(*at) < Duration::from_millis(100) => *sum += bytes,
            _ => self.done.push_back((now, bytes)),
        }
        self.forget_old(now);
        let Some(limit) = self.limit.map(|limit| limit.max(1) as f64) else { return Next::Ready };
        let since = now.duration_since(std::mem::replace(&mut self.filled, now)).as_secs_f64();
        // What was not taken in the last tenth of a second is not made up for.
        self.allowance = (self.allowance + since * limit).min(limit / 10.0) - bytes as f64;
        match self.allowance < 0.0 {
            true => Next::After(Duration::from_secs_f64((-self.allowance / limit).min(3_600.0))),
            false => Next::Ready,
        }
    }

    fn rate(&mut self) -> f64 {
        let now = Instant::now();
        self.forget_old(now);
        self.done.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() / RATE_SECONDS
    }

    fn forget_old(&mut self, now: Instant) {
        while self.done.front().is_some_and(|(at, _)| now.duration_since(*at).as_secs_f64() > RATE_SECONDS) {
            self.done.pop_front();
        }
    }
}

impl Service for Ended {
    fn step(&mut self) -> Stepped {
        Stepped::Idle { pause: Duration::from_secs(3_600) }
    }

    fn blocks(&self) -> bool {
        false
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn position(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restart(&mut self) {}
}
