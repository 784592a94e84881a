//! A medium whose reads are paced to a rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;

use crate::pace::Pace;
use crate::{Clock, Instant};

/// How far reads may run ahead of the rate.
const BURST: Duration = Duration::from_millis(1);

/// One medium that all reads of a CSE share. It reads ahead as far as a buffer has room: while somebody works on what was
/// read, the next bytes come in. A session that begins while no other one reads finds the buffer empty, and waits for the
/// latency where the medium was idle. So does a read without a session that comes later than the buffer would have been full.
#[derive(Debug)]
pub struct PacedMedium {
    pace: Pace,
    latency: Duration,
    /// What it takes to fill the buffer.
    ahead: Duration,
    /// Sessions that read.
    sessions: AtomicUsize,
}

impl PacedMedium {
    /// A medium with this rate, above 0, this time from a read's start until its first byte, and this much room for what is
    /// read ahead.
    pub fn new(bytes_per_second: f64, latency: Duration, buffer_bytes: u64, clock: Arc<dyn Clock>) -> Self {
        let ahead = Duration::try_from_secs_f64(buffer_bytes as f64 / bytes_per_second).unwrap_or(Duration::MAX);
        Self { pace: Pace::new(bytes_per_second, clock), latency, ahead, sessions: AtomicUsize::new(0) }
    }

    /// Its rate.
    pub fn bytes_per_second(&self) -> f64 {
        self.pace.bytes_per_second()
    }

    /// A session begins to read. Nothing of it was read ahead.
    pub fn reading_begins(&self) {
        if self.sessions.fetch_add(1, Ordering::Relaxed) > 0 {
            // What was read ahead is the others', who have not taken it yet.
            return;
        }
        // No bytes: only the next booking is moved.
        drop(self.pace.book_from(0, Duration::MAX, |free_at, now| self.found(free_at, now)));
    }

    /// A session has read all that it wants.
    pub fn reading_ends(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Books `bytes`. The future ends when all of them would be there. The booking remains if the future is dropped.
    pub fn read(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        let in_session = self.sessions.load(Ordering::Relaxed) > 0;
        self.pace.book_from(bytes, BURST, |free_at, now| {
            // The buffer is full since then, or not yet.
            let ahead = Instant(now.0.saturating_sub(u64::try_from(self.ahead.as_nanos()).unwrap_or(u64::MAX)));
            match free_at >= ahead || in_session {
                true => free_at.max(ahead),
                false => self.found(free_at, now),
            }
        })
    }

    /// When a read begins to arrive that nobody foresaw.
    fn found(&self, free_at: Instant, now: Instant) -> Instant {
        match free_at >= now {
            true => free_at,
            false => Instant(now.0.saturating_add(self.latency.as_nanos() as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

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

    /// 1 MB/s after 8 ms, with a buffer that is full after 100 ms.
    struct Bench {
        clock: Arc<ManualClock>,
        medium: PacedMedium,
    }

    impl Bench {
        fn new() -> Self {
            let clock = Arc::new(ManualClock { now_ms: 5_000.into(), ..ManualClock::default() });
            let medium = PacedMedium::new(1e6, Duration::from_millis(8), 100_000, Arc::clone(&clock) as Arc<dyn Clock>);
            Self { clock, medium }
        }

        fn begin_at(&self, now_ms: u64) {
            self.clock.now_ms.store(now_ms, Ordering::Relaxed);
            self.medium.reading_begins();
        }

        /// How long a read of 50 ms waits.
        fn read_at(&self, now_ms: u64) -> u64 {
            self.clock.now_ms.store(now_ms, Ordering::Relaxed);
            self.clock.wait_ms.store(0, Ordering::Relaxed);
            drop(self.medium.read(50_000));
            self.clock.wait_ms.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn it_reads_ahead_while_others_work_and_no_further_than_its_buffer() {
        let bench = Bench::new();
        assert_eq!(bench.read_at(5_000), 58, "the first read waits for the latency");
        assert_eq!(bench.read_at(5_058), 50, "who does nothing waits for all of it");
        assert_eq!(bench.read_at(5_138), 20, "30 ms of work were enough for 30 ms of reading");
        assert_eq!(bench.read_at(5_248), 0, "it was there already");
        assert_eq!(bench.read_at(9_000), 58, "an idle medium has saved nothing up");
    }

    #[test]
    fn what_a_session_works_longer_than_the_buffer_has_room_for_leaves_the_buffer_full() {
        let bench = Bench::new();
        bench.begin_at(5_000);
        assert_eq!(bench.read_at(5_000), 58);
        // The medium was free at 5,058, and stood still from 5,158 on.
        assert_eq!(bench.read_at(5_159), 0, "one millisecond more than the buffer loses nothing that is in it");
        assert_eq!(bench.read_at(5_159), 0, "100 ms were read ahead");
        assert_eq!(bench.read_at(5_159), 50, "and no more than these");
    }

    #[test]
    fn what_follows_a_query_is_not_read_ahead_for_the_next_one() {
        let bench = Bench::new();
        bench.begin_at(5_000);
        assert_eq!(bench.read_at(5_000), 58);
        bench.medium.reading_ends();
        bench.begin_at(5_090);
        assert_eq!(bench.read_at(5_090), 58, "though less time has passed than the buffer has room for");
        bench.begin_at(5_100);
        assert_eq!(bench.read_at(5_100), 98, "the medium was not idle, so what another session waits for comes first");
    }

    /// Each session that began took from the others what was read ahead for them.
    #[test]
    fn a_session_that_begins_leaves_the_others_their_buffer() {
        let bench = Bench::new();
        bench.begin_at(5_000);
        assert_eq!(bench.read_at(5_000), 58);
        bench.begin_at(5_150);
        assert_eq!(bench.read_at(5_150), 0, "92 ms were read ahead");
    }
}
