//! A CPU that is paced to a share of the real one's speed, and the unit of work by which CPUs are compared.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;

use crate::clock::thread_cpu_ns;
use crate::{Clock, CoreCosts, CpuWait, Instant};

/// How far work may run ahead of the pace, so that no wait is shorter than timers can measure.
const BURST: Duration = Duration::from_millis(1);
/// Work that is shorter than this says nothing of this machine's speed: most of it may be what a plan costs to make.
const TELLING: Duration = Duration::from_millis(10);
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
    /// What counted work takes; none: all work takes its real time, over the share.
    costs: Option<CoreCosts>,
    clock: Arc<dyn Clock>,
    free_at: Mutex<Vec<Instant>>,
    was_too_slow: AtomicBool,
}

impl PacedCpu {
    /// A CPU with this many cores (at least one), each at a share of the real speed, above 0 and at most 1.
    pub fn new(share: f64, cores: usize, clock: Arc<dyn Clock>) -> Self {
        assert!(share > 0.0 && share <= 1.0, "a CPU's share is above 0 and at most 1");
        let free_at = Mutex::new(vec![Instant::default(); cores.max(1)]);
        Self { share, costs: None, clock, free_at, was_too_slow: AtomicBool::new(false) }
    }

    /// The same, which takes for counted work what these costs come to, whatever the real CPU took.
    pub fn with_costs(self, costs: CoreCosts) -> Self {
        Self { costs: Some(costs), ..self }
    }

    /// Its speed, as a share of the real CPU's.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// What counted work takes.
    pub fn costs(&self) -> Option<&CoreCosts> {
        self.costs.as_ref()
    }

    /// Books work that just took `cpu` on the real CPU. The future ends when the work would be done on the slow CPU.
    /// The booking remains if the future is dropped. `late`: by how much the wait before this work ended too late.
    pub fn work(&self, cpu: Duration, late: Duration) -> Option<CpuWait> {
        self.book(cpu, (cpu.as_nanos() as f64 / self.share) as u64, late)
    }

    /// The same of work that just took `here`, and takes `there` on the slow CPU.
    pub fn work_as(&self, here: Duration, there: Duration, late: Duration) -> Option<CpuWait> {
        self.book(here, u64::try_from(there.as_nanos()).unwrap_or(u64::MAX), late)
    }

    /// Whether work that took `here` shows that this machine cannot keep up with the slow CPU, which takes `there`. Said once.
    pub fn is_too_slow(&self, here: Duration, there: Duration) -> bool {
        here > there && here >= TELLING && !self.was_too_slow.swap(true, Ordering::Relaxed)
    }

    fn book(&self, here: Duration, takes_ns: u64, late: Duration) -> Option<CpuWait> {
        let now = self.clock.now();
        // The booking began when its work did, or would have.
        let began = Instant(now.0.saturating_sub((here + late).as_nanos() as u64));
        let ends = {
            let mut cores = self.free_at.lock();
            let core = cores.iter_mut().min()?;
            *core = Instant((*core).max(began).0.saturating_add(takes_ns));
            *core
        };
        let (wait, clock) = (ends.since(now), Arc::clone(&self.clock));
        (wait > BURST).then(|| {
            let slept = clock.sleep(wait);
            async move {
                slept.await;
                clock.now().since(ends)
            }
            .boxed()
        })
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
    use futures::future::BoxFuture;

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
            drop(cpu.work(Duration::from_millis(100), Duration::ZERO));
        }
        // 1 s of work takes 4 s on one slow core, 2 s on two; each began 100 ms ago.
        let free = cpu.free_at.lock().iter().map(|free| free.0 - 900_000_000).collect::<Vec<_>>();
        assert_eq!(free, [2_000_000_000, 2_000_000_000]);
    }

    #[test]
    fn counted_work_is_booked_from_its_beginning_whatever_it_took_here() {
        let cpu = PacedCpu::new(0.01, 1, Arc::new(Still));
        drop(cpu.work_as(Duration::from_millis(20), Duration::from_millis(50), Duration::ZERO));
        assert_eq!(cpu.free_at.lock()[0], Instant(1_030_000_000), "30 ms are left to wait");
        drop(cpu.work_as(Duration::from_millis(20), Duration::from_millis(50), Duration::ZERO));
        assert_eq!(cpu.free_at.lock()[0], Instant(1_080_000_000), "after the first");
    }

    #[test]
    fn a_timer_that_ends_late_does_not_make_a_core_slower() {
        let free_after = |idle_us: u64, late_us: u64| {
            let cpu = PacedCpu::new(0.01, 1, Arc::new(Still));
            *cpu.free_at.lock() = vec![Instant(1_000_000_000 - idle_us * 1_000)];
            drop(cpu.work_as(Duration::ZERO, Duration::from_micros(1_000), Duration::from_micros(late_us)));
            cpu.free_at.lock()[0].0 / 1_000
        };
        // Work that waited for its core until 2 ms ago, was told so late, and then did other things for 1 ms.
        let after = [(2_000, 2_000), (2_000, 0), (3_000, 2_000), (500, 2_000)].map(|(idle, late)| free_after(idle, late));
        assert_eq!(after, [999_000, 1_001_000, 999_000, 1_000_500]);
    }

    #[tokio::test]
    async fn a_wait_tells_by_how_much_it_ended_too_late() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let cpu = PacedCpu::new(0.5, 1, Arc::clone(&clock));
        let start = clock.now();
        let late = cpu.work_as(Duration::ZERO, Duration::from_millis(5), Duration::ZERO).unwrap().await;
        let took = clock.now().since(start);
        assert!(late <= took.saturating_sub(Duration::from_millis(5)), "{late:?} of {took:?}");
        assert_eq!(cpu.free_at.lock()[0].since(start).as_millis(), 5);
    }

    #[test]
    fn a_machine_that_cannot_keep_up_is_told_of_once() {
        let cpu = PacedCpu::new(0.5, 1, Arc::new(Still));
        let ms = Duration::from_millis;
        assert!(!cpu.is_too_slow(ms(9), ms(1)), "a plan takes as long");
        assert!(!cpu.is_too_slow(ms(20), ms(20)));
        assert!(cpu.is_too_slow(ms(20), ms(19)));
        assert!(!cpu.is_too_slow(ms(20), ms(19)));
    }

    #[test]
    fn a_whole_core_and_short_work_do_not_wait() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        assert!(PacedCpu::new(1.0, 1, Arc::clone(&clock)).work(Duration::from_micros(900), Duration::ZERO).is_none());
        assert!(PacedCpu::new(0.5, 1, Arc::clone(&clock)).work(Duration::from_micros(10), Duration::ZERO).is_none());
        assert!(PacedCpu::new(0.5, 1, clock).work(Duration::from_millis(10), Duration::ZERO).is_some());
    }

    #[test]
    fn the_unit_takes_time_and_is_measured_once() {
        assert!(unit_ns() > 100.0 && unit_ns() < 1e8);
        assert_eq!(unit_ns(), unit_ns());
    }
}
