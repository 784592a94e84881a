//! Planning anew in the middle of a query: what is done stays, and the slices that are left are had by another plan (Markl et al.
//! 2004; Montana et al. 2023, Skytether, section 5; see `docs/bibliography.md`).
//!
//! [`ReplanPoint`] says where: below it, rows of a dataset's slices count each for itself. One sub-plan over that dataset has a
//! [`Brake`]. While it runs, [`Anew`] compares what its closed rounds show with what was expected of them. Where they are far apart,
//! it plans the rest with what was measured; where that would be much sooner, the sub-plan is stopped between its rounds, the plan
//! ends with the rows that it has, and [`ReplanExec`] goes on with the other plan's.

mod exec;

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, SliceSpan};
use pithead_plan::{CutOptions, HostCost, ReplanPoint, Rest, Sampled, SubPlan, counted_by, replannable, with_replan_point};
use pithead_remote::{Brake, Measured, QueryProfile, SubPlanProfile};

use crate::kept_rows::KeptRows;
use crate::query::{Mode, Prepared, Query};
use crate::table::DatasetTable;
use crate::{Host, Settings};

pub(crate) use exec::ReplanExec;

/// How often a query's plan is changed at most.
pub(crate) const REPLANS_MAX: u32 = 3;
/// Datasets of fewer slices are read before anything is known of them.
const SLICES_MIN: u64 = 8;
/// By what factor rows must be other than expected.
const FACTOR: f64 = 4.0;
/// By what factor they must be other than at the last look for another one to be worth it.
const FACTOR_AGAIN: f64 = 2.0;
/// Rounds, and the share of all slices, by which rows are judged.
const ROUNDS_MIN: u64 = 2;
const SHARE_MIN: f64 = 0.03;
/// The share of all slices that must be left.
const REST_MIN: f64 = 0.25;
/// The share of its time that another plan may take.
const GAIN: f64 = 0.7;
/// Seconds that another plan must save. It reads some of what was read already, and planning takes some.
const SAVED_SECONDS_MIN: f64 = 0.05;
/// Bytes that pass by pointer and cost as much as one on a link.
const IN_PROCESS_BYTES: f64 = 64.0;

/// When what is left of a query is planned anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replanning {
    /// Where it would be much sooner.
    Auto,
    /// Never.
    Off,
    /// At any point, by this seed: for tests.
    Random(u64),
}

/// From `auto`, `off` or `random:SEED`.
pub(crate) fn parse_replanning(text: &str) -> Result<Replanning, Fault> {
    match text.trim().to_ascii_lowercase().as_str() {
        "auto" | "true" => Ok(Replanning::Auto),
        "off" | "false" => Ok(Replanning::Off),
        other => {
            let seed = other.strip_prefix("random:").and_then(|seed| seed.trim().parse().ok());
            seed.map(Replanning::Random).ok_or_else(|| {
                let what = format!("expected auto, off or random:SEED, got {text:?}");
                Fault::new(Blame::User, what).hint("SET pithead.replan = auto")
            })
        }
    }
}

/// A plan that has taken the place of another one in the middle of a query.
pub(crate) struct Replanned {
    /// When, and why.
    pub(crate) why: String,
    /// The plan.
    pub(crate) prepared: Prepared,
}

/// The changes of a plan so far.
pub(crate) type Replans = Arc<Mutex<Vec<Replanned>>>;

impl Query {
    /// The plan, with a point at which it may be changed while it runs, if there is such a point.
    pub(crate) fn with_replan_point(&self, plan: LogicalPlan) -> Result<LogicalPlan, Fault> {
        let slices_min = match self.settings.replanning()? {
            Replanning::Off => return Ok(plan),
            Replanning::Auto => SLICES_MIN,
            Replanning::Random(_) => 1,
        };
        if self.replans_left == 0 || !self.settings.pushdown || self.from_above.is_some() {
            return Ok(plan);
        }
        Ok(with_replan_point(&plan, &self.datasets(), slices_min).unwrap_or(plan))
    }
}

/// Plans anew what is left below a [`ReplanPoint`].
pub(crate) struct Anew {
    host: Host,
    state: SessionState,
    settings: Settings,
    profile: Arc<QueryProfile>,
    rule: Replanning,
    is_in_process: bool,
    point: ReplanPoint,
    /// The facts that the plan was made with.
    options: CutOptions,
    /// The sub-plan that can be stopped.
    sub_plan: Arc<SubPlan>,
    brake: Arc<Brake>,
    /// The plan's other sub-plans.
    others: Vec<Arc<SubPlanProfile>>,
    replans_left: u32,
    replans: Replans,
    /// What makes the sub-plan stop, for the next plan to tell.
    why: Mutex<Option<(String, CutOptions)>>,
}

