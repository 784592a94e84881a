//! RETURNING: the rows that a statement inserted, changed or deleted, as a SELECT of its list over them.
//!
//! They are kept until the statement is through, so that nobody sees rows of one that fails; and the list is computed before anything is
//! committed, so that one that fails changes nothing.

use std::future::ready;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};
use datafusion::physical_plan::collect;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{
    FromTable, ObjectName, Query as SqlQuery, SelectItem, SetExpr, Statement as Sql, TableFactor, TableObject, TableWithJoins,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use pithead_door::{Batches, batch_bytes};
use pithead_functions::{fault_from_datafusion, ready_to_run};
use pithead_model::{Blame, Fault, FaultKind};

use super::conform;
use crate::query::Query;
use crate::repeated::Names;
use crate::session::logical_plan;

/// Takes RETURNING out of a statement, as a query of its list over the statement's table; none: there is none.
pub(crate) fn take_returning(statement: &mut Sql) -> Result<Option<Sql>, Fault> {
    let (list, table) = match statement {
        Sql::Insert(insert) => {
            let Some(list) = insert.returning.take() else { return Ok(None) };
            let TableObject::TableName(name) = &insert.table else { return Err(of_one_table("an INSERT")) };
            (list, Table::Named(name.clone()))
        }
        Sql::Update(update) => {
            let Some(list) = update.returning.take() else { return Ok(None) };
            if update.from.is_some() || !update.table.joins.is_empty() {
                return Err(of_one_table("an UPDATE"));
            }
            (list, Table::From(Box::new(update.table.clone())))
        }
        Sql::Delete(delete) => {
            let Some(list) = delete.returning.take() else { return Ok(None) };
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
            match from.as_slice() {
                [table] if delete.using.is_none() && table.joins.is_empty() => (list, Table::From(Box::new(table.clone()))),
                _ => return Err(of_one_table("a DELETE")),
            }
        }
        Sql::Merge(merge) if merge.output.is_some() => return Err(of_one_table("MERGE")),
        _ => return Ok(None),
    };
    selected(list, table).map(Some)
}

/// The table of a statement.
enum Table {
    Named(ObjectName),
    From(Box<TableWithJoins>),
}

fn selected(list: Vec<SelectItem>, table: Table) -> Result<Sql, Fault> {
    let mut query = Parser::new(&GenericDialect {})
        .try_with_sql("SELECT * FROM t")
        .and_then(|mut parser| parser.parse_query())
        .map_err(|error| fault_from_datafusion(error.into()))?;
    let SqlQuery { body, .. } = query.as_mut();
    if let SetExpr::Select(select) = body.as_mut() {
        select.projection = list;
        match (table, select.from.as_mut_slice()) {
            (Table::From(table), [from]) => *from = *table,
            (Table::Named(named), [TableWithJoins { relation: TableFactor::Table { name, .. }, .. }]) => *name = named,
            _ => return Err(Fault::bug("a SELECT without a table")),
        }
    }
    Ok(Sql::Query(query))
}

fn of_one_table(statement: &str) -> Fault {
    Fault::new(Blame::Unsupported, format!("RETURNING at {statement} of several tables"))
        .hint("leave RETURNING out, and SELECT the rows afterwards; statements that name one table have it")
}

/// Refuses a list that is no row for each row.
pub(crate) fn check_returning(plan: &LogicalPlan) -> Result<(), Fault> {
    let mut is_plain = true;
    plan.apply_with_subqueries(|node| {
        is_plain &= matches!(node, LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_));
        let is_aside = |expr: &Expr| {
            Ok(matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)))
        };
        node.apply_expressions(|expr| {
            is_plain &= !expr.exists(is_aside)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })
    .map_err(fault_from_datafusion)?;
    if !plan.get_parameter_names().map_err(fault_from_datafusion)?.is_empty() {
        let fault = Fault::new(Blame::Unsupported, "a placeholder in the list of RETURNING");
        return Err(fault.hint("write the value itself there"));
    }
    match is_plain {
        true => Ok(()),
        false => Err(Fault::new(Blame::Unsupported, "an aggregate, a window, unnest or a query in the list of RETURNING")
            .hint("it has a row for each row that was written: columns, and what is computed from them")),
    }
}

/// What RETURNING is to give, over the rows that a statement has written so far.
#[derive(Clone)]
pub(crate) struct Returned(Arc<Returning>);

struct Returning {
    state: SessionState,
    /// The query of the list, over the statement's table.
    plan: LogicalPlan,
    names: Names,
    kept: Mutex<Kept>,
}

struct Kept {
    rows: Vec<RecordBatch>,
    /// What the list is of them, once all are there.
    answer: Option<(SchemaRef, Vec<RecordBatch>)>,
    reserved: MemoryReservation,
}

