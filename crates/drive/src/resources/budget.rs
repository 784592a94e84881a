//! [`Budget`]: a drive's memory for sessions, and what each was granted of it.

use std::sync::Arc;

use parking_lot::Mutex;

/// Least that a session is granted, unless it wants less: a sort or a join can begin with it.
const GRANT_BYTES_MIN: u64 = 16 << 20;
/// Least that a load can work with.
const LOAD_BYTES_MIN: u64 = 64 << 20;
/// More does not make the sort of a load faster.
const SORT_BYTES_MAX: u64 = 4 << 30;

/// Memory for sessions.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u64,
    free: Mutex<u64>,
}

/// A part of a budget; it goes back when this is dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    budget: Arc<Budget>,
    bytes: u64,
    all: u64,
}

impl Budget {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, free: Mutex::new(total) }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.total - *self.free.lock()
    }

    /// Grants the wanted bytes, but no more than a quarter of the free ones, so that the sessions of one query, which wait for
    /// each other, all find some; none if the least is not there. `shipped` bytes come on top, or none.
    pub(crate) fn reserve(self: &Arc<Self>, wanted: u64, shipped: u64) -> Option<Grant> {
        self.take(wanted, wanted.clamp(1, GRANT_BYTES_MIN), shipped)
    }

    /// Whether [`Self::reserve`] could ever grant this, with nothing else reserved.
    pub(crate) fn could_reserve(&self, wanted: u64, shipped: u64) -> bool {
        wanted.clamp(1, GRANT_BYTES_MIN).checked_add(shipped).is_some_and(|least| least <= self.total)
    }

    /// How many sessions that want as much, with nothing sent along, would now find the least that they can work with.
    pub(crate) fn room(&self, wanted: u64) -> usize {
        usize::try_from(*self.free.lock() / wanted.clamp(1, GRANT_BYTES_MIN)).unwrap_or(usize::MAX)
    }

    /// Memory for the rows of a load, and to sort them with if they are to be.
    pub(crate) fn reserve_for_load(self: &Arc<Self>, sorts: bool) -> Option<Grant> {
        let least = LOAD_BYTES_MIN.min(self.total / 4);
        self.take(if sorts { SORT_BYTES_MAX } else { least }, least, 0)
    }

    fn take(self: &Arc<Self>, wanted: u64, least: u64, shipped: u64) -> Option<Grant> {
        let mut free = self.free.lock();
        let bytes = wanted.min(*free / 4).max(least);
        let all = bytes.checked_add(shipped)?;
        *free = free.checked_sub(all)?;
        Some(Grant { budget: Arc::clone(self), bytes, all })
    }
}

impl Grant {
    /// Bytes to work with, without those for what was shipped.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        *self.budget.free.lock() += self.all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greedy_session_leaves_room_for_others() {
        let budget = Arc::new(Budget::new(1 << 30));
        let first = budget.reserve(u64::MAX, 0).unwrap();
        assert_eq!(first.bytes(), 1 << 28);
        let second = budget.reserve(1 << 20, 0).unwrap();
        let shipped = budget.reserve(1 << 20, 1 << 20).unwrap();
        assert_eq!((shipped.bytes(), shipped.all), (1 << 20, 2 << 20));
        drop(shipped);
        assert_eq!((second.bytes(), budget.reserved()), (1 << 20, (1 << 28) + (1 << 20)));
        drop((first, second));
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn what_can_never_be_granted_is_known() {
        let budget = Arc::new(Budget::new(20 << 20));
        let _taken = budget.reserve(1 << 40, 0).unwrap();
        assert!(budget.could_reserve(1 << 40, 4 << 20) && budget.reserve(1 << 40, 4 << 20).is_none());
        assert!(!budget.could_reserve(1 << 40, 5 << 20));
        assert!(!budget.could_reserve(1, u64::MAX));
        assert!(!Budget::new(1 << 20).could_reserve(64 << 20, 0));
    }

    #[test]
    fn an_exhausted_budget_refuses() {
        let budget = Arc::new(Budget::new(20 << 20));
        let only = budget.reserve(1 << 40, 0).unwrap();
        assert_eq!(only.bytes(), GRANT_BYTES_MIN);
        assert!(budget.reserve(1 << 40, 0).is_none());
        assert!(budget.reserve(1 << 20, 0).is_some());
    }
}
