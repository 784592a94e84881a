//! Windows that are known by a name, `OVER w`, or made of others: `OVER (w ORDER BY x)` and `WINDOW w2 AS (w1 ROWS …)`.
//!
//! The planner knows names of whole windows only, in SELECT's list alone, and of a window within parentheses it forgets the name.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, Query, Select, SetExpr, Statement as Sql, VisitorMut, WindowSpec,
    WindowType,
};
use pithead_syntax::{Tree, expressions_mut, walk_mut};

use super::normal;

/// Writes each window out, put together from those that it names.
pub(super) fn expand(sql: &mut Sql) -> Result<(), String> {
    match walk_mut(sql, &mut Windows) {
        ControlFlow::Break(refused) => Err(refused),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Windows;

impl VisitorMut for Windows {
    type Break = String;

    /// Subqueries come first, so that the names which are left are of this SELECT.
    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<String> {
        let known = put_together(&mut select.named_window)?;
        put_in(select, &known)
    }

    /// ORDER BY stands outside of the SELECT whose windows it names.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        match query.body.as_mut() {
            SetExpr::Select(select) => {
                let known = put_together(&mut select.named_window)?;
                put_in(&mut query.order_by, &known)
            }
            _ => put_in(&mut query.order_by, &[]),
        }
    }
}

/// The windows of a SELECT by their names, which are whole in its WINDOW clause, too, from here on.
fn put_together(named: &mut [NamedWindowDefinition]) -> ControlFlow<String, Vec<(String, WindowSpec)>> {
    let mut known: Vec<(String, WindowSpec)> = Vec::new();
    // A window may be made of one that comes later.
    while known.len() < named.len() {
        let before = known.len();
        for NamedWindowDefinition(name, window) in named.iter() {
            let is_known = find(&known, name).is_some();
            if let (false, Some(spec)) = (is_known, resolved(window, &known)?) {
                known.push((normal(name), spec));
            }
        }
        if known.len() == before {
            break;
        }
    }
    for NamedWindowDefinition(name, window) in named {
        match find(&known, name) {
            Some(spec) => *window = NamedWindowExpr::WindowSpec(spec.clone()),
            None => return ControlFlow::Break(format!("window {name} is made of one that is not defined, or of itself")),
        }
    }
    ControlFlow::Continue(known)
}

/// Writes each window out that is known by a name. The planner does so in SELECT's list alone: elsewhere, what is `OVER w` would become
/// an aggregate.
fn put_in(part: &mut impl Tree, known: &[(String, WindowSpec)]) -> ControlFlow<String> {
    let whole = |name: &Ident| match find(known, name) {
        Some(spec) => ControlFlow::Continue(spec),
        None => ControlFlow::Break(format!("window {name} is not defined; define it by WINDOW {name} AS (…)")),
    };
    expressions_mut(part, |expr| {
        if let Expr::Function(function) = expr
            && let Some(over) = &mut function.over
        {
            let spec = match &*over {
                WindowType::NamedWindow(name) => whole(name)?.clone(),
                WindowType::WindowSpec(WindowSpec { window_name: None, .. }) => return ControlFlow::Continue(()),
                WindowType::WindowSpec(spec @ WindowSpec { window_name: Some(base), .. }) => {
                    together(base, whole(base)?, spec)?
                }
            };
            *over = WindowType::WindowSpec(spec);
        }
        ControlFlow::Continue(())
    })
}

fn find<'a>(known: &'a [(String, WindowSpec)], name: &Ident) -> Option<&'a WindowSpec> {
    known.iter().find(|(other, _)| *other == normal(name)).map(|(_, spec)| spec)
}

/// The whole window, if those that it is made of are known.
fn resolved(window: &NamedWindowExpr, known: &[(String, WindowSpec)]) -> ControlFlow<String, Option<WindowSpec>> {
    ControlFlow::Continue(match window {
        NamedWindowExpr::NamedWindow(name) => find(known, name).cloned(),
        NamedWindowExpr::WindowSpec(spec) => match &spec.window_name {
            None => Some(spec.clone()),
            Some(name) => match find(known, name) {
                Some(base) => Some(together(name, base, spec)?),
                None => None,
            },
        },
    })
}

/// A window with what another adds to it, within what SQL allows.
fn together(name: &Ident, base: &WindowSpec, more: &WindowSpec) -> ControlFlow<String, WindowSpec> {
    if !more.partition_by.is_empty() {
        return ControlFlow::Break(format!("a window made of window {name} cannot have PARTITION BY; it has that of {name}"));
    }
    if !more.order_by.is_empty() && !base.order_by.is_empty() {
        return ControlFlow::Break(format!("a window made of window {name} cannot have ORDER BY, which {name} has"));
    }
    if base.window_frame.is_some() {
        return ControlFlow::Break(format!(
            "window {name} has a frame, so no other window can be made of it; write OVER {name}"
        ));
    }
    let order_by = if more.order_by.is_empty() { base.order_by.clone() } else { more.order_by.clone() };
    let (partition_by, window_frame) = (base.partition_by.clone(), more.window_frame.clone());
    ControlFlow::Continue(WindowSpec { window_name: None, partition_by, order_by, window_frame })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn expanded(sql: &str) -> Result<String, String> {
        let mut sql = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        expand(&mut sql).map(|()| sql.to_string())
    }

    #[test]
    fn names_of_windows_are_written_out_wherever_they_stand() {
        let window = "WINDOW w AS (PARTITION BY g)";
        for (sql, expected) in [
            (
                format!("SELECT a FROM t {window} ORDER BY sum(v) OVER (W ORDER BY a), max(v) OVER w"),
                format!(
                    "SELECT a FROM t {window} ORDER BY sum(v) OVER (PARTITION BY g ORDER BY a), max(v) OVER (PARTITION BY g)"
                ),
            ),
            (
                format!("SELECT a FROM t {window} QUALIFY count(*) OVER w > 1"),
                format!("SELECT a FROM t {window} QUALIFY count(*) OVER (PARTITION BY g) > 1"),
            ),
            (
                format!("SELECT DISTINCT ON (rank() OVER w) (SELECT max(b) OVER w FROM u WINDOW w AS ()) FROM t {window}"),
                format!(
                    "SELECT DISTINCT ON (rank() OVER (PARTITION BY g)) (SELECT max(b) OVER () FROM u WINDOW w AS ()) FROM t {window}"
                ),
            ),
        ] {
            assert_eq!(expanded(&sql), Ok(expected), "{sql}");
        }
    }

    #[test]
    fn names_of_no_window_are_refused() {
        for sql in [
            "SELECT a FROM t ORDER BY sum(v) OVER w",
            "SELECT a FROM t QUALIFY count(*) OVER w > 1",
            "SELECT a FROM t HAVING count(*) OVER (w ORDER BY a) > 1",
            "SELECT (SELECT max(b) OVER w FROM u) FROM t WINDOW w AS ()",
            "SELECT a FROM t WINDOW w AS () UNION SELECT a FROM t ORDER BY sum(a) OVER w",
        ] {
            let refused = expanded(sql).unwrap_err();
            assert!(refused.contains("window w is not defined"), "{sql}: {refused}");
        }
    }
}
