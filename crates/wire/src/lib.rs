//! The door between CSEs: what a host sees of a CSE below it ([`Door`]), and the same over Arrow Flight.
//!
//! A `Door` is served in-process by a drive itself, or by [`FlightDoor`] for a drive elsewhere; [`serve`] puts any
//! `Door` on the network. Nothing here executes anything. `docs/reference/protocol.md` describes the messages.

mod accept;
mod access;
mod call;
mod check;
mod client;
mod compact;
mod connection;
mod decode;
mod dial;
mod door;
mod encode;
mod error;
mod event;
pub mod fuzz;
mod gate;
mod gauge;
mod guard;
mod json;
mod link;
mod options;
mod put;
mod receipt;
mod receiving;
mod rights;
mod run;
mod sending;
mod server;
mod tls;
mod token;
mod values;
mod watched;

pub use access::{Access, Identity, Right};
pub use call::check_hello;
pub use check::check_columns;
pub use client::FlightDoor;
pub use compact::{batch_bytes, compact};
pub use door::{
    Batches, CLAIMED_MAX, Claim, CostRate, Discard, DomainAt, Door, DriveStatus, Event, Events, Granted, Hello, Kept,
    LinkGauge, LinkReading, LoadRequest, Loads, MERGED_MAX, MergeRuns, OpenRequest, OpenSession, Opened, PIECE_BYTES_MAX,
    PartitionUse, Pieces, PlanBytes, RunPiece, SessionOptions, ShippedInput, SlicePart, Welcome,
};
pub use gate::ConnectionLimits;
pub use link::PORT_DEFAULT;
pub use options::{ConnectOptions, ServeOptions};
pub use server::{Pace, serve};
pub use tls::{ClientTlsFiles, ServerTlsFiles};
pub use token::Token;
pub use values::{RunValue, run_values, value_pieces};
