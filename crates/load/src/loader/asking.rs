//! [`AskingFleet`]: the fleet as a loader changes it. Before a change is sent, whoever waits for it is asked: from then on others may see
//! it, and the statement that it is of cannot be cancelled any more.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use pithead_fleet::{Change, Committed, DatasetChange, Edit, Fleet, NotCommitted};
use pithead_model::{Dataset, DatasetName, Fault};

/// Called where it is certain that a change was not made.
pub(crate) type Withdraw = Box<dyn FnOnce() + Send>;
/// Says whether a change may be sent.
pub(crate) type Ask = Arc<dyn Fn() -> Result<Withdraw, Fault> + Send + Sync>;

/// A fleet, and who is asked before it is changed; none: nobody.
#[derive(Clone)]
pub(crate) struct AskingFleet {
    fleet: Fleet,
    ask: Option<Ask>,
}

impl AskingFleet {
    pub(crate) fn new(fleet: Fleet, ask: Option<Ask>) -> Self {
        Self { fleet, ask }
    }

    /// The fleet itself.
    pub(crate) fn own(&self) -> &Fleet {
        &self.fleet
    }

    /// Makes a change, as [`Fleet::commit`] does.
    pub(crate) async fn commit<E: Edit>(&self, edit: &E) -> Result<Committed<E::Output>, NotCommitted> {
        let withdraw = self.ask.as_ref().map(|ask| ask()).transpose()?;
        let outcome = self.fleet.commit(edit).await;
        if let (Err(NotCommitted { certain: true, .. }), Some(withdraw)) = (&outcome, withdraw) {
            withdraw();
        }
        outcome
    }

    /// Makes a change of one dataset, as [`Fleet::commit_dataset`] does.
    pub(crate) async fn commit_dataset(
        &self,
        name: &DatasetName,
        change: &Change,
    ) -> Result<Committed<Option<Dataset>>, NotCommitted> {
        self.commit(&DatasetChange { name, change }).await
    }
}

impl Deref for AskingFleet {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        &self.fleet
    }
}

impl fmt::Debug for AskingFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskingFleet").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use futures::{StreamExt, stream};
    use pithead_model::Blame;

    use crate::merging::tests::{Cluster, append};
    use crate::{LoadMode, LoadSpec, Loader};

    use super::*;

    /// Puts one row in the place of all that there are, which were read as `over`.
    async fn replace(loader: &Loader, over: Dataset, value: i64) -> Result<(), Fault> {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![value]));
        let row = RecordBatch::try_from_iter([("k", column)]).unwrap();
        let spec = LoadSpec { mode: LoadMode::Replace, ..LoadSpec::new("t".parse().unwrap(), vec![]) };
        let rows = stream::iter([Ok(row.clone())]).boxed();
        loader.load_batches_over(Arc::new(over), spec, row.schema(), rows).await.map(drop)
    }

    #[tokio::test]
    async fn what_may_not_be_sent_is_not_and_leaves_nothing() {
        let place = Cluster::new(2, 2).await;
        let refused = place.loader.asking(|| Err(Fault::new(Blame::Cancelled, "too late")));
        assert_eq!(append(&refused, 1).await.unwrap_err().message, "too late");
        assert_eq!((place.rows(1).await, place.stored()), (vec![0], 2));
        append(&place.loader, 2).await.unwrap();
        assert_eq!(place.rows(2).await, [0, 2]);
    }

    /// A regression: rows that others had added since were gone with those that had been read.
    #[tokio::test]
    async fn what_was_made_of_rows_takes_the_place_of_these_and_no_others() {
        let place = Cluster::new(1, 1).await;
        let sent = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&sent);
        let asking = place.loader.asking(move || {
            counts.fetch_add(1, Ordering::SeqCst);
            let counts = Arc::clone(&counts);
            Ok(Box::new(move || {
                counts.fetch_sub(1, Ordering::SeqCst);
            }))
        });
        let before = place.dataset().await;
        append(&place.loader, 1).await.unwrap();
        let fault = replace(&asking, before, 7).await.unwrap_err();
        assert_eq!((fault.blame, place.rows(1).await, place.stored()), (Blame::Conflict, vec![0, 1], 2));
        assert_eq!(sent.load(Ordering::SeqCst), 0, "it is certain that it was not made");
        replace(&asking, place.dataset().await, 8).await.unwrap();
        assert_eq!((place.rows(1).await, place.stored(), sent.load(Ordering::SeqCst)), (vec![8], 1, 1));
        // Neither the swap nor the look at what became of it is answered.
        place.doors[0].commits_lost.store(2, Ordering::Relaxed);
        let fault = append(&asking, 9).await.unwrap_err();
        assert_eq!((fault.blame, sent.load(Ordering::SeqCst)), (Blame::Device, 2), "{fault}");
    }
}
