//! `GROUP BY ALL` beside constants alone, which are no groups: as in DuckDB, there is one row also where there is none to group.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, Statement as Sql, VisitorMut};
use pithead_syntax::{any_expression, walk_mut};

/// Takes such groups away.
pub(super) fn without_constants(state: &SessionState, sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Groups { state });
}

struct Groups<'a> {
    state: &'a SessionState,
}

impl VisitorMut for Groups<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let GroupByExpr::All(modifiers) = &select.group_by else { return ControlFlow::Continue(()) };
        let is_aggregate = |item: &SelectItem| any_expression(item, |part| self.is_aggregate(part));
        let is_constant = |item: &SelectItem| {
            matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }) && !any_expression(item, reads_rows)
        };
        let items = &select.projection;
        if items.iter().any(is_aggregate) && items.iter().all(|item| is_aggregate(item) || is_constant(item)) {
            select.group_by = GroupByExpr::Expressions(vec![], modifiers.clone());
        }
        ControlFlow::Continue(())
    }
}

impl Groups<'_> {
    fn is_aggregate(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Function(function) if function.over.is_none()
            && self.state.aggregate_functions().contains_key(&function.name.to_string().to_lowercase()))
    }
}

fn reads_rows(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Subquery(_)
            | Expr::InSubquery { .. }
            | Expr::Exists { .. }
            | Expr::Function(_)
    )
}
