//! [`Pace`]: how fast bytes may go onto the link.

use futures::future::BoxFuture;

/// Asked before bytes go onto the link. What paces sends, if anything does, is above this crate.
pub trait Pace: Send + Sync {
    /// Books `bytes`; the send waits for the future. None: no wait.
    fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>>;

    /// What it lets pass, bytes a second; none: all that the link carries.
    fn bytes_per_second(&self) -> Option<f64> {
        None
    }
}
