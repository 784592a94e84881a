//! Durable key-values on one medium.
//!
//! Large values are segment files, flushed before the commit in the index that names them; that commit is the only
//! commit point. Nothing here knows plans.

mod api;
mod bounds;
#[cfg(test)]
mod conformance;
mod disk;
mod format;
mod index;
mod mapped;
mod memory;
mod record;
mod segments;

pub use api::{Entry, Expected, Staged, Store, StoreError, StoreUse, Value, Version, Write};
pub use bounds::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use disk::DiskStore;
pub use memory::MemoryStore;
