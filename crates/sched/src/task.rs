//! [`Task`]: a handle to work that a pool runs.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle};

/// Why a task has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskLost {
    /// It was aborted, or its pool has shut down.
    #[error("the task was stopped before it ended")]
    Stopped,
    /// It panicked, with this message.
    #[error("the task panicked: {0}")]
    Panicked(String),
}

/// A handle to a task. Await it, on any runtime, for the task's result. Dropping it leaves the task running.
#[must_use = "a task that nobody awaits should be let go with `detach`"]
pub struct Task<T> {
    handle: JoinHandle<T>,
}

impl<T> Task<T> {
    pub(crate) fn new(handle: JoinHandle<T>) -> Self {
        Self { handle }
    }

    /// Stops the task at the next point where it waits. A blocking closure is stopped only if it has not started.
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// Whether the task has ended, in whichever way.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Drops the handle and lets the task run on.
    pub fn detach(self) {}

    /// From now on, the task ends when the returned value is dropped.
    pub fn abort_on_drop(self) -> AbortOnDrop<T> {
        AbortOnDrop { task: self }
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, TaskLost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.handle).poll(context).map(|done| done.map_err(lost))
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("finished", &self.is_finished()).finish_non_exhaustive()
    }
}

/// A task that is aborted when this is dropped.
#[derive(Debug)]
#[must_use = "the task is aborted when this is dropped"]
pub struct AbortOnDrop<T> {
    task: Task<T>,
}

impl<T> Deref for AbortOnDrop<T> {
    type Target = Task<T>;
    fn deref(&self) -> &Task<T> {
        &self.task
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, TaskLost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lost(error: JoinError) -> TaskLost {
    match error.try_into_panic() {
        Ok(payload) => TaskLost::Panicked(panic_text(&*payload)),
        Err(_) => TaskLost::Stopped,
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_string())
}
