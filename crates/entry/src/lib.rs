//! The entry of every server of ours: TLS, tokens and certificates, who may do what, and how many may be connected.
//!
//! A server reads its files with [`ServeOptions::entry`], takes connections with [`accept`], and asks the [`Doorman`] whose call it
//! is. What is spoken over a connection is the server's own business; all that is known here is how it begins ([`Protocol`]).

mod accept;
mod access;
mod bearer;
mod connection;
mod doorman;
mod end_point;
mod gate;
mod link;
mod options;
mod protocol;
mod scram;
mod tls;
mod token;
mod watched;

pub use accept::accept;
pub use access::{Access, Identity, ProgramRight, Right};
pub use bearer::bearer;
pub use connection::{Connection, Peer, WAIT_MAX};
pub use doorman::{Doorman, TurnedAway, not_known};
pub use gate::{ConnectionLimits, ConnectionPermit, End, Gate};
pub use link::LinkFlags;
pub use options::{ConnectOptions, Entry, ServeOptions, Shutdown, is_loopback};
pub use protocol::Protocol;
pub use scram::{Challenge, Key, Proven, Verifier};
pub use tls::{ClientTlsFiles, ServerTls, ServerTlsFiles, TlsNow};
pub use token::Token;
pub use watched::Watched;
