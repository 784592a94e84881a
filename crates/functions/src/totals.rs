//! [`FiltersAboveTotals`]: keeps a filter above an aggregate that returns a row even for an input without rows.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// DataFusion's `PushDownFilter`, except that it moves no condition below such an aggregate.
///
/// DataFusion moves a condition below an aggregate if all of the condition's columns are groups, which is also true of
/// a condition without columns. `NULL = 29` is such a condition, made of a column that an outer join leaves NULL. Below
/// an aggregate without groups, or with an empty grouping set, the condition would drop all rows, and the total of no
/// rows is still a row.
#[derive(Debug, Default)]
pub(crate) struct FiltersAboveTotals(PushDownFilter);

impl OptimizerRule for FiltersAboveTotals {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let stays = match &plan {
            LogicalPlan::Filter(filter) => matches!(filter.input.as_ref(), LogicalPlan::Aggregate(below) if has_total(below)),
            _ => false,
        };
        if stays { Ok(Transformed::no(plan)) } else { self.0.rewrite(plan, config) }
    }
}

fn has_total(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().all(|expr| matches!(expr, Expr::GroupingSet(_)))
}
