//! [`Gate`]: how many connections there may be, and which goes first when there are too many.
//!
//! A connection waits until a call of it is accepted, which shows that its caller is a known one and speaks the protocol. Few may
//! wait, and none for long. For one more the oldest goes, so that a caller who is quick gets through while another
//! opens connections and says nothing.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use futures::future::poll_fn;
use futures::task::AtomicWaker;
use pithead_model::{
    Blame, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX, CONNECTIONS_WAITING_MAX, CONNECTIONS_WAITING_PER_ADDRESS_MAX, Fault,
};

/// How many connections a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections whose caller is known.
    pub total: usize,
    /// The same from one address.
    pub per_address: usize,
    /// Connections that have not made an accepted call yet.
    pub waiting: usize,
    /// The same from one address.
    pub waiting_per_address: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            total: CONNECTIONS_MAX,
            per_address: CONNECTIONS_PER_ADDRESS_MAX,
            waiting: CONNECTIONS_WAITING_MAX,
            waiting_per_address: CONNECTIONS_WAITING_PER_ADDRESS_MAX,
        }
    }
}

/// All connections of a server.
#[derive(Debug)]
pub struct Gate {
    limits: ConnectionLimits,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// Oldest first.
    waiting: VecDeque<Waiting>,
    admitted: usize,
    admitted_by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    address: IpAddr,
    end: Arc<End>,
}

/// Ends a connection from outside it.
#[derive(Debug, Default)]
pub struct End {
    ended: AtomicBool,
    waker: AtomicWaker,
    /// What is said to the caller of a connection that makes room for newer ones, in the protocol's own form.
    words: OnceLock<&'static [u8]>,
    /// Whether it is still to be said.
    to_say: AtomicBool,
}

impl End {
    /// Ends it.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// From now on, its caller is told this if it has to make room for newer ones.
    pub fn say(&self, words: &'static [u8]) {
        let _ = self.words.set(words);
    }

    /// Ends it, since newer ones need its place.
    fn make_room(&self) {
        self.to_say.store(true, Ordering::Release);
        self.end();
    }

    /// What is to be said once that it has ended.
    pub(crate) fn last_words(&self) -> Option<&'static [u8]> {
        self.to_say.swap(false, Ordering::AcqRel).then(|| self.words.get().copied()).flatten()
    }

    /// Ready once the connection is to end. Only the last one who asked is woken.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        if self.ended.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) async fn ended(&self) {
        poll_fn(|context| self.poll(context)).await;
    }
}

/// A connection's place at the gate. It is free again when this is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    gate: Arc<Gate>,
    id: u64,
    address: IpAddr,
    admitted: AtomicBool,
    end: Arc<End>,
}

impl Gate {
    /// An empty one.
    pub fn new(limits: ConnectionLimits) -> Arc<Gate> {
        Arc::new(Gate { limits, inside: Mutex::default() })
    }

