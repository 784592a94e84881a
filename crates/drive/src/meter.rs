//! [`Meter`]: what a round costs in CPU and wall time.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use pithead_device::{Device, Instant, thread_cpu_ns};

/// Meters futures by the CPU time of the thread that polls them.
pub(crate) struct Meter<'a> {
    device: &'a dyn Device,
    start: Instant,
    cpu_ns: u64,
    charged_ns: u64,
    turn: Duration,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(device: &'a dyn Device) -> Self {
        Self { device, start: device.clock().now(), cpu_ns: 0, charged_ns: 0, turn: Duration::ZERO }
    }

    /// Runs a future, counting the CPU time of its polls.
    pub(crate) async fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let cpu_ns = &mut self.cpu_ns;
        let output = poll_fn(|context| {
            let start = thread_cpu_ns();
            let polled = future.as_mut().poll(context);
            *cpu_ns += thread_cpu_ns().saturating_sub(start);
            polled
        });
        output.await
    }

    /// Tells the device of the work since the last call, and waits as it says.
    pub(crate) async fn charge(&mut self) {
        let work = Duration::from_nanos(self.cpu_ns - self.charged_ns);
        self.charged_ns = self.cpu_ns;
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

    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.device.clock().now().since(self.start).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_device::Native;

    #[tokio::test]
    async fn work_is_counted_and_waiting_is_not() {
        let device = Native::new();
        let mut meter = Meter::start(&device);
        let sum = meter.run(async { (0..1_000_000_u64).map(std::hint::black_box).sum::<u64>() }).await;
        let worked = meter.cpu_ns();
        meter.charge().await;
        assert!(sum > 0 && worked > 0 && meter.wall_ns() >= worked / 2);
    }
}
