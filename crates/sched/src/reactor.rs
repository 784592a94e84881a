//! [`Pool`]: the reactors of one CSE.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::cores::{check_cores, lower_priority, pin};
use crate::load::{CoreCounts, Load};
use crate::measured::measured;
use crate::{Class, PoolError, Task};

/// The options of a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The beginning of the names of its threads; Linux shows 15 bytes of them.
    pub name: String,
    /// The cores to which threads are pinned, in turn, both reactors and blocking threads. None: threads are not
    /// pinned.
    pub cores: Option<Vec<usize>>,
    /// The number of reactors; 0 for one for each core.
    pub reactors: usize,
    /// The most threads for calls that block; 0 counts as 1.
    pub blocking_threads_max: usize,
}

/// Reactors and a pool for calls that block. Share it as `Arc<Pool>`.
///
/// Dropping the pool tells all threads to end, but waits for none; [`Pool::shutdown`] waits.
#[derive(Debug)]
pub struct Pool {
    reactors: Vec<Reactor>,
    /// Reactors for tasks that must not wait until work on the other reactors gives way.
    control: Vec<Reactor>,
    /// The cores to which reactors are pinned, in turn.
    cores: Option<Vec<usize>>,
    /// Where the search for the least loaded reactor starts, so that equally loaded reactors take turns.
    turn: AtomicUsize,
    blocking: Handle,
    lengthy: Handle,
    /// For each reactor.
    behind: Vec<Behind>,
    /// Own the blocking threads. Their own event loops are never run.
    blocking_runtimes: Mutex<Vec<Runtime>>,
}

/// The priority of a thread for background calls that block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// That of all other threads.
    Equal,
    /// The lowest one.
    Low,
}

/// Two threads on a reactor's core, for background calls that block. A thread that has lowered its priority may not raise
/// it again.
#[derive(Debug)]
struct Behind {
    equal: Handle,
    low: Handle,
}

#[derive(Debug)]
struct Reactor {
    handle: Handle,
    load: Arc<Load>,
    /// Dropping this ends the reactor.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Closes when the reactor's thread has dropped all its tasks.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Pool {
    /// Starts the threads. Fails if a core does not exist or the system refuses a thread.
    pub fn new(options: PoolOptions) -> Result<Self, PoolError> {
        if let Some(cores) = &options.cores {
            check_cores(cores)?;
        }
        let available = || thread::available_parallelism().map_or(1, usize::from);
        let count = match options.reactors {
            0 => options.cores.as_ref().map_or_else(available, Vec::len),
            count => count,
        };
        let threads_max = options.blocking_threads_max.max(1);
        let blocking = start_blocking(&options, "b", threads_max, pin_in_turn(&options))?;
        let lengthy = start_blocking(&options, "l", LENGTHY_THREADS, pin_in_turn(&options))?;
        let (blocking_handle, lengthy_handle) = (blocking.handle().clone(), lengthy.handle().clone());
        let mut runtimes = vec![blocking, lengthy];
        let behind = (0..count).map(|index| start_behind(&options, index, &mut runtimes)).collect::<Result<_, _>>()?;
        let reactors = (0..count)
            .map(|index| start_reactor(&options, "", index, threads_max.div_ceil(count)))
            .collect::<Result<_, _>>()?;
        let control = (0..count).map(|index| start_reactor(&options, "c", index, 1)).collect::<Result<_, _>>()?;
        Ok(Self {
            reactors,
            control,
            cores: options.cores,
            turn: AtomicUsize::new(0),
            blocking: blocking_handle,
            lengthy: lengthy_handle,
            behind,
            blocking_runtimes: Mutex::new(runtimes),
        })
    }

    /// Runs a future on the reactor with the fewest live tasks. After a shutdown the future is dropped, and its task is
    /// lost.
    pub fn spawn<F>(&self, class: Class, future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.spawn_on(self.least_loaded(), class, future)
    }

    /// Runs a future on a given reactor; indices past the last reactor start over. A background task lets the reactor's
    /// foreground tasks go first.
    pub fn spawn_on<F>(&self, index: usize, class: Class, future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.reactors[index % self.reactors.len()].spawn(class, class == Class::Background, future)
    }

