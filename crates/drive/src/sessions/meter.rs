//! [`Meter`]: what a round costs in CPU and wall time, and what the device takes for it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use pithead_device::{CountedWork, CpuWait, Device, Instant};

/// Time on the device's core after which the device is told of it in the middle of a future, nanoseconds.
const CHARGE_NS: u64 = 1_000_000;
/// On a slow device that is less time here. This is the least, nanoseconds: each charge costs some of it.
const CHARGE_HERE_NS: u64 = 100_000;

/// Meters futures by the CPU time of the thread that polls them. The device takes its share of that, or what it takes for the work
/// that a round counts meanwhile.
pub(crate) struct Meter<'a> {
    device: &'a dyn Device,
    start: Instant,
    spent: Spent,
    charged: Charged,
    bill: Bill,
    turn: Duration,
}

/// What the device is told of.
enum Bill {
    /// CPU time, each time when it comes to so many nanoseconds.
    Cpu(u64),
    /// What was counted; nothing yet, or ever: no round is watched.
    Counts(Option<Counted>),
}

/// What a round counts, and whether the rows that pass are taken in.
struct Counted {
    count: Box<dyn Fn() -> CountedWork + Send + Sync>,
    sums: bool,
}

/// What the device was told of, nanoseconds.
#[derive(Default)]
struct Charged {
    here_ns: u64,
    there_ns: u64,
    /// By how much the last wait for a core ended too late.
    late: Duration,
}

/// What a meter has counted so far, for others to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    cpu_ns: AtomicU64,
    /// Wall time of the polls.
    polled_ns: AtomicU64,
    /// What the device takes for what was counted.
    there_ns: AtomicU64,
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

    /// The share of a core's speed at which the device does this work: its CPU's, unless it takes what was counted.
    pub(crate) fn share(&self, of_cpu: f64) -> f64 {
        match self.0.there_ns.load(Ordering::Relaxed) {
            0 => of_cpu,
            there_ns => self.cpu_ns().max(1) as f64 / there_ns as f64,
        }
    }

    fn add(&self, cpu_ns: u64, polled_ns: u64) {
        self.0.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        self.0.polled_ns.fetch_add(polled_ns, Ordering::Relaxed);
    }
}

impl Counted {
    fn work(&self) -> CountedWork {
        let work = (self.count)();
        CountedWork { sums: if self.sums { work.matches } else { 0 }, ..work }
    }
}

impl<'a> Meter<'a> {
    /// Tells the device of CPU time.
    pub(crate) fn start(device: &'a dyn Device) -> Self {
        let quantum_ns = (CHARGE_NS as f64 * device.cpu_share()) as u64;
        Self::with(device, Bill::Cpu(quantum_ns.max(CHARGE_HERE_NS)))
    }

    /// The same, unless the device takes what is counted: then it is told of that only.
    pub(crate) fn counting(device: &'a dyn Device) -> Self {
        match device.takes(&CountedWork::default()) {
            Some(_) => Self::with(device, Bill::Counts(None)),
            None => Self::start(device),
        }
    }

    fn with(device: &'a dyn Device, bill: Bill) -> Self {
        let (spent, charged, turn) = Default::default();
        Self { device, start: device.clock().now(), spent, charged, bill, turn }
    }

    /// From now on a round's counts are what the device is told of, if it takes what is counted. `sums`: an aggregate, a top-k or a
    /// limit takes in the rows that pass.
    pub(crate) fn watch(&mut self, count: impl Fn() -> CountedWork + Send + Sync + 'static, sums: bool) {
        if let Bill::Counts(counted) = &mut self.bill {
            *counted = Some(Counted { count: Box::new(count), sums });
        }
    }

    /// Rows that passed turned out to be taken in.
    pub(crate) fn takes_in(&mut self) {
        if let Bill::Counts(Some(counted)) = &mut self.bill {
            counted.sums = true;
        }
    }

