//! `ORDER BY 1` over groups, where the first item of SELECT is an expression, and `2024 AS year … GROUP BY year`.
//!
//! The planner knows the groups' own columns by their places, and refuses places of what is computed from them, which it takes when it
//! is written out. A number that has a name is a place to it, too. And `ROLLUP (1, 2)` and `DISTINCT ON (1)`, of which it knows no
//! places.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement as Sql, Value, VisitorMut,
};
use pithead_syntax::walk_mut;

use super::macros::parsed;

/// Writes such items of ORDER BY out, and makes values of such numbers. An error: there is no such place.
pub(super) fn write_out(sql: &mut Sql) -> Result<(), String> {
    match walk_mut(sql, &mut Ordinals) {
        ControlFlow::Break(refused) => Err(refused),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Ordinals;

impl VisitorMut for Ordinals {
    type Break = String;

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<String> {
        if let Some(Distinct::On(exprs)) = &mut select.distinct {
            for expr in exprs {
                if let Some(item) = place_of(expr).and_then(|place| expression_at(&select.projection, place)) {
                    *expr = item;
                }
            }
        }
        let GroupByExpr::Expressions(groups, _) = &mut select.group_by else { return ControlFlow::Continue(()) };
        for group in groups.iter_mut() {
            grouped_by_items(group, &select.projection)?;
        }
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

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
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

/// `ROLLUP (1, 2)`: the planner knows places alone where they are no part of such sets.
fn grouped_by_items(group: &mut Expr, items: &[SelectItem]) -> ControlFlow<String> {
    let (Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets)) = group else { return ControlFlow::Continue(()) };
    for part in sets.iter_mut().flatten() {
        let Some(place) = place_of(part) else { continue };
        match expression_at(items, place) {
            Some(item) => *part = item,
            None => {
                let what = format!("GROUP BY {part}: SELECT has no expression at that place; write out what is grouped by");
                return ControlFlow::Break(what);
            }
        }
    }
    ControlFlow::Continue(())
}

/// The expression of an item; none where places before it are not known.
fn expression_at(items: &[SelectItem], place: usize) -> Option<Expr> {
    let expression = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr.clone()),
        _ => None,
    };
    items.get(..=place)?.iter().map(expression).collect::<Option<Vec<_>>>()?.pop()
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
