//! Applications of SSDlets over several drives, as a host program makes them.
//!
//! An [`Application`] is one graph. Each of its SSDlets lies on one of its drives, and a connection between SSDlets of one drive
//! stays there. What connects drives, or a drive and the host program, goes through the host: the drives send batches within
//! windows, so that no port waits for another one, and the host passes them on once those who read them have room. The first failure
//! anywhere ends the application on all of its drives.

mod application;
mod following;
mod join;
mod links;
mod ports;
mod state;

pub use application::{Application, Bounds, Input, Output, Ssdlet};
pub use ports::{HostReader, HostWriter};
