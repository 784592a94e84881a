//! [`Leases`]: which runs open sessions read, and which wait for the last of them to be deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pithead_model::SliceKey;
use tokio::sync::{Notify, OwnedMutexGuard};

/// Runs, each by the key of its metadata slice.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    runs: Mutex<HashMap<SliceKey, Holding>>,
    freed: Mutex<Vec<SliceKey>>,
    notify: Notify,
    order: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Holding {
    holders: usize,
    doomed: bool,
}

/// Keeps runs from being deleted until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    leases: Arc<Leases>,
    runs: Vec<SliceKey>,
}

impl Leases {
    /// Leases all of `runs`, or none: then the one that is being deleted.
    pub(crate) fn lease(self: &Arc<Self>, runs: Vec<SliceKey>) -> Result<Lease, SliceKey> {
        let mut held = self.runs.lock();
        let going = |run: &&SliceKey| held.get(*run).is_some_and(|holding| holding.doomed && holding.holders == 0);
        if let Some(run) = runs.iter().find(going) {
            return Err(run.clone());
        }
        for run in &runs {
            held.entry(run.clone()).or_default().holders += 1;
        }
        drop(held);
        Ok(Lease { leases: Arc::clone(self), runs })
    }

    /// Marks a run for deletion. True if nobody reads it: the caller deletes it now, and then calls [`Self::gone`].
    /// Otherwise it turns up in [`Self::take_freed`] once its last lease ends.
    pub(crate) fn doom(&self, run: &SliceKey) -> bool {
        let mut held = self.runs.lock();
        let holding = held.entry(run.clone()).or_default();
        holding.doomed = true;
        holding.holders == 0
    }

    /// Whether a run is marked for deletion.
    pub(crate) fn is_doomed(&self, run: &SliceKey) -> bool {
        self.runs.lock().get(run).is_some_and(|holding| holding.doomed)
    }

    /// A leased run that was doomed stays: it was written anew. The caller holds [`Self::in_order`] and has deleted the note.
    pub(crate) fn revive(&self, run: &SliceKey) {
        if let Some(holding) = self.runs.lock().get_mut(run) {
            holding.doomed = false;
        }
    }

    /// Held while a run is doomed or revived here and its note is written or deleted in the store, so that the two agree.
    pub(crate) async fn in_order(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.order).lock_owned().await
    }

    /// A doomed run is deleted, or its deletion failed and is left to a later call.
    pub(crate) fn gone(&self, run: &SliceKey) {
        self.runs.lock().remove(run);
    }

    /// Doomed runs whose last lease has ended.
    pub(crate) fn take_freed(&self) -> Vec<SliceKey> {
        std::mem::take(&mut *self.freed.lock())
    }

    /// Waits until [`Self::take_freed`] has something, or for `limit`. Whether it has.
    pub(crate) async fn wait_freed(&self, limit: Duration) -> bool {
        let _ = tokio::time::timeout(limit, self.notify.notified()).await;
        !self.freed.lock().is_empty()
    }

    fn release(&self, runs: &[SliceKey]) {
        let mut held = self.runs.lock();
        for run in runs {
            let Some(holding) = held.get_mut(run) else { continue };
            holding.holders -= 1;
            match holding {
                Holding { holders: 0, doomed: true } => {
                    self.freed.lock().push(run.clone());
                    self.notify.notify_one();
                }
                Holding { holders: 0, doomed: false } => {
                    held.remove(run);
                }
                _ => {}
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.release(&self.runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pithead_model::{DatasetId, LoadId};

    fn run(load: u64) -> SliceKey {
        SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(load), partition: 0, number: None }
    }

    #[test]
    fn a_leased_run_goes_with_its_last_lease() {
        let leases = Arc::new(Leases::default());
        let first = leases.lease(vec![run(1), run(2)]).unwrap();
        let second = leases.lease(vec![run(1)]).unwrap();
        assert!(!leases.doom(&run(1)));
        drop(first);
        assert!(leases.take_freed().is_empty());
        drop(second);
        assert_eq!(leases.take_freed(), [run(1)]);
    }

    #[test]
    fn a_run_that_is_written_anew_stays() {
        let leases = Arc::new(Leases::default());
        let reader = leases.lease(vec![run(1)]).unwrap();
        assert!(!leases.doom(&run(1)));
        let writer = leases.lease(vec![run(1)]).unwrap();
        leases.revive(&run(1));
        drop((reader, writer));
        assert!(leases.take_freed().is_empty() && leases.runs.lock().is_empty());
    }

    #[test]
    fn a_run_that_is_being_deleted_is_not_leased() {
        let leases = Arc::new(Leases::default());
        assert!(leases.doom(&run(1)) && leases.is_doomed(&run(1)) && !leases.is_doomed(&run(2)));
        assert_eq!(leases.lease(vec![run(2), run(1)]).unwrap_err(), run(1));
        leases.gone(&run(1));
        assert!(leases.lease(vec![run(2), run(1)]).is_ok());
        assert!(leases.runs.lock().is_empty());
    }
}
