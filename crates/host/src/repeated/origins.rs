//! Where the columns of a result come from: those that are a column of a dataset as it is, whatever their names.

use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan};
use pithead_pg_catalog::table_number;

use crate::table::DatasetTable;

/// Of a result with more columns than this, it is not told.
const COLUMNS_MAX: usize = 1_000;

/// For each column of a plan, the number of its dataset and its own number there, the first one being 1; none: it is computed.
pub(super) fn origins(plan: &LogicalPlan) -> Vec<Option<(u32, usize)>> {
    let columns = plan.schema().fields().len();
    if columns > COLUMNS_MAX {
        return Vec::new();
    }
    (0..columns).map(|column| origin(plan, column)).collect()
}

fn origin(plan: &LogicalPlan, column: usize) -> Option<(u32, usize)> {
    match plan {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source).ok()?;
            let name = provider.downcast_ref::<DatasetTable>()?.found().name();
            let place = scan.projection.as_ref().map_or(Some(column), |places| places.get(column).copied())?;
            Some((table_number(&name.domain, &name.dataset), place + 1))
        }
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, column),
        LogicalPlan::Filter(filter) => origin(&filter.input, column),
        LogicalPlan::Sort(sort) => origin(&sort.input, column),
        LogicalPlan::Limit(limit) => origin(&limit.input, column),
        LogicalPlan::Window(window) if column < window.input.schema().fields().len() => origin(&window.input, column),
        LogicalPlan::Projection(projection) => of_expression(projection.expr.get(column)?, &projection.input),
        LogicalPlan::Aggregate(aggregate) => of_expression(aggregate.group_expr.get(column)?, &aggregate.input),
        LogicalPlan::Join(join) => of_join(join, column),
        _ => None,
    }
}

fn of_expression(expr: &Expr, input: &LogicalPlan) -> Option<(u32, usize)> {
    match expr {
        Expr::Alias(alias) => of_expression(&alias.expr, input),
        Expr::Column(column) => origin(input, input.schema().maybe_index_of_column(column)?),
        _ => None,
    }
}

fn of_join(join: &Join, column: usize) -> Option<(u32, usize)> {
    let left = join.left.schema().fields().len();
    match join.join_type {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full if column >= left => {
            origin(&join.right, column - left)
        }
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => origin(&join.left, column),
        _ => None,
    }
}
