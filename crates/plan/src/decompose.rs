//! The cut: [`Decomposer`] finds what runs at the drives, and turns it into what travels.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Extension, LogicalPlan};
use pithead_functions::Registry;
use pithead_model::{Level, boxed};

use crate::cutter::{Cutter, Outcome, sub_plan_of, unaliased};
use crate::order::{LINK_BYTES_PER_SECOND, ROWS_PER_SECOND};
use crate::travel::produce_for;
use crate::{Catalogue, CutOptions, Operator, PlanError, RemoteScan, Samples, SubPlan, Travelling};

/// What a plan is expected to cost the link and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostCost {
    /// Bytes on the link.
    pub bytes: f64,
    /// Rows that joins read and produce, wherever they are.
    pub rows: f64,
}

impl HostCost {
    /// Seconds over a link of 1 Gbit/s, by which plans are compared.
    pub fn seconds(self) -> f64 {
        self.bytes / LINK_BYTES_PER_SECOND + self.rows / ROWS_PER_SECOND
    }

    /// Both, one after the other.
    pub fn and(self, other: HostCost) -> HostCost {
        HostCost { bytes: self.bytes + other.bytes, rows: self.rows + other.rows }
    }
}

/// A query that was cut in two.
#[derive(Clone, Debug)]
pub struct Decomposition {
    /// The host's part. Its [`RemoteScan`] leaves are the sub-plans.
    pub super_plan: LogicalPlan,
    /// The sub-plans, by number from 1.
    pub sub_plans: Vec<Arc<SubPlan>>,
    /// Why operators of the super-plan stayed there.
    pub(crate) reasons: HashMap<Operator, String>,
    /// What it is expected to take until the super-plan's rows are there.
    pub cost: HostCost,
}

impl Decomposition {
    /// Why an operator of the super-plan stayed above the cut, if the reason is more than that its input did.
    pub fn reason(&self, operator: &LogicalPlan) -> Option<&str> {
        self.reasons.get(&Operator::of(operator)).map(String::as_str)
    }
}

/// Cuts a query, repeatedly if more becomes known. From one cut to the next it remembers which operators do not survive
/// the wire, and what was produced for those that do.
pub struct Decomposer<'a> {
    catalogue: &'a dyn Catalogue,
    state: &'a SessionState,
    /// Operators that do not survive the wire or that drives cannot run, and why.
    refused: HashMap<LogicalPlan, String>,
    /// Plans in the form in which they travel.
    produced: Vec<(LogicalPlan, Vec<u8>)>,
}

impl std::fmt::Debug for Decomposer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decomposer").field("refused", &self.refused).finish_non_exhaustive()
    }
}

impl<'a> Decomposer<'a> {
    /// A decomposer for queries over the datasets of `catalogue`; `state` has the functions that drives have.
    pub fn new(catalogue: &'a dyn Catalogue, state: &'a SessionState) -> Self {
        Self { catalogue, state, refused: HashMap::new(), produced: Vec::new() }
    }

    /// Cuts an optimised logical plan.
    #[boxed]
    pub async fn cut(&mut self, plan: &LogicalPlan, options: &CutOptions) -> Result<Decomposition, PlanError> {
        for _attempt in 0..=plan_size(plan) {
            let (host, reasons, cost) = {
                let mut cutter = Cutter::new(self.catalogue, self.state, options, &self.refused);
                let outcome = cutter.visit(plan)?;
                (outcome.host, cutter.reasons, HostCost { bytes: outcome.host_cost, rows: cutter.joined_rows })
            };
            match self.finish(&host, &options.samples).await? {
                Finished::Plan(super_plan, sub_plans) => {
                    return Ok(Decomposition { super_plan, sub_plans, reasons, cost });
                }
                Finished::Refused(refused) => self.refused.extend(refused),
            }
        }
        Err(PlanError::Malformed("the cut did not settle".into()))
    }

    /// All of an optimised logical plan as one sub-plan, whatever it costs; none where drives cannot run all of it.
    #[boxed]
    pub async fn whole(&mut self, plan: &LogicalPlan, options: &CutOptions) -> Result<Option<SubPlan>, PlanError> {
        let outcome = Cutter::new(self.catalogue, self.state, options, &self.refused).visit(plan)?;
        let Outcome { estimate, piece: Some(piece), .. } = outcome else { return Ok(None) };
        let sub_plan = sub_plan_of(&piece, plan.schema(), &estimate, Level::Whole);
        drop(piece);
        let Ok(bytes) = self.produced(&sub_plan).await else { return Ok(None) };
        let extensions = self.extensions(&sub_plan)?.into_iter().collect();
        Ok(Some(SubPlan { number: 1, travelling: Travelling::Substrait(bytes), extensions, ..sub_plan }))
    }