    /// Runs a future, counting the CPU time of its polls. Between polls it waits as the device says.
    pub(crate) async fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut wait: Option<CpuWait> = None;
        let Self { device, spent, charged, bill, .. } = self;
        let output = poll_fn(|context| {
            if let Some(wait) = &mut wait {
                charged.late = ready!(wait.poll_unpin(context));
            }
            wait = None;
            let (start, cpu) = (device.clock().now(), device.cpu_ns());
            let polled = future.as_mut().poll(context);
            spent.add(device.cpu_ns().saturating_sub(cpu), device.clock().now().since(start).as_nanos() as u64);
            if polled.is_pending()
                && let Some(mut paced) = bill.charge(*device, spent, charged, false)
            {
                match paced.poll_unpin(context) {
                    Poll::Ready(late) => {
                        charged.late = late;
                        context.waker().wake_by_ref();
                    }
                    Poll::Pending => wait = Some(paced),
                }
            }
            polled
        });
        output.await
    }

    /// Tells the device of the work since the last call, and waits as it says.
    pub(crate) async fn charge(&mut self) {
        if let Some(wait) = self.bill.charge(self.device, &self.spent, &mut self.charged, true) {
            self.charged.late = wait.await;
        }
    }

    /// The same at the end of a round. Warns, once, of a machine that takes longer than the device would.
    pub(crate) async fn close(&mut self) {
        self.charge().await;
        let (here, there) = (Duration::from_nanos(self.spent.polled_ns()), Duration::from_nanos(self.charged.there_ns));
        if matches!(self.bill, Bill::Counts(Some(_))) && self.device.is_too_slow(here, there) {
            tracing::warn!(
                here_s = here.as_secs_f64(),
                there_s = there.as_secs_f64(),
                "this machine is too slow, or too busy, to stand for the profile's device: a round took longer here than the device's \
                 core would take, and so will others; choose a profile with slower cores, or a faster machine"
            );
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

impl Bill {
    /// Tells the device of what it was not told of, if that is enough or `all` is to be told. Gives how long to wait.
    fn charge(&self, device: &dyn Device, spent: &Spent, charged: &mut Charged, all: bool) -> Option<CpuWait> {
        match self {
            Bill::Cpu(quantum_ns) => {
                let here_ns = spent.cpu_ns() - charged.here_ns;
                if !all && here_ns < *quantum_ns {
                    return None;
                }
                charged.here_ns += here_ns;
                device.work(Duration::from_nanos(here_ns), std::mem::take(&mut charged.late))
            }
            Bill::Counts(counted) => {
                let takes = device.takes(&counted.as_ref()?.work())?;
                let there_ns = u64::try_from(takes.as_nanos()).unwrap_or(u64::MAX).saturating_sub(charged.there_ns);
                if there_ns == 0 || (!all && there_ns < CHARGE_NS) {
                    return None;
                }
                // What the machine was slowed by others belongs to its time here.
                let here_ns = spent.polled_ns() - charged.here_ns;
                charged.here_ns += here_ns;
                charged.there_ns += there_ns;
                spent.0.there_ns.store(charged.there_ns, Ordering::Relaxed);
                let late = std::mem::take(&mut charged.late);
                device.work_as(Duration::from_nanos(here_ns), Duration::from_nanos(there_ns), late)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_device::{CoreCosts, Native, Paced};

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
                busy(&device, 2_000_000);
                tokio::task::yield_now().await;
            }
        };
        meter.run(work).await;
        meter.charge().await;
        // 8 ms of work take 80 ms; timers may end a little early.
        assert!(meter.wall_ns() > 70_000_000, "{}", meter.wall_ns());
    }

    /// A core that takes 1 µs for a row and as much for one that is taken in, on a machine that is slowed to a thousandth otherwise.
    fn counting() -> Paced {
        let costs = CoreCosts { page_bytes: 4096, page_s: 0.0, row_s: 1e-6, match_s: 0.0, sum_s: 1e-6 };
        Paced::default().with_counted_cpu(costs, 0.001, 1)
    }

    #[tokio::test]
    async fn counted_work_takes_what_it_costs_there_and_not_what_it_took_here() {
        let device = counting();
        let mut meter = Meter::counting(&device);
        let rows = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&rows);
        meter.run(async { busy(&device, 2_000_000) }).await;
        let count = move || CountedWork { rows: seen.load(Ordering::Relaxed), matches: 5_000, ..CountedWork::default() };
        meter.watch(count, false);
        let work = async {
            for _ in 0..4 {
                rows.fetch_add(10_000, Ordering::Relaxed);
                busy(&device, 1_000_000);
                tokio::task::yield_now().await;
            }
        };
        meter.run(work).await;
        meter.takes_in();
        meter.charge().await;
        // 40,000 rows, of which 5,000 are taken in. What was done before they were counted is in that time.
        let took = meter.wall_ns();
        assert!((42_000_000..400_000_000).contains(&took), "{took}: 6 ms of work would take 6 s by its share");
        let share = meter.spent().share(0.001);
        assert!((share - meter.cpu_ns() as f64 / 45e6).abs() < 1e-9, "{share}");
    }

    #[tokio::test]
    async fn what_is_not_counted_is_not_slowed_where_counts_are_what_costs() {
        let device = counting();
        let mut meter = Meter::counting(&device);
        meter.run(async { busy(&device, 2_000_000) }).await;
        meter.charge().await;
        assert!(meter.wall_ns() < 500_000_000, "{}: by its share it would take 2 s", meter.wall_ns());
        assert_eq!(meter.spent().share(0.25), 0.25);
    }

    fn busy(device: &dyn Device, cpu_ns: u64) {
        let until = device.cpu_ns() + cpu_ns;
        while device.cpu_ns() < until {}
    }
}
