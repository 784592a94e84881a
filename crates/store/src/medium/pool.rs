//! [`Pool`]: threads that block, for systems without io_uring.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::requests::Job;

/// The number of threads of one medium.
const THREADS: usize = 8;
/// The most calls for help that may wait. A reader that finds no room for its call reads alone.
const CALLS_MAX: usize = 64;

/// Threads that help readers. Each reader reads its own parts, too.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    calls: Mutex<Calls>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Calls {
    /// A job is here once for each helper that it asks for.
    waiting: VecDeque<Arc<Job>>,
    stop: bool,
}

impl Pool {
    /// A pool with fewer threads if the system gives no more; without any, readers read alone.
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let thread = |number| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("medium-{number}")).spawn(move || shared.help())
        };
        let threads = (1..=THREADS).map_while(|number| thread(number).ok()).collect();
        Self { shared, threads }
    }

    /// Asks for help with `job`, so that with the caller up to `depth` parts are read at a time.
    pub fn call(&self, job: &Arc<Job>, depth: usize) {
        let mut calls = self.shared.calls.lock();
        let room = CALLS_MAX.saturating_sub(calls.waiting.len());
        let helpers = depth.saturating_sub(1).min(room);
        calls.waiting.extend(std::iter::repeat_n(job, helpers).map(Arc::clone));
        drop(calls);
        (0..helpers).for_each(|_| {
            self.shared.called.notify_one();
        });
    }
}

impl Shared {
    fn help(&self) {
        loop {
            let mut calls = self.calls.lock();
            self.called.wait_while(&mut calls, |calls| calls.waiting.is_empty() && !calls.stop);
            let Some(job) = calls.waiting.pop_front() else { return };
            drop(calls);
            job.run();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.calls.lock().stop = true;
        self.shared.called.notify_all();
        self.threads.drain(..).for_each(|thread| {
            let _ = thread.join();
        });
    }
}
