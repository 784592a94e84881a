//! `SELECT a FROM t ORDER BY (SELECT … WHERE u.b = t.b)`: an order by subqueries over columns that SELECT may lack. The planner would
//! compute them over what SELECT gives; here they are computed beside it, in a query around which the rows are put in order.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, GroupByExpr, Ident, ObjectName, OrderByKind, Query, Select, SelectItem, SetExpr, Statement as Sql,
    TableAlias, TableFactor, VisitorMut, WildcardAdditionalOptions,
};
use pithead_syntax::{any_expression, walk_mut};

use super::{normal, query_over};

/// Computes what such queries are ordered by beside what they select.
pub(super) fn compute_before(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Ordered);
}

struct Ordered;

impl VisitorMut for Ordered {
    type Break = ();

    // Its own subqueries are seen first.
    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_mut() else { return ControlFlow::Continue(()) };
        let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
            return ControlFlow::Continue(());
        };
        if !is_of_rows(select) || !order.iter().any(|by| has_subquery(&by.expr)) {
            return ControlFlow::Continue(());
        }
        let mut keys = Vec::new();
        for (place, by) in order.iter_mut().enumerate() {
            if is_of_result(&by.expr, &select.projection) {
                continue;
            }
            let alias = Ident::with_quote('"', format!("order{place}"));
            let expr = std::mem::replace(&mut by.expr, Expr::Identifier(alias.clone()));
            select.projection.push(SelectItem::ExprWithAlias { expr, alias: alias.clone() });
            keys.push(ObjectName::from(vec![alias]));
        }
        around(query, keys);
        ControlFlow::Continue(())
    }
}

/// Puts a query around that gives all its columns but these. What is written around the SELECT stays there.
fn around(query: &mut Query, columns: Vec<ObjectName>) {
    let mut within = query.clone();
    (within.with, within.order_by, within.limit_clause, within.fetch) = (None, None, None, None);
    let alias = Some(TableAlias { explicit: true, name: Ident::with_quote('"', "ordered"), columns: vec![], at: None });
    let within = TableFactor::Derived { lateral: false, subquery: Box::new(within), alias, sample: None };
    let mut around = query_over(within).body;
    if let SetExpr::Select(select) = around.as_mut() {
        let options =
            WildcardAdditionalOptions { opt_exclude: Some(ExcludeSelectItem::Multiple(columns)), ..Default::default() };
        select.projection = vec![SelectItem::Wildcard(options)];
    }
    query.body = around;
}

/// Whether a SELECT gives a row for each of its FROM, in columns of different names.
fn is_of_rows(select: &Select) -> bool {
    let names: Option<Vec<String>> = select.projection.iter().map(name_of).collect();
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty());
    let are_different = names.is_some_and(|names| names.iter().collect::<BTreeSet<_>>().len() == names.len());
    select.distinct.is_none() && select.having.is_none() && !is_grouped && are_different
}

/// The name of what is selected; none: it is of several columns.
fn name_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(normal(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().map(normal),
        SelectItem::UnnamedExpr(expr) => Some(expr.to_string()),
        _ => None,
    }
}

fn has_subquery(expr: &Expr) -> bool {
    any_expression(expr, |part| matches!(part, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. }))
}

/// Whether ORDER BY says a column of the result, by its place or its name.
fn is_of_result(expr: &Expr, items: &[SelectItem]) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::Identifier(name) => items.iter().any(|item| name_of(item) == Some(normal(name))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn keys_are_computed_beside_what_is_selected() {
        for (written, expected) in [
            (
                "WITH u AS (SELECT 1 AS b) SELECT a, c + 1 AS d FROM t ORDER BY (SELECT b FROM u WHERE b = t.b) DESC, t.c, d, a LIMIT 3",
                "WITH u AS (SELECT 1 AS b) SELECT * EXCLUDE (\"order0\", \"order1\") FROM \
                 (SELECT a, c + 1 AS d, (SELECT b FROM u WHERE b = t.b) AS \"order0\", t.c AS \"order1\" FROM t) AS \"ordered\" \
                 ORDER BY \"order0\" DESC, \"order1\", d, a LIMIT 3",
            ),
            ("SELECT a FROM t ORDER BY b", "SELECT a FROM t ORDER BY b"),
            ("SELECT * FROM t ORDER BY (SELECT 1)", "SELECT * FROM t ORDER BY (SELECT 1)"),
            ("SELECT DISTINCT a FROM t ORDER BY (SELECT 1)", "SELECT DISTINCT a FROM t ORDER BY (SELECT 1)"),
            ("SELECT a, t.a FROM t ORDER BY (SELECT 1)", "SELECT a, t.a FROM t ORDER BY (SELECT 1)"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, written).unwrap().remove(0);
            compute_before(&mut statement);
            assert_eq!(statement.to_string(), expected, "{written}");
        }
    }
}
