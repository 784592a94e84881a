//! The plan of a statement that writes.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result as DataFusionResult, internal_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{Alias, Placeholder};
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, Projection, Values, cast};
use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{Delete, FromTable, SetExpr, Statement as Sql, TableFactor, TableWithJoins};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pithead_functions::fault_from_datafusion;
use pithead_model::Fault;

use crate::statement_plan::plan_of;

/// Plans a statement.
pub(crate) async fn planned(state: &SessionState, statement: Syntax) -> Result<LogicalPlan, Fault> {
    planned_by(statement, |it| plan_of(state, it)).await.map_err(fault_from_datafusion)
}

/// Plans a statement with a planner that drops the name that a DELETE gives its table (`DELETE FROM t AS x WHERE x.a > 1`): the
/// rows of such a one are planned as a query's.
pub(crate) async fn planned_by<P>(statement: Syntax, plan: impl Fn(Syntax) -> P) -> DataFusionResult<LogicalPlan>
where
    P: Future<Output = DataFusionResult<LogicalPlan>>,
{
    let Some((bare, rows)) = renamed(&statement)? else { return plan(statement).await };
    let LogicalPlan::Dml(DmlStatement { table_name, target, op, .. }) = plan(bare).await? else {
        return internal_err!("a DELETE is planned as something else");
    };
    let LogicalPlan::Projection(Projection { mut input, .. }) = plan(rows).await? else {
        return internal_err!("the rows of a DELETE are no SELECT");
    };
    // All columns, under the names that the statement has for them.
    while let LogicalPlan::Projection(projection) = input.as_ref() {
        input = Arc::clone(&projection.input);
    }
    Ok(LogicalPlan::Dml(DmlStatement::new(table_name, target, op, input)))
}

/// Whether a DELETE is about the rows of one table that a condition chooses, and about nothing else.
pub(crate) fn is_plain_delete(delete: &Delete) -> bool {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    matches!(from.as_slice(), [TableWithJoins { relation: TableFactor::Table { .. }, joins }] if joins.is_empty())
        && delete.tables.is_empty()
        && delete.using.is_none()
        && delete.returning.is_none()
        && delete.order_by.is_empty()
        && delete.limit.is_none()
}

/// The plan with a cast at each placeholder that stands by itself for a moment, a wall time or a day. To the planner it has the
/// column's type already, and a value without a zone would be read in the column's zone, one with a zone in UTC. With the cast it is
/// read in the session's, as a literal is.
pub(super) fn with_casts_of_moments(plan: LogicalPlan) -> Result<LogicalPlan, Fault> {
    let casted = plan.transform_up(|node| match node {
        LogicalPlan::Values(_) | LogicalPlan::Projection(_) => node.map_expressions(|expr| Ok(moment_cast(expr))),
        node => Ok(Transformed::no(node)),
    });
    casted.data().map_err(fault_from_datafusion)
}

/// The plan with rows of VALUES that may be NULL. The planner gives them the types of the table's columns, and takes from these whether
/// they may be NULL, under names of its own. Where NULL may not be is said of what is to be written, by the column's name.
pub(super) fn with_nulls(plan: LogicalPlan) -> Result<LogicalPlan, Fault> {
    let nullable = plan.transform_up(|node| match node {
        LogicalPlan::Values(Values { schema, values }) if schema.fields().iter().any(|field| !field.is_nullable()) => {
            let fields = schema.iter().map(|(of, field)| (of.cloned(), Arc::new(field.as_ref().clone().with_nullable(true))));
            let schema = Arc::new(DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())?);
            Ok(Transformed::yes(LogicalPlan::Values(Values { schema, values })))
        }
        LogicalPlan::Projection(Projection { ref input, .. }) if matches!(**input, LogicalPlan::Values(_)) => {
            node.recompute_schema().map(Transformed::yes)
        }
        node => Ok(Transformed::no(node)),
    });
    nullable.data().map_err(fault_from_datafusion)
}

fn moment_cast(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Alias(Alias { expr, relation, name, metadata }) => {
            moment_cast(*expr).update_data(|expr| Expr::Alias(Alias { expr: Box::new(expr), relation, name, metadata }))
        }
        Expr::Placeholder(Placeholder { field: Some(ref field), .. })
            if matches!(field.data_type(), DataType::Timestamp(..) | DataType::Date32 | DataType::Date64) =>
        {
            let to = field.data_type().clone();
            Transformed::yes(cast(expr, to))
        }
        expr => Transformed::no(expr),
    }
}

/// Of a DELETE whose table has another name in it: the DELETE of all rows, and the query of those that go.
fn renamed(statement: &Syntax) -> DataFusionResult<Option<(Syntax, Syntax)>> {
    let Syntax::Statement(sql) = statement else { return Ok(None) };
    let Sql::Delete(delete) = sql.as_ref() else { return Ok(None) };
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [TableWithJoins { relation: TableFactor::Table { alias: Some(_), .. }, .. }] = from.as_slice() else {
        return Ok(None);
    };
    if !is_plain_delete(delete) {
        return Ok(None);
    }
    let mut query = Parser::new(&GenericDialect {}).try_with_sql("SELECT * FROM t").and_then(|mut parser| parser.parse_query());
    if let Ok(query) = &mut query
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        (select.from, select.selection) = (from.clone(), delete.selection.clone());
    }
    let query = query?;
    let mut bare = Delete { selection: None, ..delete.clone() };
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &mut bare.from;
    if let [TableWithJoins { relation: TableFactor::Table { alias, .. }, .. }] = from.as_mut_slice() {
        *alias = None;
    }
    let statement = |sql| Syntax::Statement(Box::new(sql));
    Ok(Some((statement(Sql::Delete(bare)), statement(Sql::Query(query)))))
}
