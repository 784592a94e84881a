//! DELETE and UPDATE where the drives can do it by themselves: each evaluates the condition over its own rows, and marks those that
//! go. The new rows of an UPDATE are those of a query over the same snapshot.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use pithead_functions::fault_from_datafusion;
use pithead_load::MarkSpec;
use pithead_model::Fault;
use pithead_plan::{Decomposer, SubPlan, Travelling};

use super::{Changed, Writer};

impl Writer {
    /// Has the rows go that a predicate holds for. How many these were; none where all rows have to be written anew instead, and
    /// nothing was changed.
    pub(super) async fn mark(&self, changed: &Changed, scan: &LogicalPlan, predicate: &Expr) -> Result<Option<u64>, Fault> {
        match self.marks(changed, scan, predicate).await? {
            Some(spec) => self.query.host.mark(spec).await,
            None => Ok(None),
        }
    }

    /// The same, and the rows of `new` take their place.
    pub(super) async fn exchange(
        &self,
        changed: &Changed,
        scan: &LogicalPlan,
        predicate: &Expr,
        new: &LogicalPlan,
    ) -> Result<Option<u64>, Fault> {
        if new.expressions().iter().any(|value| value.exists(|part| Ok(has_plan(part))).unwrap_or(true)) {
            return Ok(None);
        }
        let Some(spec) = self.marks(changed, scan, predicate).await? else { return Ok(None) };
        let schema = Arc::clone(&changed.dataset.schema);
        let rows = self.rows(new.clone(), &schema).await?;
        self.query.host.exchange(spec, schema, rows).await
    }

    async fn marks(&self, changed: &Changed, scan: &LogicalPlan, predicate: &Expr) -> Result<Option<MarkSpec>, Fault> {
        let Some(plan) = self.goes(scan, predicate).await? else { return Ok(None) };
        let time_zone = self.query.state.config_options().execution.time_zone.clone();
        let (name, dataset) = (changed.name.clone(), Arc::clone(&changed.dataset));
        Ok(Some(MarkSpec { name, dataset, plan, time_zone }))
    }

    /// A sub-plan that says of each row whether it goes; none where the drives cannot run all of it.
    async fn goes(&self, scan: &LogicalPlan, predicate: &Expr) -> Result<Option<Vec<u8>>, Fault> {
        // What a subquery reads may change before this statement is through.
        if predicate.exists(|part| Ok(has_plan(part))).map_err(fault_from_datafusion)? {
            return Ok(None);
        }
        let goes = Expr::IsTrue(Box::new(predicate.clone())).alias("goes");
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

fn has_plan(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))
}
