//! [`Watch`]: follows a statement to its end, however that comes, counts it, and tells of it in the log if it was slow.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use pithead_model::{Bytes, Fault};

use crate::metrics::outcome;
use crate::query::{Prepared, Query};
use crate::{Answer, Host, explain};
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
}

/// What is told of a slow query.
pub(crate) struct Slow {
    pub(crate) sql: String,
    /// From how long on it is slow.
    pub(crate) limit: Duration,
    /// What was run; none: it did not come so far.
    pub(crate) run: Option<(Arc<Query>, Arc<Prepared>)>,
}

impl Watch {
    pub(crate) fn start(host: &Host, kind: &'static str) -> Self {
        host.metrics().running.inc();
        Self {
            host: host.clone(),
            kind,
            started: Instant::now(),
            outcome: "cancelled",
            profile: None,
            rows: 0,
            planned: None,
            client: Duration::ZERO,
            slow: None,
        }
    }

    /// Tells of the query if it takes too long.
    pub(crate) fn tell(&mut self, slow: Slow) {
        self.slow = Some(slow);
    }

    /// The query starts to run.
    pub(crate) fn runs(&mut self, profile: &Arc<QueryProfile>, run: Option<(Arc<Query>, Arc<Prepared>)>) {
        self.profile = Some(Arc::clone(profile));
        self.planned = Some(self.started.elapsed());
        if let Some(slow) = &mut self.slow {
            slow.run = run;
        }
    }

    /// The statement's answer: it ends with its last row.
    pub(crate) fn answered(mut self, result: Result<Answer, Fault>) -> Result<Answer, Fault> {
        self.outcome = outcome(&result);
        let mut answer = result?;
        if answer.is_query {
            self.outcome = "cancelled";
            self.profile.get_or_insert_with(|| Arc::clone(&answer.profile));
            answer.rows = Watched { rows: answer.rows, watch: self, given: None, is_over: false }.boxed();
        }
        Ok(answer)
    }

    fn tell_slow(&self, slow: &Slow, took: Duration) {
        self.host.metrics().slow.inc();
        let sums = self.profile.as_ref().map(|profile| profile.snapshot()).unwrap_or_default();
        let plan = slow.run.as_ref().map_or_else(
            || "it did not come to run".to_owned(),
            |(query, prepared)| explain::annotated(query, prepared, self.rows).join("\n"),
        );
        let statement: String = slow.sql.split_whitespace().collect::<Vec<_>>().join(" ");
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
    }
}

/// Rows that are counted. The statement ends with them, or when they are dropped.
struct Watched {
    rows: BoxStream<'static, Result<RecordBatch, Fault>>,
    watch: Watch,
    /// When the client was given the last rows.
    given: Option<Instant>,
    is_over: bool,
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
        let polled = self.rows.poll_next_unpin(context);
        match &polled {
            Poll::Ready(Some(Ok(batch))) => {
                self.watch.rows += batch.num_rows() as u64;
                self.given = Some(Instant::now());
            }
            Poll::Ready(Some(Err(fault))) => {
                self.watch.outcome = outcome(&Err::<(), _>(fault.clone()));
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
