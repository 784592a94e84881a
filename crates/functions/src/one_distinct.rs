//! [`OneDistinct`]: DataFusion's rule for aggregates of distinct values, used only where it changes no column's type.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::single_distinct_to_groupby::SingleDistinctToGroupBy;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// DataFusion's `SingleDistinctToGroupBy`, for aggregates whose columns keep their types.
///
/// The rule groups by the distinct values first, and then sums up sums. A sum of decimals has ten digits more than the
/// decimals, and so the sum of sums has twenty more. DataFusion treats decimals of all widths as one type there, but
/// the readers of the rows do not.
#[derive(Debug, Default)]
pub(crate) struct OneDistinct(SingleDistinctToGroupBy);

impl OptimizerRule for OneDistinct {
    fn name(&self) -> &'static str {
        "pithead_one_distinct"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Aggregate(_)) {
            return Ok(Transformed::no(plan));
        }
        let schema = Arc::clone(plan.schema());
        let grouped = self.0.rewrite(plan.clone(), config)?;
        let types = schema.fields().iter().map(|field| field.data_type());
        let is_same = types.eq(grouped.data.schema().fields().iter().map(|field| field.data_type()));
        Ok(if is_same { grouped } else { Transformed::no(plan) })
    }
}
