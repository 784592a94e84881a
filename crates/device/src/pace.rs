//! Bytes that pass one after another at a rate.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::{Clock, Instant};

/// One way that bytes take at a rate. Bookings do not overlap, and an idle way saves nothing up unless who books says so.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: f64,
    clock: Arc<dyn Clock>,
    free_at: Mutex<Instant>,
}

impl Pace {
    /// A way with this rate, above 0.
    pub(crate) fn new(bytes_per_second: f64, clock: Arc<dyn Clock>) -> Self {
        assert!(bytes_per_second > 0.0, "a rate is above 0");
        Self { bytes_per_second, clock, free_at: Mutex::new(Instant::default()) }
    }

    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.bytes_per_second
    }

    /// The bytes that were booked and have not passed yet.
    pub(crate) fn backlog_bytes(&self) -> f64 {
        let wait = self.free_at.lock().since(self.clock.now());
        wait.as_secs_f64() * self.bytes_per_second
    }

    /// Books `bytes`. The future ends when all of them have passed. None: that is no longer than `burst` away, which is how far
    /// bookings may run ahead of the rate, so that no wait is shorter than timers can measure. The booking remains if the future is
    /// dropped.
    pub(crate) fn book(&self, bytes: u64, burst: Duration) -> Option<BoxFuture<'static, ()>> {
        self.book_from(bytes, burst, |free_at, now| free_at.max(now))
    }

    /// The same, from when on `start` says, which is told when the earlier bookings end, and what time it is.
    pub(crate) fn book_from(
        &self,
        bytes: u64,
        burst: Duration,
        start: impl FnOnce(Instant, Instant) -> Instant,
    ) -> Option<BoxFuture<'static, ()>> {
        let takes_ns = (bytes as f64 / self.bytes_per_second * 1e9) as u64;
        let now = self.clock.now();
        let mut free_at = self.free_at.lock();
        *free_at = Instant(start(*free_at, now).0.saturating_add(takes_ns));
        let wait = free_at.since(now);
        (wait > burst).then(|| self.clock.sleep(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const BURST: Duration = Duration::from_millis(2);

    #[derive(Debug, Default)]
    struct Still(AtomicU64);

    impl Clock for Still {
        fn now(&self) -> Instant {
            Instant(self.0.load(Ordering::Relaxed))
        }
        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            let until = self.0.load(Ordering::Relaxed).saturating_add(duration.as_nanos() as u64);
            self.0.fetch_max(until, Ordering::Relaxed);
            Box::pin(async {})
        }
    }

    fn gigabyte(clock: &Arc<Still>) -> Pace {
        Pace::new(1e9, Arc::clone(clock) as Arc<dyn Clock>)
    }

    #[test]
    fn bytes_take_their_time_one_after_another() {
        let clock = Arc::new(Still::default());
        let pace = gigabyte(&clock);
        for _ in 0..1000 {
            if let Some(wait) = pace.book(1_000_000, BURST) {
                futures::executor::block_on(wait);
            }
        }
        let seconds = clock.now().0 as f64 / 1e9;
        assert!((0.99..1.01).contains(&seconds), "1 GB at 1 GB/s took {seconds} s");
    }

    #[test]
    fn a_wait_that_is_dropped_keeps_its_booking() {
        let clock = Arc::new(Still::default());
        let pace = gigabyte(&clock);
        drop(pace.book(1_000_000_000, BURST));
        assert_eq!(*pace.free_at.lock(), Instant(1_000_000_000));
        drop(pace.book(1_000, BURST));
        assert_eq!(*pace.free_at.lock(), Instant(1_000_001_000));
    }

    #[test]
    fn an_idle_way_saves_nothing_up() {
        let clock = Arc::new(Still(AtomicU64::new(5_000_000_000)));
        let pace = gigabyte(&clock);
        assert!(pace.book(1_000, BURST).is_none(), "short bookings do not wait");
        assert_eq!(*pace.free_at.lock(), Instant(5_000_001_000));
    }

    #[test]
    fn absurd_bookings_do_not_overflow() {
        let pace = Pace::new(0.001, Arc::new(Still::default()));
        for _ in 0..2 {
            drop(pace.book(u64::MAX, BURST));
        }
        assert_eq!(*pace.free_at.lock(), Instant(u64::MAX));
    }
}