impl Anew {
    /// For a plan that is about to run; none where it has no such point, or no sub-plan below it can be stopped.
    pub(crate) fn new(query: &Query, prepared: &Prepared) -> Result<Option<Anew>, Fault> {
        let Some(point) = find_point(&prepared.decomposition.super_plan) else { return Ok(None) };
        let rule = query.settings.replanning()?;
        let slices_min = if rule == Replanning::Auto { SLICES_MIN } else { 1 };
        let datasets = replannable(&point.region, &query.datasets(), slices_min);
        let Some(sub_plan) = point.stoppable(&datasets, &query.host.options().functions) else { return Ok(None) };
        let is_in_process = query.is_in_process();
        let mut options = query.settings.cut(is_in_process);
        prepared.samples.iter().for_each(|report| options.samples.add(report.question.key.clone(), report.answer));
        let others = prepared.profiles.iter().filter(|profile| profile.sub_plan.number != sub_plan.number);
        Ok(Some(Anew {
            host: query.host.clone(),
            state: query.state.clone(),
            settings: query.settings.clone(),
            profile: Arc::clone(&query.profile),
            rule,
            is_in_process,
            options,
            brake: Arc::default(),
            others: others.cloned().collect(),
            replans_left: query.replans_left.saturating_sub(1),
            replans: Arc::clone(&prepared.replans),
            why: Mutex::default(),
            point: point.clone(),
            sub_plan,
        }))
    }

    /// What stops the sub-plan of this number, if it is the one that can be stopped.
    pub(crate) fn brake_of(&self, number: usize) -> Option<Arc<Brake>> {
        (number == self.sub_plan.number).then(|| Arc::clone(&self.brake))
    }

    fn query(&self, profile: &Arc<QueryProfile>) -> Query {
        Query {
            host: self.host.clone(),
            state: self.state.clone().into(),
            settings: self.settings.clone(),
            profile: Arc::clone(profile),
            // Plans do not tell a part of a dataset from all of it.
            computed: Mutex::default(),
            shared: Mutex::default(),
            kept: KeptRows::new(&self.state),
            admitted: Arc::default(),
            from_above: None,
            pages: None,
            replans_left: self.replans_left,
        }
    }

    /// Slices that the sub-plan is to read.
    fn slices(&self) -> u64 {
        let facts = &self.sub_plan.datasets[0];
        facts.dataset.slices().saturating_sub(facts.rest.as_ref().map_or(0, Rest::slices_done))
    }

    /// Looks at the sub-plan while it runs, and returns once what is left of it is better planned anew.
    async fn watch(&self) {
        let mut looked = None;
        loop {
            let measured = self.brake.measured();
            match self.rule {
                Replanning::Off => return,
                Replanning::Random(seed) => {
                    if measured.rounds >= (seed ^ self.sub_plan.datasets[0].dataset.id.0) % 4 {
                        *self.why.lock() = Some(("by chance".to_owned(), self.options.clone()));
                        return;
                    }
                }
                Replanning::Auto => {
                    if let Some(factor) = self.surprise(measured, looked).filter(|_| self.may_save(measured)) {
                        looked = Some(factor);
                        match self.consider(measured, factor).await {
                            Ok(true) => return,
                            Ok(false) => {}
                            Err(fault) => tracing::debug!(%fault, "not planned anew"),
                        }
                    }
                }
            }
            self.brake.changed().await;
        }
    }

    /// By what factor there are more rows than expected, where that may call for another plan.
    fn surprise(&self, measured: Measured, looked: Option<f64>) -> Option<f64> {
        let slices = self.slices() as f64;
        let seen = measured.slices as f64;
        if measured.rounds < ROUNDS_MIN || seen < slices * SHARE_MIN || slices - seen < slices * REST_MIN {
            return None;
        }
        let expected = self.sub_plan.estimate.rows / slices.max(1.0);
        // One row more, or few of few would be many.
        let factor = (measured.rows as f64 / seen.max(1.0) + 1.0) / (expected + 1.0);
        let is_far = |factor: f64, limit: f64| factor > limit || factor < 1.0 / limit;
        (is_far(factor, FACTOR) && looked.is_none_or(|looked| is_far(factor / looked, FACTOR_AGAIN))).then_some(factor)
    }

    /// Seconds of the link and of joins. Bytes cost little where nothing is between host and drives.
    fn seconds(&self, cost: HostCost) -> f64 {
        let bytes = if self.is_in_process { cost.bytes / IN_PROCESS_BYTES } else { cost.bytes };
        HostCost { bytes, ..cost }.seconds()
    }

    /// Whether so much is left that another plan can save enough. To make one takes a millisecond or more.
    fn may_save(&self, measured: Measured) -> bool {
        self.seconds(self.left_of_plan(measured)) >= SAVED_SECONDS_MIN
    }

