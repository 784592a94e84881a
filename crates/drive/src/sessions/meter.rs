//! [`Meter`]: what a round costs in CPU and wall time.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pithead_device::{Device, Instant};

/// CPU time after which the device is told of it in the middle of a future, nanoseconds.
const CHARGE_NS: u64 = 1_000_000;

/// Meters futures by the CPU time of the thread that polls them.
pub(crate) struct Meter<'a> {
    device: &'a dyn Device,
    start: Instant,
    spent: Spent,
    charged_ns: u64,
    turn: Duration,
}

/// What a meter has counted so far, for others to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    cpu_ns: AtomicU64,
    /// Wall time of the polls.
    polled_ns: AtomicU64,
}

impl Spent {
    /// CPU time, nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.0.cpu_ns.load(Ordering::Relaxed)
    }

    /// Wall time of the polls, nanoseconds: more than the CPU time where others ran on the core meanwhile.
    pub(crate) fn polled_ns(&self) -> u64 {
        self.0.polled_ns.load(Ordering::Relaxed)
    }

    fn add(&self, cpu_ns: u64, polled_ns: u64) {
        self.0.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        self.0.polled_ns.fetch_add(polled_ns, Ordering::Relaxed);
    }
}

impl<'a> Meter<'a> {
    pub(crate) fn start(device: &'a dyn Device) -> Self {
        let (spent, charged_ns, turn) = Default::default();
        Self { device, start: device.clock().now(), spent, charged_ns, turn }
    }

    /// Runs a future, counting the CPU time of its polls. Between polls it waits as the device says.
    pub(crate) async fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut wait: Option<BoxFuture<'static, ()>> = None;
        let Self { device, spent, charged_ns, .. } = self;
        let output = poll_fn(|context| {
            if let Some(wait) = &mut wait {
                ready!(wait.poll_unpin(context));
            }
            wait = None;
            let (start, cpu) = (device.clock().now(), device.cpu_ns());
            let polled = future.as_mut().poll(context);
            spent.add(device.cpu_ns().saturating_sub(cpu), device.clock().now().since(start).as_nanos() as u64);
            let uncharged = spent.cpu_ns() - *charged_ns;
            if polled.is_pending() && uncharged >= CHARGE_NS {
                *charged_ns += uncharged;
                if let Some(mut paced) = device.work(Duration::from_nanos(uncharged)) {
                    match paced.poll_unpin(context) {
                        Poll::Ready(()) => context.waker().wake_by_ref(),
                        Poll::Pending => wait = Some(paced),
                    }
                }
            }
            polled
        });
        output.await
    }

    /// Tells the device of the work since the last call, and waits as it says.
    pub(crate) async fn charge(&mut self) {
        let work = Duration::from_nanos(self.cpu_ns() - self.charged_ns);
        self.charged_ns = self.cpu_ns();
        if let Some(wait) = self.device.work(work) {
            wait.await;
        }
    }

    /// Lets others on the reactor have their turn.
    pub(crate) async fn give_way(&mut self) {
        let start = self.device.clock().now();
        tokio::task::yield_now().await;
        self.turn += self.device.clock().now().since(start);
    }

    /// Time that passed until it was this one's turn again.
    pub(crate) fn turn(&self) -> Duration {
        self.turn
    }

    pub(crate) fn spent(&self) -> &Spent {
        &self.spent
    }

    pub(crate) fn cpu_ns(&self) -> u64 {
        self.spent.cpu_ns()
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.device.clock().now().since(self.start).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_device::{Native, Paced};

    #[tokio::test]
    async fn work_is_counted_and_waiting_is_not() {
        let device = Native::new();
        let mut meter = Meter::start(&device);
        let sum = meter.run(async { (0..1_000_000_u64).map(std::hint::black_box).sum::<u64>() }).await;
        let worked = meter.cpu_ns();
        meter.charge().await;
        assert!(sum > 0 && worked > 0 && meter.wall_ns() >= worked / 2);
    }

    #[tokio::test]
    async fn a_slow_cpu_makes_a_future_wait_between_its_polls() {
        let device = Paced::default().with_cpu(0.1, 1);
        let mut meter = Meter::start(&device);
        let work = async {
            for _ in 0..4 {
                let until = device.cpu_ns() + 2_000_000;
                while device.cpu_ns() < until {}
                tokio::task::yield_now().await;
            }
        };
        meter.run(work).await;
        meter.charge().await;
        // 8 ms of work take 80 ms; timers may end a little early.
        assert!(meter.wall_ns() > 70_000_000, "{}", meter.wall_ns());
    }
}
