//! A link whose sends are paced to a rate.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::{Clock, Instant};

/// How far sends may run ahead of the rate, so that no wait is shorter than timers can measure.
const BURST: Duration = Duration::from_millis(2);

/// One link that all sends of a CSE share. Each send books the time that its bits take at the rate, after the earlier
/// bookings, and waits until its own booking ends.
#[derive(Debug)]
pub struct PacedLink {
    bits_per_second: f64,
    clock: Arc<dyn Clock>,
    free_at: Mutex<Instant>,
}

impl PacedLink {
    /// A link with this rate, above 0.
    pub fn new(bits_per_second: f64, clock: Arc<dyn Clock>) -> Self {
        assert!(bits_per_second > 0.0, "a link's rate is above 0");
        Self { bits_per_second, clock, free_at: Mutex::new(Instant::default()) }
    }

    /// Its rate.
    pub fn bits_per_second(&self) -> f64 {
        self.bits_per_second
    }

    /// The bytes that were booked and have not left yet.
    pub fn backlog_bytes(&self) -> f64 {
        let wait = self.free_at.lock().since(self.clock.now());
        wait.as_secs_f64() * self.bits_per_second / 8.0
    }

    /// Books `bytes`. The future ends when all of them would have left. The booking remains if the future is dropped.
    pub fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        let takes_ns = (bytes as f64 * 8.0 / self.bits_per_second * 1e9) as u64;
        let now = self.clock.now();
        let mut free_at = self.free_at.lock();
        let start = (*free_at).max(now);
        *free_at = Instant(start.0.saturating_add(takes_ns));
        let wait = free_at.since(now);
        (wait > BURST).then(|| self.clock.sleep(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

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

    #[test]
    fn bits_take_their_time_one_after_another() {
        let clock = Arc::new(Still::default());
        let link = PacedLink::new(8e9, Arc::clone(&clock) as Arc<dyn Clock>);
        for _ in 0..1000 {
            if let Some(wait) = link.send(1_000_000) {
                futures::executor::block_on(wait);
            }
        }
        let seconds = clock.now().0 as f64 / 1e9;
        assert!((0.99..1.01).contains(&seconds), "1 GB at 8 Gbit/s took {seconds} s");
    }

    #[test]
    fn a_wait_that_is_dropped_keeps_its_booking() {
        let clock = Arc::new(Still::default());
        let link = PacedLink::new(8e9, Arc::clone(&clock) as Arc<dyn Clock>);
        drop(link.send(1_000_000_000));
        assert_eq!(*link.free_at.lock(), Instant(1_000_000_000));
        drop(link.send(1_000));
        assert_eq!(*link.free_at.lock(), Instant(1_000_001_000));
    }

    #[test]
    fn an_idle_link_saves_nothing_up() {
        let clock = Arc::new(Still(AtomicU64::new(5_000_000_000)));
        let link = PacedLink::new(8e9, Arc::clone(&clock) as Arc<dyn Clock>);
        assert!(link.send(1_000).is_none(), "short sends do not wait");
        assert_eq!(*link.free_at.lock(), Instant(5_000_001_000));
    }

    #[test]
    fn absurd_sends_do_not_overflow() {
        let link = PacedLink::new(0.001, Arc::new(Still::default()));
        for _ in 0..2 {
            drop(link.send(u64::MAX));
        }
        assert_eq!(*link.free_at.lock(), Instant(u64::MAX));
    }
}
