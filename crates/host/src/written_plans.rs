//! Sub-plans as other engines read them: EXPLAIN (ANALYZE, FORMAT SUBSTRAIT), and files that a client keeps.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use pithead_functions::fault_from_datafusion;
use pithead_model::{DatasetName, Fault};
use pithead_plan::{Progress, Rounds, SubPlan, Travelling, annotate};
use pithead_remote::{PartitionProfile, QueryProfile, SubPlanProfile};

use crate::Answer;
use crate::query::{Mode, Query};

/// One sub-plan of a statement: as it was planned, or over one partition, with what was executed of it there.
#[derive(Clone, Debug)]
pub struct WrittenPlan {
    /// Its number among the statement's sub-plans, in the order in which they were planned, from 1.
    pub number: usize,
    /// The dataset whose slices are the units of work.
    pub dataset: DatasetName,
    /// The partition; none of a sub-plan that did not run.
    pub partition: Option<usize>,
    /// The CSE that executed it, of several the last one; none where none was asked.
    pub cse: Option<String>,
    /// Slices of the partition, or of all partitions.
    pub slices: u64,
    /// Of them, those that are done.
    pub done: u64,
    /// Rounds that were closed.
    pub rounds: usize,
    /// The Substrait plan, with an annotation where it ran. None: the sub-plan is a bare scan, which travels as a list of columns.
    pub plan: Option<Vec<u8>>,
}

impl WrittenPlan {
    /// The sub-plans of a statement as far as it has run: one for each partition, or one where no partition was begun.
    pub fn all(profile: &QueryProfile) -> Vec<WrittenPlan> {
        let sub_plans = profile.sub_plans().into_iter().filter(|profile| !profile.is_sample);
        (1..).zip(sub_plans).flat_map(|(number, profile)| WrittenPlan::of(number, &profile)).collect()
    }

    fn of(number: usize, profile: &SubPlanProfile) -> Vec<WrittenPlan> {
        let sub_plan = &profile.sub_plan;
        let begun = profile.partitions();
        if begun.is_empty() {
            return vec![WrittenPlan::planned(number, sub_plan)];
        }
        let none = PartitionProfile::default();
        let of_partition = |partition: usize| {
            let found = begun.iter().find(|(begun, _)| *begun == partition);
            WrittenPlan::ran(number, sub_plan, partition, found.map_or(&none, |(_, session)| session))
        };
        (0..sub_plan.copies.len()).map(of_partition).collect()
    }

    fn planned(number: usize, sub_plan: &SubPlan) -> WrittenPlan {
        let facts = &sub_plan.datasets[0];
        WrittenPlan {
            number,
            dataset: facts.name.clone(),
            partition: None,
            cse: None,
            slices: facts.dataset.slices(),
            done: 0,
            rounds: 0,
            plan: substrait(sub_plan).map(<[u8]>::to_vec),
        }
    }

    fn ran(number: usize, sub_plan: &SubPlan, partition: usize, session: &PartitionProfile) -> WrittenPlan {
        let progress = Progress::of(sub_plan, partition, &session.annotations, &session.recalled_slices);
        let rounds = Rounds::of(&session.label, &session.annotations);
        let slices: u64 = progress.runs.iter().map(|run| u64::from(run.slices)).sum();
        let left: u64 = progress.left.iter().map(|span| u64::from(span.count)).sum();
        WrittenPlan {
            partition: Some(partition),
            cse: Some(session.label.clone()).filter(|label| !label.is_empty()),
            slices,
            done: slices.saturating_sub(left),
            rounds: session.annotations.len(),
            plan: substrait(sub_plan).map(|plan| annotate(plan, &progress, &rounds)),
            ..WrittenPlan::planned(number, sub_plan)
        }
    }
}

fn substrait(sub_plan: &SubPlan) -> Option<&[u8]> {
    match &sub_plan.travelling {
        Travelling::Substrait(bytes) => Some(bytes),
        Travelling::Scan(_) => None,
    }
}

/// The sub-plans of a query as rows. With `analyze` the query is run and its rows are dropped; else only scalar subqueries are.
pub(crate) async fn explain_substrait(query: &Query, plan: LogicalPlan, analyze: bool) -> Result<Answer, Fault> {
    let mode = if analyze { Mode::Run } else { Mode::Explain };
    let prepared = query.prepare(plan, mode).await?;
    if analyze {
        let mut stream = query.execute(&prepared).await?;
        while let Some(batch) = stream.next().await {
            batch.map_err(fault_from_datafusion)?;
        }
    }
    Ok(Answer::of(batch_of(&WrittenPlan::all(&query.profile))?, Arc::clone(&query.profile)))
}

/// Columns of what [`explain_substrait`] gives.
pub(crate) fn schema() -> Result<SchemaRef, Fault> {
    Ok(batch_of(&[])?.schema())
}

fn batch_of(plans: &[WrittenPlan]) -> Result<RecordBatch, Fault> {
    let numbers = |of: fn(&WrittenPlan) -> Option<u64>| -> ArrayRef { Arc::new(UInt64Array::from_iter(plans.iter().map(of))) };
    let columns: [(&str, ArrayRef); 8] = [
        ("sub_plan", numbers(|plan| Some(plan.number as u64))),
        ("dataset", Arc::new(StringArray::from_iter_values(plans.iter().map(|plan| plan.dataset.to_string())))),
        ("partition", numbers(|plan| plan.partition.map(|partition| partition as u64))),
        ("cse", Arc::new(StringArray::from_iter(plans.iter().map(|plan| plan.cse.as_deref())))),
        ("slices", numbers(|plan| Some(plan.slices))),
        ("done", numbers(|plan| Some(plan.done))),
        ("rounds", numbers(|plan| Some(plan.rounds as u64))),
        ("plan", Arc::new(BinaryArray::from_iter(plans.iter().map(|plan| plan.plan.as_deref())))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).map_err(Fault::bug)
}
