//! [`Turns`]: which requests the store does now, by their priority.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Requests that run, and those that wait for their turn.
#[derive(Debug)]
pub(crate) struct Turns {
    places: usize,
    waiting_max: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    running: usize,
    next: u64,
    /// By priority, the highest first, and then as they came.
    waiting: BTreeMap<(Reverse<i32>, u64), oneshot::Sender<Turn>>,
}

/// A turn; the next request has it when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    /// None: it was handed over.
    turns: Option<Arc<Turns>>,
}

impl Turns {
    /// So many requests run at one time, and so many more may wait.
    pub fn new(places: usize, waiting_max: usize) -> Arc<Turns> {
        Arc::new(Turns { places: places.max(1), waiting_max, inside: Mutex::default() })
    }

    /// Waits for a turn; none: too many wait already.
    pub async fn take(self: &Arc<Self>, priority: i32) -> Option<Turn> {
        let receiver = {
            let mut inside = self.inside.lock();
            if inside.running < self.places {
                inside.running += 1;
                return Some(Turn { turns: Some(Arc::clone(self)) });
            }
            inside.waiting.retain(|_, sender| !sender.is_closed());
            if inside.waiting.len() >= self.waiting_max {
                return None;
            }
            let (sender, receiver) = oneshot::channel();
            inside.next += 1;
            let place = (Reverse(priority), inside.next);
            inside.waiting.insert(place, sender);
            receiver
        };
        receiver.await.ok()
    }

    /// Requests that run, and those that wait.
    pub fn count(&self) -> (usize, usize) {
        let inside = self.inside.lock();
        (inside.running, inside.waiting.len())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else { return };
        loop {
            let next = {
                let mut inside = turns.inside.lock();
                let next = inside.waiting.pop_first();
                if next.is_none() {
                    inside.running -= 1;
                }
                next
            };
            let Some((_, sender)) = next else { return };
            match sender.send(Turn { turns: Some(Arc::clone(&turns)) }) {
                Ok(()) => return,
                // It has gone meanwhile: this turn is handed on by the loop, and not by the drop of what came back.
                Err(mut unsent) => unsent.turns = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_highest_priority_is_next_and_those_who_went_are_passed_over() {
        let turns = Turns::new(1, 4);
        let first = turns.take(5).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for priority in [1, 5, 9, 7] {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let turn = turns.take(priority).await;
                order.lock().push(priority);
                drop(turn);
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(turns.count(), (1, 4));
        assert!(turns.take(9).await.is_none(), "too many wait");
        waiting[3].abort();
        tokio::task::yield_now().await;
        drop(first);
        for task in waiting {
            let _ = task.await;
        }
        assert_eq!(*order.lock(), [9, 5, 1]);
        assert_eq!(turns.count(), (0, 0));
    }
}
