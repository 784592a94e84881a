//! The sampler: before joins are ordered, a few pages of the tables whose predicates bounds cannot judge are looked at, at the
//! drives (Jo et al. 2016, YourSQL; see `docs/bibliography.md`). The sampler keeps its counts by predicate and by slices.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use datafusion::logical_expr::LogicalPlan;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, PAGE_ROWS, PageSample, SliceSpan};
use pithead_plan::{CutOptions, DatasetFacts, SampleKey, SampleQuestion, Sampled, Samples, counted_by, sample_questions};
use pithead_remote::{QueryProfile, SubPlanProfile};

use crate::kept_rows::KeptRows;
use crate::query::{Mode, Query};

/// Pages of a table that a sample looks at, where it has so many.
const PAGES: f64 = 8.0;
/// Tables below so many samples are judged by bounds and rules: reading them takes about as long as asking.
const SAMPLES_MIN: f64 = 2.0;
/// Rows that a query has to read for each sample: one that reads fewer takes little longer than its samples would.
const ROWS_EACH: u64 = 4_000_000;
/// Figures that a host keeps at most.
const KEPT_MAX: usize = 4_096;
/// What a lying sampler's figures are wrong by.
const LIE: f64 = 1_000.0;

/// When the host samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampling {
    /// Where it may be worth it.
    Auto,
    /// Small tables, too.
    Always,
    /// Never.
    Off,
    /// Always, with figures that are wrong, by this seed: for tests.
    Lying(u64),
}

/// Figures of earlier queries.
#[derive(Debug, Default)]
pub(crate) struct KeptSamples(Mutex<HashMap<SampleKey, Sampled>>);

/// The pages that a query's sessions read, where it is a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampledPages {
    /// Pages over all drives.
    pages: f64,
    seed: u64,
}

/// A predicate that was sampled, for EXPLAIN.
#[derive(Clone, Debug)]
pub(crate) struct SampleReport {
    pub(crate) question: SampleQuestion,
    pub(crate) answer: Sampled,
    /// How long it took; none: it was known.
    pub(crate) took: Option<Duration>,
}

impl KeptSamples {
    fn find(&self, key: &SampleKey) -> Option<Sampled> {
        self.0.lock().get(key).copied()
    }

    /// Keeps a figure. A count over all rows is never replaced by one of a sample.
    fn keep(&self, key: SampleKey, sampled: Sampled) {
        let mut kept = self.0.lock();
        if kept.len() >= KEPT_MAX {
            // Predicates that are asked for often are counted again soon.
            kept.clear();
        }
        let known = kept.entry(key).or_insert(sampled);
        if sampled.is_exact || !known.is_exact {
            *known = sampled;
        }
    }

    /// Keeps what a query has counted on its way.
    pub(crate) fn learn(&self, profile: &QueryProfile) {
        for sub_plan in profile.sub_plans() {
            if let Some((key, counted)) = counted(&sub_plan) {
                self.keep(key, counted);
            }
        }
    }
}

/// What a sub-plan has counted over all rows of its dataset.
pub(crate) fn counted(profile: &SubPlanProfile) -> Option<(SampleKey, Sampled)> {
    let key = counted_by(&profile.sub_plan)?;
    let rows = profile.rows_of_all_slices()?;
    Some((key, Sampled::counted(profile.sub_plan.datasets[0].dataset.rows(), rows)))
}

impl SampledPages {
    /// What a session over a partition with so many slices leaves out, of so many partitions, and what it reads of the others.
    pub(crate) fn of_partition(self, slices: u32, partitions: usize) -> (Vec<SliceSpan>, PageSample) {
        let share = (self.pages / partitions.max(1) as f64).max(1.0);
        let read = PageSample { pages: share as u32, seed: self.seed }.choose((0..u64::from(slices)).collect());
        let pages = (share / read.len().max(1) as f64).ceil() as u32;
        let left_out = (0..slices).filter(|slice| !read.contains(&u64::from(*slice))).collect();
        (SliceSpan::cover(left_out), PageSample { pages, seed: self.seed })
    }
}

impl Query {
    /// What samples tell of a plan's predicates. A sample that fails or takes too long tells nothing.
    pub(crate) async fn sampled(&self, plan: &LogicalPlan, cut: &CutOptions) -> Result<Vec<SampleReport>, Fault> {
        let sampling = self.settings.sampling()?;
        if sampling == Sampling::Off || !self.settings.pushdown || self.from_above.is_some() {
            return Ok(vec![]);
        }
        let (mut questions, rows) = sample_questions(plan, &self.datasets()).map_err(fault_from_datafusion)?;
        if sampling == Sampling::Auto {
            questions.retain(|question| question.facts.dataset.rows() as f64 >= SAMPLES_MIN * PAGES * PAGE_ROWS as f64);
            let is_known = |question: &SampleQuestion| self.host.samples().find(&question.key).is_some();
            let unknown = questions.iter().filter(|question| !is_known(question)).count() as u64;
            if rows < ROWS_EACH.saturating_mul(unknown) {
                questions.retain(is_known);
            }
        }
        let asked = questions.into_iter().map(|question| self.sample(question, cut));
        let mut reports: Vec<SampleReport> = futures::future::join_all(asked).await.into_iter().flatten().collect();
        if let Sampling::Lying(seed) = sampling {
            reports.iter_mut().zip(seed..).for_each(|(report, seed)| report.answer = lie(report.answer, seed));
        }
        let score = |report: &SampleReport| report.question.limiting_score(report.question.share(&report.answer));
        reports.sort_by(|a, b| score(b).total_cmp(&score(a)));
        Ok(reports)
    }

