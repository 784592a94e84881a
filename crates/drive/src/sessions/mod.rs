//! Sessions: from OPEN, which admits one and binds its sub-plan, over the rounds of GET, to CLOSE.

mod admission;
mod costs;
mod getting;
mod hinting;
mod marking;
mod meter;
mod opening;
mod partial_outputs;
mod polling;
mod queue;
mod rounds;
mod running;
mod session;
mod slow;
mod steer;
mod summary;
mod tally;
mod turns;
mod uses;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use pithead_exec::Summaries;
use pithead_functions::Registry;
use pithead_model::Cores;

use crate::metrics::Metrics;
use crate::programs::Programs;
use crate::resources::Resources;
use crate::storage::Storage;

pub(crate) use admission::Sessions;
pub(crate) use costs::Costs;
pub(crate) use tally::Tally;
pub(crate) use turns::{Scarce, TurnLimits};
pub(crate) use uses::{PartitionKey, Uses};

/// Serves sessions over what is stored.
#[derive(Debug)]
pub(crate) struct SessionServer {
    pub(crate) storage: Arc<Storage>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) metrics: Arc<Metrics>,
    /// What partitions are used for.
    pub(crate) uses: Arc<Uses>,
    /// What work costs here, as it was learned.
    pub(crate) costs: Arc<Costs>,
    /// Partial results that answer again.
    pub(crate) summaries: Arc<Summaries>,
    /// What sub-plans can call.
    pub(crate) functions: Arc<Registry>,
    /// Whose functions of users sessions call.
    pub(crate) programs: Arc<Programs>,
    /// The cores that it runs on.
    pub(crate) cores: Cores,
    /// Sessions that take longer are logged.
    pub(crate) slow_session: Option<Duration>,
}
