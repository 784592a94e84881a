//! [`Task`] and [`Work`]: what cores are given to do in front.

/// A foreground task.
#[derive(Clone, Copy)]
pub(super) struct Task {
    /// When it was due, and when it came to its core.
    pub came: f64,
    pub queued: f64,
    pub thread: usize,
}

/// A thread's work, off the loops of the cores.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// A client sends its task.
    Send(Task),
    /// The commit in hand.
    Commit,
    /// The answer to a task, on its core, and what its core does after it.
    Answer(Task),
    After(Task),
    /// A client takes the answer.
    Receive(Task),
    /// What the round in hand does while no commit is made.
    Prepare,
    /// What it does for so many bytes before they go to the medium.
    Write(f64),
}

impl Work {
    /// Whether it stays on the core where it began.
    pub fn is_pinned(self) -> bool {
        matches!(self, Work::Commit | Work::Answer(_) | Work::After(_))
    }
}
