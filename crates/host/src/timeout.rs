//! [`Deadline`]: how long a statement may take, `SET statement_timeout`.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use pithead_model::{Blame, Fault, FaultKind};
use tokio::time::Instant;

use crate::{Answer, Commitment};

/// What a host times by itself.
const STATEMENT: &str = "the statement";
/// Units that PostgreSQL knows of durations, and their microseconds.
const UNITS: [(&str, u64); 6] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];
/// Longest that a timeout may be; PostgreSQL has the same bound.
const TIMEOUT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

tokio::task_local! {
    /// Set while a statement is answered whose client takes its rows in parts.
    static IN_PARTS: ();
}

/// Runs a statement whose client takes its rows in parts, when it likes to, as those of a cursor. Its answer is timed as that of any
/// other one, and its rows are not: the time that goes by between two parts is the client's. Who sends the parts times each of them.
pub async fn taken_in_parts<T>(running: impl Future<Output = T>) -> T {
    IN_PARTS.scope((), running).await
}

/// When a statement is to have ended, from its arrival to its last row, or a part of it that a server times.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    /// From now on. None: the statement may take as long as it needs.
    pub fn after(timeout: Option<Duration>) -> Option<Deadline> {
        timeout.map(|timeout| Deadline { at: Instant::now() + timeout, timeout })
    }

    /// Runs what answers a statement until the deadline. What it had at drives is closed with it, and so are the rows of its answer
    /// that have not ended by then, unless they are [`taken_in_parts`]. Once it has sent what it changes, it has the time that it
    /// needs.
    pub(crate) async fn run(
        self,
        commitment: &Commitment,
        answer: impl Future<Output = Result<Answer, Fault>>,
    ) -> Result<Answer, Fault> {
        let mut answer = std::pin::pin!(answer);
        let answered = match tokio::time::timeout_at(self.at, &mut answer).await {
            Ok(answered) => answered,
            Err(_) if commitment.cancel(self.fault(STATEMENT)) => Err(self.fault(STATEMENT)),
            Err(_) => answer.await,
        };
        let answer = answered?;
        match commitment.is_sent() || IN_PARTS.try_with(|&()| ()).is_ok() {
            true => Ok(answer),
            false => Ok(Answer { rows: self.rows(answer.rows), ..answer }),
        }
    }

    fn rows<T: Send + 'static>(self, rows: BoxStream<'static, Result<T, Fault>>) -> BoxStream<'static, Result<T, Fault>> {
        let over = self.passed().map(move |()| Err(self.fault(STATEMENT)));
        futures::stream::unfold(Some((rows, Box::pin(over))), |state| async move {
            let (mut rows, mut over) = state?;
            tokio::select! {
                biased;
                fault = &mut over => Some((fault, None)),
                row = rows.next() => row.map(|row| (row, Some((rows, over)))),
            }
        })
        .boxed()
    }

    /// Ends once it is over.
    pub async fn passed(self) {
        tokio::time::sleep_until(self.at).await;
    }

    /// That `what` took too long.
    pub fn fault(self, what: &str) -> Fault {
        let timeout = self.timeout;
        let message = format!("{what} took longer than statement_timeout allows, {timeout:?}, and was cancelled");
        Fault::new(Blame::Limit, message)
            .of_kind(FaultKind::Timeout)
            .hint("SET statement_timeout = '10min' allows more, and SET statement_timeout = 0 any time")
    }
}

