//! DELETE, UPDATE and MERGE where the drives can do it by themselves: each evaluates the condition over its own rows, and marks those
//! that go. New rows are those of a query over the same snapshot.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use futures::StreamExt;
use pithead_functions::fault_from_datafusion;
use pithead_load::{ExchangeSpec, MarkSpec};
use pithead_model::Fault;
use pithead_plan::{Decomposer, SubPlan, Travelling};

use super::keys::{Wanted, has_subquery};
use super::merging::Merge;
use super::{Changed, Writer};

/// The share of a table's rows that are marked at most to be written again, one in so many.
const WRITTEN_AGAIN_MAX: u64 = 2;

impl Writer<'_> {
    /// Has the rows go that a predicate holds for. How many these were; none where all rows have to be written anew instead, and
    /// nothing was changed.
    pub(super) async fn mark(&self, changed: &Changed, scan: &LogicalPlan, wanted: &Wanted) -> Result<Option<u64>, Fault> {
        match self.marks(changed, scan, wanted).await? {
            Some(spec) => {
                self.query.admitted.planned();
                self.query.host.mark(self.commitment, spec).await
            }
            None => Ok(None),
        }
    }

    /// The same, and the rows of `new` take their place.
    pub(super) async fn exchange(
        &self,
        changed: &Changed,
        scan: &LogicalPlan,
        wanted: &Wanted,
        new: &LogicalPlan,
    ) -> Result<Option<u64>, Fault> {
        let Some(mut spec) = self.marks(changed, scan, wanted).await? else { return Ok(None) };
        spec.alone |= new.expressions().iter().any(has_subquery);
        let schema = Arc::clone(&changed.dataset.schema);
        let rows = self.returning(self.rows(new.clone(), &schema).await?);
        self.query.host.exchange(self.commitment, spec, ExchangeSpec { schema, rows, gone: None }).await
    }

    /// A MERGE whose keys tell which rows of the table it is about. These go, and come back as they are to be. How many rows were
    /// changed, deleted or added; none where all rows have to be written anew instead.
    pub(super) async fn merge_marked(
        &self,
        changed: &Changed,
        merge: &Merge,
        matches_often: bool,
    ) -> Result<Option<u64>, Fault> {
        let Some(about) = self.about(merge).await? else { return Ok(None) };
        let about = Wanted { predicate: about, alone: true };
        let Some(spec) = self.marks(changed, merge.target(), &about).await? else { return Ok(None) };
        let merge = merge.within(about.predicate)?;
        let there = self.count(merge.target().clone()).await?;
        if there > changed.dataset.rows() / WRITTEN_AGAIN_MAX {
            return Ok(None);
        }
        let tally = self.tally(&merge, &changed.name, there, matches_often).await?;
        let added = if merge.inserts() { self.count(merge.added()?).await? } else { 0 };
        let changes = tally.updated + tally.deleted;
        if changes == 0 && added == 0 {
            return Ok(Some(0));
        }
        let schema = Arc::clone(&changed.dataset.schema);
        // Where nothing changes, what is there stays where it is.
        let (gone, staying) = match changes {
            0 => (0, futures::stream::empty().boxed()),
            _ => (there, self.rows(merge.staying()?, &schema).await?),
        };
        let rows = match added {
            0 => staying,
            _ => staying.chain(self.rows(merge.added()?, &schema).await?).boxed(),
        };
        let left = if matches_often { self.count(merge.staying()?).await? } else { 0 };
        let new = ExchangeSpec { schema, rows, gone: Some(gone) };
        let done = self.query.host.exchange(self.commitment, spec, new).await?;
        Ok(done.map(|_| if matches_often { there.saturating_sub(left) } else { changes + added }))
    }

    async fn marks(&self, changed: &Changed, scan: &LogicalPlan, wanted: &Wanted) -> Result<Option<MarkSpec>, Fault> {
        let Wanted { predicate, alone } = wanted.clone();
        if has_subquery(&predicate) {
            return Ok(None);
        }
        let Some(plan) = self.goes(scan, predicate).await? else { return Ok(None) };
        let time_zone = self.query.state.config_options().execution.time_zone.clone();
        let (name, dataset) = (changed.name.clone(), Arc::clone(&changed.dataset));
        Ok(Some(MarkSpec { name, dataset, plan, time_zone, alone }))
    }

    /// A sub-plan that says of each row whether it goes; none where the drives cannot run all of it.
    async fn goes(&self, scan: &LogicalPlan, predicate: Expr) -> Result<Option<Vec<u8>>, Fault> {
        let goes = Expr::IsTrue(Box::new(predicate)).alias("goes");
        let plan = LogicalPlanBuilder::from(scan.clone()).project([goes]).and_then(LogicalPlanBuilder::build);
        let query = &self.query;
        let optimised = plan.and_then(|plan| query.state.optimize(&plan)).map_err(fault_from_datafusion)?;
        let (datasets, options) = (query.datasets(), query.settings.cut(query.is_in_process()));
        let sub_plan = Decomposer::new(&datasets, &query.state).whole(&optimised, &options).await?;
        Ok(match sub_plan {
            // Functions that not every drive has by itself would have to be sent first.
            Some(SubPlan { travelling: Travelling::Substrait(plan), extensions, inputs, schema, .. })
                if extensions.is_empty()
                    && inputs.is_empty()
                    && schema.fields().iter().all(|field| *field.data_type() == DataType::Boolean) =>
            {
                Some(plan)
            }
            _ => None,
        })
    }
}
