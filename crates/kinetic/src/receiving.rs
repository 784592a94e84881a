//! [`Receiving`]: what of messages has arrived, counted where it is much and bounded in total.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of each message that are not counted: requests of nearly all clients have fewer, and so they always find room.
const FREE_BYTES: u64 = 64 << 10;
/// Other bytes of messages that all strangers hold, and all clients who are known.
const HELD_BYTES_MAX: u64 = 64 << 20;

/// Bytes of long messages that connections hold. Strangers keep no room from clients who are known.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    strangers: AtomicU64,
    known: AtomicU64,
}

/// What one message holds. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    receiving: Arc<Receiving>,
    is_known: bool,
    bytes: u64,
}

impl Held {
    /// Nothing yet. `is_known`: of a client who is known.
    pub fn new(receiving: &Arc<Receiving>, is_known: bool) -> Held {
        Held { receiving: Arc::clone(receiving), is_known, bytes: 0 }
    }

    /// Holds a message of so many bytes as far as it has arrived. False: there is no room.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = (bytes as u64).saturating_sub(FREE_BYTES).saturating_sub(self.bytes);
        let fits = |held: u64| held.checked_add(more).filter(|held| *held <= HELD_BYTES_MAX);
        let has_room = self.counter().fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok();
        if has_room {
            self.bytes += more;
        }
        has_room
    }

    fn counter(&self) -> &AtomicU64 {
        if self.is_known { &self.receiving.known } else { &self.receiving.strangers }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counter().fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_of_strangers_are_bounded_and_short_ones_find_room() {
        let receiving = Arc::new(Receiving::default());
        let long = 1 << 20;
        let fits = (HELD_BYTES_MAX / (long as u64 - FREE_BYTES)) as usize;
        let mut held: Vec<Held> = (0..=fits).map(|_| Held::new(&receiving, false)).collect();
        let grown: Vec<bool> = held.iter_mut().map(|held| held.grow(1 << 17) && held.grow(long)).collect();
        assert!(grown[..fits].iter().all(|grown| *grown) && !grown[fits], "{grown:?}");
        assert!(Held::new(&receiving, false).grow(FREE_BYTES as usize));
        assert!(Held::new(&receiving, true).grow(long), "strangers keep no room from others");
        held.clear();
        assert_eq!(receiving.strangers.load(Ordering::Relaxed), 0);
        assert_eq!(receiving.known.load(Ordering::Relaxed), 0);
    }
}
