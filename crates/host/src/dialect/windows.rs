//! Windows that are made of other windows: `OVER (w ORDER BY x)` and `WINDOW w2 AS (w1 ROWS …)`.
//!
//! The planner knows names of whole windows only, and of a window within parentheses it forgets the name.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, Select, Statement as Sql, VisitorMut, WindowSpec, WindowType,
};
use pithead_syntax::{expressions_mut, walk_mut};

use super::normal;

/// Puts each window together from those that it names.
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
        let mut known: Vec<(String, WindowSpec)> = Vec::new();
        // A window may be made of one that comes later.
        while known.len() < select.named_window.len() {
            let before = known.len();
            for NamedWindowDefinition(name, window) in &select.named_window {
                let is_known = known.iter().any(|(other, _)| *other == normal(name));
                if let (false, Some(spec)) = (is_known, resolved(window, &known)?) {
                    known.push((normal(name), spec));
                }
            }
            if known.len() == before {
                break;
            }
        }
        for NamedWindowDefinition(name, window) in &mut select.named_window {
            match known.iter().find(|(other, _)| *other == normal(name)) {
                Some((_, spec)) => *window = NamedWindowExpr::WindowSpec(spec.clone()),
                None => return ControlFlow::Break(format!("window {name} is made of one that is not defined, or of itself")),
            }
        }
        let spec_of = |spec: &WindowSpec| match &spec.window_name {
            Some(base) => match known.iter().find(|(name, _)| *name == normal(base)) {
                Some((_, base_spec)) => together(base, base_spec, spec),
                None => ControlFlow::Break(format!("window {base} is not defined; define it by WINDOW {base} AS (…)")),
            },
            None => ControlFlow::Continue(spec.clone()),
        };
        let (items, qualify) = (&mut select.projection, &mut select.qualify);
        let mut over = |expr: &mut Expr| {
            if let Expr::Function(function) = expr
                && let Some(WindowType::WindowSpec(spec)) = &mut function.over
            {
                *spec = spec_of(spec)?;
            }
            ControlFlow::Continue(())
        };
        expressions_mut(items, &mut over)?;
        expressions_mut(qualify, &mut over)
    }
}

/// The whole window, if those that it is made of are known.
fn resolved(window: &NamedWindowExpr, known: &[(String, WindowSpec)]) -> ControlFlow<String, Option<WindowSpec>> {
    let find = |name: &Ident| known.iter().find(|(other, _)| *other == normal(name)).map(|(_, spec)| spec);
    ControlFlow::Continue(match window {
        NamedWindowExpr::NamedWindow(name) => find(name).cloned(),
        NamedWindowExpr::WindowSpec(spec) => match &spec.window_name {
            None => Some(spec.clone()),
            Some(name) => match find(name) {
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
