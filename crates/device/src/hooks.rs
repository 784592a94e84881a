//! [`Device`]: the hooks at which emulation can intervene.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::clock::thread_cpu_ns;
use crate::{Clock, CoreCosts, CountedWork, PacedCpu, PacedLink, PacedMedium, SystemClock};

/// A wait for a core. It gives how much later it ended than it was to: timers end late by a millisecond or two, and a core that has
/// the next work by then was not idle meanwhile.
pub type CpuWait = BoxFuture<'static, Duration>;

/// A CSE's hardware, as its code uses it.
///
/// Each hook returns how long the caller must wait before it goes on, in addition to the time that the real hardware
/// took. `None` is the usual answer, and costs a virtual call.
pub trait Device: Send + Sync + Debug {
    /// Called before `bytes` are read from the medium, or from the cache of it.
    fn read(&self, bytes: u64) -> Option<BoxFuture<'static, ()>>;

    /// Called before a session begins to read, whose reads follow each other.
    fn reading_begins(&self) {}

    /// Called when such a session is over.
    fn reading_ends(&self) {}

    /// The profile whose device it stands for, by its name; none: it is the hardware that there is.
    fn profile(&self) -> Option<&str> {
        None
    }

    /// Called after CPU work that took `cpu`.
    /// `late`: how much later it may have begun than it would have without the wait before it, which [`CpuWait`] tells.
    fn work(&self, cpu: Duration, late: Duration) -> Option<CpuWait>;

    /// What one of its cores takes for counted work. None: what [`Device::work`] makes of the time that it took here.
    fn takes(&self, _work: &CountedWork) -> Option<Duration> {
        None
    }

    /// Called after work that took `here` on this machine, and takes `there` on one of the device's cores.
    fn work_as(&self, here: Duration, _there: Duration, late: Duration) -> Option<CpuWait> {
        self.work(here, late)
    }

    /// Whether work that took `here` shows that this machine cannot keep up with the device, which takes `there`. Said once.
    fn is_too_slow(&self, _here: Duration, _there: Duration) -> bool {
        false
    }

    /// Called before `bytes` go onto the link.
    fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>>;

    /// The clock that policies and annotations read.
    fn clock(&self) -> &dyn Clock;

    /// CPU time that the calling thread has used, in nanoseconds.
    fn cpu_ns(&self) -> u64;

    /// The rate to which sends are paced, bits a second.
    fn link_bits_per_second(&self) -> Option<f64>;

    /// The bytes that were booked on a paced link and have not left yet.
    fn link_backlog_bytes(&self) -> f64;

    /// The CPU's speed as a share of the real one's; 1: it is not paced.
    fn cpu_share(&self) -> f64;

    /// The rate to which reads are paced, bytes a second.
    fn medium_bytes_per_second(&self) -> Option<f64>;

    /// From one GET of a host that polls to the next: the shortest interval and the longest. None: events go to their host as
    /// they come.
    fn polled_every(&self) -> Option<RangeInclusive<Duration>> {
        None
    }
}

/// The real hardware as it is.
#[derive(Debug)]
pub struct Native {
    clock: Arc<dyn Clock>,
}

impl Native {
    /// With the machine's clock.
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock::new()) }
    }
}

impl Default for Native {
    fn default() -> Self {
        Self::new()
    }
}

impl Device for Native {
    fn read(&self, _bytes: u64) -> Option<BoxFuture<'static, ()>> {
        None
    }

    fn work(&self, _cpu: Duration, _late: Duration) -> Option<CpuWait> {
        None
    }

    fn send(&self, _bytes: u64) -> Option<BoxFuture<'static, ()>> {
        None
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn cpu_ns(&self) -> u64 {
        thread_cpu_ns()
    }

    fn link_bits_per_second(&self) -> Option<f64> {
        None
    }

    fn link_backlog_bytes(&self) -> f64 {
        0.0
    }

    fn cpu_share(&self) -> f64 {
        1.0
    }

    fn medium_bytes_per_second(&self) -> Option<f64> {
        None
    }
}

/// The real hardware, slowed down: reads and sends to a rate, CPU work to a share, each where one is given.
#[derive(Debug, Default)]
pub struct Paced {
    native: Native,
    link: Option<PacedLink>,
    cpu: Option<PacedCpu>,
    medium: Option<PacedMedium>,
    polled_every: Option<RangeInclusive<Duration>>,
    profile: Option<String>,
}

impl Paced {
    /// Paces reads as of a medium with this rate and latency, which reads ahead as far as `buffer_bytes` have room.
    pub fn with_medium(self, bytes_per_second: f64, latency: Duration, buffer_bytes: u64) -> Self {
        let medium = PacedMedium::new(bytes_per_second, latency, buffer_bytes, Arc::clone(&self.native.clock));
        Self { medium: Some(medium), ..self }
    }

    /// Lets its hosts poll, in intervals from the shortest to the longest: a session's events wait for the next GET. With 0 for the
    /// longest, nobody polls.
    pub fn with_polling(self, least: Duration, most: Duration) -> Self {
        Self { polled_every: (!most.is_zero()).then_some(least..=most), ..self }
    }

