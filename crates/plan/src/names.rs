//! Names that plans make up for columns and tables: none that SQL text or a dataset's columns can have.

use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use pithead_model::RESERVED;

/// The name of the `number`th thing of a kind.
pub(crate) fn own(kind: &str, number: usize) -> String {
    format!("{RESERVED}{kind}_{number}")
}

/// The column of that name.
pub(crate) fn own_column(kind: &str, number: usize) -> Expr {
    Expr::Column(Column::new_unqualified(own(kind, number)))
}

/// An operator as it was read, none of whose results is named like a column of a table.
///
/// The engine names `CAST(main.t.k AS INT)` like what it casts, without a relation: `"main.t.k"`. Where the same table is read again
/// beside it, its optimiser's common subexpressions (DataFusion 55.2) take that column and `k` of `main.t` for one, and leave one out.
pub(crate) fn named_apart(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(Projection { expr, input, .. }) if expr.iter().any(is_named_like_a_column) => {
            let expr = expr.into_iter().map(renamed).collect();
            Projection::try_new(expr, input).map(LogicalPlan::Projection)
        }
        LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. })
            if group_expr.iter().any(is_named_like_a_column) =>
        {
            let group_expr = group_expr.into_iter().map(renamed).collect();
            Aggregate::try_new(input, group_expr, aggr_expr).map(LogicalPlan::Aggregate)
        }
        plan => Ok(plan),
    }
}

fn renamed(expr: Expr) -> Expr {
    match is_named_like_a_column(&expr) {
        true => {
            let name = format!("{RESERVED}{}", expr.schema_name());
            expr.alias(name)
        }
        false => expr,
    }
}

fn is_named_like_a_column(expr: &Expr) -> bool {
    if matches!(expr, Expr::Column(_)) {
        return false;
    }
    let name = expr.schema_name().to_string();
    expr.column_refs().into_iter().any(|column| column.relation.is_some() && column.flat_name() == name)
}
