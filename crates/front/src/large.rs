//! [`Large`]: the room that large messages of clients have in memory, of which no address has more than its share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes of large messages of all connections.
const LARGE_BYTES_MAX: usize = 256 << 20;
/// Bytes of large messages of the connections from one address, so that it does not lock out all others.
const SHARE_BYTES_MAX: usize = LARGE_BYTES_MAX / 4;
/// How long one that has room may take until all of it is there: others wait for its room.
const WHOLE_WAIT: Duration = Duration::from_secs(120);

/// Room for large messages in memory, of all connections.
#[derive(Debug)]
pub(crate) struct Large {
    room: Arc<Semaphore>,
    /// Bytes that an address may have of it.
    share_bytes: usize,
    /// The shares of the addresses that are connected.
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    /// How long a message that has room may take until all of it is there.
    whole_wait: Duration,
}

/// What the connections from one address may have of the room for large messages.
#[derive(Debug)]
pub(crate) struct Share {
    own: Arc<Semaphore>,
    room: Arc<Semaphore>,
    whole_wait: Duration,
}

/// A large message's room, in its address's share and in all. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Room(#[expect(dead_code, reason = "it is held, and not looked at")] [OwnedSemaphorePermit; 2]);

impl Default for Large {
    fn default() -> Large {
        Large::new(LARGE_BYTES_MAX, SHARE_BYTES_MAX, WHOLE_WAIT)
    }
}

#[cfg(test)]
impl Large {
    /// Room for so many bytes, all of which one address may have.
    pub(crate) fn of(bytes: usize) -> Large {
        Large::new(bytes, bytes, Duration::from_millis(300))
    }
}

impl Large {
    fn new(bytes: usize, share_bytes: usize, whole_wait: Duration) -> Large {
        Large { room: Arc::new(Semaphore::new(bytes)), share_bytes, shares: Mutex::default(), whole_wait }
    }

    /// The share of an address, which all of its connections have together.
    pub(crate) fn share(&self, address: IpAddr) -> Share {
        let mut shares = self.shares.lock();
        let known = shares.get(&address).and_then(Weak::upgrade);
        let own = known.unwrap_or_else(|| {
            shares.retain(|_, share| share.strong_count() > 0);
            let own = Arc::new(Semaphore::new(self.share_bytes));
            shares.insert(address, Arc::downgrade(&own));
            own
        });
        Share { own, room: Arc::clone(&self.room), whole_wait: self.whole_wait }
    }
}

impl Share {
    /// How long a message that has room may take until all of it is there.
    pub(crate) fn whole_wait(&self) -> Duration {
        self.whole_wait
    }

    /// Room for a message, in the order in which it is asked for; none: there was none for long.
    pub(crate) async fn take(&self, bytes: usize, wait: Duration) -> Option<Room> {
        let bytes = u32::try_from(bytes).ok()?;
        let taking = async {
            let own = Arc::clone(&self.own).acquire_many_owned(bytes).await.ok()?;
            let of_all = Arc::clone(&self.room).acquire_many_owned(bytes).await.ok()?;
            Some(Room([own, of_all]))
        };
        timeout(wait, taking).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    /// Longer than these tests take.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn large_messages_wait_for_room() {
        const SHORT: Duration = Duration::from_millis(20);
        let large = Large::new(LARGE_BYTES_MAX, LARGE_BYTES_MAX, WHOLE_WAIT);
        let share = large.share(HERE);
        let first = share.take(LARGE_BYTES_MAX - 10, SHORT).await.unwrap();
        let mut second = std::pin::pin!(share.take(11, LONG));
        assert!(timeout(SHORT, &mut second).await.is_err(), "there is no room for it");
        drop(first);
        drop(second.await.unwrap());
        let _all = share.take(LARGE_BYTES_MAX, SHORT).await.unwrap();
        assert!(share.take(1, SHORT).await.is_none(), "it does not wait for ever");
    }

    /// A regression: sixteen connections from one address had all of the room, for as long as their statements ran.
    #[tokio::test]
    async fn an_address_leaves_room_for_others() {
        const SHORT: Duration = Duration::from_millis(20);
        let large = Large::default();
        let (here, also_here) = (large.share(HERE), large.share(HERE));
        let first = here.take(SHARE_BYTES_MAX - 1, SHORT).await.unwrap();
        assert!(also_here.take(2, SHORT).await.is_none(), "its connections have one share");
        let there = large.share([10, 0, 0, 1].into());
        assert!(there.take(SHARE_BYTES_MAX, SHORT).await.is_some());
        drop(first);
        assert!(also_here.take(SHARE_BYTES_MAX, SHORT).await.is_some());
        drop((here, also_here, there));
        drop(large.share([10, 0, 0, 2].into()));
        assert_eq!(large.shares.lock().len(), 1, "who has gone is forgotten");
    }
}
