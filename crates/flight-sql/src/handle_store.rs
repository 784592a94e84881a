//! [`HandleStore`]: what the server keeps for callers between their calls, under handles that nobody can guess.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use pithead_model::{Blame, Fault};

use crate::error::Refused;

/// 256 random bits.
type Handle = [u8; 32];

/// Whose something is: the number of an identity; none where callers are not told apart.
pub(crate) type Owner = Option<u64>;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most entries of an owner.
    pub(crate) each: usize,
    /// Most bytes of an owner.
    pub(crate) bytes_each: usize,
    /// Most entries.
    pub(crate) all: usize,
    /// Most bytes.
    pub(crate) bytes_all: usize,
    /// How long an entry stays that nobody asks for.
    pub(crate) idle: Duration,
    /// How long one stays that nobody has ever asked for: its handle may have got lost.
    pub(crate) idle_at_first: Duration,
}

/// Entries by handle, each of one owner. To all others it is as if it were not there.
#[derive(Debug)]
pub(crate) struct HandleStore<T> {
    what: &'static str,
    limits: Limits,
    entries: Mutex<HashMap<Handle, KeptValue<T>>>,
}

#[derive(Debug)]
struct KeptValue<T> {
    owner: Owner,
    bytes: usize,
    used: Instant,
    /// Whether somebody has come with its handle.
    is_known: bool,
    /// None: its place is reserved, and it is not there yet.
    value: Option<T>,
}

impl<T> KeptValue<T> {
    fn is_over(&self, limits: &Limits) -> bool {
        self.value.is_some() && self.used.elapsed() >= if self.is_known { limits.idle } else { limits.idle_at_first }
    }
}

/// A place for something that is being made. Dropping it makes the place free again.
#[derive(Debug)]
pub(crate) struct Place<'a, T> {
    store: &'a HandleStore<T>,
    owner: Owner,
    handle: Handle,
}

impl<T> Place<'_, T> {
    /// Counts what is to be kept here: so many bytes by now. A fault: all of it together is more than may be kept. It is counted all the
    /// same, so that there is less room for others.
    pub(crate) fn count(&self, bytes: usize) -> Result<(), Fault> {
        let mut entries = self.store.entries.lock();
        if let Some(entry) = entries.get_mut(&self.handle) {
            entry.bytes = bytes;
        }
        self.store.check(&entries, self.owner, &self.handle, bytes)
    }

    /// Keeps it, which is never refused. Its handle.
    pub(crate) fn keep(self, value: T) -> Bytes {
        if let Some(entry) = self.store.entries.lock().get_mut(&self.handle) {
            (entry.used, entry.value) = (Instant::now(), Some(value));
        }
        Bytes::copy_from_slice(&self.handle)
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        let mut entries = self.store.entries.lock();
        if entries.get(&self.handle).is_some_and(|entry| entry.value.is_none()) {
            entries.remove(&self.handle);
        }
    }
}

/// How many entries there are, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    count: usize,
    bytes: usize,
}

impl Kept {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl<T> HandleStore<T> {
    /// Nothing yet. `what` names an entry in errors.
    pub(crate) fn new(what: &'static str, limits: Limits) -> Self {
        Self { what, limits, entries: Mutex::default() }
    }

    /// Keeps something of so many bytes. Its handle.
    pub(crate) fn keep(&self, owner: Owner, bytes: usize, value: T) -> Result<Bytes, Fault> {
        self.enter(owner, bytes, Some(value)).map(|handle| Bytes::copy_from_slice(&handle))
    }

    /// Reserves a place for something of so many bytes that is made next, and that must be kept then.
    pub(crate) fn reserve(&self, owner: Owner, bytes: usize) -> Result<Place<'_, T>, Fault> {
        let handle = self.enter(owner, bytes, None)?;
        Ok(Place { store: self, owner, handle })
    }

