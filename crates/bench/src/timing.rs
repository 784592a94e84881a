//! Running a query and what it took; several runs and their middle.

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use futures::TryStreamExt;
use pithead_embed::Engine;
use pithead_host::{ProfileSnapshot, Session};
use pithead_model::Fault;
use serde::Serialize;

/// Queries that the best speed-up is told of.
const BEST_QUERIES: usize = 5;

/// Runs of all queries over attached files before the first that counts, and how long to wait after each: what is read again is kept as
/// if it had been loaded, once that is done in the background.
pub(crate) const ATTACHED_WARM_UPS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(15)];

/// One run of a query.
#[derive(Debug)]
pub(crate) struct QueryRun {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) seconds: f64,
    pub(crate) profile: ProfileSnapshot,
}

impl QueryRun {
    pub(crate) fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// A session that answers nothing from what the host or the drives have kept of earlier queries: what is repeated here is measured
/// each time.
pub(crate) async fn unhelped(engine: &Engine) -> Result<Session, Fault> {
    let session = engine.host.session();
    for statement in ["SET pithead.summary_cache = off", "SET pithead.slice_cache = 0"] {
        session.run(statement).await?;
    }
    Ok(session)
}

/// Runs a statement to its last row.
pub(crate) async fn run(session: &Session, sql: &str) -> Result<QueryRun, Fault> {
    let started = Instant::now();
    let answer = session.run(sql).await?;
    let profile = answer.profile;
    let batches: Vec<RecordBatch> = answer.rows.try_collect().await?;
    Ok(QueryRun { batches, seconds: started.elapsed().as_secs_f64(), profile: profile.snapshot() })
}

/// A figure of several runs: mostly seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of at least one run.
    pub(crate) fn of(mut seconds: Vec<f64>) -> Spread {
        seconds.sort_by(f64::total_cmp);
        let at = |index: usize| seconds.get(index).copied().unwrap_or(f64::NAN);
        Spread { median: at(seconds.len() / 2), min: at(0), max: at(seconds.len().saturating_sub(1)) }
    }
}

/// The geometric mean of ratios above 0.
pub(crate) fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.into_iter().fold((0.0, 0), |(sum, count), ratio| (sum + ratio.ln(), count + 1));
    if count == 0 { f64::NAN } else { (sum / f64::from(count)).exp() }
}

/// Mean of the best speed-ups, of as many queries as the slides of YourSQL tell of.
pub(crate) fn best_gain(gains: impl Iterator<Item = f64>) -> f64 {
    let mut gains: Vec<f64> = gains.collect();
    gains.sort_by(|a, b| b.total_cmp(a));
    gains.truncate(BEST_QUERIES);
    gains.iter().sum::<f64>() / gains.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_not_moved_by_one_slow_run() {
        assert_eq!(Spread::of(vec![9.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 9.0 });
        assert!((geometric_mean([0.5, 2.0]) - 1.0).abs() < 1e-12);
    }
}
