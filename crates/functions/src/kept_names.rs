//! Rewriting expressions in such a way that their columns keep their names.
//!
//! A function that takes the place of an operator can have the operator's name. But the name of an aggregate shows its
//! FILTER and ORDER BY by another text, which no function can choose. Operators above would then look for a column that
//! is gone.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};

/// Whether an expression of the node itself has such a part.
pub(crate) fn node_has(node: &LogicalPlan, is: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found = found || expr.exists(|part| Ok(is(part)))?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Like [`LogicalPlan::map_expressions`], but every output column of the node keeps its name.
pub fn map_named(
    node: LogicalPlan,
    mut change: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    if matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_)) {
        node.map_expressions(|expr| named_by(expr, &mut change))
    } else {
        node.map_expressions(change)
    }
}

/// The changed expression, under its old name. The members of a grouping set have theirs.
pub(crate) fn named(expr: Expr, mut change: impl FnMut(Expr) -> Result<Transformed<Expr>>) -> Result<Transformed<Expr>> {
    named_by(expr, &mut change)
}

/// [`named`] for its own recursion, so that the type of the change does not grow.
fn named_by(expr: Expr, change: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>>) -> Result<Transformed<Expr>> {
    if let Expr::GroupingSet(set) = expr {
        return grouping_set(set, change);
    }
    let name = NamePreserver::new_for_projection().save(&expr);
    Ok(change(expr)?.update_data(|expr| name.restore(expr)))
}

fn grouping_set(set: GroupingSet, change: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>>) -> Result<Transformed<Expr>> {
    let mut changed = false;
    let mut all = |exprs: Vec<Expr>| -> Result<Vec<Expr>> {
        let one = |expr| {
            let expr = named_by(expr, &mut *change)?;
            changed = changed || expr.transformed;
            Ok(expr.data)
        };
        exprs.into_iter().map(one).collect()
    };
    let set = match set {
        GroupingSet::Rollup(exprs) => GroupingSet::Rollup(all(exprs)?),
        GroupingSet::Cube(exprs) => GroupingSet::Cube(all(exprs)?),
        GroupingSet::GroupingSets(sets) => GroupingSet::GroupingSets(sets.into_iter().map(all).collect::<Result<_>>()?),
    };
    Ok(Transformed::new_transformed(Expr::GroupingSet(set), changed))
}
