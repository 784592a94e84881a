//! What loads and sessions share: threads, memory, the device, and a folder for what is spilled.

mod budget;
mod runtime;
mod spill_room;
mod workers;

use std::sync::Arc;

use pithead_device::Device;

pub(crate) use budget::{Budget, Grant};
pub(crate) use runtime::{Runtimes, Usage};
pub(crate) use spill_room::SpillRoom;
pub(crate) use workers::{Workers, panic_fault};

/// The resources of a drive.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) workers: Workers,
    pub(crate) budget: Arc<Budget>,
    pub(crate) runtimes: Runtimes,
}