impl Returned {
    /// The list, as [`take_returning`] gives it. The rows count as memory of the host's statements.
    pub(crate) async fn new(query: &Query, list: &Syntax) -> Result<Self, Fault> {
        let (plan, names) = logical_plan(&query.state, list.clone()).await?;
        check_returning(&plan)?;
        query.host.functions().ready(&query.state, &plan).await?;
        let reserved = MemoryConsumer::new("RETURNING").register(&query.state.runtime_env().memory_pool);
        let kept = Mutex::new(Kept { rows: Vec::new(), answer: None, reserved });
        Ok(Self(Arc::new(Returning { state: query.state.clone(), plan, names, kept })))
    }

    /// The same rows, which are kept as they pass, in place of any before them. At the end comes an error where the list has none of
    /// them as its answer.
    pub(super) fn keep(&self, rows: Batches) -> Batches {
        {
            let mut kept = self.0.kept.lock();
            kept.rows.clear();
            kept.reserved.free();
        }
        let (this, end) = (Arc::clone(&self.0), Arc::clone(&self.0));
        let rows = rows.map(move |batch| batch.and_then(|batch| this.add(&batch).map(|()| batch)));
        let computed = stream::once(async move { end.compute().await.err() }).filter_map(|fault| ready(fault.map(Err)));
        rows.chain(computed).boxed()
    }

    /// Columns and rows.
    pub(crate) async fn answer(&self) -> Result<(SchemaRef, Batches), Fault> {
        let Returning { names, kept, .. } = self.0.as_ref();
        let computed = || kept.lock().answer.take();
        let (schema, rows) = match computed() {
            Some(answer) => answer,
            // No row was written.
            None => {
                self.0.compute().await?;
                computed().ok_or_else(|| Fault::bug("RETURNING was not computed"))?
            }
        };
        let schema = names.schema(&schema);
        let rows = names.rows(stream::iter(rows.into_iter().map(Ok)).boxed(), &schema);
        Ok((schema, rows))
    }
}

impl Returning {
    fn add(&self, batch: &RecordBatch) -> Result<(), Fault> {
        let mut kept = self.kept.lock();
        kept.reserved.try_grow(batch_bytes(batch)).map_err(|_| {
            let fault = Fault::new(Blame::Limit, "the rows of RETURNING take more memory than the host's statements have");
            fault.of_kind(FaultKind::Memory).hint("leave RETURNING out, or change fewer rows at a time")
        })?;
        kept.rows.push(batch.clone());
        Ok(())
    }

    /// Runs the query of the list over the rows.
    async fn compute(&self) -> Result<(), Fault> {
        let rows = std::mem::take(&mut self.kept.lock().rows);
        let plan = over(self.plan.clone(), &rows).and_then(|plan| self.state.optimize(&plan)).and_then(ready_to_run);
        let plan = plan.map_err(fault_from_datafusion)?;
        let plan = DefaultPhysicalPlanner::default().create_physical_plan(&plan, &self.state).await;
        let plan = plan.map_err(fault_from_datafusion)?;
        let schema = plan.schema();
        let answer = collect(plan, self.state.task_ctx()).await.map_err(fault_from_datafusion)?;
        self.kept.lock().answer = Some((schema, answer));
        Ok(())
    }
}

/// A query of one table, over these rows of it.
fn over(plan: LogicalPlan, rows: &[RecordBatch]) -> Result<LogicalPlan, DataFusionError> {
    let replaced = plan.transform_up(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
        let schema = scan.source.schema();
        let rows = rows.iter().map(|batch| conform(batch, &schema)).collect::<Result<Vec<_>, _>>();
        let rows = rows.map_err(|fault| DataFusionError::External(fault.into()))?;
        let source = provider_as_source(Arc::new(MemTable::try_new(schema, vec![rows])?));
        Ok(Transformed::yes(LogicalPlan::TableScan(TableScan { source, ..scan })))
    });
    Ok(replaced?.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sql: &str) -> Result<Option<String>, Fault> {
        let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        let list = take_returning(&mut statement)?;
        assert!(!statement.to_string().contains("RETURNING"), "{statement}");
        Ok(list.map(|list| list.to_string()))
    }

    #[test]
    fn the_list_becomes_a_query_of_the_table() {
        for (sql, expected) in [
            ("INSERT INTO d.t (a) VALUES (1) RETURNING a + 1 AS b, *", Some("SELECT a + 1 AS b, * FROM d.t")),
            ("INSERT INTO t SELECT 1 RETURNING t.a", Some("SELECT t.a FROM t")),
            ("UPDATE t AS x SET a = 1 WHERE b = 2 RETURNING x.a", Some("SELECT x.a FROM t AS x")),
            ("DELETE FROM \"T\" WHERE a = 1 RETURNING *", Some("SELECT * FROM \"T\"")),
            ("DELETE FROM t", None),
            ("SELECT 1", None),
        ] {
            assert_eq!(taken(sql).unwrap().as_deref(), expected, "{sql}");
        }
        for sql in
            ["UPDATE t SET a = s.a FROM s WHERE t.k = s.k RETURNING t.a", "DELETE FROM t USING s WHERE t.k = s.k RETURNING 1"]
        {
            assert_eq!(taken(sql).unwrap_err().blame, Blame::Unsupported, "{sql}");
        }
    }
}
