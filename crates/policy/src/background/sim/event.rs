//! What happens in a run, in order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What happens in the simulation.
pub(super) enum SimEvent {
    /// A host thread sends a task.
    Arrival(usize),
    /// A core is done with what it runs; the number of what it runs, if that goes on as fast as it did when this was foreseen.
    CoreDone(usize, u64),
    /// A host thread has the answer to its task.
    Answered(usize),
    /// A service has read what its next step needs.
    StepRead(usize),
    /// The medium has what a round has sent it.
    Written,
    /// A round may begin.
    RoundDue,
    /// A core looks for steps again.
    Look(usize),
    /// The policy decides.
    Decide,
}

/// What is still to happen.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Event>,
    sequence: u64,
}

struct Event {
    at: f64,
    sequence: u64,
    what: SimEvent,
}

impl Events {
    pub fn add(&mut self, at: f64, what: SimEvent) {
        self.sequence += 1;
        self.heap.push(Event { at, sequence: self.sequence, what });
    }

    /// The next one, and when it happens. Of those at one moment, the one that was added first.
    pub fn next(&mut self) -> Option<(f64, SimEvent)> {
        self.heap.pop().map(|event| (event.at, event.what))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest event is the greatest.
impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        other.at.total_cmp(&self.at).then_with(|| other.sequence.cmp(&self.sequence))
    }
}