    /// A place for a new connection, where it waits. The oldest that waits may have to go for it.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectionPermit> {
        let mut inside = self.lock();
        let from_there = inside.waiting.iter().filter(|waiting| waiting.address == address).count();
        if from_there >= self.limits.waiting_per_address {
            let oldest = inside.waiting.iter().position(|waiting| waiting.address == address);
            if let Some(waiting) = oldest.and_then(|index| inside.waiting.remove(index)) {
                waiting.end.make_room();
            }
        } else if inside.waiting.len() >= self.limits.waiting
            && let Some(waiting) = inside.waiting.pop_front()
        {
            waiting.end.make_room();
        }
        inside.next += 1;
        let (id, end) = (inside.next, Arc::new(End::default()));
        inside.waiting.push_back(Waiting { id, address, end: Arc::clone(&end) });
        Arc::new(ConnectionPermit { gate: Arc::clone(self), id, address, admitted: AtomicBool::new(false), end })
    }

    /// Lets the oldest that waits go, whoever it is: the process has no more files to open.
    pub(crate) fn make_room(&self) {
        if let Some(waiting) = self.lock().waiting.pop_front() {
            waiting.end.make_room();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Where the connection comes from.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// What ends it from outside.
    pub fn end(&self) -> &End {
        &self.end
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted.load(Ordering::Acquire)
    }

    /// The caller is known: the connection waits no more. A fault if there are too many; it waits on then.
    pub fn admit(&self) -> Result<(), Fault> {
        if self.is_admitted() {
            return Ok(());
        }
        let mut inside = self.gate.lock();
        // Another call of the same connection may have come first, or the connection may be ending.
        let Some(index) = inside.waiting.iter().position(|waiting| waiting.id == self.id) else {
            return if self.is_admitted() {
                Ok(())
            } else {
                Err(too_many("the connection was closed for newer ones".to_owned()))
            };
        };
        let limits = self.gate.limits;
        let from_there = inside.admitted_by_address.get(&self.address).copied().unwrap_or(0);
        if inside.admitted >= limits.total {
            return Err(too_many(format!("this server has {} connections, which is its limit", limits.total)));
        }
        if from_there >= limits.per_address {
            let most = limits.per_address;
            return Err(too_many(format!("this server has {most} connections from {}, which is its limit", self.address)));
        }
        inside.waiting.remove(index);
        inside.admitted += 1;
        inside.admitted_by_address.insert(self.address, from_there + 1);
        self.admitted.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut inside = self.gate.lock();
        if !self.is_admitted() {
            inside.waiting.retain(|waiting| waiting.id != self.id);
            return;
        }
        inside.admitted -= 1;
        if let Some(count) = inside.admitted_by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                inside.admitted_by_address.remove(&self.address);
            }
        }
    }
}

fn too_many(what: String) -> Fault {
    Fault::new(Blame::Limit, what).hint("end those that are not needed, or start the server with a larger --connections")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { total: 3, per_address: 2, waiting: 4, waiting_per_address: 2 };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn has_ended(place: &ConnectionPermit) -> bool {
        place.end.ended.load(Ordering::Acquire)
    }

    #[test]
    fn the_oldest_of_the_same_address_goes_first() {
        let gate = Gate::new(LIMITS);
        let other = gate.enter(address(1));
        let mut flood: Vec<_> = (0..3).map(|_| gate.enter(address(2))).collect();
        assert_eq!(flood.iter().map(|place| has_ended(place)).collect::<Vec<_>>(), [true, false, false]);
        assert!(!has_ended(&other));
        flood[0].end.say(b"too many");
        assert_eq!((flood[0].end.last_words(), flood[0].end.last_words()), (Some(&b"too many"[..]), None));
        flood[1].end.say(b"too many");
        assert_eq!(flood[1].end.last_words(), None, "it has not ended");
        assert_eq!(flood.remove(0).admit().unwrap_err().blame, Blame::Limit);
        let _more: Vec<_> = (3..6).map(|last| gate.enter(address(last))).collect();
        assert!(has_ended(&other), "the oldest of all goes when all places are taken");
        assert!(gate.lock().waiting.len() <= LIMITS.waiting);
    }

    #[test]
    fn a_pool_that_is_opened_at_once_waits_as_a_whole() {
        let gate = Gate::new(ConnectionLimits::default());
        let pool: Vec<_> = (0..100).map(|_| gate.enter(address(1))).collect();
        assert!(pool.iter().all(|place| !has_ended(place)));
        pool.iter().for_each(|place| place.admit().unwrap());
    }

    #[test]
    fn the_admitted_are_bounded_and_come_back() {
        let gate = Gate::new(LIMITS);
        let enter = |last| gate.enter(address(last));
        let one = enter(1);
        one.admit().unwrap();
        one.admit().unwrap_or_else(|fault| panic!("it is admitted already: {fault}"));
        let two = enter(1);
        two.admit().unwrap();
        let three = enter(1);
        let fault = three.admit().unwrap_err();
        // A regression: a host said so of drives.
        assert!(fault.message.contains("10.0.0.1") && !fault.to_string().contains("drive"), "{fault}");
        let four = enter(2);
        four.admit().unwrap();
        let five = enter(3);
        assert!(five.admit().unwrap_err().message.contains("its limit"));
        drop(one);
        three.admit().unwrap();
        drop((two, three, four, five));
        let inside = gate.lock();
        assert!(inside.admitted == 0 && inside.waiting.is_empty() && inside.admitted_by_address.is_empty());
    }
}
