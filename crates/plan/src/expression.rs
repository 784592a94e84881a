//! Which expressions may run at a drive.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, Volatility};

/// Why an expression has to stay at the host; none if it may travel.
pub(crate) fn stays(expr: &Expr) -> Option<String> {
    let mut reason = None;
    let outcome = expr.apply(|expr| {
        reason = obstacle(expr);
        Ok(if reason.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    match outcome {
        Ok(_) => reason,
        Err(error) => Some(error.to_string()),
    }
}

/// The first such reason among several expressions.
pub(crate) fn any_stays<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Option<String> {
    exprs.into_iter().find_map(stays)
}

fn obstacle(expr: &Expr) -> Option<String> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, .. }) if func.signature().volatility == Volatility::Volatile => {
            Some(format!("{}() gives another value at each call", func.name()))
        }
        Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => {
            Some("a subquery in an expression".into())
        }
        Expr::OuterReferenceColumn(..) => Some("a reference to an outer query".into()),
        Expr::Placeholder(_) => Some("a parameter without a value".into()),
        Expr::ScalarVariable(..) => Some("a variable".into()),
        Expr::WindowFunction(_) => Some("a window function".into()),
        Expr::GroupingSet(_) => Some("grouping sets".into()),
        Expr::Unnest(_) => Some("unnest()".into()),
        Expr::HigherOrderFunction(_) | Expr::Lambda(_) | Expr::LambdaVariable(_) => Some("a lambda".into()),
        _ => None,
    }
}
