//! The door between CSEs: what a host sees of a CSE below it ([`Door`]), and the same over Arrow Flight.
//!
//! A `Door` is served in-process by a drive itself, or by [`FlightDoor`] for a drive elsewhere; [`serve`] puts any
//! `Door` on the network. Nothing here executes anything. `docs/reference/protocol.md` describes the messages.

mod call;
mod check;
mod client;
mod compact;
mod decode;
mod door;
mod encode;
mod error;
mod event;
pub mod fuzz;
mod json;
mod link;
mod put;
mod receiving;
mod run;
mod sending;
mod server;
mod values;

pub use call::check_hello;
pub use check::check_columns;
pub use client::FlightDoor;
pub use compact::{batch_bytes, compact};
pub use door::{
    Batches, Discard, DomainAt, Door, DriveStatus, Event, Events, Granted, Hello, LoadRequest, Loads, OpenRequest, Opened,
    PIECE_BYTES_MAX, PartitionUse, Pieces, PlanBytes, RunPiece, SessionOptions, ShippedInput, SlicePart, Welcome,
};
pub use link::PORT_DEFAULT;
pub use server::{Pace, serve};
pub use values::{RunValue, run_values, value_pieces};
