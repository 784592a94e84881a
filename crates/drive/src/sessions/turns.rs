//! [`Turns`]: which host gets a session while places are scarce. Pure: time comes in.
//!
//! Of the hosts that want a place, the one with the fewest open sessions goes first, of equals the one that was refused first. A host
//! that has waited for [`AGED`] goes before all that have not, whatever it has open: nobody starves. A host that is refused has
//! a ticket. While it may still come back in its time, a place that becomes free is kept for it.

use std::collections::HashMap;
use std::time::Duration;

use pithead_device::Instant;

/// Hosts that can wait with a ticket; others are refused without one.
const WAITING_MAX: usize = 1_024;
/// After this wait a host's open sessions count no more against it.
const AGED: Duration = Duration::from_secs(1);
/// How much later than told a host may come back and still find its place kept.
const GRACE: Duration = Duration::from_millis(100);
/// How long the age of a ticket is remembered after that.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Hosts wait no longer than the second of these, whatever they are told.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How long sessions are held, until some were.
const HELD_FIRST: Duration = Duration::from_millis(50);
/// Weight of the newest session in the mean of how long they are held.
const HELD_WEIGHT: f64 = 0.1;

/// What there is to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnLimits {
    /// Sessions of all hosts.
    pub(crate) sessions: usize,
    /// Sessions of one host.
    pub(crate) host_sessions: usize,
}

/// The resource that was lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scarce {
    /// All places are taken.
    Sessions,
    /// The host has as many as one may have.
    Host,
    /// The memory for sessions is taken.
    Memory,
    /// There is a place, and others have waited for it.
    Turn,
}

impl Scarce {
    /// Labels of all, for metrics.
    pub(crate) const LABELS: [&str; 4] = ["sessions", "host", "memory", "turn"];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Scarce::Sessions => "sessions",
            Scarce::Host => "host",
            Scarce::Memory => "memory",
            Scarce::Turn => "turn",
        }
    }

    /// For people.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Scarce::Sessions => "all places for sessions are taken",
            Scarce::Host => "this host has as many sessions open as one host may have",
            Scarce::Memory => "the memory for sessions is taken",
            Scarce::Turn => "others have waited longer for a place",
        }
    }
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) scarce: Scarce,
    /// When its turn is expected.
    pub(crate) retry_after: Duration,
}

/// Who has places, and who waits for one.
#[derive(Debug)]
pub(crate) struct Turns {
    limits: TurnLimits,
    open: HashMap<u64, usize>,
    total: usize,
    waiting: Vec<Ticket>,
    /// How long a session is held, in the mean of the last ones, nanoseconds.
    held_ns: f64,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    host: u64,
    since: Instant,
    kept_until: Instant,
}

impl Turns {
    pub(crate) fn new(limits: TurnLimits) -> Self {
        let (open, waiting) = Default::default();
        Self { limits, open, total: 0, waiting, held_ns: HELD_FIRST.as_nanos() as f64 }
    }

    /// Takes a place for a session of `host`. `memory_room` is how many sessions the free memory is enough for.
    pub(crate) fn ask(&mut self, host: u64, memory_room: usize, now: Instant) -> Result<(), Refusal> {
        self.waiting.retain(|ticket| after(ticket.kept_until, REMEMBERED) > now);
        let own = self.open_of(host);
        if own >= self.limits.host_sessions {
            return Err(Refusal { scarce: Scarce::Host, retry_after: self.retry_after(1, own) });
        }
        let places = self.limits.sessions.saturating_sub(self.total);
        let free = places.min(memory_room);
        let ahead = self.ahead_of(host, now);
        if ahead < free {
            self.waiting.retain(|ticket| ticket.host != host);
            *self.open.entry(host).or_default() += 1;
            self.total += 1;
            return Ok(());
        }
        let scarce = match (places, free) {
            (0, _) => Scarce::Sessions,
            (_, 0) => Scarce::Memory,
            _ => Scarce::Turn,
        };
        Err(self.refuse(host, scarce, ahead + 1 - free, now))
    }

    /// Gives a place back that was taken just now, because the memory was not enough after all.
    pub(crate) fn give_back(&mut self, host: u64, now: Instant) -> Refusal {
        self.leave(host);
        let ahead = self.ahead_of(host, now);
        self.refuse(host, Scarce::Memory, ahead + 1, now)
    }

    /// A session has ended that held its place for so long.
    pub(crate) fn release(&mut self, host: u64, held: Duration) {
        self.leave(host);
        self.held_ns += HELD_WEIGHT * (held.as_nanos() as f64 - self.held_ns);
    }

    /// Sessions of all hosts.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Hosts that have sessions, and hosts that wait for one.
    pub(crate) fn hosts(&self, now: Instant) -> (usize, usize) {
        (self.open.len(), self.waiting.iter().filter(|ticket| ticket.kept_until > now).count())
    }

    fn open_of(&self, host: u64) -> usize {
        self.open.get(&host).copied().unwrap_or(0)
    }

    fn leave(&mut self, host: u64) {
        self.total = self.total.saturating_sub(1);
        if let Some(open) = self.open.get_mut(&host) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                self.open.remove(&host);
            }
        }
    }

    /// Other hosts whose place is kept, and who go first.
    fn ahead_of(&self, host: u64, now: Instant) -> usize {
        let since = self.waiting.iter().find(|ticket| ticket.host == host).map_or(now, |ticket| ticket.since);
        let own = self.rank(host, since, now);
        let others = self.waiting.iter().filter(|ticket| ticket.host != host && ticket.kept_until > now);
        others.filter(|ticket| self.rank(ticket.host, ticket.since, now) < own).count()
    }

    /// Lower goes first.
    fn rank(&self, host: u64, since: Instant, now: Instant) -> (usize, Instant) {
        match now.since(since) >= AGED {
            true => (0, since),
            false => (1 + self.open_of(host), since),
        }
    }

    /// Keeps a ticket for the host, whose turn comes when `position` more sessions have ended.
    fn refuse(&mut self, host: u64, scarce: Scarce, position: usize, now: Instant) -> Refusal {
        let retry_after = self.retry_after(position, self.total);
        // Half as long again: hosts are not punctual while all are busy.
        let kept_until = after(now, retry_after + retry_after / 2 + GRACE);
        let room = self.waiting.len() < WAITING_MAX;
        match self.waiting.iter_mut().find(|ticket| ticket.host == host) {
            Some(ticket) => ticket.kept_until = kept_until,
            None if room => self.waiting.push(Ticket { host, since: now, kept_until }),
            None => {}
        }
        Refusal { scarce, retry_after }
    }

    /// When `position` of so many sessions are expected to have ended.
    fn retry_after(&self, position: usize, sessions: usize) -> Duration {
        let nanoseconds = self.held_ns * position as f64 / sessions.max(1) as f64;
        Duration::from_nanos(nanoseconds as u64).clamp(RETRY.0, RETRY.1)
    }
}

fn after(instant: Instant, wait: Duration) -> Instant {
    Instant(instant.0.saturating_add(wait.as_nanos() as u64))
}

/// Threads that a session is granted of `reactors`: as many as it wants while there are few sessions, one where there are many, so
/// that sessions get about equal shares of the reactors.
pub(crate) fn fair_threads(wanted: usize, reactors: usize, sessions: usize) -> usize {
    wanted.min(reactors).min((2 * reactors).div_ceil(sessions.max(1))).max(1)
}

#[cfg(test)]
mod tests;
