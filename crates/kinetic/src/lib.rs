//! The Kinetic key-value protocol, beside Flight in the process of a drive and over the same store.
//!
//! Clients that others wrote years ago put, get and list key-values on a drive ([`serve`]). Their keys live behind a prefix of
//! their own ([`keys`]), so that no name of theirs can meet a key of ours. Slices appear to them as read-only key-values, through
//! [`Slices`]. Nothing here knows plans.

mod applets;
mod batch_room;
mod batches;
mod certificate;
pub mod client;
mod code;
mod connection;
mod crowd;
mod dispatch;
mod erasures;
mod execute;
mod frame;
pub mod fuzz;
mod identity;
pub mod keys;
mod limits;
mod listening;
mod logs;
mod machine;
mod managing;
mod metrics;
mod options;
mod parting;
mod pin_turns;
mod pins;
pub mod proto;
mod push;
mod ranges;
mod receiving;
mod release;
mod reply;
mod resident;
mod security;
mod server;
mod service;
mod setup;
mod sign;
mod slices;
mod space;
mod state;
mod tags;
mod turns;
mod upkeep;
mod values;

pub use applets::{Applets, Caller, Managing, NoApplets, Output};
pub use certificate::self_signed;
pub use code::{Code, Failure, RequestKind};
pub use frame::{Frame, FrameError, read_frame, write_frame};
pub use identity::{FACTORY_IDENTITY, FACTORY_KEY, Identity, Permission, Scope};
pub use limits::Limits;
pub use options::{KineticOptions, Listeners};
pub use server::serve;
pub use service::{Parts, Service};
pub use sign::{sign, verify};
pub use slices::{NoSlices, SLICES, Slices, StoredSlice};
