//! [`BatchRoom`]: the bytes that open batches hold, and how clients share them.
//!
//! A client may hold as many bytes as nobody holds (Choudhury and Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet
//! Switches, 1998, with a factor of 1). One alone has half of all, two have a third each, and one who comes finds room.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Who holds bytes: an identity, by its number, at an address.
pub(crate) type Holder = (i64, IpAddr);

/// The room for bytes of all open batches.
#[derive(Debug)]
pub(crate) struct BatchRoom {
    bytes: u64,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// Bytes that all hold.
    all: u64,
    /// Those of each; who holds none is not there.
    own: HashMap<Holder, u64>,
}

/// Bytes that one command of a batch holds. They are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    room: Arc<BatchRoom>,
    holder: Holder,
    bytes: u64,
}

impl BatchRoom {
    pub fn new(bytes: u64) -> Arc<BatchRoom> {
        Arc::new(BatchRoom { bytes, now: Mutex::default() })
    }

    /// Takes bytes for a command. None: its client has as many as it may. A command without a value finds room always.
    pub fn take(self: &Arc<Self>, holder: Holder, bytes: u64) -> Option<HeldBytes> {
        let mut now = self.now.lock();
        if bytes > 0 {
            let own = now.own.get(&holder).copied().unwrap_or(0).checked_add(bytes)?;
            if own > self.bytes.saturating_sub(now.all) {
                return None;
            }
            now.own.insert(holder, own);
            now.all += bytes;
        }
        Some(HeldBytes { room: Arc::clone(self), holder, bytes })
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let mut now = self.room.now.lock();
        now.all -= self.bytes;
        if let Entry::Occupied(mut own) = now.own.entry(self.holder) {
            *own.get_mut() -= self.bytes;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    /// Takes single bytes for as long as there is room.
    fn fill(room: &Arc<BatchRoom>, holder: Holder) -> Vec<HeldBytes> {
        std::iter::from_fn(|| room.take(holder, 1)).collect()
    }

    #[test]
    fn one_has_half_two_a_third_each_and_one_who_comes_finds_room() {
        let room = BatchRoom::new(1_200);
        let mut first = fill(&room, (1, HERE));
        assert_eq!(first.len(), 600);
        let second = fill(&room, (2, HERE));
        assert_eq!(second.len(), 300, "half of what the first one left");
        assert_eq!(fill(&room, (1, THERE)).len(), 150, "another address is another client");
        first.truncate(400);
        assert!(room.take((1, HERE), 1).is_some_and(|_| room.take((1, HERE), 200).is_none()));
        drop(second);
        let second = fill(&room, (2, HERE));
        assert_eq!(second.len(), 400);
        assert!(room.take((1, HERE), 1).is_none() && room.take((3, HERE), 400).is_some());
    }

    #[test]
    fn what_was_held_is_given_back_to_the_byte() {
        let room = BatchRoom::new(10);
        assert!(room.take((1, HERE), 11).is_none() && room.take((1, HERE), u64::MAX).is_none());
        let held = [3, 0, 2].map(|bytes| room.take((1, HERE), bytes));
        assert!(held.iter().all(Option::is_some) && room.take((1, HERE), 1).is_none());
        assert!(room.take((1, HERE), 0).is_some(), "a delete has no bytes");
        assert!(room.take((2, HERE), 6).is_none() && room.take((2, HERE), 5).is_some());
        drop(held);
        let now = room.now.lock();
        assert!(now.all == 0 && now.own.is_empty());
    }
}
