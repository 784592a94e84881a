//! [`ConstantsRight`]: a column is compared with a constant that is on the right, and of equal floats there is one.
//!
//! As DataFusion 55.2 pushes filters down, it keeps of all conditions on one column those that imply the others. It takes
//! constants for equal where they have the same bits and the same side: `k = 5 AND 5 = k` becomes false, and so does
//! `f = 0.0 AND f = -0.0`; of `k >= 5 AND 5 < k` it keeps the first. The rule comes before each time that it does so.

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::one_value::{canonical_constant, compares};

/// The rule.
#[derive(Debug)]
pub(crate) struct ConstantsRight;

impl OptimizerRule for ConstantsRight {
    fn name(&self) -> &'static str {
        "pithead_constants_right"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(_) | LogicalPlan::Join(_) => plan.map_expressions(|expr| expr.transform_down(turned)),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

fn turned(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
    let is_constant = |expr: &Expr| matches!(expr, Expr::Literal(..));
    let swapped = op.swap().filter(|_| compares(op) && is_constant(&left) && !is_constant(&right));
    let is_turned = swapped.is_some();
    let (left, right) = if is_turned { (right, left) } else { (left, right) };
    let op = swapped.unwrap_or(op);
    // An interval stays as it is written: a cast of a difference of times to intervals may still be taken from it.
    let is_interval = matches!(right.as_ref(), Expr::Literal(value, _) if matches!(value.data_type(), DataType::Interval(_)));
    let right = if compares(op) && !is_interval { canonical_constant(*right)? } else { Transformed::no(*right) };
    let is_new = is_turned || right.transformed;
    let comparison = BinaryExpr { left, op, right: Box::new(right.data) };
    Ok(Transformed::new_transformed(Expr::BinaryExpr(comparison), is_new))
}
