//! What every CSE that serves sessions has, be it a drive or an array: its open sessions and their end, and the manifests that it
//! keeps.

mod manifests;
mod shutdown;
mod table;

pub use manifests::Manifests;
pub use shutdown::Shutdown;
pub use table::{Cause, SessionLimits, SessionTable, TableSession};
