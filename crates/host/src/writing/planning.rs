//! The plan of a statement that writes.

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, Projection};
use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{Delete, FromTable, SetExpr, Statement as Sql, TableFactor, TableWithJoins};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pithead_functions::fault_from_datafusion;
use pithead_model::Fault;

use crate::statement_plan::plan_of;

/// Plans a statement. The planner drops the name that a DELETE gives its table (`DELETE FROM t AS x WHERE x.a > 1`), so the rows of such
/// a one are planned as a query's.
pub(crate) async fn planned(state: &SessionState, statement: Syntax) -> Result<LogicalPlan, Fault> {
    let Some((bare, rows)) = renamed(&statement)? else {
        return plan_of(state, statement).await.map_err(fault_from_datafusion);
    };
    let plan = plan_of(state, bare).await.map_err(fault_from_datafusion)?;
    let LogicalPlan::Dml(DmlStatement { table_name, target, op, .. }) = plan else {
        return Err(Fault::bug("a DELETE is planned as something else"));
    };
    match plan_of(state, rows).await.map_err(fault_from_datafusion)? {
        LogicalPlan::Projection(Projection { input, .. }) => {
            Ok(LogicalPlan::Dml(DmlStatement::new(table_name, target, op, Arc::clone(&input))))
        }
        _ => Err(Fault::bug("the rows of a DELETE are no SELECT")),
    }
}

/// Of a DELETE whose table has another name in it: the DELETE of all rows, and the query of those that go.
fn renamed(statement: &Syntax) -> Result<Option<(Syntax, Syntax)>, Fault> {
    let Syntax::Statement(sql) = statement else { return Ok(None) };
    let Sql::Delete(delete) = sql.as_ref() else { return Ok(None) };
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [TableWithJoins { relation: TableFactor::Table { alias: Some(_), .. }, joins }] = from.as_slice() else {
        return Ok(None);
    };
    let is_plain = joins.is_empty()
        && delete.tables.is_empty()
        && delete.using.is_none()
        && delete.returning.is_none()
        && delete.order_by.is_empty()
        && delete.limit.is_none();
    if !is_plain {
        return Ok(None);
    }
    let mut query = Parser::new(&GenericDialect {}).try_with_sql("SELECT * FROM t").and_then(|mut parser| parser.parse_query());
    if let Ok(query) = &mut query
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        (select.from, select.selection) = (from.clone(), delete.selection.clone());
    }
    let query = query.map_err(|error| fault_from_datafusion(error.into()))?;
    let mut bare = Delete { selection: None, ..delete.clone() };
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &mut bare.from;
    if let [TableWithJoins { relation: TableFactor::Table { alias, .. }, .. }] = from.as_mut_slice() {
        *alias = None;
    }
    let statement = |sql| Syntax::Statement(Box::new(sql));
    Ok(Some((statement(Sql::Delete(bare)), statement(Sql::Query(query)))))
}