    fn enter(&self, owner: Owner, bytes: usize, value: Option<T>) -> Result<Handle, Fault> {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| !entry.is_over(&self.limits));
        let handle: Handle = rand::random();
        self.check(&entries, owner, &handle, bytes)?;
        entries.insert(handle, KeptValue { owner, bytes, used: Instant::now(), is_known: false, value });
        Ok(handle)
    }

    /// Whether something of so many bytes more would take over half of the bytes that there are.
    pub(crate) fn would_be_half_full(&self, owner: Owner, bytes: usize) -> bool {
        let (own, all) = sums(&self.entries.lock(), owner, None);
        let over_half = |kept: Kept, most: usize| kept.bytes.saturating_add(bytes) > most / 2;
        over_half(own, self.limits.bytes_each) || over_half(all, self.limits.bytes_all)
    }

    /// Counts something that is kept anew, since it is to have so many bytes from now on. Where that would be too many, nothing changes.
    pub(crate) fn recount(&self, owner: Owner, handle: &[u8], bytes: usize) -> Result<(), Refused> {
        let mut entries = self.entries.lock();
        let key = Handle::try_from(handle).map_err(|_| self.absent())?;
        self.find(&entries, owner, &key).ok_or_else(|| self.absent())?;
        self.check(&entries, owner, &key, bytes)?;
        if let Some(entry) = entries.get_mut(&key) {
            (entry.bytes, entry.used) = (bytes, Instant::now());
        }
        Ok(())
    }

    /// Whether an entry of so many bytes fits beside all others.
    fn check(&self, entries: &HashMap<Handle, KeptValue<T>>, owner: Owner, handle: &Handle, bytes: usize) -> Result<(), Fault> {
        let (own, others_too) = sums(entries, owner, Some(handle));
        let Limits { each, bytes_each, all, bytes_all, idle, .. } = self.limits;
        if bytes > bytes_each {
            let message = format!("a {} of {bytes} bytes, with all that it keeps; at most {bytes_each} are kept", self.what);
            return Err(Fault::new(Blame::Limit, message).hint("ask in parts, or load long lists as a table to join with"));
        }
        if own.count >= each || own.bytes.saturating_add(bytes) > bytes_each {
            return Err(self.full(&format!("{each} of them, or {bytes_each} bytes, are kept for one identity"), idle));
        }
        if others_too.count >= all || others_too.bytes.saturating_add(bytes) > bytes_all {
            return Err(self.full(&format!("{all} of them, or {bytes_all} bytes, are kept for all clients together"), idle));
        }
        Ok(())
    }

    fn full(&self, most: &str, idle: Duration) -> Fault {
        let message = format!("too many {}s wait: at most {most}", self.what);
        let hint = format!("fetch or close those that are not needed; the server drops them after {} s", idle.as_secs());
        Fault::new(Blame::Limit, message).hint(hint)
    }

    /// Takes something away from what is kept.
    pub(crate) fn take(&self, owner: Owner, handle: &[u8]) -> Result<T, Refused> {
        let mut entries = self.entries.lock();
        let key = Handle::try_from(handle).ok();
        let is_there = key.is_some_and(|key| self.find(&entries, owner, &key).is_some());
        let taken = key.filter(|_| is_there).and_then(|key| entries.remove(&key));
        taken.and_then(|entry| entry.value).ok_or_else(|| self.absent())
    }

    fn find<'a>(&self, entries: &'a HashMap<Handle, KeptValue<T>>, owner: Owner, key: &Handle) -> Option<&'a KeptValue<T>> {
        entries.get(key).filter(|entry| entry.owner == owner && entry.value.is_some() && !entry.is_over(&self.limits))
    }

    fn absent(&self) -> Refused {
        let idle = self.limits.idle.as_secs();
        Refused::not_found(format!(
            "there is no such {}: it was used up or closed, is another identity's, or was dropped after {idle} s",
            self.what
        ))
    }
}

/// What there is of an owner, and of all, beside one of them.
fn sums<T>(entries: &HashMap<Handle, KeptValue<T>>, owner: Owner, beside: Option<&Handle>) -> (Kept, Kept) {
    let (mut own, mut all) = (Kept::default(), Kept::default());
    for (_, entry) in entries.iter().filter(|(handle, _)| Some(*handle) != beside) {
        all.add(entry.bytes);
        if entry.owner == owner {
            own.add(entry.bytes);
        }
    }
    (own, all)
}