    async fn sample(&self, question: SampleQuestion, cut: &CutOptions) -> Option<SampleReport> {
        let kept = self.host.samples();
        if let Some(answer) = kept.find(&question.key) {
            return Some(SampleReport { question, answer, took: None });
        }
        let started = Instant::now();
        let limit = Duration::from_millis(self.settings.sample_ms as u64);
        let answer = match tokio::time::timeout(limit, self.ask(&question, cut)).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(fault)) => {
                tracing::debug!(dataset = %question.facts.name, %fault, "not sampled");
                return None;
            }
            Err(_) => {
                tracing::debug!(dataset = %question.facts.name, ?limit, "a sample took too long");
                return None;
            }
        };
        kept.keep(question.key.clone(), answer);
        Some(SampleReport { question, answer, took: Some(started.elapsed()) })
    }

    /// Counts rows of a few pages.
    async fn ask(&self, question: &SampleQuestion, cut: &CutOptions) -> Result<Option<Sampled>, Fault> {
        let page_bytes = question.read_bytes() * PAGE_ROWS as f64;
        let pages = (self.settings.sample_bytes as f64 / page_bytes.max(1.0)).clamp(1.0, PAGES);
        let query = Query {
            host: self.host.clone(),
            state: self.state.clone().into(),
            settings: self.settings.for_sample(),
            profile: Arc::clone(&self.profile),
            computed: Mutex::default(),
            shared: Mutex::default(),
            kept: KeptRows::new(&self.state),
            admitted: Arc::default(),
            from_above: None,
            pages: Some(SampledPages { pages, seed: seed(&question.facts) }),
            replans_left: 0,
        };
        let plan = question.plan().map_err(fault_from_datafusion)?;
        let cut = CutOptions { samples: Samples::default(), ..cut.clone() };
        let prepared = query.prepare_optimised(plan, Mode::Run, cut).await?;
        let rows = query.execute(&prepared).await?;
        let batches: Vec<RecordBatch> = rows.map(|batch| batch.map_err(fault_from_datafusion)).try_collect::<Vec<_>>().await?;
        Ok(question.answer(&batches))
    }
}

/// A dataset's sample is always of the same pages, so that a plan can be told again.
fn seed(facts: &DatasetFacts) -> u64 {
    facts.dataset.id.0
}

/// Figures that are wrong by a factor, one way or the other.
fn lie(answer: Sampled, seed: u64) -> Sampled {
    let wrong = |passed: u64, of: u64| match seed.is_multiple_of(2) {
        true => ((passed as f64 * LIE) as u64).min(of),
        false => (passed as f64 / LIE) as u64,
    };
    let passed = wrong(answer.passed, answer.rows);
    Sampled { others: passed, passed, within: answer.rows, is_exact: false, ..answer }
}

/// When to sample, from `auto`, `always`, `off` or `lying:SEED`.
pub(crate) fn parse_sampling(text: &str) -> Result<Sampling, Fault> {
    let text = text.trim().to_ascii_lowercase();
    match text.as_str() {
        "auto" | "true" => Ok(Sampling::Auto),
        "always" => Ok(Sampling::Always),
        "off" | "false" => Ok(Sampling::Off),
        other => {
            let seed = other.strip_prefix("lying:").and_then(|seed| seed.trim().parse().ok());
            seed.map(Sampling::Lying).ok_or_else(|| {
                let what = format!("expected auto, always, off or lying:SEED, got {text:?}");
                Fault::new(Blame::User, what).hint("SET pithead.sample = auto")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_is_looked_at_in_a_few_places() {
        let sampled = SampledPages { pages: 8.0, seed: 3 };
        let (left_out, read) = sampled.of_partition(10, 2);
        assert_eq!((left_out.iter().map(|span| span.count).sum::<u32>(), read.pages), (6, 1));
        let (left_out, read) = sampled.of_partition(2, 2);
        assert_eq!((left_out.len(), read.pages), (0, 2));
        let (left_out, read) = sampled.of_partition(3, 100);
        assert_eq!((left_out.iter().map(|span| span.count).sum::<u32>(), read.pages), (2, 1));
        assert_eq!(sampled.of_partition(0, 1).0, []);
    }

    #[test]
    fn ways_to_sample_are_named() {
        assert_eq!(parse_sampling(" Auto "), Ok(Sampling::Auto));
        assert_eq!(parse_sampling("false"), Ok(Sampling::Off));
        assert_eq!(parse_sampling("lying:12"), Ok(Sampling::Lying(12)));
        let fault = parse_sampling("often").unwrap_err();
        assert!(fault.message.contains("lying:SEED") && fault.hint.is_some());
    }

    #[test]
    fn a_lie_stays_within_the_rows() {
        let answer = Sampled { rows: 10_000, within: 10_000, others: 100, passed: 100, is_exact: false };
        assert_eq!((lie(answer, 2).passed, lie(answer, 3).passed), (10_000, 0));
    }
}
