//! [`Finishing`]: the host's cores, as work that came back from drives shares them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pithead_device::{machine_cores, unit_ns};
use pithead_model::{Cores, HostState};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much a measurement counts against those before it.
const NEWEST: f64 = 0.3;

/// What all sessions of a host share while they finish slices. Turns are first come, first served, so no query keeps the others from
/// theirs for longer than a slice takes.
#[derive(Debug)]
pub(crate) struct Finishing {
    threads: usize,
    turns: Arc<Semaphore>,
    sessions: AtomicUsize,
    /// The share of a core that finishing a slice got lately: others run on the host, too.
    received: Mutex<f64>,
}

/// One session among those that share the host.
#[derive(Debug)]
pub(crate) struct Sharing(Arc<Finishing>);

impl Finishing {
    pub(crate) fn new(threads: usize) -> Arc<Finishing> {
        let threads = threads.max(1);
        let turns = Arc::new(Semaphore::new(threads));
        Arc::new(Finishing { threads, turns, sessions: AtomicUsize::new(0), received: Mutex::new(1.0) })
    }

    /// A session begins to share the host's cores, until this is dropped.
    pub(crate) fn share(self: &Arc<Self>) -> Sharing {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Sharing(Arc::clone(self))
    }

    /// Slices that are finished side by side at most.
    pub(crate) fn width(&self) -> usize {
        self.threads
    }

    /// A turn on one of the cores.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// A slice took so much CPU time, and so long on its core.
    pub(crate) fn took(&self, cpu_ns: u64, polled_ns: u64) {
        if polled_ns > 1_000_000 {
            let now = (cpu_ns as f64 / polled_ns as f64).clamp(0.05, 1.0);
            let mut received = self.received.lock();
            *received += NEWEST * (now - *received);
        }
    }

    /// The host as one session's drive should see it, with so much work of the session waiting here.
    pub(crate) fn state(&self, backlog_ns: f64) -> HostState {
        let sessions = self.sessions.load(Ordering::Relaxed).max(1) as f64;
        let cores = (self.threads as f64 / sessions * *self.received.lock()).max(0.01);
        HostState { cores, backlog_ns, unit_ns: unit_ns(), finished: vec![] }
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The cores that this host runs on.
pub fn here() -> Cores {
    let (machine, numbers) = machine_cores();
    Cores { machine: machine.clone(), numbers: numbers.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sessions_share_the_cores_and_turns_are_bounded() {
        let finishing = Finishing::new(4);
        let (one, two) = (finishing.share(), finishing.share());
        assert_eq!(finishing.state(0.0).cores, 2.0);
        finishing.took(5_000_000, 10_000_000);
        assert!((finishing.state(0.0).cores - 1.7).abs() < 1e-9);
        drop((one, two));
        assert!(finishing.state(7.0).cores > 3.0);
        let mut turns = Vec::new();
        for _ in 0..4 {
            turns.push(finishing.turn().await.unwrap());
        }
        let late = tokio::time::timeout(std::time::Duration::from_millis(10), finishing.turn()).await;
        assert!(late.is_err());
    }
}
