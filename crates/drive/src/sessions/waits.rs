//! [`Waits`]: where a session's time went.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where a session's time went, in nanoseconds, over all of its tasks.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    get_ns: AtomicU64,
    host_ns: AtomicU64,
    turn_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

/// The same at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitTimes {
    /// From OPEN to GET.
    pub(crate) get: Duration,
    /// For the host to take rows.
    pub(crate) host: Duration,
    /// For a turn at the reactor.
    pub(crate) turn: Duration,
    /// No wait: the CPU time of rounds.
    pub(crate) cpu: Duration,
}

impl Waits {
    pub(crate) fn for_get(&self, wait: Duration) {
        add(&self.get_ns, wait);
    }

    pub(crate) fn for_host(&self, wait: Duration) {
        add(&self.host_ns, wait);
    }

    pub(crate) fn for_turn(&self, wait: Duration) {
        add(&self.turn_ns, wait);
    }

    pub(crate) fn worked(&self, cpu_ns: u64) {
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    pub(crate) fn all(&self) -> WaitTimes {
        let read = |sum: &AtomicU64| Duration::from_nanos(sum.load(Ordering::Relaxed));
        WaitTimes { get: read(&self.get_ns), host: read(&self.host_ns), turn: read(&self.turn_ns), cpu: read(&self.cpu_ns) }
    }
}

fn add(sum: &AtomicU64, wait: Duration) {
    sum.fetch_add(wait.as_nanos() as u64, Ordering::Relaxed);
}
