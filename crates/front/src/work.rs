//! Work of a statement in a task of its own, on other threads than those of connections. Operators may keep theirs for long, and a
//! connection has to hear meanwhile that its client has cancelled the statement, or has gone.

use arrow::array::RecordBatch;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use pithead_model::Fault;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet, block_in_place};

/// Bytes that are read where they are needed, since that takes no longer than to have it done elsewhere.
const HERE_BYTES_MAX: usize = 64 << 10;

/// Does work over so many bytes: over many of them where statements run, since it does not pause, and others wait for the threads of
/// connections.
pub(crate) async fn by_size<T: Send + 'static>(
    threads: &Handle,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    match bytes > HERE_BYTES_MAX {
        true => in_own_task(threads, async move { Ok(beside_statements(work)) }).await,
        false => Ok(work()),
    }
}

/// Works on a thread whose other statements go on at another one.
fn beside_statements<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(work),
        _ => work(),
    }
}

/// Does work that ends, as soon as it comes to a pause, when nobody waits for it any more.
pub(crate) async fn in_own_task<T: Send + 'static>(
    threads: &Handle,
    work: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, Fault> {
    // Ends its task when it is dropped.
    let mut task = JoinSet::new();
    task.spawn_on(work, threads);
    match task.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) => Err(broken_off(&error)),
        None => Err(Fault::bug("a statement without a task")),
    }
}

/// Rows that are made while earlier ones are sent, one batch ahead.
pub(crate) fn rows_in_own_task(
    threads: &Handle,
    mut rows: impl Stream<Item = Result<RecordBatch, Fault>> + Send + Unpin + 'static,
) -> BoxStream<'static, Result<RecordBatch, Fault>> {
    let (sender, receiver) = mpsc::channel(1);
    let mut task = JoinSet::new();
    let making = async move {
        while let Some(batch) = rows.next().await {
            let is_last = batch.is_err();
            if sender.send(batch).await.is_err() || is_last {
                break;
            }
        }
    };
    task.spawn_on(making, threads);
    let made = TaskOutput { receiver, task };
    futures::stream::unfold(made, |mut made| async move { made.next().await.map(|batch| (batch, made)) }).boxed()
}

/// What a task makes.
struct TaskOutput {
    receiver: mpsc::Receiver<Result<RecordBatch, Fault>>,
    task: JoinSet<()>,
}

impl TaskOutput {
    async fn next(&mut self) -> Option<Result<RecordBatch, Fault>> {
        if let Some(batch) = self.receiver.recv().await {
            return Some(batch);
        }
        // Rows that end because their task did are not all there were.
        match self.task.join_next().await? {
            Ok(()) => None,
            Err(error) => Some(Err(broken_off(&error))),
        }
    }
}

fn broken_off(error: &JoinError) -> Fault {
    Fault::bug(format!("a statement broke off: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn batch(value: i64) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values([value]));
        RecordBatch::try_from_iter([("v", values)]).unwrap()
    }

    #[tokio::test]
    async fn rows_come_in_their_order_and_end() {
        let rows = futures::stream::iter((0..100).map(|value| Ok(batch(value))));
        let came: Vec<_> = rows_in_own_task(&Handle::current(), rows).map(Result::unwrap).collect().await;
        assert_eq!(came, (0..100).map(batch).collect::<Vec<_>>());
    }

    /// A regression: two clients with texts of 16 MiB kept all others waiting while these were read.
    #[tokio::test]
    async fn much_is_read_where_statements_run() {
        let statements = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let thread = async |bytes| by_size(statements.handle(), bytes, || std::thread::current().id()).await.unwrap();
        let here = std::thread::current().id();
        assert_eq!(thread(HERE_BYTES_MAX).await, here);
        assert_ne!(thread(HERE_BYTES_MAX + 1).await, here);
        statements.shutdown_background();
    }

    #[tokio::test]
    async fn nothing_follows_an_error() {
        let rows = futures::stream::iter([Ok(batch(1)), Err(Fault::invalid("no")), Ok(batch(2))]);
        let came: Vec<_> = rows_in_own_task(&Handle::current(), rows).collect().await;
        assert_eq!(came.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_no_end() {
        let rows = futures::stream::iter(0..2).map(|value| if value == 0 { Ok(batch(0)) } else { panic!("lost") });
        let came: Vec<_> = rows_in_own_task(&Handle::current(), rows).collect().await;
        assert_eq!(came.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
        assert!(in_own_task::<()>(&Handle::current(), async { panic!("lost") }).await.is_err());
    }

    /// A regression: the task of a connection polled the rows itself, and heard of a cancel once a poll of 9 s had ended.
    #[tokio::test]
    async fn who_waits_is_free_while_operators_keep_all_threads_of_statements() {
        let statements = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let rows = futures::stream::iter([0]).map(move |value| {
            let _ = held.recv();
            Ok(batch(value))
        });
        let mut rows = rows_in_own_task(statements.handle(), rows);
        let gone = tokio::time::timeout(Duration::from_millis(50), rows.next()).await;
        assert!(gone.is_err(), "rows came before they were made");
        release.send(()).unwrap();
        assert_eq!(rows.next().await.unwrap().unwrap(), batch(0));
        statements.shutdown_background();
    }
}
