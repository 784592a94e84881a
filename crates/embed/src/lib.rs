//! A host together with its drives, in one call: drives inside this process on a directory, or drives on the network.
//!
//! This is what the tops (the command line, benchmarks, language bindings) connect through. A data directory holds
//! `drive-0`, `drive-1` and so on, each the store of one drive. Drives inside a process share its reactors, and their
//! batches pass by pointer; above the door they are drives like any other.

mod connect;
mod directory;
mod here;
mod memory;
mod options;
mod status;

pub use connect::{Engine, connect, doors};
pub use options::{EmbedOptions, Target};
pub use pithead_door::{Door, DriveStatus, OpenSession, PartitionUse};
pub use pithead_entry::{Access, ClientTlsFiles, ConnectOptions, Token};
pub use status::status;
