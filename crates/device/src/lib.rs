//! The hooks that every medium read, unit of CPU work and link send of a CSE pass, and its clock. Native: free.
//!
//! Emulated devices, paced links and virtual time live behind these; nothing above reads a clock of its own.

mod clock;
mod cores;
mod cpu;
mod hooks;
mod link;

pub use clock::{Clock, Instant, SystemClock, thread_cpu_ns};
pub use cores::machine_cores;
pub use cpu::{PacedCpu, unit_ns};
pub use hooks::{Device, Native};
pub use link::PacedLink;
