//! The host: the CSE that a client talks to. It knows what the drives hold, loads data onto them, plans statements,
//! sends the drives what they can do, and finishes what comes back.

mod admission;
mod below;
mod catalog;
mod change;
mod commit;
mod discard;
mod drives;
mod explain;
#[cfg(test)]
mod fake;
mod fault;
mod finishing;
mod from_first;
mod held;
mod homes;
mod host;
mod ingest;
mod merging;
mod metrics;
mod moving;
mod parameters;
mod partition;
mod placement;
mod planner;
mod precedence;
mod profile;
mod pushdown;
mod query;
mod relay;
mod remote;
mod repeated;
mod rollups;
mod schemas;
mod session;
mod settings;
mod sizes;
mod spills;
mod statement;
mod table;
mod timeout;
mod watch;

pub use below::{DividedPart, Merged, ReadSubPlan, SubPlans};
pub use catalog::Snapshot;
pub use drives::{AbsentDrive, ConnectedDrive};
pub use host::{Host, HostOptions};
pub use ingest::{CsvOptions, Format, LoadMode, LoadProgress, LoadReport, LoadSpec, PartitionBy};
pub use moving::{LostPartition, MoveProgress, MoveReport, RepairReport, RepairSpec, TellMove};
pub use parameters::Parameters;
pub use partition::hash_compatible;
pub use profile::{PartitionProfile, ProfileSnapshot, QueryProfile, SubPlanProfile};
pub use session::{Answer, Session};
pub use settings::{Settings, Switches};
pub use spills::SpillFolder;
pub use table::DatasetTable;