    /// Whether another plan for what is left would be much sooner, by what was measured.
    async fn consider(&self, measured: Measured, factor: f64) -> Result<bool, Fault> {
        let Some(key) = counted_by(&self.sub_plan) else { return Ok(false) };
        let facts = &self.sub_plan.datasets[0];
        let rows_in = facts.dataset.rows() as f64 * measured.slices as f64 / (facts.dataset.slices() as f64).max(1.0);
        let rows_in = (rows_in as u64).max(measured.rows);
        let passed = measured.rows;
        let mut options = self.options.clone();
        options.samples.replace(key, Sampled { rows: rows_in, within: rows_in, others: passed, passed, is_exact: false });
        let draft = self.query(&QueryProfile::start());
        let region = self.rest_of_region(&self.rest(self.brake.done()))?;
        let drafted = draft.prepare_sampled(&region, Mode::Explain, options.clone()).await?;
        let (old, new) = (self.left_of_plan(measured), cost_of(&drafted));
        tracing::debug!(factor, ?old, ?new, "looked for another plan");
        let (old, new) = (self.seconds(old), self.seconds(new));
        if new > old * GAIN || old - new < SAVED_SECONDS_MIN {
            return Ok(false);
        }
        let why = format!(
            "after {} of {} slices of {}, which had {factor:.2} times the rows that were expected: what is left costs {:.2} as much at the link and in joins",
            measured.slices,
            self.slices(),
            self.sub_plan.driving(),
            new / old,
        );
        *self.why.lock() = Some((why, options));
        Ok(true)
    }

    /// What the plan that runs would still cost.
    fn left_of_plan(&self, measured: Measured) -> HostCost {
        let row_bytes = |sub_plan: &SubPlan| sub_plan.estimate.columns.iter().map(|column| column.bytes).sum::<f64>();
        let left = self.slices().saturating_sub(measured.slices) as f64;
        let mut rows = measured.rows as f64 / (measured.slices as f64).max(1.0) * left;
        let mut bytes = rows * row_bytes(&self.sub_plan);
        for other in &self.others {
            let came: u64 = other.sessions().iter().map(pithead_remote::PartitionProfile::rows_out).sum();
            let to_come = (other.sub_plan.estimate.rows - came as f64).max(0.0);
            rows += to_come;
            bytes += to_come * row_bytes(&other.sub_plan);
        }
        // Each join reads and produces them.
        HostCost { bytes, rows: rows * 2.0 * self.point.host_joins().max(1) as f64 }
    }

    /// The other plan for what is left, once no more rows of the sub-plan count. None where nothing is left.
    async fn plan(&self) -> Result<Option<Arc<dyn ExecutionPlan>>, Fault> {
        let rest = self.rest(self.brake.seal());
        if rest.slices_done() >= self.sub_plan.datasets[0].dataset.slices() {
            return Ok(None);
        }
        let Some((why, options)) = self.why.lock().take() else {
            return Err(Fault::bug("a sub-plan was stopped for no reason"));
        };
        tracing::info!("planned anew {why}");
        let query = self.query(&self.profile);
        let region = query.with_replan_point(self.rest_of_region(&rest)?)?;
        let prepared = query.prepare_sampled(&region, Mode::Run, options).await?;
        let plan = query.physical(&prepared).await?;
        self.replans.lock().push(Replanned { why, prepared });
        Ok(Some(plan))
    }

    /// The rest of the query, once these slices are done in this plan.
    fn rest(&self, done: Vec<Vec<SliceSpan>>) -> Rest {
        let before = self.sub_plan.datasets[0].rest.as_ref();
        let of_partition = |partition: usize| {
            let done = done.get(partition).filter(|done| !done.is_empty());
            done.or_else(|| before?.done.get(partition)).cloned().unwrap_or_default()
        };
        Rest { done: (0..self.sub_plan.copies.len()).map(of_partition).collect() }
    }

    /// The region over the slices that are left.
    fn rest_of_region(&self, rest: &Rest) -> Result<LogicalPlan, Fault> {
        let replaced = LogicalPlan::clone(&self.point.region).transform_down(|node| {
            let LogicalPlan::TableScan(scan) = &node else { return Ok(Transformed::no(node)) };
            let provider = source_as_provider(&scan.source)?;
            let Some(table) = provider.downcast_ref::<DatasetTable>() else { return Ok(Transformed::no(node)) };
            if table.found().name() != self.sub_plan.driving() {
                return Ok(Transformed::no(node));
            }
            let source = provider_as_source(Arc::new(table.rest(rest.clone())));
            Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan.clone() })))
        });
        Ok(replaced.map_err(fault_from_datafusion)?.data)
    }
}

/// What a plan is expected to cost, with the parts that are computed before it.
fn cost_of(prepared: &Prepared) -> HostCost {
    let before = prepared.first.iter().chain(&prepared.tables);
    before.map(|part| cost_of(&part.prepared)).fold(prepared.decomposition.cost, HostCost::and)
}

fn find_point(plan: &LogicalPlan) -> Option<&ReplanPoint> {
    match ReplanPoint::of(plan) {
        Some(point) => Some(point),
        None => plan.inputs().into_iter().find_map(find_point),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_plan_anew_are_named() {
        assert_eq!(parse_replanning(" AUTO"), Ok(Replanning::Auto));
        assert_eq!(parse_replanning("false"), Ok(Replanning::Off));
        assert_eq!(parse_replanning("random:7"), Ok(Replanning::Random(7)));
        assert!(parse_replanning("often").unwrap_err().hint.is_some());
    }
}