    /// Numbers the sub-plans of a super-plan, and brings each into the form in which it travels.
    async fn finish(&mut self, host: &LogicalPlan, samples: &Samples) -> Result<Finished, PlanError> {
        let mut found = Vec::new();
        host.apply(|node| {
            found.extend(RemoteScan::of(node).cloned());
            Ok(TreeNodeRecursion::Continue)
        })?;
        let mut sub_plans = Vec::new();
        for (index, scan) in found.iter().enumerate() {
            let travelling = match self.produced(&scan.sub_plan).await {
                Ok(bytes) => Travelling::Substrait(bytes),
                Err(error) => match bare_scan(&scan.sub_plan.plan) {
                    Some(columns) => Travelling::Scan(columns),
                    None => return Ok(Finished::Refused(self.culprit(&scan.sub_plan, &error).await)),
                },
            };
            let extensions = self.extensions(&scan.sub_plan)?.into_iter().collect();
            let passing = samples.passing(&scan.sub_plan);
            let numbered = SubPlan { number: index + 1, travelling, extensions, passing, ..SubPlan::clone(&scan.sub_plan) };
            sub_plans.push(Arc::new(numbered));
        }
        let mut next = sub_plans.iter();
        let numbered = host.clone().transform_down(|node| match RemoteScan::of(&node) {
            Some(scan) => {
                let sub_plan = next.next().cloned().unwrap_or_else(|| Arc::clone(&scan.sub_plan));
                let node = RemoteScan { sub_plan, schema: Arc::clone(&scan.schema) };
                Ok(Transformed::yes(LogicalPlan::Extension(Extension { node: Arc::new(node) })))
            }
            None => Ok(Transformed::no(node)),
        })?;
        Ok(Finished::Plan(numbered.data, sub_plans))
    }

    async fn produced(&mut self, sub_plan: &SubPlan) -> Result<Vec<u8>, PlanError> {
        if let Some((_, bytes)) = self.produced.iter().find(|(plan, _)| *plan == sub_plan.plan) {
            return Ok(bytes.clone());
        }
        let bytes = self.carried(sub_plan).await?;
        self.produced.push((sub_plan.plan.clone(), bytes.clone()));
        Ok(bytes)
    }

    /// A sub-plan as Substrait bytes, if its drives have the functions that it calls.
    async fn carried(&self, sub_plan: &SubPlan) -> Result<Vec<u8>, PlanError> {
        for function in self.extensions(sub_plan)? {
            let mut datasets = sub_plan.datasets.iter();
            if let Some(drive) = datasets.find_map(|facts| self.catalogue.lacking(facts, &function)) {
                return Err(PlanError::Lacking { drive, function });
            }
        }
        produce_for(sub_plan, self.state).await
    }

    /// The functions of the registry that a sub-plan calls.
    fn extensions(&self, sub_plan: &SubPlan) -> Result<BTreeSet<String>, PlanError> {
        Ok(Registry::of(self.state).used_by(&sub_plan.plan)?)
    }

    /// The lowest operator of a sub-plan that does not survive the wire, or that its drives cannot run.
    async fn culprit(&self, sub_plan: &SubPlan, error: &PlanError) -> HashMap<LogicalPlan, String> {
        for layer in &sub_plan.layers {
            let part = SubPlan { plan: layer.plan.clone(), ..sub_plan.clone() };
            if let Err(error) = self.carried(&part).await {
                return HashMap::from([(layer.operator.clone(), error.to_string())]);
            }
        }
        // Each layer survives, but the whole does not, because it is too large.
        sub_plan.layers.last().map(|layer| (layer.operator.clone(), error.to_string())).into_iter().collect()
    }
}

fn plan_size(plan: &LogicalPlan) -> usize {
    1 + plan.inputs().into_iter().map(plan_size).sum::<usize>()
}

enum Finished {
    Plan(LogicalPlan, Vec<Arc<SubPlan>>),
    /// Finds operators that do not survive the wire, and how they fail.
    Refused(HashMap<LogicalPlan, String>),
}

/// The columns of a plan that is only a scan.
fn bare_scan(plan: &LogicalPlan) -> Option<Vec<String>> {
    match unaliased(plan) {
        LogicalPlan::TableScan(scan) => Some(scan.projected_schema.fields().iter().map(|field| field.name().clone()).collect()),
        _ => None,
    }
}
