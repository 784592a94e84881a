//! The drive: sessions, rounds, loads, copies and metadata of one store, behind the [`pithead_wire::Door`] that hosts see, and
//! the daemon that serves it over Flight.
//!
//! A session is one sub-plan from OPEN to CLOSE. Its slices run in rounds on the reactors of the pool; each round is
//! closed by one annotation. Nothing here plans SQL.

mod budget;
mod claims;
mod copying;
mod costs;
mod cut;
mod directories;
mod door;
mod drive;
mod getting;
mod health;
mod kept;
mod keys;
mod leases;
mod loads;
mod manifests;
mod merging;
mod metadata;
mod meter;
mod metrics;
mod opening;
mod options;
mod orphans;
mod queue;
mod rounds;
mod running;
mod runtime;
mod serve;
mod session;
mod sessions;
mod slices;
mod slow;
mod sorting;
mod staging;
mod status;
mod steer;
mod summary;
mod tally;
#[cfg(test)]
mod tests;
mod turns;
mod uses;
mod waits;
mod work;

pub use drive::Drive;
pub use options::DriveOptions;
pub use pithead_wire::{ConnectionLimits, ServeOptions, ServerTlsFiles};
pub use serve::{address, bind, serve};
