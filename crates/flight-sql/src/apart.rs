//! [`apart`]: planning in a task of its own. It may work for seconds without a pause, and its client is answered in time all the same.

use std::sync::Arc;

use pithead_host::{Answer, Commitment, Deadline, Parameters, Session, Statement};
use pithead_model::Fault;
use tokio::task::{JoinError, JoinSet};

/// Reads and plans a statement, within the time that a statement may take.
pub(crate) async fn prepared(session: &Arc<Session>, sql: &str, parameters: &Parameters) -> Result<Statement, Fault> {
    let (own, sql, parameters) = (Arc::clone(session), sql.to_owned(), parameters.clone());
    let planning = async move { own.prepare(&sql, &parameters).await };
    apart(Deadline::after(session.statement_timeout()), &Commitment::default(), planning).await
}

/// Runs a statement that changes something. The host times it; a long one, whose planning does not pause, is timed here, too.
pub(crate) async fn run(session: &Arc<Session>, sql: &str, parameters: &Parameters) -> Result<Answer, Fault> {
    /// Shorter ones are planned within milliseconds.
    const SHORT_BYTES: usize = 16 << 10;
    if sql.len() <= SHORT_BYTES {
        return session.run_with(sql, parameters).await;
    }
    let (own, sql, parameters) = (Arc::clone(session), sql.to_owned(), parameters.clone());
    let commitment = Arc::<Commitment>::default();
    let sends = Arc::clone(&commitment);
    let running = async move { own.run_until(&sql, &parameters, &sends).await };
    apart(Deadline::after(session.statement_timeout()), &commitment, running).await
}

/// Does work that ends with a pause after its time, or when nobody waits for it. Once it has sent what it changes, its outcome counts.
async fn apart<T: Send + 'static>(
    deadline: Option<Deadline>,
    commitment: &Commitment,
    work: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, Fault> {
    // Ends its task when it is dropped.
    let mut task = JoinSet::new();
    task.spawn(work);
    if let Some(deadline) = deadline {
        tokio::select! {
            biased;
            done = task.join_next() => return outcome(done),
            () = deadline.passed() => {
                let late = deadline.fault("the statement");
                if commitment.cancel(late.clone()) {
                    return Err(late);
                }
            }
        }
    }
    outcome(task.join_next().await)
}

fn outcome<T>(done: Option<Result<Result<T, Fault>, JoinError>>) -> Result<T, Fault> {
    match done {
        Some(Ok(done)) => done,
        Some(Err(error)) => Err(Fault::bug(format!("a statement broke off: {error}"))),
        None => Err(Fault::bug("a statement without a task")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pithead_model::FaultKind;

    use super::*;

    /// A regression: the time was looked at once planning had ended.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_waits_is_answered_in_time() {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let deadline = || Deadline::after(Some(Duration::from_millis(20)));
        let commitment = Commitment::default();
        let late = apart(deadline(), &commitment, async move {
            let _ = held.recv();
            Ok(1)
        });
        assert_eq!(late.await.unwrap_err().kind, FaultKind::Timeout);
        drop(release);
        assert!(commitment.cancel(Fault::invalid("again")), "it is cancelled");
        assert_eq!(apart(deadline(), &Commitment::default(), async { Ok(2) }).await.unwrap(), 2);
        assert!(apart(None, &Commitment::default(), async { Err::<(), _>(Fault::invalid("no")) }).await.is_err());
    }
}
