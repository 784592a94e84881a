//! [`Budget`]: what an application has taken of its limits, and [`Meter`], one SSDlet's share of the time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use wasmtime::ResourceLimiter;

use crate::Limits;
use crate::limits::{TABLE_ELEMENT_BYTES, TABLE_ELEMENTS_MAX};

/// What a guest did to be ended: a sentence about it, without its name.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Fault(pub String);

/// A fault as the error that unwinds a guest.
pub(crate) fn fault(text: impl Into<String>) -> wasmtime::Error {
    wasmtime::Error::new(Fault(text.into()))
}

#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    memory_bytes: AtomicU64,
    run_ns: AtomicU64,
    log_bytes: AtomicU64,
}

impl Budget {
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, memory_bytes: AtomicU64::new(0), run_ns: AtomicU64::new(0), log_bytes: AtomicU64::new(0) })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The processor time that guests took, in nanoseconds.
    pub fn run_ns(&self) -> u64 {
        self.run_ns.load(Ordering::Relaxed)
    }

    /// Counts bytes outside of guests' memories, if the application may hold so many.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, NoRoom> {
        let bytes = bytes as u64;
        match self.take(bytes) {
            true => Ok(Held { budget: Arc::clone(self), bytes }),
            false => Err(NoRoom { bytes, most: self.limits.memory_bytes_max }),
        }
    }

    /// Takes memory, all of it or none.
    fn take(&self, bytes: u64) -> bool {
        let most = self.limits.memory_bytes_max;
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= most);
        self.memory_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give(&self, bytes: u64) {
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts the bytes of a line of the log.
    pub fn log(&self, bytes: usize) -> Result<(), Fault> {
        let logged = self.log_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        match logged > self.limits.log_bytes_max {
            true => {
                Err(Fault(format!("it flooded the log: its application may write {} to it", size(self.limits.log_bytes_max))))
            }
            false => Ok(()),
        }
    }
}

/// Bytes that an application holds outside of its guests' memories, such as batches that wait. They go back when this is dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Held {
    /// Whether it is of the memory of an application.
    pub(crate) fn is_of(&self, budget: &Arc<Budget>) -> bool {
        Arc::ptr_eq(&self.budget, budget)
    }

    /// Holds what another one of the same application held.
    pub(crate) fn join(&mut self, mut other: Held) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// What an application may not hold as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    bytes: u64,
    most: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, most) = (size(self.bytes), size(self.most));
        write!(f, "there is no room for {bytes} more in the {most} of memory that the application may hold")
    }
}

/// Bytes as a person reads them.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// The processor time of this thread.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

/// Turns of a guest that are longer than this are measured in processor time from the next turn on. The clock for it is a call of
/// the system, which would be dear for turns that are over in a microsecond; those are measured by the wall.
const LONG_NS: u64 = 100_000;
/// What a turn by the wall counts at most: a guest gives way after a slice of time, and its thread may have waited much longer.
const WALL_NS_MAX: u64 = 50_000_000;

/// What each turn takes of the drive beside what the guest does in it: it is woken, waits in a queue and is switched to. `bench program`
/// measures it with a guest that does nothing but give way (`fibre_switch_ns`, some 1,000), a quarter of which is within the turn.
const SWITCH_NS: u64 = 750;

/// Measures the time in which one guest runs.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Arc<Budget>,
    origin: Instant,
    /// When the turn began, in nanoseconds since `origin`; only read while the guest runs.
    began_ns: AtomicU64,
    /// The thread's processor time then, in nanoseconds; 0: it was not asked for.
    began_processor_ns: AtomicU64,
    /// The last turn was a long one.
    is_long: AtomicBool,
}

