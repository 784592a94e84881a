//! A CPU that is paced to a share of the real one's speed, and the unit of work by which CPUs are compared.

use std::hint::black_box;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::clock::thread_cpu_ns;
use crate::{Clock, Instant};

/// How far work may run ahead of the pace, so that no wait is shorter than timers can measure.
const BURST: Duration = Duration::from_millis(1);
/// The number of values in the unit of work: more than a first-level cache has room for, and fewer than a second-level
/// one.
const UNIT_VALUES: usize = 32_768;
/// How often the unit is measured. The shortest time counts, because other work made the others longer.
const UNIT_RUNS: usize = 9;

/// A CPU with a few cores, each with a share of the real speed. Work books time on the core that is free first, after
/// the bookings that are there, and waits until its own booking ends. So the cores together do no more than slow cores
/// would.
#[derive(Debug)]
pub struct PacedCpu {
    share: f64,
    clock: Arc<dyn Clock>,
    free_at: Mutex<Vec<Instant>>,
}

impl PacedCpu {
    /// A CPU with this many cores (at least one), each at a share of the real speed, above 0 and at most 1.
    pub fn new(share: f64, cores: usize, clock: Arc<dyn Clock>) -> Self {
        assert!(share > 0.0 && share <= 1.0, "a CPU's share is above 0 and at most 1");
        Self { share, clock, free_at: Mutex::new(vec![Instant::default(); cores.max(1)]) }
    }

    /// Its speed, as a share of the real CPU's.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Books work that just took `cpu` on the real CPU. The future ends when the work would be done on the slow CPU.
    /// The booking remains if the future is dropped.
    pub fn work(&self, cpu: Duration) -> Option<BoxFuture<'static, ()>> {
        let takes_ns = (cpu.as_nanos() as f64 / self.share) as u64;
        let now = self.clock.now();
        // The booking began when its work did.
        let began = Instant(now.0.saturating_sub(cpu.as_nanos() as u64));
        let mut cores = self.free_at.lock();
        let core = cores.iter_mut().min()?;
        *core = Instant((*core).max(began).0.saturating_add(takes_ns));
        let wait = core.since(now);
        (wait > BURST).then(|| self.clock.sleep(wait))
    }
}

/// The CPU time that this machine takes for the unit of work by which CSEs are compared, nanoseconds. The unit is to
/// filter and to sum 32,768 numbers, which is much of what queries do. It is measured at the first call, in less than a
/// millisecond.
pub fn unit_ns() -> f64 {
    static UNIT: OnceLock<f64> = OnceLock::new();
    *UNIT.get_or_init(|| {
        let values: Vec<i64> = (0..UNIT_VALUES as i64).map(|value| value.wrapping_mul(2_654_435_761) & 0xffff).collect();
        let runs = (0..UNIT_RUNS).map(|run| {
            let start = thread_cpu_ns();
            let bound = black_box(30_000 + run as i64);
            let sum: i64 = black_box(&values).iter().filter(|value| **value < bound).sum();
            black_box(sum);
            thread_cpu_ns().saturating_sub(start)
        });
        runs.min().unwrap_or(1).max(1) as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemClock;

    /// A clock that stands still.
    #[derive(Debug, Default)]
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Instant {
            Instant(1_000_000_000)
        }
        fn sleep(&self, _duration: Duration) -> BoxFuture<'static, ()> {
            Box::pin(async {})
        }
    }

    #[test]
    fn cores_do_no_more_together_than_slow_ones_would() {
        let cpu = PacedCpu::new(0.25, 2, Arc::new(Still));
        for _ in 0..10 {
            drop(cpu.work(Duration::from_millis(100)));
        }
        // 1 s of work takes 4 s on one slow core, 2 s on two; each began 100 ms ago.
        let free = cpu.free_at.lock().iter().map(|free| free.0 - 900_000_000).collect::<Vec<_>>();
        assert_eq!(free, [2_000_000_000, 2_000_000_000]);
    }

    #[test]
    fn a_whole_core_and_short_work_do_not_wait() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        assert!(PacedCpu::new(1.0, 1, Arc::clone(&clock)).work(Duration::from_micros(900)).is_none());
        assert!(PacedCpu::new(0.5, 1, Arc::clone(&clock)).work(Duration::from_micros(10)).is_none());
        assert!(PacedCpu::new(0.5, 1, clock).work(Duration::from_millis(10)).is_some());
    }

    #[test]
    fn the_unit_takes_time_and_is_measured_once() {
        assert!(unit_ns() > 100.0 && unit_ns() < 1e8);
        assert_eq!(unit_ns(), unit_ns());
    }
}