    /// Runs what runs background services on a given reactor. It knows itself when to give way.
    pub(crate) fn spawn_driver(&self, index: usize, driver: impl Future<Output = ()> + Send + 'static) -> Task<()> {
        self.reactors[index % self.reactors.len()].spawn(Class::Background, false, driver)
    }

    /// Runs a future on a thread that no other kind of task uses. It is for short tasks for which others wait:
    /// planning, and looking after idle sessions. These tasks do not count as load.
    pub fn spawn_control<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.control[least_loaded(&self.control, &self.turn)].spawn(Class::Foreground, false, future)
    }

    /// Runs a closure that blocks. At most `blocking_threads_max` closures run at once, and the others wait for their
    /// turn, so callers bound how many they start.
    pub fn spawn_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
        Task::new(self.blocking.spawn_blocking(work))
    }

    /// Runs a closure that may take many seconds, such as a compilation, where it keeps no thread from calls for which others wait. Two
    /// run at a time, and the others wait for their turn. So callers bound how many they start, and start one of a kind at a time, so
    /// that no kind waits for another.
    pub fn spawn_lengthy<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
        Task::new(self.lengthy.spawn_blocking(work))
    }

    /// Runs background work that blocks on the core of a reactor, and not on the reactor. Of each priority, one runs at a
    /// time there.
    pub(crate) fn spawn_behind<T: Send + 'static>(
        &self,
        index: usize,
        priority: Priority,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Task<T> {
        let behind = &self.behind[index % self.behind.len()];
        let threads = match priority {
            Priority::Equal => &behind.equal,
            Priority::Low => &behind.low,
        };
        Task::new(threads.spawn_blocking(work))
    }

    /// The number of reactors, at least 1.
    pub fn reactors(&self) -> usize {
        self.reactors.len()
    }

    /// The tasks of a class that have not ended, on all reactors.
    pub fn live(&self, class: Class) -> usize {
        self.reactors.iter().map(|reactor| reactor.load.live(class)).sum()
    }

    /// The time that a reactor has spent on tasks, in nanoseconds since it was started.
    pub fn busy_ns(&self, index: usize) -> u64 {
        let reactor = &self.reactors[index % self.reactors.len()];
        reactor.handle.metrics().worker_total_busy_duration(0).as_nanos() as u64
    }

    /// What a reactor has done since it was started.
    pub fn counts(&self, index: usize) -> CoreCounts {
        self.load(index).counts()
    }

    /// The cores to which the reactors are pinned, in turn.
    pub(crate) fn cores(&self) -> Option<Vec<usize>> {
        self.cores.clone()
    }

    pub(crate) fn load(&self, index: usize) -> &Arc<Load> {
        &self.reactors[index % self.reactors.len()].load
    }

    /// Accepts no more tasks, drops the existing ones, and waits for all threads to end. False if some have not ended
    /// within `timeout`; they end when the call that blocks them does. It blocks the caller, which must not be a thread
    /// of this pool.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let has_ended = |thread: &mpsc::Receiver<()>| {
            let left = deadline.saturating_duration_since(Instant::now());
            thread.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Disconnected)
        };
        self.stop();
        let lasting = self.reactors.iter().chain(&self.control).filter(|reactor| !has_ended(&reactor.ended.lock())).count();
        let blocking: Vec<_> = std::mem::take(&mut *self.blocking_runtimes.lock()).into_iter().map(end_blocking).collect();
        blocking.iter().all(has_ended) && lasting == 0
    }

    fn stop(&self) {
        for reactor in self.reactors.iter().chain(&self.control) {
            drop(reactor.stop.lock().take());
        }
    }

    fn least_loaded(&self) -> usize {
        least_loaded(&self.reactors, &self.turn)
    }
}

impl Reactor {
    fn spawn<F>(&self, class: Class, gives_way: bool, future: F) -> Task<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        Task::new(self.handle.spawn(measured(future, &self.load, class, gives_way)))
    }
}

