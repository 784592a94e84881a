//! [`Device`]: the medium at work.

use super::scenario::Medium;

/// A medium and what it was asked for.
pub(super) struct Device {
    medium: Option<Medium>,
    /// When it has transferred all that it was asked for.
    free_at: f64,
    busy: f64,
    pub(super) bytes: f64,
}

impl Device {
    pub fn new(medium: Option<Medium>) -> Device {
        Device { medium, free_at: 0.0, busy: 0.0, bytes: 0.0 }
    }

    /// When so many bytes are read if they are asked for now.
    pub fn read(&mut self, now: f64, bytes: f64) -> f64 {
        self.transfer(now, bytes, |medium| medium.read_bytes_per_second)
    }

    /// When so many bytes are written.
    pub fn write(&mut self, now: f64, bytes: f64) -> f64 {
        self.transfer(now, bytes, |medium| medium.write_bytes_per_second)
    }

    fn transfer(&mut self, now: f64, bytes: f64, bytes_per_second: fn(&Medium) -> f64) -> f64 {
        self.bytes += bytes;
        let Some(medium) = &self.medium else { return now };
        let takes = bytes / bytes_per_second(medium);
        self.busy += takes;
        self.free_at = self.free_at.max(now) + takes;
        self.free_at + medium.latency_seconds
    }

    /// The seconds up to a moment in which it transferred; no request came later.
    pub fn busy(&self, until: f64) -> f64 {
        self.busy - (self.free_at - until).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEDIUM: Medium = Medium { read_bytes_per_second: 2e6, write_bytes_per_second: 1e6, latency_seconds: 0.25 };

    #[test]
    fn a_request_takes_its_transfer_and_the_latency() {
        let mut device = Device::new(Some(MEDIUM));
        assert_eq!(device.write(1.0, 500_000.0), 1.75);
        assert_eq!((device.bytes, device.busy(2.0)), (500_000.0, 0.5));
        assert_eq!(device.read(2.0, 500_000.0), 2.5);
        assert_eq!((device.bytes, device.busy(3.0)), (1e6, 0.75));
    }

    #[test]
    fn requests_are_transferred_one_after_the_other() {
        let mut device = Device::new(Some(MEDIUM));
        // The latency of one passes while the next one is transferred.
        assert_eq!([device.write(0.0, 1e6), device.read(0.0, 2e6), device.write(0.5, 1e6)], [1.25, 2.25, 3.25]);
        // From 3 s on it is at rest.
        assert_eq!(device.write(4.0, 1e6), 5.25);
        assert_eq!((device.bytes, device.busy(5.0)), (5e6, 4.0));
        assert_eq!(device.busy(4.5), 3.5, "what is still to come is not done yet");
    }

    #[test]
    fn without_a_medium_nothing_takes_time() {
        let mut device = Device::new(None);
        assert_eq!((device.read(3.0, 1e9), device.write(3.0, 1e9)), (3.0, 3.0));
        assert_eq!((device.bytes, device.busy(4.0)), (2e9, 0.0));
    }
}
