//! [`Watch`]: follows a statement to its end, however that comes, counts it, and tells of it in the log if it was slow. Where somebody
//! looks on, it tells [`crate::Activity`], too, and ends the statement that is cancelled there.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use futures::future::{BoxFuture, OptionFuture};
use futures::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use pithead_model::{Bytes, Fault};

use crate::activity::{Ending, Followed, SharedRows, cancelled_by_another, without_secrets};
use crate::figures::PlanLine;
use crate::large_texts::Admitted;
use crate::metrics::outcome;
use crate::query::{Prepared, Query};
use crate::{Answer, Commitment, Host, Session, explain};
use pithead_remote::QueryProfile;

/// A statement on its way.
pub(crate) struct Watch {
    host: Host,
    kind: &'static str,
    started: Instant,
    /// How it ended; until then, its client may drop it.
    outcome: &'static str,
    profile: Option<Arc<QueryProfile>>,
    rows: u64,
    planned: Option<Duration>,
    /// Time that the client took between rows.
    client: Duration,
    slow: Option<Slow>,
    /// Where it is told to those who look on.
    followed: Option<Arc<Followed>>,
    /// What went wrong, for these.
    fault: Option<String>,
    /// Until when it can be cancelled.
    commitment: Arc<Commitment>,
    /// Its text, whose memory is reserved until it has ended.
    admitted: Arc<Admitted>,
}

/// The facts that the log has of a slow query.
pub(crate) struct Slow {
    pub(crate) sql: String,
    /// From how long on it is slow.
    pub(crate) limit: Duration,
    /// The query and its prepared plan; none: it ended before it had one.
    pub(crate) run: Option<(Arc<Query>, Arc<Prepared>)>,
}

impl Watch {
    pub(crate) fn start(session: &Session, kind: &'static str, sql: &str, commitment: &Arc<Commitment>) -> Self {
        let host = session.host.clone();
        host.metrics().running.inc();
        let followed = host.activity().begin(kind, sql, session.client.lock().as_ref(), commitment);
        Self {
            host,
            kind,
            started: Instant::now(),
            outcome: "cancelled",
            profile: None,
            rows: 0,
            planned: None,
            client: Duration::ZERO,
            slow: None,
            followed,
            fault: None,
            commitment: Arc::clone(commitment),
            admitted: Arc::default(),
        }
    }

    /// The same of a statement whose text takes much memory.
    pub(crate) fn of(mut self, admitted: Arc<Admitted>) -> Self {
        self.admitted = admitted;
        self
    }

    pub(crate) fn admitted(&self) -> Arc<Admitted> {
        Arc::clone(&self.admitted)
    }

    /// Until when it can be cancelled.
    pub(crate) fn commitment(&self) -> Arc<Commitment> {
        Arc::clone(&self.commitment)
    }

    /// Where it is told to those who look on; none: nobody does.
    pub(crate) fn followed(&self) -> Option<Arc<Followed>> {
        self.followed.clone()
    }

    /// Tells of the query if it takes too long.
    pub(crate) fn tell(&mut self, slow: Slow) {
        self.slow = Some(slow);
    }

    /// The query is planned; small tables may be computed first.
    pub(crate) fn counts(&self, profile: &Arc<QueryProfile>) {
        if let Some(followed) = &self.followed {
            followed.counts(profile);
        }
    }

    /// The query starts to run. A prepared plan holds the tables to ship, so it is kept only where the log may show it.
    pub(crate) fn runs(&mut self, query: &Arc<Query>, prepared: Arc<Prepared>) {
        self.profile = Some(Arc::clone(&query.profile));
        self.planned = Some(self.started.elapsed());
        if let Some(slow) = &mut self.slow {
            slow.run = Some((Arc::clone(query), Arc::clone(&prepared)));
        }
        if let Some(followed) = &self.followed {
            followed.runs((Arc::clone(query), prepared));
        }
    }

    /// The statement's answer: it ends with its last row.
    pub(crate) fn answered(mut self, result: Result<Answer, Fault>) -> Result<Answer, Fault> {
        self.ended(&result);
        let mut answer = result?;
        self.counts(&answer.profile);
        if answer.is_query {
            self.outcome = "cancelled";
            self.profile.get_or_insert_with(|| Arc::clone(&answer.profile));
            answer.rows = Watched::new(self, Arc::new(Mutex::new(answer.rows))).boxed();
        } else if let Some((followed, rows)) = self.followed.as_ref().zip(answer.changed) {
            followed.given(rows);
        }
        Ok(answer)
    }

    /// How it ended, if nothing else comes.
    fn ended<T>(&mut self, result: &Result<T, Fault>) {
        self.outcome = outcome(result);
        self.fault = result.as_ref().err().map(ToString::to_string);
    }