impl Meter {
    pub fn new(budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            budget,
            origin: Instant::now(),
            began_ns: AtomicU64::new(0),
            began_processor_ns: AtomicU64::new(0),
            is_long: AtomicBool::new(false),
        })
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Fails once the application has run for as long as it may.
    pub fn check(&self) -> Result<(), Fault> {
        let run_ns = self.budget.run_ns() + self.turn_ns();
        let most = self.budget.limits.run_time_max;
        match u128::from(run_ns) > most.as_nanos() {
            true => {
                Err(Fault(format!("its application has run for longer than the {most:?} of processor time that it may take")))
            }
            false => Ok(()),
        }
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// How long the guest may sleep at most before its time is over.
    pub fn left(&self) -> Duration {
        let ran = Duration::from_nanos(self.budget.run_ns());
        self.budget.limits.run_time_max.saturating_sub(ran)
    }

    /// Counts time in which the guest slept, as if it had run: who sleeps holds memory, too. Fails once that was too much.
    pub fn slept(&self, time: Duration) -> Result<(), Fault> {
        self.budget.run_ns.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.check()
    }

    fn begin(&self) {
        self.began_ns.store(self.now_ns(), Ordering::Relaxed);
        let processor = if self.is_long.load(Ordering::Relaxed) { thread_time().as_nanos() as u64 } else { 0 };
        self.began_processor_ns.store(processor, Ordering::Relaxed);
    }

    fn end(&self) {
        self.budget.run_ns.fetch_add(self.turn_ns() + SWITCH_NS, Ordering::Relaxed);
        self.is_long.store(self.wall_ns() > LONG_NS, Ordering::Relaxed);
    }

    /// What this turn of the guest has taken, as far as it is measured.
    fn turn_ns(&self) -> u64 {
        match self.began_processor_ns.load(Ordering::Relaxed) {
            0 => self.wall_ns().min(WALL_NS_MAX),
            began => (thread_time().as_nanos() as u64).saturating_sub(began),
        }
    }

    fn wall_ns(&self) -> u64 {
        self.now_ns().saturating_sub(self.began_ns.load(Ordering::Relaxed))
    }
}

/// A future whose polls a meter measures.
pub(crate) struct Metered<F> {
    pub meter: Arc<Meter>,
    pub future: Pin<Box<F>>,
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.meter.begin();
        let polled = self.future.as_mut().poll(context);
        self.meter.end();
        polled
    }
}

/// Grants memory to one guest out of its application's budget.
#[derive(Debug)]
pub(crate) struct Grants {
    budget: Arc<Budget>,
    granted: u64,
}

impl Grants {
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, granted: 0 }
    }

    fn grant(&mut self, bytes: usize) -> wasmtime::Result<bool> {
        let (more, most) = (bytes as u64, self.budget.limits.memory_bytes_max);
        if !self.budget.take(more) {
            return Err(fault(format!("it asked for more memory than the {} that its application may hold", size(most))));
        }
        self.granted += more;
        Ok(true)
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        self.budget.give(self.granted);
    }
}

impl ResourceLimiter for Grants {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        self.grant(desired - current)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(fault(format!("its memory could not grow: {error}")))
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > TABLE_ELEMENTS_MAX {
            let text = format!("it asked for a table of {desired} functions; a table has at most {TABLE_ELEMENTS_MAX}");
            return Err(fault(text));
        }
        if maximum.is_some_and(|most| desired > most) {
            return Ok(false);
        }
        self.grant((desired - current) * TABLE_ELEMENT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_goes_back() {
        let budget = Budget::new(Limits { memory_bytes_max: 100, ..Limits::default() });
        let mut first = budget.hold(60).unwrap();
        let why = budget.hold(41).unwrap_err().to_string();
        assert_eq!(why, "there is no room for 41 bytes more in the 100 bytes of memory that the application may hold");
        first.join(budget.hold(40).unwrap());
        assert!(budget.hold(1).is_err() && budget.hold(usize::MAX).is_err());
        drop(first);
        assert_eq!(budget.memory_bytes.load(Ordering::Relaxed), 0);
    }

    /// A machine that was paused, or had no time for a thread, ended guests that had not run.
    #[test]
    fn a_thread_that_waits_takes_no_time() {
        let (budget, pause) = (Budget::new(Limits::default()), Duration::from_millis(150));
        let meter = Meter::new(Arc::clone(&budget));
        let turn = |work: &dyn Fn()| {
            let before = budget.run_ns();
            meter.begin();
            work();
            meter.end();
            Duration::from_nanos(budget.run_ns() - before)
        };
        let paused = || std::thread::sleep(pause);
        assert!(turn(&paused) <= Duration::from_nanos(WALL_NS_MAX + SWITCH_NS), "the first turn is measured by the wall");
        assert!(turn(&paused) < pause / 3);
        let worked = turn(&|| {
            let began = thread_time();
            while thread_time() - began < pause {}
        });
        assert!(worked >= pause, "{worked:?}");
    }
}
