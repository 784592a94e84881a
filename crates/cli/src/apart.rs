//! Work on the runtime's own threads.
//!
//! A join can compute for seconds between two looks at the world. Whoever waits for it here can stop waiting at once:
//! dropping the wait cancels the work, which then ends at its next step.

use arrow::array::RecordBatch;
use futures::StreamExt;
use futures::stream::BoxStream;
use pithead_model::{Blame, Fault};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Batches that may wait to be written.
const BATCHES_AHEAD: usize = 4;

/// Runs a future elsewhere and waits for it.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, Fault> {
    let mut task = Task(tokio::spawn(work));
    match (&mut task.0).await {
        Ok(result) => result,
        Err(lost) => Err(Fault::new(Blame::Bug, format!("a statement ended early: {lost}"))),
    }
}

/// Rows that are made elsewhere. Dropping them cancels what makes them.
pub(crate) struct Rows {
    batches: mpsc::Receiver<Result<RecordBatch, Fault>>,
    task: Option<Task<()>>,
}

impl Rows {
    /// Starts to pull rows, a few batches ahead.
    pub(crate) fn pull(mut rows: BoxStream<'static, Result<RecordBatch, Fault>>) -> Self {
        let (sender, batches) = mpsc::channel(BATCHES_AHEAD);
        let task = Task(tokio::spawn(async move {
            while let Some(batch) = rows.next().await {
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
        }));
        Self { batches, task: Some(task) }
    }

    /// The next rows; none at their end.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>, Fault> {
        if let Some(batch) = self.batches.recv().await {
            return batch.map(Some);
        }
        // The sender is gone also when the task was lost, and then the rows are not complete.
        match self.task.take() {
            Some(mut task) => match (&mut task.0).await {
                Ok(()) => Ok(None),
                Err(lost) => Err(Fault::new(Blame::Bug, format!("a statement ended early: {lost}"))),
            },
            None => Ok(None),
        }
    }
}

/// A task that is cancelled when nobody waits for it any more.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array};
    use futures::stream;

    use super::*;

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]).unwrap()
    }

    #[tokio::test]
    async fn rows_end_once_and_faults_pass() {
        let mut rows = Rows::pull(stream::iter([Ok(batch()), Err(Fault::new(Blame::Device, "gone"))]).boxed());
        assert_eq!(rows.next().await, Ok(Some(batch())));
        assert_eq!(rows.next().await.unwrap_err().blame, Blame::Device);
        assert_eq!((rows.next().await, rows.next().await), (Ok(None), Ok(None)));
    }

    #[tokio::test]
    async fn lost_rows_are_not_taken_for_their_end() {
        let panics = stream::iter([Ok(batch())]).chain(stream::once(async { panic!("as a bug would") }));
        let mut rows = Rows::pull(panics.boxed());
        assert_eq!(rows.next().await, Ok(Some(batch())));
        assert_eq!(rows.next().await.unwrap_err().blame, Blame::Bug);
    }
}
