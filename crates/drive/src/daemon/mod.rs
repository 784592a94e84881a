//! The drive as a whole: how it starts and stops, what hosts and operators see of it, and how it is served.

mod door;
mod drive;
mod health;
mod metric_values;
mod options;
mod plans;
mod raw_slices;
mod serve;
mod status;

pub use drive::Drive;
pub use options::DriveOptions;
pub use plans::{PlanRequest, PlanRows};
pub use raw_slices::{RawSlices, Shared};
pub use serve::{address, bind, serve};
