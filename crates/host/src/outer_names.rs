//! Tables of a query around, of which a table within has a column of the same name: `SELECT * FROM dept WHERE EXISTS (SELECT 1
//! FROM emp WHERE emp.dept = dept.id)`.
//!
//! The planner looks for a field `id` of the column `dept` within before it looks for a table `dept` around. A column that has no
//! fields has the statement refused; then it is planned again, with names for the tables around that no column has.

mod naming;

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, Result, SchemaError, TableReference};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;

use naming::{Naming, Read, reads};

/// The function that gives a field of a column.
const FIELD: &str = "get_field";
/// Columns named with their table that are looked at one by one.
const READS_MAX: usize = 16;

/// Whether the planner may have taken a table of a query around for a column.
pub(crate) fn hides(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::Execution(text) => text.starts_with("Cannot access field at argument"),
        DataFusionError::Plan(text) => text.starts_with("Field ") && text.contains("not found in struct"),
        DataFusionError::NotImplemented(text) => text.contains("not yet supported for OuterReferenceColumn"),
        _ => false,
    }
}

/// The plan, if all that it takes for columns with fields are such columns: the planner leaves that to the optimiser.
pub(crate) fn checked(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::ScalarFunction(function) = part
                    && function.func.name() == FIELD
                    && let Err(error) = part.get_type(&merge_schema(&node.inputs()))
                    && hides(&error)
                {
                    return Err(error);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(plan)
}

/// The plan of a statement that was refused with this error, with names of their own for tables that are read from queries
/// within. `plan` plans a statement.
pub(crate) async fn plan_again<P>(
    statement: &Statement,
    error: DataFusionError,
    plan: impl Fn(Statement) -> P,
) -> Result<LogicalPlan>
where
    P: Future<Output = Result<LogicalPlan>>,
{
    let reads = reads(statement);
    let (mut staying, mut not_found) = (BTreeSet::new(), None);
    for _ in 0..READS_MAX {
        let Some(named) = Named::of(statement, &reads, &staying) else { break };
        let refused = match plan(named.statement.clone()).await {
            Ok(found) => return fewer(statement, &reads, staying, named.back(found)?, plan).await,
            Err(refused) => refused,
        };
        // What is no column of the table may be a field of a column.
        match named.missing(&refused) {
            Some(read) if reads.contains_key(&read) => {
                not_found.get_or_insert_with(|| named.said(refused));
                staying.insert(read);
            }
            _ if hides(&refused) => break,
            _ => return Err(named.said(refused)),
        }
    }
    Err(not_found.unwrap_or(error))
}

/// The plan, but with all of those for fields that the planner takes for fields by itself: they are so wherever it does not
/// refuse others.
async fn fewer<P>(
    statement: &Statement,
    reads: &BTreeMap<Read, bool>,
    mut staying: BTreeSet<Read>,
    mut found: LogicalPlan,
    plan: impl Fn(Statement) -> P,
) -> Result<LogicalPlan>
where
    P: Future<Output = Result<LogicalPlan>>,
{
    let with_fields = columns_with_fields(&found)?;
    let doubtful = reads.keys().filter(|read| with_fields.contains(&read.name) && !staying.contains(*read));
    for read in doubtful.take(READS_MAX).cloned().collect::<Vec<_>>() {
        let candidate = staying.iter().cloned().chain([read]).collect();
        let Some(named) = Named::of(statement, reads, &candidate) else { continue };
        if let Ok(other) = plan(named.statement.clone()).await {
            (found, staying) = (named.back(other)?, candidate);
        }
    }
    Ok(found)
}

/// The names of columns of a plan that have fields.
fn columns_with_fields(plan: &LogicalPlan) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        let fields = node.schema().fields().iter();
        let nested = fields.filter(|field| matches!(field.data_type(), DataType::Struct(_) | DataType::Map(..)));
        names.extend(nested.map(|field| field.name().clone()));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(names)
}

/// A statement whose tables have names of their own, and the names that these had.
struct Named {
    statement: Statement,
    /// By the new name: which table it is, and what it is called.
    tables: BTreeMap<String, (usize, TableReference)>,
}

impl Named {
    /// The statement with such names, but for the columns that stay as they are; none: there is nothing to name.
    fn of(statement: &Statement, reads: &BTreeMap<Read, bool>, staying: &BTreeSet<Read>) -> Option<Named> {
        let from_within = reads.iter().filter(|(read, is_from_within)| **is_from_within && !staying.contains(*read));
        let tables: BTreeSet<usize> = from_within.map(|(read, _)| read.table).collect();
        if tables.is_empty() {
            return None;
        }
        let (statement, tables) = Naming::new(statement, tables, staying).of(statement);
        Some(Named { statement, tables })
    }

    /// The column that the planner did not find in a table with a name of its own.
    fn missing(&self, error: &DataFusionError) -> Option<Read> {
        let DataFusionError::SchemaError(error, _) = error.find_root() else { return None };
        let SchemaError::FieldNotFound { field, .. } = error.as_ref() else { return None };
        let (table, called) = self.tables.get(field.relation.as_ref()?.table())?;
        Some(Read { table: *table, name: called.table().to_owned(), column: field.name.clone() })
    }

    /// The error in the names that the statement has.
    fn said(&self, error: DataFusionError) -> DataFusionError {
        let DataFusionError::SchemaError(schema, _) = error.find_root() else { return error };
        let SchemaError::FieldNotFound { field, valid_fields } = schema.as_ref() else { return error };
        let field = Box::new(self.column(field));
        let valid_fields = valid_fields.iter().map(|field| self.column(field)).collect();
        DataFusionError::SchemaError(Box::new(SchemaError::FieldNotFound { field, valid_fields }), Box::new(None))
    }

