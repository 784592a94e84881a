//! The process's one runtime, and waiting on it: without the interpreter's lock, and with an eye on signals.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use pithead_model::{Blame, Fault, PLANNING_STACK_BYTES};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::errors;

/// How often a wait looks at signals.
const LOOK: Duration = Duration::from_millis(50);

/// The runtime, and the process that it belongs to: threads do not survive a fork.
static RUNTIME: OnceLock<(u32, Runtime)> = OnceLock::new();

/// Whether this process was forked from one that used the runtime.
pub(crate) fn was_forked() -> bool {
    RUNTIME.get().is_some_and(|(process, _)| *process != std::process::id())
}

/// The process's runtime.
pub(crate) fn runtime() -> Result<&'static Runtime, Fault> {
    if was_forked() {
        let fault = Fault::new(Blame::User, "pithead was in use when this process was forked, and its threads are gone here");
        return Err(
            fault.hint("start processes by spawn: multiprocessing.set_start_method(\"spawn\"), or connect in the child only")
        );
    }
    let (_, runtime) = RUNTIME.get_or_init(|| {
        let built =
            Builder::new_multi_thread().thread_name("pithead").thread_stack_size(PLANNING_STACK_BYTES).enable_all().build();
        (std::process::id(), built.expect("the system gives threads to a process that has just started"))
    });
    Ok(runtime)
}

/// Runs a future on the runtime's threads, whose stacks suffice for planning, and waits for it. An interrupt drops it.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    look: impl Fn(Python<'_>) -> PyResult<()> + Sync,
    future: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> PyResult<T> {
    let mut task = Aborted(runtime().map_err(errors::to_python)?.spawn(future));
    match wait(py, look, &mut task.0)? {
        Ok(result) => result.map_err(errors::to_python),
        Err(lost) => Err(errors::to_python(Fault::new(Blame::Bug, format!("the engine failed: {lost}")))),
    }
}

/// Waits for a future in this thread, without the interpreter's lock. Signals are handled meanwhile, and `look` is called. Where
/// one of them raises, the future is dropped.
pub(crate) fn wait<F: Future + Send>(
    py: Python<'_>,
    look: impl Fn(Python<'_>) -> PyResult<()> + Sync,
    future: F,
) -> PyResult<F::Output>
where
    F::Output: Send,
{
    let runtime = runtime().map_err(errors::to_python)?;
    py.detach(|| {
        runtime.block_on(async {
            let mut future = pin!(future);
            // The first one not at once: timers take a millisecond, which is longer than most waits for a port.
            let mut ticks = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    biased;
                    output = &mut future => return Ok(output),
                    _ = ticks.tick() => Python::attach(|py| py.check_signals().and_then(|()| look(py)))?,
                }
            }
        })
    })
}

/// Nothing to look at beside signals.
pub(crate) fn nothing(_: Python<'_>) -> PyResult<()> {
    Ok(())
}

/// A task that ends when nobody waits for it any more.
struct Aborted<T>(JoinHandle<T>);

impl<T> Drop for Aborted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
