//! `ORDER BY 1` over groups, where the first item of SELECT is an expression, and `2024 AS year … GROUP BY year`.
//!
//! The planner knows the groups' own columns by their places, and refuses places of what is computed from them, which it takes when it
//! is written out. A number that has a name is a place to it, too.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement as Sql, Value, VisitorMut,
};
use pithead_syntax::walk_mut;

use super::macros::parsed;

/// Writes such items of ORDER BY out, and makes values of such numbers.
pub(super) fn write_out(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Ordinals);
}

struct Ordinals;

impl VisitorMut for Ordinals {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let GroupByExpr::Expressions(groups, _) = &select.group_by else { return ControlFlow::Continue(()) };
        let is_named = |alias: &Ident, group: &Expr| matches!(group, Expr::Identifier(name) if name.value.eq_ignore_ascii_case(&alias.value));
        for item in &mut select.projection {
            if let SelectItem::ExprWithAlias { expr, alias } = item
                && is_whole_number(expr)
                && groups.iter().any(|group| is_named(alias, group))
            {
                *expr = parsed(&format!("CAST({expr} AS BIGINT)"));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_ref() else { return ControlFlow::Continue(()) };
        let has_groups = !matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty());
        let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
            return ControlFlow::Continue(());
        };
        for by in order.iter_mut().filter(|_| has_groups) {
            if let Some(item) = place_of(&by.expr).and_then(|place| item_at(&select.projection, place)) {
                by.expr = item;
            }
        }
        ControlFlow::Continue(())
    }
}

fn is_whole_number(expr: &Expr) -> bool {
    let Expr::Value(value) = expr else { return false };
    matches!(&value.value, Value::Number(number, _) if number.parse::<i64>().is_ok())
}

fn place_of(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Number(number, _) = &value.value else { return None };
    number.parse::<usize>().ok()?.checked_sub(1)
}

/// The item as ORDER BY may name it; none where the planner finds it by its place.
fn item_at(items: &[SelectItem], place: usize) -> Option<Expr> {
    let known = items.get(..=place)?;
    let is_one = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if !known.iter().all(is_one) {
        return None;
    }
    match known.last()? {
        SelectItem::ExprWithAlias { alias, .. } => Some(Expr::Identifier(Ident::clone(alias))),
        SelectItem::UnnamedExpr(Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => None,
        SelectItem::UnnamedExpr(expr) => Some(expr.clone()),
        _ => None,
    }
}
