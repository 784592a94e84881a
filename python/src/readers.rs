//! [`Reader`]: threads that read rows from Python for a load, and their end before the interpreter's.
//!
//! A thread that comes back to the interpreter while it ends brings down the process. So the interpreter waits for these threads
//! first. Where one is in Python code, that is interrupted.

use std::os::raw::c_long;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pyo3::PyTypeInfo;
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;

/// Threads that read, by Python's number for each.
static READING: Mutex<Vec<c_long>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();
/// Whether the interpreter is about to end: no further thread begins.
static ENDING: AtomicBool = AtomicBool::new(false);

/// How long a thread has before it is interrupted.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long all of them have. One that sleeps for longer does not come back.
const LIMIT: Duration = Duration::from_secs(5);

/// Counts the thread that made it, until it is dropped.
pub(crate) struct Reader(c_long);

impl Reader {
    /// For this thread; none once the interpreter is about to end.
    pub(crate) fn begin() -> Option<Reader> {
        let thread = Python::try_attach(|py| py.import("threading")?.call_method0("get_ident")?.extract::<u64>())?.ok()?;
        let mut reading = READING.lock();
        if ENDING.load(Ordering::Relaxed) {
            return None;
        }
        // Python's numbers are of the unsigned type of the same width.
        reading.push(thread as c_long);
        Some(Reader(thread as c_long))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut reading = READING.lock();
        if let Some(place) = reading.iter().position(|thread| *thread == self.0) {
            reading.swap_remove(place);
        }
        CHANGED.notify_all();
    }
}

/// Waits until no thread reads from Python any more. Called when the interpreter is about to end, and loads were cancelled.
#[pyfunction]
pub(crate) fn end_readers(py: Python<'_>) {
    ENDING.store(true, Ordering::Relaxed);
    let start = Instant::now();
    while !are_over(py, PATIENCE) && start.elapsed() < LIMIT {
        for thread in READING.lock().clone() {
            // SAFETY: the interpreter is attached. A number of no thread is passed over, and the class lives for as long as the interpreter.
            unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(thread as _, PySystemExit::type_object(py).as_ptr()) };
        }
    }
}

fn are_over(py: Python<'_>, wait: Duration) -> bool {
    py.detach(|| {
        let deadline = Instant::now() + wait;
        let mut reading = READING.lock();
        while !reading.is_empty() {
            if CHANGED.wait_until(&mut reading, deadline).timed_out() {
                break;
            }
        }
        reading.is_empty()
    })
}
