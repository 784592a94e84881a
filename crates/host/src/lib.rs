//! The host: the CSE that a client talks to. It knows what the drives hold, loads data onto them, plans statements,
//! sends the drives what they can do, and finishes what comes back.

mod admission;
mod catalog;
mod commit;
mod explain;
#[cfg(test)]
mod fake;
mod fault;
mod host;
mod ingest;
mod partition;
mod placement;
mod profile;
mod query;
mod remote;
mod schemas;
mod session;
mod settings;
mod statement;
mod table;

pub use catalog::Snapshot;
pub use host::{ConnectedDrive, Host, HostOptions};
pub use ingest::{CsvOptions, Format, LoadMode, LoadProgress, LoadReport, LoadSpec, PartitionBy};
pub use partition::hash_compatible;
pub use profile::{PartitionProfile, ProfileSnapshot, QueryProfile, SubPlanProfile};
pub use session::{Answer, Session};
pub use settings::{Settings, Switches};
pub use table::DatasetTable;
