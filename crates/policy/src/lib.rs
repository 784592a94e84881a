//! The level at which a drive executes each next slice while a query runs: the whole slice-wise part (level 3), filter
//! and projection (level 2), or nothing, so that the stored bytes travel (level 0). See `docs/concepts/push-back.md`.
//!
//! Everything here is a pure function of its arguments: there is no clock, no I/O, and no randomness but from a seed.
//!
//! - [`split`] divides the slices left among the levels so that drive, link and host finish soonest.
//! - [`Steering`] has the estimates of one session, and changes the levels in use only where that pays.
//! - [`CostModel`] predicts a slice's cost before any slice was measured, and learns from measurements.
//! - [`sim`] runs the policy in virtual time.
//! - [`background`] decides what each core of a drive may give to background work.

pub mod background;
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
