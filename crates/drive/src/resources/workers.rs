//! [`Workers`]: a drive's way to its reactors and blocking threads.

use std::sync::Arc;

use pithead_model::{Blame, Fault};
use pithead_sched::{Class, CoreCounts, Pool, TaskLost};

/// The pool that a drive's work runs on, which in one process may be that of several drives.
#[derive(Clone, Debug)]
pub(crate) struct Workers {
    pool: Arc<Pool>,
}

impl Workers {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self { pool }
    }

    /// The pool itself, for work of another protocol.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Reactors.
    pub(crate) fn threads(&self) -> usize {
        self.pool.reactors()
    }

    /// Tasks of a class that have not ended, those of other drives on the same reactors too.
    pub(crate) fn live(&self, class: Class) -> usize {
        self.pool.live(class)
    }

    /// Time that the reactors have spent on tasks, nanoseconds.
    pub(crate) fn busy_ns(&self) -> u64 {
        (0..self.pool.reactors()).map(|index| self.pool.busy_ns(index)).sum()
    }

    /// What each reactor has done since it was started.
    pub(crate) fn counts(&self) -> Vec<CoreCounts> {
        (0..self.pool.reactors()).map(|index| self.pool.counts(index)).collect()
    }

    /// Lets a future run on a reactor.
    pub(crate) fn spawn(&self, class: Class, future: impl Future<Output = ()> + Send + 'static) {
        self.pool.spawn(class, future).detach();
    }

    /// Runs a future on a reactor; dropping this stops it. A panic in it is a fault.
    pub(crate) async fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Result<T, Fault> {
        self.pool.spawn(Class::Foreground, future).abort_on_drop().await.map_err(lost)
    }

    /// Lets a future run where rounds and loads never are.
    pub(crate) fn spawn_control(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.pool.spawn_control(future).detach();
    }

    /// Runs a future where rounds and loads never are; dropping this stops it. A panic in it is a fault.
    pub(crate) async fn control<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Fault> {
        self.pool.spawn_control(future).abort_on_drop().await.map_err(lost)
    }

    /// Runs a call that blocks. Dropping this lets the call end on its own, its result dropped.
    pub(crate) async fn blocking<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        self.pool.spawn_blocking(call).await.map_err(lost)
    }
}

fn lost(lost: TaskLost) -> Fault {
    match lost {
        TaskLost::Stopped => Fault::new(Blame::Device, "the drive has stopped"),
        TaskLost::Panicked(_) => Fault::new(Blame::Bug, lost.to_string()),
    }
}

/// What a panic said, as a fault.
pub(crate) fn panic_fault(panic: &(dyn std::any::Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Fault::new(Blame::Bug, format!("the session's task panicked: {text}"))
}
