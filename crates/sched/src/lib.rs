//! Reactors: one event loop for each core, on which a CSE's work runs, and one bounded pool for calls that block.
//!
//! A reactor is a tokio current-thread runtime on a thread of its own. Each task has a class; nothing here knows what a
//! task does.

mod cores;
mod error;
mod load;
mod reactor;
mod task;

pub use cores::parse_cores;
pub use error::PoolError;
pub use load::Class;
pub use reactor::{Pool, PoolOptions};
pub use task::{AbortOnDrop, Task, TaskLost};
