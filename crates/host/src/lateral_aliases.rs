//! Names that SELECT gives, where it or its WHERE reads them again: `SELECT a * 2 AS b, b + 1 AS c`, as in DuckDB. The planner knows
//! columns only, so this is looked at once it finds none of that name: a column goes before.

use std::ops::ControlFlow;

use datafusion::common::{DataFusionError, SchemaError, plan_err};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, Volatility};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem, VisitorMut};
use pithead_syntax::{Tree, any_expression, expressions, expressions_at_mut, walk_mut};

use crate::dialect::normal;

/// Names of a statement that are put in at most.
const NAMES_MAX: usize = 64;
/// Expressions that all names of a statement may bring in: each name that reads another one twice doubles them.
const EXPRESSIONS_MAX: usize = 4_096;

/// The plan of a statement for which the planner found no column of a name; the error, if no SELECT gives that name before.
pub(crate) async fn plan_with_names(
    state: &SessionState,
    mut statement: Statement,
    mut error: DataFusionError,
) -> Result<LogicalPlan, DataFusionError> {
    let mut room = EXPRESSIONS_MAX;
    for _ in 0..NAMES_MAX {
        let Some(name) = missing(&error) else { return Err(error) };
        let mut next = None;
        // One SELECT at a time: where the name is a column, the error stays, and the column does.
        for place in 0.. {
            let mut left = room;
            let Some(candidate) = put_in(&statement, &name, place, state, &mut left)? else { break };
            match state.statement_to_plan(candidate.clone()).await {
                Ok(plan) => return Ok(plan),
                Err(other) if missing(&other).is_some_and(|other| other != name) => {
                    room = left;
                    next = Some((candidate, other));
                    break;
                }
                Err(_) => {}
            }
        }
        (statement, error) = match next {
            Some(next) => next,
            None => return Err(error),
        };
    }
    Err(error)
}

/// The column that was not found, if it was named without a table.
pub(crate) fn missing(error: &DataFusionError) -> Option<String> {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => match error.as_ref() {
            SchemaError::FieldNotFound { field, .. } if field.relation.is_none() => Some(field.name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The statement with a name's expression where the SELECT reads it that is at this place among those that give it and read it.
fn put_in(
    statement: &Statement,
    name: &str,
    place: usize,
    state: &SessionState,
    room: &mut usize,
) -> Result<Option<Statement>, DataFusionError> {
    let mut statement = statement.clone();
    let Statement::Statement(sql) = &mut statement else { return Ok(None) };
    match walk_mut(sql, &mut Naming { name, left: place, state, room }) {
        ControlFlow::Continue(()) => Ok(None),
        ControlFlow::Break(true) => Ok(Some(statement)),
        ControlFlow::Break(false) => plan_err!(
            "{name} and other names that SELECT gives bring more than {EXPRESSIONS_MAX} expressions into it where it reads them; compute \
             them in a query within FROM"
        ),
    }
}

struct Naming<'a> {
    name: &'a str,
    /// SELECTs that give the name and come before.
    left: usize,
    state: &'a SessionState,
    /// Expressions that may still come in.
    room: &'a mut usize,
}

impl VisitorMut for Naming<'_> {
    /// Whether all of them had room.
    type Break = bool;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<bool> {
        let given = select.projection.iter().enumerate().find_map(|(index, item)| match item {
            SelectItem::ExprWithAlias { expr, alias } if normal(alias) == self.name => Some((index, expr.clone())),
            _ => None,
        });
        let Some((index, given)) = given.filter(|(_, given)| !is_volatile(given, self.state)) else {
            return ControlFlow::Continue(());
        };
        let mut reads = Reads { name: self.name, given: &given, size: size(&given), count: 0, room: *self.room };
        let mut changed = select.clone();
        changed.projection[index + 1..].iter_mut().for_each(|item| reads.put_in_item(item));
        reads.put_in(&mut changed.selection);
        if reads.count == 0 {
            return ControlFlow::Continue(());
        }
        if self.left > 0 {
            self.left -= 1;
            return ControlFlow::Continue(());
        }
        if reads.count * reads.size > *self.room {
            return ControlFlow::Break(false);
        }
        *self.room = reads.room;
        *select = changed;
        ControlFlow::Break(true)
    }
}

/// How many expressions one is made of.
fn size(expr: &Expr) -> usize {
    let mut count = 0;
    let _ = expressions(expr, |_| {
        count += 1;
        ControlFlow::<()>::Continue(())
    });
    count
}

/// Whether it has other values each time it is computed.
fn is_volatile(expr: &Expr, state: &SessionState) -> bool {
    any_expression(expr, |part| {
        let Expr::Function(function) = part else { return false };
        let known = state.scalar_functions().get(&function.name.to_string().to_lowercase());
        known.is_some_and(|function| function.signature().volatility == Volatility::Volatile)
    })
}

/// Reads of a name outside of subqueries, where it may be another column.
struct Reads<'a> {
    name: &'a str,
    given: &'a Expr,
    size: usize,
    /// How many there were.
    count: usize,
    /// Expressions that may still come in; what has no room stays out.
    room: usize,
}

impl Reads<'_> {
    /// A result keeps the name that it has as it is written.
    fn put_in_item(&mut self, item: &mut SelectItem) {
        let (written, before) = (item.to_string(), self.count);
        self.put_in(item);
        if let SelectItem::UnnamedExpr(expr) = item
            && self.count > before
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', written) };
        }
    }

    fn put_in(&mut self, part: &mut (impl Tree + ?Sized)) {
        expressions_at_mut(part, |expr, depth| {
            let Expr::Identifier(ident) = &*expr else { return };
            if depth > 0 || normal(ident) != self.name {
                return;
            }
            self.count += 1;
            if let Some(room) = self.room.checked_sub(self.size) {
                self.room = room;
                *expr = Expr::Nested(Box::new(self.given.clone()));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn planned(sql: &str) -> Result<LogicalPlan, DataFusionError> {
        let state = SessionContext::new().state();
        let statement = state.sql_to_statement(sql, &state.config_options().sql_parser.dialect)?;
        match state.statement_to_plan(statement.clone()).await {
            Err(error) => plan_with_names(&state, statement, error).await,
            plan => plan,
        }
    }

    #[tokio::test]
    async fn names_that_double_do_not_grow_without_end() {
        let doubled = |times: usize| {
            let items: Vec<String> = (0..times).map(|name| format!("a{name} + a{name} AS a{}", name + 1)).collect();
            format!("SELECT 1 AS a0, {}", items.join(", "))
        };
        assert!(planned(&doubled(6)).await.is_ok());
        let error = planned(&doubled(40)).await.unwrap_err().to_string();
        assert!(error.contains("compute them in a query within FROM"), "{error}");
        let error = planned("SELECT 1 AS a, a + nothing AS b").await.unwrap_err().to_string();
        assert!(error.contains("nothing"), "{error}");
    }
}