    /// Says that it stands for the device of a profile.
    pub fn standing_for(self, profile: &str) -> Self {
        Self { profile: Some(profile.to_owned()), ..self }
    }

    /// Paces sends to this rate.
    pub fn with_link(self, bits_per_second: f64) -> Self {
        Self { link: Some(PacedLink::new(bits_per_second, Arc::clone(&self.native.clock))), ..self }
    }

    /// Paces work to this many cores, each at this share of its speed, above 0 and at most 1.
    pub fn with_cpu(self, share: f64, cores: usize) -> Self {
        Self { cpu: (share < 1.0).then(|| PacedCpu::new(share, cores, Arc::clone(&self.native.clock))), ..self }
    }

    /// Paces counted work to this many cores, each of which takes these costs, and other work to a share.
    pub fn with_counted_cpu(self, costs: CoreCosts, share: f64, cores: usize) -> Self {
        let cpu = PacedCpu::new(share, cores, Arc::clone(&self.native.clock)).with_costs(costs);
        Self { cpu: Some(cpu), ..self }
    }
}

impl Device for Paced {
    fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    fn read(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        self.medium.as_ref()?.read(bytes)
    }

    fn reading_begins(&self) {
        self.medium.iter().for_each(PacedMedium::reading_begins);
    }

    fn reading_ends(&self) {
        self.medium.iter().for_each(PacedMedium::reading_ends);
    }

    fn work(&self, cpu: Duration, late: Duration) -> Option<CpuWait> {
        self.cpu.as_ref()?.work(cpu, late)
    }

    fn takes(&self, work: &CountedWork) -> Option<Duration> {
        Some(self.cpu.as_ref()?.costs()?.takes(work))
    }

    fn work_as(&self, here: Duration, there: Duration, late: Duration) -> Option<CpuWait> {
        self.cpu.as_ref()?.work_as(here, there, late)
    }

    fn is_too_slow(&self, here: Duration, there: Duration) -> bool {
        self.cpu.as_ref().is_some_and(|cpu| cpu.is_too_slow(here, there))
    }

    fn send(&self, bytes: u64) -> Option<BoxFuture<'static, ()>> {
        self.link.as_ref()?.send(bytes)
    }

    fn clock(&self) -> &dyn Clock {
        self.native.clock()
    }

    fn cpu_ns(&self) -> u64 {
        self.native.cpu_ns()
    }

    fn link_bits_per_second(&self) -> Option<f64> {
        self.link.as_ref().map(PacedLink::bits_per_second)
    }

    fn link_backlog_bytes(&self) -> f64 {
        self.link.as_ref().map_or(0.0, PacedLink::backlog_bytes)
    }

    fn cpu_share(&self) -> f64 {
        self.cpu.as_ref().map_or(1.0, PacedCpu::share)
    }

    fn medium_bytes_per_second(&self) -> Option<f64> {
        self.medium.as_ref().map(PacedMedium::bytes_per_second)
    }

    fn polled_every(&self) -> Option<RangeInclusive<Duration>> {
        self.polled_every.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_hardware_waits_for_nothing() {
        let device = Native::new();
        assert!(device.read(1 << 30).is_none());
        assert!(device.work(Duration::from_secs(1), Duration::ZERO).is_none());
        assert!(device.send(1 << 30).is_none());
        assert_eq!(device.link_bits_per_second(), None);
    }

    #[test]
    fn a_paced_link_shows_its_rate() {
        let device = Paced::default().with_link(1e9);
        assert_eq!(device.link_bits_per_second(), Some(1e9));
        assert!(device.read(1 << 30).is_none());
        assert!(device.send(1 << 30).is_some());
    }

    #[test]
    fn only_a_cpu_with_costs_of_its_own_counts_work() {
        let work = CountedWork { rows: 1000, ..CountedWork::default() };
        assert_eq!((Native::new().takes(&work), Paced::default().with_cpu(0.5, 1).takes(&work)), (None, None));
        let costs = CoreCosts { page_bytes: 4096, page_s: 0.0, row_s: 1e-3, match_s: 0.0, sum_s: 0.0 };
        // A core of the device may be the faster one: then nothing waits, unless it is counted to.
        let device = Paced::default().with_counted_cpu(costs, 1.0, 1);
        assert_eq!(device.takes(&work), Some(Duration::from_secs(1)));
        assert!(device.work_as(Duration::from_millis(1), Duration::from_secs(1), Duration::ZERO).is_some());
        assert!(device.is_too_slow(Duration::from_secs(2), Duration::from_secs(1)));
    }

    #[test]
    fn a_paced_medium_shows_its_rate() {
        let device = Paced::default().with_medium(1e9, Duration::from_millis(3), 0);
        assert_eq!(device.medium_bytes_per_second(), Some(1e9));
        assert!(device.read(1).is_some(), "a latency of its own");
        assert!(device.send(1 << 30).is_none());
    }
}
