//! `SELECT -a AS a FROM t ORDER BY abs(a)`: within an expression of ORDER BY, a name is a column of FROM before it is one that SELECT gives,
//! as in DuckDB and by SQL's standard. By itself, it is SELECT's. The planner always takes SELECT's.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DataFusionError, SchemaError, plan_err};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectNamePart, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr,
    TableFactor, Visitor, VisitorMut,
};
use pithead_syntax::{expressions_at_mut, walk, walk_mut};

use crate::dialect::normal;

/// Names of a statement that are looked at, and tables that may have one.
const NAMES_MAX: usize = 64;
const TABLES_MAX: usize = 64;

/// Says of which table such names are, where one has a column of that name. `plan` plans a statement.
pub(crate) async fn of_tables<P>(mut statement: Statement, plan: impl Fn(Statement) -> P) -> Result<Statement, DataFusionError>
where
    P: Future<Output = Result<LogicalPlan, DataFusionError>>,
{
    let found = names(&statement);
    if found.is_empty() {
        return Ok(statement);
    }
    // Where SELECT's names make no sense, others may: `SELECT -sum(a) AS a … ORDER BY sum(a)`.
    let makes_sense = plan(statement.clone()).await.is_ok();
    for Name { query, name, tables, is_distinct, is_merged } in found.into_iter().take(NAMES_MAX) {
        let mut meant = None;
        for table in tables.iter().take(TABLES_MAX) {
            let candidate = said(&statement, query, &name, table);
            match plan(candidate.clone()).await {
                Ok(plan) if !is_there(&plan) => {}
                Ok(_) if is_merged && meant.is_some() => {}
                Ok(_) if meant.is_some() => {
                    return plan_err!(
                        "column {name} of ORDER BY is ambiguous: several tables have it; write the name of its table before it"
                    );
                }
                Ok(_) => meant = Some(candidate),
                Err(error) if has_none(&error, &name) => {}
                // The planner cannot have both at once.
                Err(error) if makes_sense && is_ambiguous(&error) => {
                    return plan_err!(
                        "column {name} within an expression of ORDER BY is ambiguous: SELECT gives it, and {table} has it; give it another \
                         name"
                    );
                }
                // It has the column, which is not there any more: among groups SELECT's name is left, as nobody else would take it.
                Err(error) if makes_sense && is_distinct => return Err(error),
                Err(_) => break,
            }
        }
        statement = meant.unwrap_or(statement);
    }
    Ok(statement)
}

/// A name that SELECT gives and ORDER BY has within an expression.
struct Name {
    /// Which of the statement's queries it is.
    query: usize,
    name: String,
    tables: Vec<Ident>,
    is_distinct: bool,
    /// Whether a column of several tables may be one.
    is_merged: bool,
}

fn names(statement: &Statement) -> Vec<Name> {
    let Statement::Statement(sql) = statement else { return vec![] };
    let mut names = Names { query: 0, found: vec![] };
    let _ = walk(sql, &mut names);
    names.found
}

struct Names {
    query: usize,
    found: Vec<Name>,
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let number = self.query;
        self.query += 1;
        let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by) else {
            return ControlFlow::Continue(());
        };
        let OrderByKind::Expressions(order) = &order.kind else { return ControlFlow::Continue(()) };
        let given: BTreeSet<String> = select.projection.iter().filter_map(given).collect();
        let mut read = BTreeSet::new();
        for by in order.iter().filter(|_| !given.is_empty()) {
            within(&mut by.clone(), |name| {
                read.insert(normal(name));
                None
            });
        }
        for name in read.intersection(&given) {
            self.found.push(Name {
                query: number,
                name: name.clone(),
                tables: tables(select),
                is_distinct: select.distinct.is_some(),
                is_merged: merges(select),
            });
        }
        ControlFlow::Continue(())
    }
}

/// The name that an item of SELECT gives to what is no column of that name.
fn given(item: &SelectItem) -> Option<String> {
    let SelectItem::ExprWithAlias { expr, alias } = item else { return None };
    let column = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    let name = normal(alias);
    column.is_none_or(|column| normal(column) != name).then_some(name)
}

/// Shows names within an expression of ORDER BY, outside of subqueries, and puts what comes back in their place.
fn within(by: &mut OrderByExpr, mut change: impl FnMut(&Ident) -> Option<Expr>) {
    if matches!(by.expr, Expr::Identifier(_)) {
        return;
    }
    expressions_at_mut(&mut by.expr, |part, depth| {
        if let Expr::Identifier(name) = part
            && depth == 0
            && let Some(other) = change(name)
        {
            *part = other;
        }
    });
}

/// What the tables of a FROM are called.
fn tables(select: &Select) -> Vec<Ident> {
    let all =
        select.from.iter().flat_map(|from| [&from.relation].into_iter().chain(from.joins.iter().map(|join| &join.relation)));
    all.filter_map(called).collect()
}

