//! The drive: sessions, rounds, loads, copies and metadata of one store, behind the [`pithead_door::Door`] that hosts see, and
//! the daemon that serves it over Flight.
//!
//! A session is one sub-plan from OPEN to CLOSE. Its slices run in rounds on the reactors of the pool; each round is
//! closed by one annotation. Nothing here plans SQL.

mod background;
mod daemon;
mod metrics;
mod programs;
mod resources;
mod sessions;
mod storage;
#[cfg(test)]
mod tests;

pub use background::start_services;
pub use daemon::{Drive, DriveOptions, PlanRequest, PlanRows, RawSlices, Shared, address, bind, serve};
pub use pithead_policy::background::BackgroundPolicy;
pub use programs::{FILE_PREFIX, are_together, part_name, part_number, stamped};
pub use storage::{Attach, AttachAt, Share};
