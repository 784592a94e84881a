//! The array: a server in front of drives that is itself a CSE (SNIA's CSA). To a host it is a drive: [`Array`] implements
//! [`pithead_door::Door`]. Its rows lie on the drives below, each run divided among them, and its manifests in a store of its own.
//!
//! A sub-plan from above goes one of two ways. **Relayed**, it goes down as it is, a session a drive, and what comes back goes
//! up with its slices renumbered; the drives' push-back goes straight through. **Merged**, it is a query of the array's own:
//! cut again, run at the drives below, which may push back to the array, and put together here. An array's drives may be arrays.

mod array;
mod attached;
mod copying;
mod directories;
mod door;
mod functions;
mod load;
mod lower;
mod members;
mod merge;
mod opening;
mod ordinals;
mod relay;
mod serve;
mod sessions;
mod status;
mod summaries;
mod way;

pub use array::{Array, ArrayOptions};
pub use serve::serve;
