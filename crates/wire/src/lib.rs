//! A door over Arrow Flight: [`serve`] puts any `Door` on the network, and [`FlightDoor`] is the door of a CSE elsewhere.
//!
//! `docs/reference/protocol.md` describes the messages.

mod application;
mod call;
mod check;
mod client;
mod connection;
mod decode;
mod dial;
mod encode;
mod error;
mod event;
mod exchange;
pub mod fuzz;
mod gauge;
mod guard;
mod json;
mod link;
mod mark;
mod owners;
mod pace;
mod packing;
mod put;
mod receipt;
mod receiving;
mod rights;
mod run;
mod sending;
mod server;
mod serving;

pub use client::{FlightDoor, channel};
pub use decode::{BatchDecoder, Decoded};
pub use dial::Trouble;
pub use error::{fault_json, from_status};
pub use fuzz::{decode_open as open_from_bytes, open_bytes as open_to_bytes};
pub use guard::Reception;
pub use link::PORT_DEFAULT;
pub use pace::Pace;
pub use server::serve;
pub use serving::{ServeLimits, serve_calls};
