//! Runs a sub-plan over the slices of a partition. Drives and hosts use it alike, so that work that was pushed back
//! gives the same rows wherever it runs. Nothing here knows the network, or where a slice's bytes are kept.
//!
//! [`Bound::bind`] reads, checks and optimises a sub-plan once a session; [`Bound::round`] runs it over the next slices
//! of the driving partition, with a physical plan of its own. Scans of datasets are ours (`SliceTable`, `SliceScanExec`):
//! they apply every filter that they are handed, exactly, and use the slice directory, page bounds and the encoding to
//! read as little as they can.

mod api;
mod bind;
mod codes;
mod conditions;
mod conform;
mod error;
mod features;
mod hints;
mod keep;
mod keys;
mod level;
mod narrow;
mod order;
mod predicate;
mod pruning;
mod read;
mod round;
mod scalar;
mod scan;
mod statistics;
mod summaries;
mod summary_key;
mod table;
mod template;
#[cfg(test)]
mod tests;

pub use api::{BindRequest, PartData, PartReads, RoundStats, SliceRef, SliceSource};
pub use bind::Bound;
pub use conditions::RowConditions;
pub use error::ExecError;
pub use hints::Hinted;
pub use level::{Carried, Waiting};
pub use round::{RoundWatch, RunningRound};
pub use summaries::{SliceVersion, Summaries, SummaryHit};
pub use summary_key::{SummaryKey, base_key, summary_key};
pub use template::output_schema;
