//! What is simulated, and what came out.

use serde::{Deserialize, Serialize};

/// What to simulate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// The seed of all that is random.
    pub seed: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// The drive's cores.
    pub cores: usize,
    /// The speed of a core while the other one of its pair works, against its speed alone: 1 where they share nothing, less where they
    /// are two threads of one core of the processor. Times are those of a core alone.
    pub beside_speed: f64,
    /// Host threads; each is bound to one core, in turn.
    pub threads: usize,
    /// Foreground tasks that each of them sends in a second, where these come at random moments.
    pub rate: f64,
    /// The mean time of a foreground task on its core, in seconds.
    pub task_seconds: f64,
    /// The standard deviation of its logarithm.
    pub task_spread: f64,
    /// Seconds that a task takes besides, on no core: the medium, and the way there and back.
    pub elsewhere_seconds: f64,
    /// Services, each of which has one step running at most.
    pub services: usize,
    /// How much there is for them to do.
    pub backlog: Backlog,
    /// The time of a step, in seconds.
    pub step_seconds: f64,
    /// What the first step on another core takes besides.
    pub move_seconds: f64,
    /// Bytes that a step takes of what its service has read from the medium, 64 KiB at once or more. What a task left behind is in
    /// memory, and so is what a service's first step takes.
    pub step_bytes: f64,
    /// Seconds that a read takes besides, on no core and not at the medium.
    pub read_elsewhere_seconds: f64,
    /// What is read and written; none: that takes no time.
    pub medium: Option<Medium>,
    /// How tasks write; none: they are done when their core is.
    pub writes: Option<Writes>,
    /// The seconds from one decision to the next.
    pub interval: f64,
}

/// A device that transfers one request after another, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Medium {
    /// What it reads in a second.
    pub read_bytes_per_second: f64,
    /// What it writes in a second.
    pub write_bytes_per_second: f64,
    /// Seconds from the end of a request's transfer to its answer. The next one is transferred meanwhile.
    pub latency_seconds: f64,
}

/// How tasks write: as the store of a drive does with small values that are written back.
///
/// A task that its core is done with waits for a commit. One commit is made at a time, of all tasks that wait, and adds to a log. What
/// commits have written is made durable in rounds: each prepares its bytes while no commit is made, and writes them to the medium while
/// commits go on. Now and then a round flushes the log as well: first what it has by then, while commits go on, and then the rest,
/// while none is made. Commits run on each core in turn, clients and rounds on whichever core has the least to do, all of them a
/// millisecond at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Writes {
    /// Bytes of a task's value.
    pub task_bytes: f64,
    /// Seconds of a client for each task, half of them before and half of them after all others.
    pub client_seconds: f64,
    /// Seconds of a commit, besides those for each of its tasks.
    pub commit_seconds: f64,
    /// Seconds of a commit for each of its tasks.
    pub commit_task_seconds: f64,
    /// Seconds of a task on its core after its commit, to answer.
    pub answer_seconds: f64,
    /// Seconds of a task on its core after the answer, for which nobody waits.
    pub after_seconds: f64,
    /// Bytes that wait for a round when one begins.
    pub round_bytes: f64,
    /// Seconds from the beginning of a round to that of the next one, at least.
    pub round_pause: f64,
    /// Seconds of a round for each byte, while no commit is made.
    pub prepare_seconds: f64,
    /// Seconds of a round for each byte that it writes to the medium, beside commits.
    pub write_seconds: f64,
    /// Bytes that a round writes to the medium for each byte of tasks.
    pub amplification: f64,
    /// Commits wait while more bytes than this are not on the medium.
    pub behind_bytes_max: f64,
    /// Bytes that a commit adds to the log for each of its tasks.
    pub log_bytes: f64,
    /// Seconds from one flush of the log to the next one, at least.
    pub log_pause: f64,
}

/// How much services have to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Backlog {
    /// Nothing.
    None,
    /// Always more.
    Endless,
    /// So many steps for each foreground task that has ended. Under [`BackgroundPolicy::None`](crate::background::BackgroundPolicy::None) they wait behind it on its core, as
    /// an event of SPDK's does.
    PerTask(f64),
}

/// When a host thread sends its next task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// At random moments, whatever became of earlier ones.
    Random,
    /// At random moments as well, but none before the one before is done: until then it waits at the host, and that counts.
    Queued,
    /// When the one before is done, as `db_bench` does.
    Closed,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Foreground tasks that ended.
    pub tasks: u64,
    /// Their mean time, in seconds.
    pub mean: f64,
    /// Percentiles of their times, in seconds.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// See `p50`.
    pub p999: f64,
    /// The share of each core's time that went to foreground tasks.
    pub foreground: Vec<f64>,
    /// The share of each core's time that went to steps.
    pub background: Vec<f64>,
    /// Steps that ended.
    pub steps: u64,
    /// Steps on another core than their service's last one.
    pub moves: u64,
    /// The longest time without the end of a step, in seconds, while there was something to do.
    pub starved: f64,
    /// Commits of tasks that write.
    pub commits: u64,
    /// Bytes that the medium was asked to read or write.
    pub medium_bytes: f64,
    /// The share of its time in which it transferred.
    pub medium: f64,
}

impl Outcome {
    /// Steps that were done for each foreground task: a policy that leaves steps undone has shorter queues for that, too.
    pub fn steps_per_task(&self) -> f64 {
        self.steps as f64 / (self.tasks as f64).max(1.0)
    }
}
