//! [`Fleet`]: the drives of a host and what lies on them. Which drives are reached, which of them is home of each domain, what the
//! manifests say, how a manifest is changed, where partitions lie and how they move. No engine is known here.

mod aside;
mod attached;
mod attaching;
mod attended;
mod catalog;
mod change;
mod checks;
mod commit;
mod discard;
mod drives;
mod fault;
mod fleet;
mod former;
mod history;
mod homes;
mod log;
mod looking;
mod moving;
mod placement;
mod relay;
mod rename;
#[cfg(test)]
mod rename_tests;
#[cfg(test)]
mod replaced_tests;
mod restore;
mod snapshot;

pub use aside::{Aside, AsideDataset, TakeUp, TakeUpOutcome, There};
pub use attended::attended;
pub use change::{Change, DatasetChange, already_there, is_as_read, is_view};
pub use commit::{Committed, Edit, NotCommitted, claim_at};
pub use discard::{discard, discard_at};
pub use drives::{AbsentDrive, ConnectedDrive, Drives, Suspects, no_answer};
pub use fault::unknown_dataset;
pub use fleet::Fleet;
pub use history::{AsOf, time_text};
pub use log::{LogChange, LogEntry, log};
pub use moving::{AwayDrive, LostPartition, Mending, MoveProgress, MoveReport, RepairReport, RepairSpec, TellMove};
pub use placement::place;
pub use relay::relay;
pub use rename::{Rename, check_free};
pub use restore::Restored;
pub use snapshot::{Snapshot, VersionedDataset};
