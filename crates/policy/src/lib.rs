//! How far a drive takes each next slice while a query runs: the whole slice-wise part (level 3), filter and projection
//! (level 2), or nothing, so that the stored bytes travel (level 0). See `docs/concepts/push-back.md`.
//!
//! Everything here is a pure function of what it is given: no clock, no I/O, no randomness but by seed.
//!
//! - [`split`] divides the slices left among the levels so that drive, link and host finish soonest.
//! - [`Steering`] keeps the estimates of one session, and changes its mind only where that pays.
//! - [`CostModel`] predicts a slice's cost before any was measured, and learns.
//! - [`sim`] runs the policy in virtual time.

mod cost;
mod estimate;
mod fluid;
mod rates;

pub mod sim;
mod snapshot;
mod split;
mod steering;

pub use cost::{CostModel, Features, Prediction, RateRow};
pub use rates::Operator;
pub use snapshot::{Allowed, ByLevel, DriveState, HostState, LinkState, Resource, Setup, SliceCosts, Snapshot, Split};
pub use split::split;
pub use steering::{Decision, Sample, Steering};