impl<T: Clone> HandleStore<T> {
    /// What is kept under a handle; from now on it stays for as long again.
    pub(crate) fn get(&self, owner: Owner, handle: &[u8]) -> Result<T, Refused> {
        let mut entries = self.entries.lock();
        let key = Handle::try_from(handle).map_err(|_| self.absent())?;
        let value = self.find(&entries, owner, &key).and_then(|entry| entry.value.clone()).ok_or_else(|| self.absent())?;
        if let Some(entry) = entries.get_mut(&key) {
            (entry.used, entry.is_known) = (Instant::now(), true);
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const LIMITS: Limits = Limits { each: 2, bytes_each: 100, all: 3, bytes_all: 1_000, idle: MINUTE, idle_at_first: MINUTE };

    #[test]
    fn only_the_owner_finds_what_is_kept() {
        let kept = HandleStore::new("ticket", LIMITS);
        let handle = kept.keep(Some(1), 1, "mine").unwrap();
        assert!(kept.get(Some(2), &handle).is_err() && kept.get(None, &handle).is_err() && kept.take(None, &handle).is_err());
        assert_eq!(kept.get(Some(1), &handle).unwrap(), "mine");
        assert_eq!(kept.take(Some(1), &handle).unwrap(), "mine");
        assert!(kept.take(Some(1), &handle).is_err());
        for wrong in [&b""[..], &[0; 31], &[0; 32], &[0; 33]] {
            assert!(kept.get(Some(1), wrong).is_err());
        }
    }

    #[test]
    fn numbers_and_bytes_are_bounded_and_time_frees_them() {
        let kept = HandleStore::new("ticket", LIMITS);
        kept.keep(Some(1), 60, 0).unwrap();
        assert_eq!(kept.keep(Some(1), 60, 0).unwrap_err().blame, Blame::Limit, "bytes of one");
        // A regression: one that is too large by itself was said to be too many.
        assert!(kept.keep(Some(1), 101, 0).unwrap_err().message.contains("101 bytes"));
        kept.keep(Some(1), 40, 0).unwrap();
        assert_eq!(kept.keep(Some(1), 0, 0).unwrap_err().blame, Blame::Limit, "entries of one");
        kept.keep(Some(2), 0, 0).unwrap();
        assert!(kept.keep(Some(3), 0, 0).unwrap_err().message.contains("all clients"));
        // An entry that grows counts as what it has become.
        let kept = HandleStore::new("prepared statement", LIMITS);
        let (one, other) = (kept.keep(Some(1), 10, 0).unwrap(), kept.keep(Some(1), 10, 0).unwrap());
        kept.recount(Some(1), &one, 90).unwrap();
        kept.recount(Some(1), &one, 90).unwrap();
        assert!(kept.recount(Some(1), &other, 11).is_err() && kept.recount(Some(2), &one, 1).is_err());
        kept.recount(Some(1), &one, 10).unwrap();
        kept.recount(Some(1), &other, 90).unwrap();
        kept.take(Some(1), &other).unwrap();
        assert!(kept.recount(Some(1), &other, 1).is_err() && kept.recount(Some(1), b"", 1).is_err());
        let soon = Duration::from_millis(5);
        let short = HandleStore::new("ticket", Limits { each: 1, idle: soon, idle_at_first: soon, ..LIMITS });
        let handle = short.keep(None, 0, 0).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        assert!(short.get(None, &handle).is_err());
        short.keep(None, 0, 0).unwrap();
    }

    /// A regression: rows of RETURNING were refused for want of a place once their statement was done.
    #[test]
    fn what_has_a_place_is_kept_whatever_it_has_become() {
        let kept =
            HandleStore::new("ticket", Limits { each: 1, idle: Duration::ZERO, idle_at_first: Duration::ZERO, ..LIMITS });
        let place = kept.reserve(Some(1), 10).unwrap();
        assert_eq!(kept.reserve(Some(1), 0).unwrap_err().blame, Blame::Limit, "before anything is done");
        assert!(place.count(100).is_ok() && place.count(101).is_err());
        assert!(kept.take(Some(1), &place.handle).is_err(), "it is not there yet");
        assert!(kept.would_be_half_full(Some(1), 0) && !kept.would_be_half_full(Some(2), 1));
        assert_eq!(place.keep("mine").len(), 32);
        let kept = HandleStore::new("ticket", LIMITS);
        let place = kept.reserve(Some(1), 10).unwrap();
        place.count(2_000).unwrap_err();
        let handle = place.keep("mine");
        assert!(kept.keep(Some(1), 1, "more").is_err() && kept.keep(Some(2), 1, "more").is_err(), "it is counted");
        assert_eq!(kept.take(Some(1), &handle).unwrap(), "mine");
        drop(kept.reserve(Some(1), 100).unwrap());
        kept.keep(Some(1), 100, "more").unwrap();
    }

    /// Sessions of clients that keep no cookies stayed for a day, until there was room for no others.
    #[test]
    fn what_nobody_comes_back_for_goes_soon() {
        let kept = HandleStore::new("session", Limits { idle_at_first: Duration::from_secs(2), ..LIMITS });
        let (known, lost) = (kept.keep(None, 0, 0).unwrap(), kept.keep(None, 0, 0).unwrap());
        kept.get(None, &known).unwrap();
        kept.recount(None, &lost, 1).unwrap();
        std::thread::sleep(Duration::from_millis(2_050));
        assert!(kept.get(None, &known).is_ok() && kept.get(None, &lost).is_err());
        kept.keep(None, 0, 0).unwrap();
    }
}
