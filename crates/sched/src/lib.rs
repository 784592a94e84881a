//! Reactors: one event loop for each core, on which a CSE's work runs, and one bounded pool for calls that block.
//!
//! A reactor is a tokio current-thread runtime on a thread of its own. Each task has a class, and each reactor an account of
//! where its time goes. Background tasks let foreground tasks go first. [`Services`] cut background work into steps, and run each
//! next step on a core that has time for it.
//! Nothing here knows what a task or a service does.

mod cores;
mod error;
mod load;
mod measured;
mod reactor;
mod service;
mod services;
mod task;
mod usage;

pub use cores::{check_cores, parse_cores};
pub use error::PoolError;
pub use load::{Class, CoreCounts};
pub use reactor::{Pool, PoolOptions};
pub use service::{Activity, Progress, Service, ServiceState, Stepped};
pub use services::{CoreLoad, CoreState, Governor, Grant, Services};
pub use task::{AbortOnDrop, Task, TaskLost};
