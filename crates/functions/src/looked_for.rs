//! A value and the subquery that it is looked for in: `x IN (SELECT …)`, `x = ANY (SELECT …)`.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Subquery};

/// What an operand becomes, and the subquery's column.
type Pair = (Transformed<Expr>, Transformed<Expr>);

/// An expression of such a kind, whose value and whose subquery's column `change` makes of one type: it gets the value, and the column
/// over the schema of its query. Expressions of other kinds stay as they are.
pub(crate) fn changed(expr: Expr, change: impl FnOnce(Expr, Expr, &DFSchema) -> Result<Pair>) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => both(*expr, subquery, change)?
            .update_data(|(expr, subquery)| Expr::InSubquery(InSubquery { expr: Box::new(expr), subquery, negated })),
        Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
            both(*expr, subquery, change)?.update_data(|(expr, subquery)| {
                Expr::SetComparison(SetComparison { expr: Box::new(expr), subquery, op, quantifier })
            })
        }
        expr => Transformed::no(expr),
    })
}

fn both(
    expr: Expr,
    subquery: Subquery,
    change: impl FnOnce(Expr, Expr, &DFSchema) -> Result<Pair>,
) -> Result<Transformed<(Expr, Subquery)>> {
    let within = Arc::clone(subquery.subquery.schema());
    let column = Expr::Column(Column::from(within.qualified_field(0)));
    let (expr, column) = change(expr, column, &within)?;
    let subquery = match column.transformed {
        true => {
            let named = column.data.alias(within.field(0).name());
            let plan = Projection::try_new(vec![named], subquery.subquery)?;
            Transformed::yes(Subquery { subquery: Arc::new(LogicalPlan::Projection(plan)), ..subquery })
        }
        false => Transformed::no(subquery),
    };
    let changed = expr.transformed || subquery.transformed;
    Ok(Transformed::new_transformed((expr.data, subquery.data), changed))
}
