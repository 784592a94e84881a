//! [`Looking`]: a domain that another host has made is looked for once a statement names it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::MutexGuard;

/// How often, at most, drives are asked again for a domain that nobody is known to keep.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When all drives were last asked which domains they keep, and whether a statement needs to know more.
#[derive(Debug)]
pub(crate) struct Looking {
    times: Mutex<Times>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Times {
    looked: Instant,
    /// When a statement last named a domain that was not known.
    wanted: Option<Instant>,
}

impl Looking {
    /// All drives have just been asked.
    pub(crate) fn new() -> Self {
        let times = Times { looked: Instant::now(), wanted: None };
        Self { times: Mutex::new(times), turn: tokio::sync::Mutex::default() }
    }

    /// When they were last asked.
    pub(crate) fn looked(&self) -> Instant {
        self.times.lock().looked
    }

    /// They are asked now.
    pub(crate) fn begin(&self) {
        self.times.lock().looked = Instant::now();
    }

    /// A statement names a domain that no drive knew when they were asked at `looked`. Whether that is so long ago that they are to be
    /// asked again.
    pub(crate) fn want(&self, looked: Instant) -> bool {
        let is_old = looked.elapsed() >= LOOK_EVERY;
        if is_old {
            self.times.lock().wanted = Some(Instant::now());
        }
        is_old
    }

    /// Whether a statement wants to know more, or did a moment ago.
    pub(crate) fn is_wanted(&self) -> bool {
        let times = self.times.lock();
        times.wanted.is_some_and(|wanted| wanted > times.looked || wanted.elapsed() < LOOK_EVERY)
    }

    /// Whether nobody has looked since a statement wanted to know more.
    pub(crate) fn is_due(&self) -> bool {
        let times = self.times.lock();
        times.wanted.is_some_and(|wanted| wanted > times.looked)
    }

    /// Statements look one after the other, so that one look does for all that wait.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_asked_again_once_and_not_at_once() {
        let looking = Looking::new();
        assert!(!looking.want(looking.looked()) && !looking.is_wanted(), "they have just been asked");
        let long_ago = Instant::now().checked_sub(2 * LOOK_EVERY).unwrap();
        assert!(looking.want(long_ago) && looking.is_wanted() && looking.is_due());
        looking.begin();
        assert!(looking.is_wanted() && !looking.is_due(), "another statement has looked for this one");
        assert!(!looking.want(looking.looked()));
    }
}
