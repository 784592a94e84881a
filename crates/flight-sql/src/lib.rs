//! What stands before a host for clients that want Arrow: Flight SQL, as ADBC, JDBC and others speak it.
//!
//! Calls pass the same doorman as a drive's do. Their statements go through a host's sessions, so that they are cut, pushed down and
//! finished as any other. Front door: [`serve`]; the methods are in `service.rs`, and what they do with each command is in `answer.rs`,
//! `putting.rs` and `action.rs`.

mod action;
mod answer;
mod apart;
mod bounded;
mod caller;
mod cancel;
mod catalog;
mod client_session;
mod cookies;
mod error;
mod flight;
mod handle_store;
mod info;
mod ingest;
mod metrics;
mod plain;
mod prepared;
mod put;
mod putting;
mod reception;
mod serve;
mod service;
mod session_messages;
mod statement;
mod values;

pub use answer::command;
pub use flight::FlightSql;
pub use serve::serve;
