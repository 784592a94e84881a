//! The protocol as clients meet it: over sockets, in clear and over TLS.

mod applets;
mod batches;
mod client;
mod commands;
mod foreign;
mod gated;
mod hostile;
mod meanwhile;
mod model;
mod pins;
mod push;
mod replay;
mod rights;
mod server;
mod slow;
mod upkeep;
