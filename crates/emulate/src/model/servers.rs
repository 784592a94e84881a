//! Units that serve one after another, and the events that follow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One unit or several equal ones. Each serves what was booked first, first.
#[derive(Debug)]
pub(super) struct Servers {
    free_at: Vec<u64>,
    /// Time that was booked, over all units.
    pub(super) busy_ps: u64,
}

impl Servers {
    pub(super) fn new(units: u64) -> Self {
        Self { free_at: vec![0; units.max(1) as usize], busy_ps: 0 }
    }

    /// Books the unit that is free first, and says when it will be done.
    pub(super) fn book(&mut self, now: u64, service: u64) -> u64 {
        let first = (0..self.free_at.len()).min_by_key(|unit| self.free_at[*unit]).unwrap_or(0);
        self.book_unit(first, now, service)
    }

    /// Books work that consists of so many pieces alike, in even parts of the units that are free first. Says when the last part will be
    /// done.
    pub(super) fn book_pieces(&mut self, now: u64, service: u64, pieces: u64) -> u64 {
        let parts = pieces.clamp(1, self.free_at.len() as u64) as usize;
        if parts == 1 {
            return self.book(now, service);
        }
        let mut units: Vec<usize> = (0..self.free_at.len()).collect();
        units.select_nth_unstable_by_key(parts - 1, |unit| (self.free_at[*unit], *unit));
        let service = service.div_ceil(parts as u64);
        units[..parts].iter().map(|unit| self.book_unit(*unit, now, service)).max().unwrap_or(now)
    }

    /// Books one unit.
    pub(super) fn book_unit(&mut self, unit: usize, now: u64, service: u64) -> u64 {
        let unit = unit % self.free_at.len();
        let done = self.free_at[unit].max(now).saturating_add(service);
        self.free_at[unit] = done;
        self.busy_ps = self.busy_ps.saturating_add(service);
        done
    }
}

/// Events in the order of their time, and of those at one time in the order in which they were made.
#[derive(Debug)]
pub(super) struct Events<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    made: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> Events<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), made: 0 }
    }

    pub(super) fn push(&mut self, at: u64, event: E) {
        self.heap.push(Reverse(Entry { at, number: self.made, event }));
        self.made += 1;
    }

    /// When the next one is.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}
