//! Time, as policies and annotations read it.

use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;

/// A point in a clock's time, nanoseconds since the clock was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from `earlier` to this point, 0 if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A clock on which a task can wait.
pub trait Clock: Send + Sync + Debug {
    /// Now.
    fn now(&self) -> Instant;

    /// Waits for at least `duration` of this clock's time.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// Starts at 0 now.
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant(self.start.elapsed().as_nanos() as u64)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // The time counts from this call and not from the first poll. A wait that is too long to represent never ends.
        match tokio::time::Instant::now().checked_add(duration) {
            Some(until) => Box::pin(async move { tokio::time::sleep_until(until).await }),
            None => Box::pin(futures::future::pending()),
        }
    }
}

/// CPU time that the calling thread has used, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that outlives the call.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if status == 0 { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back() {
        let clock = SystemClock::new();
        let (first, second) = (clock.now(), clock.now());
        assert!(second >= first);
        assert_eq!(first.since(Instant(first.0 + 1)), Duration::ZERO);
        assert_eq!(Instant(7).since(Instant(3)), Duration::from_nanos(4));
    }

    #[test]
    fn work_costs_cpu_time() {
        let before = thread_cpu_ns();
        let mut sum = 0_u64;
        while thread_cpu_ns() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(thread_cpu_ns() > before);
    }
}