    /// A column in the names that the statement has. A cast has its table's name in its own.
    fn column(&self, column: &Column) -> Column {
        let called = column.relation.as_ref().and_then(|of| self.tables.get(of.table())).map(|(_, called)| called.clone());
        // A longer name may begin with a shorter one.
        let named = self.tables.iter().rev();
        let name = named.fold(column.name.clone(), |name, (new, (_, called))| name.replace(new.as_str(), &called.to_string()));
        Column { relation: called.or_else(|| column.relation.clone()), name, ..column.clone() }
    }

    /// The plan whose result has columns of the tables as the statement calls them.
    fn back(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let columns = plan.schema().columns();
        if !columns.iter().any(|column| self.column(column) != *column) {
            return Ok(plan);
        }
        let called = columns.into_iter().map(|column| {
            let Column { relation, name, .. } = self.column(&column);
            Expr::Column(column).alias_qualified(relation, name)
        });
        LogicalPlanBuilder::from(plan).project(called.collect::<Vec<_>>())?.build()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    /// What a statement reads of which tables, as the plan that it has in the end says.
    async fn planned(sql: &str) -> Result<LogicalPlan> {
        let context = SessionContext::new();
        for table in [
            "CREATE TABLE dept (id INT, name TEXT)",
            "CREATE TABLE emp (id INT, dept INT, name TEXT)",
            "CREATE TABLE nested AS SELECT 1 AS id, named_struct('f', 1) AS s, 2 AS dept",
            "CREATE TABLE s (id INT)",
            "CREATE TABLE both (f INT, s INT)",
        ] {
            context.sql(table).await?.collect().await?;
        }
        let state = context.state();
        let statement = state.sql_to_statement(sql, &state.config_options().sql_parser.dialect)?;
        let plan = |statement: Statement| {
            let state = state.clone();
            async move { state.statement_to_plan(statement).await.and_then(checked) }
        };
        match plan(statement.clone()).await {
            Err(error) if hides(&error) => plan_again(&statement, error, plan).await,
            other => other,
        }
    }

    fn columns(plan: &LogicalPlan) -> Vec<String> {
        plan.schema().columns().iter().map(Column::flat_name).collect()
    }

    #[tokio::test]
    async fn tables_around_are_read_where_a_column_has_their_name() {
        for (sql, expected) in [
            (
                "SELECT * FROM dept WHERE EXISTS (SELECT 1 FROM emp WHERE emp.dept = dept.id)",
                ["dept.id", "dept.name"].as_slice(),
            ),
            (
                "SELECT CAST(dept.id AS BIGINT) + 1 FROM dept WHERE EXISTS (SELECT 1 FROM emp WHERE emp.dept = dept.id)",
                &["dept.id + Int64(1)"],
            ),
            ("SELECT dept.* FROM dept WHERE id IN (SELECT dept FROM emp WHERE dept = dept.id)", &["dept.id", "dept.name"]),
            ("SELECT d.name FROM dept AS d WHERE d.id = (SELECT max(d.d) FROM (SELECT 1 AS d) AS d)", &["d.name"]),
            ("SELECT name.id FROM dept AS name WHERE EXISTS (SELECT 1 FROM emp WHERE name.id = dept)", &["name.id"]),
            (
                "SELECT dept.id FROM dept WHERE EXISTS (SELECT 1 FROM emp WHERE EXISTS (SELECT 1 FROM s WHERE s.id = dept.id))",
                &["dept.id"],
            ),
            (
                "SELECT dept.id FROM dept JOIN dept AS e USING (id) WHERE EXISTS (SELECT 1 FROM emp WHERE dept.id = emp.id) ORDER BY \
                 dept.name",
                &["dept.id"],
            ),
            (
                "WITH dept AS (SELECT id FROM s) SELECT dept.id FROM dept WHERE dept.id = (SELECT max(dept.id) FROM dept) AND EXISTS \
                 (SELECT 1 FROM emp WHERE emp.dept = dept.id)",
                &["dept.id"],
            ),
        ] {
            assert_eq!(columns(&planned(sql).await.unwrap()), expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn fields_of_columns_within_stay_fields() {
        for (sql, is_field) in [
            // `s` around has no `f`.
            ("SELECT 1 FROM dept, s WHERE EXISTS (SELECT 1 FROM nested WHERE s.f = 1 AND nested.dept = dept.id)", true),
            // The planner takes it for a field by itself.
            ("SELECT 1 FROM dept, both AS s WHERE EXISTS (SELECT 1 FROM nested WHERE s.f = 1 AND nested.dept = dept.id)", true),
            ("SELECT 1 FROM s WHERE EXISTS (SELECT 1 FROM nested WHERE s.id = nested.id)", false),
        ] {
            let text = planned(sql).await.unwrap().display_indent().to_string();
            assert_eq!(text.contains("get_field"), is_field, "{sql}: {text}");
        }
    }

    #[tokio::test]
    async fn what_no_table_has_is_said_in_the_names_of_the_statement() {
        for (sql, expected) in [
            (
                "SELECT 1 FROM dept WHERE EXISTS (SELECT 1 FROM emp WHERE emp.dept = dept.nothing)",
                "No field named dept.nothing",
            ),
            (
                "SELECT dept.none FROM dept WHERE EXISTS (SELECT 1 FROM emp WHERE emp.dept = dept.id)",
                "No field named dept.none. Did you mean 'dept.name'",
            ),
            ("SELECT 1 FROM emp WHERE dept.id = 1", "Cannot access field"),
        ] {
            let error = planned(sql).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }
}
