//! [`without_open_lists`]: IN over a list of expressions.
//!
//! DataFusion 55.2 takes such a list for constants where its expressions give one value for no rows, as `CASE WHEN b THEN 1 ELSE k END`
//! does.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::disjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, not};

use crate::kept_names::map_named;

/// The plan with comparisons in the place of lists that are no constants.
pub(crate) fn without_open_lists(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found || expr.exists(|part| Ok(is_open(part)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    if !found {
        return Ok(plan);
    }
    let changed = plan.transform_down_with_subqueries(|node| map_named(node, |expr| expr.transform_up(compared)))?;
    Ok(changed.data)
}

fn is_open(expr: &Expr) -> bool {
    matches!(expr, Expr::InList(InList { expr, list, .. })
        if !list.is_empty() && !expr.is_volatile() && list.iter().any(|member| !matches!(member, Expr::Literal(..))))
}

fn compared(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::InList(InList { expr, list, negated })
            if is_open(&Expr::InList(InList::new(expr.clone(), list.clone(), negated))) =>
        {
            let equal = disjunction(list.into_iter().map(|member| expr.as_ref().clone().eq(member)));
            Ok(match equal {
                Some(equal) if negated => Transformed::yes(not(equal)),
                Some(equal) => Transformed::yes(equal),
                None => Transformed::no(Expr::InList(InList { expr, list: vec![], negated })),
            })
        }
        expr => Ok(Transformed::no(expr)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn each_row_has_its_own_list() {
        let rows = "(VALUES (1, true, 7), (2, false, 12), (3, CAST(NULL AS boolean), 9), (4, false, 1)) AS v(id, b, k)";
        for (condition, expected) in [
            ("1 IN (0, CASE WHEN b THEN 1 ELSE k END)", 2),
            ("1 NOT IN (0, CASE WHEN b THEN 1 ELSE k END)", 2),
            ("k IN (1, id + 6, 100)", 3),
            ("k NOT IN (NULL, id)", 0),
        ] {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            let found = context.sql(&format!("SELECT 1 FROM {rows} WHERE {condition}")).await.unwrap().collect().await;
            let found = found.unwrap_or_else(|error| panic!("{condition}: {error}"));
            assert_eq!(found.iter().map(|batch| batch.num_rows()).sum::<usize>(), expected, "{condition}");
        }
    }
}
