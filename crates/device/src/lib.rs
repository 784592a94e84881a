//! The hooks through which every medium read, unit of CPU work and link send of a CSE passes, and its clock. Without
//! emulation they cost nothing.
//!
//! Emulated devices, paced links and virtual time are implemented behind them. Nothing above reads a clock of its own.

mod clock;
mod cores;
mod counted;
mod cpu;
mod hooks;
mod link;
mod medium;
mod pace;
mod packages;

pub use clock::{Clock, Instant, SystemClock};
pub use cores::machine_cores;
pub use counted::{CoreCosts, CountedWork};
pub use cpu::{PacedCpu, unit_ns};
pub use hooks::{CpuWait, Device, Native, Paced};
pub use link::PacedLink;
pub use medium::PacedMedium;
pub use packages::PackageMeter;
