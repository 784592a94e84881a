//! [`Brake`]: stops a sub-plan between rounds, so that what is left of it can be planned anew, and tells what was done of it.

use parking_lot::Mutex;
use pithead_model::SliceSpan;
use tokio::sync::Notify;

/// A sub-plan that may be stopped. Its rows over some slices and over the others must be rows of the answer, each once.
#[derive(Debug, Default)]
pub struct Brake {
    progress: Mutex<Progress>,
    /// Somebody waits for progress.
    changed: Notify,
    stopped: tokio::sync::watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Progress {
    /// By partition, the slices that are answered for.
    done: Vec<Vec<SliceSpan>>,
    slices: u64,
    rows: u64,
    rounds: u64,
    /// Whether others ask for all slices that are not done by now.
    is_sealed: bool,
}

/// How far a sub-plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Slices whose rows were handed on.
    pub slices: u64,
    /// Their rows.
    pub rows: u64,
    /// How often rows were handed on.
    pub rounds: u64,
}

impl Brake {
    /// Has all partitions stop after the rounds that are closed. Rows of others are dropped.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// By partition, the slices that were answered for so far.
    pub fn done(&self) -> Vec<Vec<SliceSpan>> {
        self.progress.lock().done.clone()
    }

    /// By partition, the slices that were answered for. From now on no other counts.
    pub fn seal(&self) -> Vec<Vec<SliceSpan>> {
        self.stop();
        let mut progress = self.progress.lock();
        progress.is_sealed = true;
        progress.done.clone()
    }

    /// How far it is.
    pub fn measured(&self) -> Measured {
        let progress = self.progress.lock();
        Measured { slices: progress.slices, rows: progress.rows, rounds: progress.rounds }
    }

    /// Waits until more rows were handed on than were when it was looked last.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until it is stopped.
    pub(crate) async fn stopped(&self) {
        let mut stopped = self.stopped.subscribe();
        // The sender is here, so there is no error.
        drop(stopped.wait_for(|stopped| *stopped).await);
    }

    /// These slices of a partition are answered for: their rows count from now on, and are asked for by nobody else. Not if it is too
    /// late for that.
    pub(crate) fn answered(&self, partition: usize, done: Vec<SliceSpan>) -> bool {
        let mut progress = self.progress.lock();
        if progress.is_sealed {
            return false;
        }
        if progress.done.len() <= partition {
            progress.done.resize(partition + 1, vec![]);
        }
        progress.done[partition] = done;
        true
    }

    /// Rows of so many slices were handed on.
    pub(crate) fn passed(&self, slices: u64, rows: u64) {
        {
            let mut progress = self.progress.lock();
            progress.slices += slices;
            progress.rows += rows;
            progress.rounds += 1;
        }
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_answered_is_known_by_partition() {
        let brake = Brake::default();
        assert!(brake.answered(2, vec![SliceSpan { first: 1, count: 3 }]));
        brake.passed(3, 40);
        assert_eq!(brake.done(), [vec![], vec![], vec![SliceSpan { first: 1, count: 3 }]]);
        assert_eq!(brake.measured(), Measured { slices: 3, rows: 40, rounds: 1 });
        // Progress before somebody waits is not missed, nor is a stop.
        brake.changed().await;
        brake.stop();
        brake.stopped().await;
        assert!(brake.is_stopped());
    }

    #[test]
    fn nothing_counts_once_others_ask_for_the_rest() {
        let brake = Brake::default();
        assert!(brake.answered(0, vec![SliceSpan { first: 0, count: 1 }]));
        let done = brake.seal();
        assert!(brake.is_stopped() && !brake.answered(0, vec![SliceSpan { first: 0, count: 2 }]));
        assert_eq!(brake.done(), done);
    }
}