/// Whether joins have the columns of several tables become one.
fn merges(select: &Select) -> bool {
    let mut joins = select.from.iter().flat_map(|from| &from.joins);
    joins.any(|join| {
        let constraint = match &join.join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint) => constraint,
            _ => return false,
        };
        matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
    })
}

fn called(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.clone())
        }
        TableFactor::Table { name, .. } => match name.0.last()? {
            ObjectNamePart::Identifier(name) => Some(name.clone()),
            ObjectNamePart::Function(_) => None,
        },
        _ => None,
    }
}

/// The statement that says that a name is this table's.
fn said(statement: &Statement, query: usize, name: &str, table: &Ident) -> Statement {
    struct Say<'a> {
        left: usize,
        name: &'a str,
        table: &'a Ident,
    }
    impl VisitorMut for Say<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            if self.left > 0 {
                self.left -= 1;
                return ControlFlow::Continue(());
            }
            if let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) {
                let of_table = |name: &Ident| Expr::CompoundIdentifier(vec![self.table.clone(), name.clone()]);
                order.iter_mut().for_each(|by| within(by, |name| (normal(name) == self.name).then(|| of_table(name))));
            }
            ControlFlow::Break(())
        }
    }
    let mut statement = statement.clone();
    if let Statement::Statement(sql) = &mut statement {
        let _ = walk_mut(sql, &mut Say { left: query, name, table });
    }
    statement
}

/// Whether all columns that a plan is sorted by are there. The planner does not look for one that is named with its table.
fn is_there(plan: &LogicalPlan) -> bool {
    let found = plan.exists(|node| match node {
        LogicalPlan::Sort(sort) => {
            let schema = sort.input.schema();
            Ok(sort.expr.iter().flat_map(|by| by.expr.column_refs()).any(|column| !schema.has_column(column)))
        }
        _ => Ok(false),
    });
    !found.unwrap_or(true)
}

/// Whether the planner finds several columns of one name.
fn is_ambiguous(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::SchemaError(error, _) if matches!(error.as_ref(), SchemaError::AmbiguousReference { .. }))
}

/// Whether the planner says that the table has no column of that name.
fn has_none(error: &DataFusionError, name: &str) -> bool {
    let DataFusionError::SchemaError(error, _) = error.find_root() else { return false };
    matches!(error.as_ref(), SchemaError::FieldNotFound { field, .. } if field.name == name)
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn said_of(sql: &str) -> Result<String, DataFusionError> {
        let context = SessionContext::new();
        for table in ["CREATE TABLE t (id INT, k INT, b INT)", "CREATE TABLE u (n INT, b INT)"] {
            context.sql(table).await?.collect().await?;
        }
        let state = context.state();
        let statement = state.sql_to_statement(sql, &state.config_options().sql_parser.dialect)?;
        let plan = |statement: Statement| {
            let state = state.clone();
            async move { state.statement_to_plan(statement).await }
        };
        Ok(of_tables(statement, plan).await?.to_string())
    }

    #[tokio::test]
    async fn names_within_expressions_are_those_of_tables_that_have_them() {
        for (sql, expected) in [
            ("SELECT id AS z FROM t ORDER BY -z", "SELECT id AS z FROM t ORDER BY -z"),
            (
                "SELECT k, -sum(b) AS b FROM t GROUP BY k ORDER BY sum(b), b",
                "SELECT k, -sum(b) AS b FROM t GROUP BY k ORDER BY sum(t.b), b",
            ),
            (
                "SELECT g FROM (SELECT n AS g FROM u) AS p, t ORDER BY g",
                "SELECT g FROM (SELECT n AS g FROM u) AS p, t ORDER BY g",
            ),
            ("SELECT t.b AS b FROM t ORDER BY b + 1", "SELECT t.b AS b FROM t ORDER BY b + 1"),
            ("SELECT k, sum(b) AS b FROM t GROUP BY k ORDER BY -b", "SELECT k, sum(b) AS b FROM t GROUP BY k ORDER BY -b"),
            ("SELECT 1 AS k FROM t ORDER BY (SELECT max(k) FROM t)", "SELECT 1 AS k FROM t ORDER BY (SELECT max(k) FROM t)"),
        ] {
            assert_eq!(said_of(sql).await.unwrap(), expected);
        }
        for (sql, expected) in [
            ("SELECT t.k, -sum(u.b) AS b FROM t, u GROUP BY t.k ORDER BY sum(b)", "column b of ORDER BY is ambiguous"),
            ("SELECT * FROM (SELECT id AS k FROM t ORDER BY -k LIMIT 1)", "SELECT gives it, and t has it"),
            ("SELECT DISTINCT id AS k FROM t ORDER BY -k", "must appear in select list"),
        ] {
            let error = said_of(sql).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }
}
