//! [`plan`]: `SELECT *` of a wide table.
//!
//! DataFusion 55.2 looks each item of a SELECT up among those before it, by text that it writes anew for each pair: 16,000 columns take a
//! minute. So a query of all columns of one table is planned with one item in their place, and the columns are put into the plan.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, GroupByExpr, Ident, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Statement as Sql,
    TableAlias, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use crate::dialect::{normal, null};
use crate::schemas::columns_of_dataset;

/// Columns up to which they are planned as they are.
const COLUMNS_MAX: usize = 256;
/// The name of the item in the columns' place, which no column has.
const ALL: &str = "/all";

/// The plan of a query of all columns of one wide table; none: it is another statement.
pub(crate) async fn plan(state: &SessionState, statement: &Statement) -> Option<Result<LogicalPlan, DataFusionError>> {
    let Statement::Statement(sql) = statement else { return None };
    let Sql::Query(query) = sql.as_ref() else { return None };
    let table = table_of_all_columns(query)?;
    if columns_of_dataset(state, table)? <= COLUMNS_MAX {
        return None;
    }
    let mut query = query.clone();
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.projection = vec![SelectItem::ExprWithAlias { expr: null(), alias: Ident::with_quote('"', ALL) }];
    let planned = state.statement_to_plan(Statement::Statement(Box::new(Sql::Query(query)))).await;
    // Errors are to be of the statement as it is.
    planned.ok().map(with_all_columns)
}

/// The table, where a query is of all of its columns and of nothing else.
fn table_of_all_columns(query: &Query) -> Option<TableReference> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let is_plain = query.with.is_none() && query.order_by.as_ref().is_none_or(is_by_expressions) && is_plain(select);
    let ([SelectItem::Wildcard(options)], [from], true) = (&select.projection[..], &select.from[..], is_plain) else {
        return None;
    };
    let TableWithJoins { relation: TableFactor::Table { name, alias, args: None, .. }, joins } = from else { return None };
    let keeps_names = alias.as_ref().is_none_or(|TableAlias { columns, .. }| columns.is_empty());
    if !joins.is_empty() || !keeps_names || *options != WildcardAdditionalOptions::default() {
        return None;
    }
    let parts: Vec<String> = name.0.iter().map(|part| part.as_ident().map(normal)).collect::<Option<_>>()?;
    match <[String; 3]>::try_from(parts) {
        Ok([catalog, schema, table]) => Some(TableReference::full(catalog, schema, table)),
        Err(parts) => match <[String; 2]>::try_from(parts) {
            Ok([schema, table]) => Some(TableReference::partial(schema, table)),
            Err(mut parts) => parts.pop().filter(|_| parts.is_empty()).map(TableReference::bare),
        },
    }
}

/// Whether nothing but FROM and WHERE says which rows and columns there are.
fn is_plain(select: &Select) -> bool {
    let is_grouped =
        !matches!(&select.group_by, GroupByExpr::Expressions(by, modifiers) if by.is_empty() && modifiers.is_empty());
    let others = [
        is_grouped,
        select.distinct.is_some(),
        select.top.is_some(),
        select.into.is_some(),
        select.having.is_some(),
        select.qualify.is_some(),
        !select.named_window.is_empty(),
        !select.lateral_views.is_empty(),
        !select.sort_by.is_empty(),
        !select.distribute_by.is_empty(),
        !select.cluster_by.is_empty(),
    ];
    !others.contains(&true)
}

/// Whether ORDER BY names no item by its place, and not all of them.
fn is_by_expressions(order_by: &OrderBy) -> bool {
    match &order_by.kind {
        OrderByKind::Expressions(by) => by.iter().all(|by| !matches!(by.expr, SqlExpr::Value(_))),
        OrderByKind::All(_) => false,
    }
}

fn with_all_columns(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    let all = plan.transform_up(|node| match node {
        LogicalPlan::Projection(projection) if projection.expr.iter().any(stands_for_all) => {
            let schema = Arc::clone(projection.input.schema());
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::new_from_schema(projection.input, schema))))
        }
        node => Ok(Transformed::no(node)),
    });
    all.map(|all| all.data)
}

/// Whether an item is the one in the columns' place, or a column that is made of it.
fn stands_for_all(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => alias.name == ALL,
        Expr::Column(column) => column.name == ALL,
        _ => false,
    }
}
