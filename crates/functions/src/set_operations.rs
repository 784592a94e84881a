//! [`count_repeats`]: `INTERSECT ALL` and `EXCEPT ALL` that count how often a row repeats.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::logical_expr::{Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder};

use crate::counted_rows::row_number;

/// The plan of a statement just after the SQL was read, with both operators over bags as SQL defines them.
///
/// DataFusion makes a semi or an anti join of them, which keeps or drops all repeats of a row. Here every row is
/// numbered among its equals on its side, and the join compares these numbers, too: `a EXCEPT ALL b` keeps the third of
/// three rows where `b` has two. Only the planner of SQL makes such joins, in which NULL equals NULL, over rows that
/// are not distinct. The plan must therefore be one that no optimiser has changed.
pub fn count_repeats(plan: LogicalPlan) -> Result<LogicalPlan> {
    let counted = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if is_over_bags(&join) => counted(join).map(Transformed::yes),
        node => Ok(Transformed::no(node)),
    })?;
    Ok(counted.data)
}

fn is_over_bags(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(_))
}

fn counted(join: Join) -> Result<LogicalPlan> {
    let mut number = "repeat".to_owned();
    while [&join.left, &join.right].iter().any(|side| side.schema().has_column_with_unqualified_name(&number)) {
        number.push('\'');
    }
    let columns: Vec<Expr> = join.left.schema().columns().into_iter().map(Expr::Column).collect();
    let left = numbered(&join.left, join.on.iter().map(|(left, _)| left), &number)?;
    let right = numbered(&join.right, join.on.iter().map(|(_, right)| right), &number)?;
    let pair = |(left, right): (Expr, Expr)| Some((column(left)?, column(right)?));
    let Some(on) = join.on.into_iter().map(pair).collect::<Option<Vec<_>>>() else {
        return datafusion::common::internal_err!("an operator over bags compares columns");
    };
    let (mut left_keys, mut right_keys): (Vec<Column>, Vec<Column>) = on.into_iter().unzip();
    left_keys.push(last_column(&left));
    right_keys.push(last_column(&right));
    LogicalPlanBuilder::from(left)
        .join_detailed(right, join.join_type, (left_keys, right_keys), None, NullEquality::NullEqualsNull)?
        .project(columns)?
        .build()
}

fn column(expr: Expr) -> Option<Column> {
    match expr {
        Expr::Column(column) => Some(column),
        _ => None,
    }
}

fn last_column(plan: &LogicalPlan) -> Column {
    let schema = plan.schema();
    Column::from(schema.qualified_field(schema.fields().len() - 1))
}

/// The rows, with one more column: their number among the rows with equal keys.
fn numbered<'a>(side: &Arc<LogicalPlan>, keys: impl Iterator<Item = &'a Expr>, name: &str) -> Result<LogicalPlan> {
    let window = row_number().partition_by(keys.cloned().collect()).build()?;
    let computed = Expr::Column(Column::from_name(window.schema_name().to_string()));
    let columns = side.schema().columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(side.as_ref().clone())
        .window(vec![window])?
        .project(columns.chain([computed.alias(name)]).collect::<Vec<_>>())?
        .build()
}
