//! Columns of a subquery that several of its tables have, and a table of the query around it as well.
//!
//! The planner looks outside where it does not find one column of a name within, also where it finds two. SQL looks outside only where
//! there is none, and two are an error.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr as Planned, LogicalPlan};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Query, SetExpr, Visitor};
use pithead_syntax::walk;

/// An error where the statement has such a column under its name alone.
pub(crate) fn refuse(statement: &Statement, plan: &LogicalPlan) -> Result<()> {
    let mut names = BTreeSet::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Planned::OuterReferenceColumn(_, column) = part
                    && merge_schema(&node.inputs()).fields().iter().filter(|field| *field.name() == column.name).count() > 1
                {
                    names.insert(column.name.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let Statement::Statement(sql) = statement else { return Ok(()) };
    if names.is_empty() {
        return Ok(());
    }
    match walk(sql, &mut Subqueries { names: &names }) {
        ControlFlow::Break(name) => {
            plan_err!(
                "column {name} is ambiguous: several tables of the subquery have it; write the name of its table before it"
            )
        }
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Looks at the subqueries within expressions that read several tables.
struct Subqueries<'a> {
    names: &'a BTreeSet<String>,
}

impl Visitor for Subqueries<'_> {
    type Break = String;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        let query = match expr {
            Expr::Exists { subquery, .. } | Expr::InSubquery { subquery, .. } | Expr::Subquery(subquery) => subquery,
            _ => return ControlFlow::Continue(()),
        };
        let SetExpr::Select(select) = query.body.as_ref() else { return ControlFlow::Continue(()) };
        let tables: usize = select.from.iter().map(|from| 1 + from.joins.len()).sum();
        let mut bare = Bare { names: self.names, depth: 0 };
        match tables > 1 {
            true => {
                walk(&select.selection, &mut bare)?;
                walk(&select.projection, &mut bare)?;
                walk(&select.having, &mut bare)
            }
            false => ControlFlow::Continue(()),
        }
    }
}

/// Looks for one of these names, without a table's before it, outside of queries within.
struct Bare<'a> {
    names: &'a BTreeSet<String>,
    depth: usize,
}

impl Visitor for Bare<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<String> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<String> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        match expr {
            Expr::Identifier(Ident { value, quote_style, .. }) if self.depth == 0 => {
                let name = if quote_style.is_some() { value.clone() } else { value.to_lowercase() };
                if self.names.contains(&name) { ControlFlow::Break(name) } else { ControlFlow::Continue(()) }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