    fn tell_slow(&self, slow: &Slow, took: Duration) {
        self.host.metrics().slow.inc();
        let sums = self.profile.as_ref().map(|profile| profile.snapshot()).unwrap_or_default();
        let plan = slow.run.as_ref().map_or_else(
            || "it did not come to run".to_owned(),
            |(query, prepared)| lines(&explain::annotated(query, prepared, self.rows)),
        );
        let plan = without_secrets(&plan);
        let statement: String = without_secrets(&slow.sql).split_whitespace().collect::<Vec<_>>().join(" ");
        tracing::warn!(
            target: "pithead_host::slow",
            seconds = took.as_secs_f64(),
            outcome = self.outcome,
            rows = self.rows,
            planning_s = self.planned.unwrap_or(took).as_secs_f64(),
            longest_open_s = sums.session_open_us as f64 / 1e6,
            busy = sums.busy,
            busy_wait_s = sums.busy_us as f64 / 1e6,
            failovers = sums.failovers,
            client_s = self.client.as_secs_f64(),
            drive_cpu_s = sums.drive_cpu_ns as f64 / 1e9,
            link = %Bytes(sums.link_bytes),
            statement,
            "slow query\n{plan}\n   "
        );
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let metrics = self.host.metrics();
        metrics.running.dec();
        metrics.ended(self.kind, self.outcome);
        if self.kind == "query" {
            metrics.statement_seconds.observe(took.as_secs_f64());
        }
        if let (Some(planned), "query") = (self.planned, self.kind) {
            metrics.planning_seconds.observe(planned.as_secs_f64());
        }
        if let Some(profile) = self.profile.as_ref().filter(|_| self.outcome == "ok") {
            self.host.samples().learn(profile);
        }
        if let Some(profile) = &self.profile {
            metrics.took(&profile.snapshot(), self.rows);
        }
        if let Some(slow) = self.slow.as_ref().filter(|slow| took >= slow.limit) {
            self.tell_slow(slow, took);
        }
        if let Some(followed) = self.followed.take() {
            let ending = Ending { outcome: self.outcome, fault: self.fault.take(), took };
            self.host.activity().end(&followed, ending);
        }
    }
}

fn lines(plan: &[PlanLine]) -> String {
    plan.iter().map(PlanLine::to_string).collect::<Vec<_>>().join("\n")
}

/// Rows that are counted. The statement ends with them, or when they are dropped.
struct Watched {
    rows: SharedRows,
    watch: Watch,
    /// Ends once the statement is cancelled from outside.
    cancelled: OptionFuture<BoxFuture<'static, ()>>,
    /// When the client was given the last rows.
    given: Option<Instant>,
    is_over: bool,
}

impl Watched {
    fn new(watch: Watch, rows: SharedRows) -> Watched {
        if let Some(followed) = &watch.followed {
            followed.gives(&rows);
        }
        let cancelled = watch.followed.as_ref().map(|followed| followed.cancelled().boxed()).into();
        Watched { rows, watch, cancelled, given: None, is_over: false }
    }

    /// The next rows of the statement, unless it is cancelled.
    fn poll_rows(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch, Fault>>> {
        if self.watch.followed.as_ref().is_some_and(|followed| followed.is_cancelled()) {
            return Poll::Ready(Some(Err(cancelled_by_another())));
        }
        let polled = self.rows.lock().poll_next_unpin(context);
        // It may have been cancelled meanwhile. Without anybody who could do that, the future is ready with nothing.
        if polled.is_pending() && self.cancelled.poll_unpin(context) == Poll::Ready(Some(())) {
            return Poll::Ready(Some(Err(cancelled_by_another())));
        }
        polled
    }
}

impl Drop for Watched {
    /// What it has at drives is closed before it is counted.
    fn drop(&mut self) {
        *self.rows.lock() = futures::stream::empty().boxed();
    }
}

impl Stream for Watched {
    type Item = Result<RecordBatch, Fault>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(given) = self.given.take() {
            self.watch.client += given.elapsed();
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let polled = self.poll_rows(context);
        match &polled {
            Poll::Ready(Some(Ok(batch))) => {
                let rows = batch.num_rows() as u64;
                self.watch.rows += rows;
                if let Some(followed) = &self.watch.followed {
                    followed.given(rows);
                }
                self.given = Some(Instant::now());
            }
            Poll::Ready(Some(Err(fault))) => {
                self.watch.ended(&Err::<(), _>(fault.clone()));
                self.is_over = true;
            }
            Poll::Ready(None) => {
                self.watch.outcome = "ok";
                self.is_over = true;
            }
            Poll::Pending => {}
        }
        polled
    }
}
