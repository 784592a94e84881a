//! [`EmptyJoin`]: an inner join on a condition that is never true.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, Result, ScalarValue};
use datafusion::logical_expr::{EmptyRelation, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Replaces an inner join on a condition that is never true by an empty relation.
///
/// It has to run before filters are pushed down. A condition that is pushed into a side that is an aggregate without
/// groups would go below the aggregate, which then has one row all the same.
#[derive(Debug)]
pub(crate) struct EmptyJoin;

impl OptimizerRule for EmptyJoin {
    fn name(&self) -> &'static str {
        "pithead_empty_join"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner && join.filter.as_ref().is_some_and(is_never_true) => {
                let empty = EmptyRelation { produce_one_row: false, schema: join.schema.clone() };
                Ok(Transformed::yes(LogicalPlan::EmptyRelation(empty)))
            }
            _ => Ok(Transformed::no(plan)),
        }
    }
}

fn is_never_true(condition: &Expr) -> bool {
    matches!(condition, Expr::Literal(ScalarValue::Boolean(Some(false) | None) | ScalarValue::Null, _))
}