fn least_loaded(reactors: &[Reactor], turn: &AtomicUsize) -> usize {
    let count = reactors.len();
    let first = turn.fetch_add(1, Ordering::Relaxed) % count;
    let turns = (first..first + count).map(|index| index % count);
    // Whoever holds a reactor for too long harms the tasks that are there, and no others.
    let load = |index: &usize| (reactors[*index].load.is_stalled(), reactors[*index].load.total());
    turns.min_by_key(load).unwrap_or(first)
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
        // A runtime's own drop would wait, and would panic inside another runtime.
        std::mem::take(&mut *self.blocking_runtimes.lock()).into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Threads for calls that take long.
const LENGTHY_THREADS: usize = 2;
/// The stack of each thread. Optimisers of queries recurse deeply, and the unused part of a stack takes no memory.
const STACK_BYTES: usize = 64 << 20;

/// `begin`: what each thread does first.
fn start_blocking(
    options: &PoolOptions,
    kind: &str,
    threads_max: usize,
    begin: impl Fn() + Send + Sync + 'static,
) -> Result<Runtime, PoolError> {
    let name = format!("{}-{kind}", options.name);
    let mut builder = Builder::new_current_thread();
    builder.max_blocking_threads(threads_max).thread_name(&name).thread_stack_size(STACK_BYTES).on_thread_start(begin);
    builder.build().map_err(|source| PoolError::Start { name, source })
}

/// Pins each thread that calls it to the next core.
fn pin_in_turn(options: &PoolOptions) -> impl Fn() + Send + Sync + 'static + use<> {
    let (cores, started) = (options.cores.clone(), AtomicUsize::new(0));
    move || {
        if let Some(cores) = &cores {
            pin(cores[started.fetch_add(1, Ordering::Relaxed) % cores.len()]);
        }
    }
}

/// The core to which a reactor is pinned.
fn core_of(options: &PoolOptions, index: usize) -> Option<usize> {
    options.cores.as_ref().map(|cores| cores[index % cores.len()])
}

/// The threads start when there is something for them to do.
fn start_behind(options: &PoolOptions, index: usize, runtimes: &mut Vec<Runtime>) -> Result<Behind, PoolError> {
    let core = core_of(options, index);
    let pinned = move || core.into_iter().for_each(pin);
    let lowered = move || {
        pinned();
        lower_priority();
    };
    let equal = start_blocking(options, &format!("e{index}"), 1, pinned)?;
    let low = start_blocking(options, &format!("n{index}"), 1, lowered)?;
    let behind = Behind { equal: equal.handle().clone(), low: low.handle().clone() };
    runtimes.extend([equal, low]);
    Ok(behind)
}

/// Ends the blocking threads, on a thread that may wait for them. The returned channel closes when they have ended.
fn end_blocking(runtime: Runtime) -> mpsc::Receiver<()> {
    let (alive, ended) = mpsc::channel();
    thread::spawn(move || {
        drop(runtime);
        drop(alive);
    });
    ended
}

/// `blocking_max` bounds the threads that libraries may start from a task by tokio's own `spawn_blocking`.
fn start_reactor(options: &PoolOptions, kind: &str, index: usize, blocking_max: usize) -> Result<Reactor, PoolError> {
    let name = format!("{}-{kind}{index}", options.name);
    let core = core_of(options, index);
    let failed = |source| PoolError::Start { name: name.clone(), source };
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(blocking_max).thread_name(&name).thread_stack_size(STACK_BYTES);
    if let Some(core) = core {
        builder.on_thread_start(move || pin(core));
    }
    let runtime = builder.build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    let (alive, ended) = mpsc::channel();
    let load = Arc::<Load>::default();
    let of_thread = Arc::clone(&load);
    let run = move || {
        of_thread.is_of_this_thread();
        if let Some(core) = core {
            pin(core);
        }
        // The wait ends with an error when the sender is dropped, which is how a pool stops.
        let _ = runtime.block_on(stopped);
        runtime.shutdown_background();
        drop(alive);
    };
    thread::Builder::new().name(name.clone()).stack_size(STACK_BYTES).spawn(run).map_err(failed)?;
    Ok(Reactor { handle, load, stop: Mutex::new(Some(stop)), ended: Mutex::new(ended) })
}

#[cfg(test)]
mod tests;