/// Reads `5s`, `1.5 min`, or milliseconds without a unit; 0 is none.
pub(crate) fn parse(text: &str) -> Result<Option<Duration>, Fault> {
    let wrong = || {
        let message = format!("expected a duration such as '5s' or milliseconds as statement_timeout, got {text:?}");
        Fault::new(Blame::User, message).hint("units are us, ms, s, min, h and d; 0 is no timeout")
    };
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let micros = match unit.trim() {
        "" => 1_000,
        unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1,
    };
    let timeout = Duration::try_from_secs_f64(number * micros as f64 / 1e6).map_err(|_| wrong())?;
    match timeout {
        Duration::ZERO => Ok(None),
        timeout if timeout > TIMEOUT_MAX => Err(wrong()),
        timeout => Ok(Some(timeout.max(Duration::from_millis(1)))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::RecordBatch;
    use arrow::datatypes::Schema;

    use super::*;

    #[test]
    fn durations_read_as_in_postgresql() {
        for (text, ms) in [("5s", 5_000), ("250", 250), ("1.5 min", 90_000), ("2ms", 2), ("1us", 1), ("1h", 3_600_000)] {
            assert_eq!(parse(text).unwrap(), Some(Duration::from_millis(ms)), "{text}");
        }
        for none in ["0", "0s", " 0 "] {
            assert_eq!(parse(none).unwrap(), None, "{none}");
        }
        for wrong in ["", "soon", "-1", "5 parsecs", "1e3s", "100d", "1.2.3s"] {
            assert_eq!(parse(wrong).unwrap_err().blame, Blame::User, "{wrong}");
        }
    }

    #[tokio::test]
    async fn rows_end_at_the_deadline_with_an_error() {
        let deadline = Deadline::after(Some(Duration::from_millis(100))).unwrap();
        let endless = futures::stream::unfold(0, |row| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some((Ok(row), row + 1))
        });
        let mut rows: Vec<Result<i32, Fault>> = deadline.rows(endless.boxed()).collect().await;
        assert_eq!(rows.pop().unwrap().unwrap_err().blame, Blame::Limit);
        assert!(rows.iter().all(Result::is_ok));
    }

    /// A regression: a cursor ended in the middle of its rows, however fast each FETCH was.
    #[tokio::test]
    async fn rows_that_are_taken_in_parts_have_no_deadline() {
        let timeout = Duration::from_millis(20);
        let batch = || Ok(RecordBatch::new_empty(Arc::new(Schema::empty())));
        let answered = async |in_parts: bool| {
            let (deadline, commitment) = (Deadline::after(Some(timeout)).unwrap(), Commitment::default());
            let rows = futures::stream::iter([batch(), batch()]).boxed();
            let running = deadline.run(&commitment, async { Ok(Answer { rows, ..Answer::done() }) });
            let mut rows = if in_parts { taken_in_parts(running).await } else { running.await }.unwrap().rows;
            let _first = rows.next().await;
            tokio::time::sleep(2 * timeout).await;
            rows.next().await.is_some_and(|row| row.is_ok())
        };
        assert!(answered(true).await);
        assert!(!answered(false).await);
        let deadline = Deadline::after(Some(timeout)).unwrap();
        let late = taken_in_parts(deadline.run(&Commitment::default(), std::future::pending())).await;
        assert_eq!(late.err().map(|fault| fault.kind), Some(FaultKind::Timeout), "the answer has one still");
    }

    #[tokio::test]
    async fn an_answer_that_does_not_come_is_dropped() {
        let deadline = Deadline::after(Some(Duration::from_millis(1))).unwrap();
        let commitment = Commitment::default();
        let fault = deadline.run(&commitment, futures::future::pending()).await.err().unwrap();
        assert!(fault.message.contains("statement_timeout"), "{fault}");
        assert_eq!(commitment.send().unwrap_err(), fault, "it sends nothing any more");
    }

    /// A regression: the client was told that a statement was cancelled whose rows were there, and ran it again.
    #[tokio::test]
    async fn what_has_sent_its_change_goes_on_to_its_outcome() {
        let late = Duration::from_millis(20);
        let deadline = || Deadline::after(Some(Duration::from_millis(1))).unwrap();
        let commitment = Commitment::default();
        let done = deadline().run(&commitment, async {
            commitment.send()?;
            tokio::time::sleep(late).await;
            let row = futures::stream::once(async move {
                tokio::time::sleep(late).await;
                Ok(RecordBatch::new_empty(Arc::new(Schema::empty())))
            });
            Ok::<_, Fault>(Answer { rows: row.boxed(), changed: Some(7), ..Answer::done() })
        });
        let answer = done.await.unwrap();
        assert_eq!(answer.changed, Some(7));
        let rows: Vec<_> = answer.rows.collect().await;
        assert!(matches!(rows.as_slice(), [Ok(_)]), "rows of RETURNING come, too");
        // It was not made, and the statement does not begin again.
        let commitment = Commitment::default();
        let fault = deadline().run(&commitment, async {
            commitment.send()?;
            tokio::time::sleep(late).await;
            commitment.withdraw();
            commitment.check()?;
            Ok::<_, Fault>(Answer::done())
        });
        assert_eq!(fault.await.err().map(|fault| fault.kind), Some(FaultKind::Timeout));
    }
}
