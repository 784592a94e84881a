//! What stands before a host for clients that people have: PostgreSQL's protocol, version 3.0.
//!
//! A connection is taken by the entry (`pithead-entry`) as a drive's are. Its statements go through a host's session, so that they are
//! cut, pushed down and finished as any other. Front door: [`serve`]; a connection's life is in `connection.rs`.

mod arrays;
mod binary;
mod bind;
mod block_settings;
mod cancel;
mod columns;
mod connection;
mod control;
mod copy;
mod copy_binary;
mod copy_in;
mod copy_load;
mod copy_out;
mod copy_rows;
mod copy_text;
mod cursor;
mod dates;
mod deadline;
mod decode;
mod decode_columns;
mod decode_text;
mod digits;
mod drop_schema;
mod error;
mod explain_options;
mod extended;
pub mod fuzz;
mod kind;
mod large;
mod lexer;
mod link;
mod mentioned;
mod message;
mod metrics;
mod moments;
mod names;
mod numbers;
mod operators;
mod options;
mod portal;
mod reply;
mod rows;
mod savepoints;
mod scram;
mod search_path;
mod serve;
mod set;
mod settings;
mod simple;
mod sql_prepared;
mod sql_state;
mod startup;
mod text;
mod time_zone;
mod transaction;
mod work;
mod zoned;

pub use serve::{Front, serve};
