//! A medium whose reads are paced to a rate.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::pace::Pace;
use crate::{Clock, Instant};

/// How far reads may run ahead of the rate.
const BURST: Duration = Duration::from_millis(1);

/// One medium that all reads of a CSE share. It reads ahead as far as a buffer has room: while somebody works on what was read, the
/// next bytes come in. A read that comes later than that finds the medium idle, and waits for its latency, too.
#[derive(Debug)]
pub struct PacedMedium {
    pace: Pace,
    latency: Duration,
    /// What it takes to fill the buffer.
    ahead: Duration,
}

impl PacedMedium {
    /// A medium with this rate, above 0, this time from a read's start until its first byte, and this much room for what is read ahead.
    pub fn new(bytes_per_second: f64, latency: Duration, buffer_bytes: u64, clock: Arc<dyn Clock>) -> Self {
        let ahead = Duration::try_from_secs_f64(buffer_bytes as f64 / bytes_per_second).unwrap_or(Duration::MAX);
        Self { pace: Pace::new(bytes_per_second, clock), latency, ahead }
    }

    /// Its rate.
    pub fn bytes_per_second(&self) -> f64 {
        self.pace.bytes_per_second()
    }

    /// Books `bytes`. The future ends when all of them would be there. The booking remains if the future is dropped.
    pub fn read(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        self.pace.book_from(bytes, BURST, |free_at, now| match now.since(free_at) > self.ahead {
            true => Instant(now.0.saturating_add(self.latency.as_nanos() as u64)),
            false => free_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that goes on only when it is told to, and takes note of the last wait.
    #[derive(Debug, Default)]
    struct ManualClock {
        now_ms: AtomicU64,
        wait_ms: AtomicU64,
    }

    impl Clock for ManualClock {
        fn now(&self) -> Instant {
            Instant(self.now_ms.load(Ordering::Relaxed) * 1_000_000)
        }
        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            self.wait_ms.store(duration.as_millis() as u64, Ordering::Relaxed);
            Box::pin(async {})
        }
    }

    #[test]
    fn it_reads_ahead_while_others_work_and_no_further_than_its_buffer() {
        let clock = Arc::new(ManualClock { now_ms: 5_000.into(), ..ManualClock::default() });
        let medium = PacedMedium::new(1e6, Duration::from_millis(8), 100_000, Arc::clone(&clock) as Arc<dyn Clock>);
        let read_at = |now_ms: u64| {
            clock.now_ms.store(now_ms, Ordering::Relaxed);
            clock.wait_ms.store(0, Ordering::Relaxed);
            drop(medium.read(50_000));
            clock.wait_ms.load(Ordering::Relaxed)
        };
        assert_eq!(read_at(5_000), 58, "the first read waits for the latency");
        assert_eq!(read_at(5_058), 50, "who does nothing waits for all of it");
        assert_eq!(read_at(5_138), 20, "30 ms of work were enough for 30 ms of reading");
        assert_eq!(read_at(5_248), 0, "it was there already");
        assert_eq!(read_at(9_000), 58, "an idle medium has saved nothing up");
    }
}
