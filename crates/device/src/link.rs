//! A link whose sends are paced to a rate.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::Clock;
use crate::pace::Pace;

/// How far sends may run ahead of the rate.
const BURST: Duration = Duration::from_millis(2);

/// One link that all sends of a CSE share. Each send books the time that its bits take at the rate, after the earlier
/// bookings, and waits until its own booking ends.
#[derive(Debug)]
pub struct PacedLink(Pace);

impl PacedLink {
    /// A link with this rate, above 0.
    pub fn new(bits_per_second: f64, clock: Arc<dyn Clock>) -> Self {
        Self(Pace::new(bits_per_second / 8.0, clock))
    }

    /// Its rate.
    pub fn bits_per_second(&self) -> f64 {
        self.0.bytes_per_second() * 8.0
    }

    /// The bytes that were booked and have not left yet.
    pub fn backlog_bytes(&self) -> f64 {
        self.0.backlog_bytes()
    }

    /// Books `bytes`. The future ends when all of them would have left. The booking remains if the future is dropped.
    pub fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        self.0.book(bytes, BURST)
    }
}
