//! The drive as a whole: how it starts and stops, what hosts and operators see of it, and how it is served.

mod door;
mod drive;
mod health;
mod observed;
mod options;
mod plans;
mod serve;
mod shared;
mod status;

pub use drive::Drive;
pub use options::DriveOptions;
pub use plans::{PlanRequest, PlanRows};
pub use serve::{address, bind, serve};
pub use shared::{RawSlices, Shared};
