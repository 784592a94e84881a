//! [`with_sided_keys`]: the keys of a join that was read from Substrait.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, Operator, binary_expr};

/// The plan with only those keys in joins that compare one side with the other; all else that was read as a key becomes a condition.
///
/// DataFusion's reader of Substrait takes every equality of two columns for a key, even where both are of one side.
pub(crate) fn with_sided_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    let sided = plan.transform_up(|node| {
        Ok(match node {
            LogicalPlan::Join(join) if !join.on.iter().all(|pair| is_sided(pair, &join)) => {
                Transformed::yes(LogicalPlan::Join(sided(join)))
            }
            node => Transformed::no(node),
        })
    })?;
    Ok(sided.data)
}

fn is_sided((left, right): &(Expr, Expr), join: &Join) -> bool {
    let is_of = |expr: &Expr, side: &LogicalPlan| expr.column_refs().into_iter().all(|column| side.schema().has_column(column));
    is_of(left, &join.left) && is_of(right, &join.right)
}

fn sided(join: Join) -> Join {
    let equal = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let (on, others): (Vec<_>, Vec<_>) = join.on.iter().cloned().partition(|pair| is_sided(pair, &join));
    let conditions = others.into_iter().map(|(left, right)| binary_expr(left, equal, right));
    let filter = conditions.chain(join.filter).reduce(Expr::and);
    let null_equality = if on.is_empty() { NullEquality::NullEqualsNothing } else { join.null_equality };
    Join { on, filter, null_equality, ..join }
}
