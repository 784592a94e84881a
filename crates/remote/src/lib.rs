//! [`RemoteScanExec`]: a sub-plan's rows at the host. A session for each partition at one of its drives, another one over a copy
//! where that fails, every slice's rows exactly once, slices that come back finished here with the engine that drives have, and
//! what is kept from query to query.

mod admission;
mod brake;
mod choice;
mod closer;
mod context;
mod finish;
mod finishing;
mod held_slices;
mod hinted;
mod idle;
mod profile;
mod readers;
mod recall;
mod report;
mod rollups;
mod scan;
mod session;
mod sizes;
mod travelling;

pub use brake::{Brake, Measured};
pub use context::RemoteContext;
pub use finishing::here;
pub use profile::{PartitionProfile, ProfileSnapshot, QueryProfile, SessionLog, SubPlanProfile};
pub use report::{Expected, REPORT_LABEL, Report};
pub use scan::RemoteScanExec;
pub use session::Target;
pub use travelling::{ScanSpec, Slot};
