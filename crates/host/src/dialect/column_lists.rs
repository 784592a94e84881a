//! Equal items of a SELECT whose columns are named by a list: `WITH t (a, b) AS (SELECT 1, 1)`, `(SELECT 1, 1) AS t (a, b)`.
//!
//! The planner names columns by their expressions, and refuses two of one name before it comes to the list.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, Query, Select, SelectItem, SetExpr, Statement as Sql, TableAlias, TableFactor, VisitorMut,
};
use pithead_syntax::walk_mut;

/// Names such items by the list.
pub(super) fn name(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Lists);
}

struct Lists;

impl VisitorMut for Lists {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            name_branches(&mut cte.query.body, &cte.alias);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = factor {
            name_branches(&mut subquery.body, alias);
        }
        ControlFlow::Continue(())
    }
}

/// Names the items of each SELECT of a query, as the sides of a UNION are.
fn name_branches(body: &mut SetExpr, alias: &TableAlias) {
    match body {
        SetExpr::Select(select) => name_items(select, alias),
        SetExpr::SetOperation { left, right, .. } => {
            name_branches(left, alias);
            name_branches(right, alias);
        }
        SetExpr::Query(query) => name_branches(&mut query.body, alias),
        _ => {}
    }
}

/// Only where two items are equal: names may be taken for columns within the SELECT, and others of these are planned as they are.
fn name_items(select: &mut Select, alias: &TableAlias) {
    let items = &mut select.projection;
    let is_one = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    let is_repeated = |(place, item): (usize, &SelectItem)| {
        matches!(item, SelectItem::UnnamedExpr(_)) && items[place + 1..].iter().any(|other| other == item)
    };
    if items.len() != alias.columns.len() || !items.iter().all(is_one) || !items.iter().enumerate().any(is_repeated) {
        return;
    }
    for (item, column) in items.iter_mut().zip(&alias.columns) {
        if let SelectItem::UnnamedExpr(expr) = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::clone(&column.name) };
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn equal_items_are_named_by_the_list() {
        for (sql, expected) in [
            (
                "WITH t (a, b, c) AS (SELECT 1, 0, 1 UNION ALL SELECT a, b + c, b + c FROM t) SELECT a FROM t",
                "WITH t (a, b, c) AS (SELECT 1 AS a, 0 AS b, 1 AS c UNION ALL SELECT a AS a, b + c AS b, b + c AS c FROM t) \
                 SELECT a FROM t",
            ),
            ("SELECT * FROM (SELECT 1, 1) AS t (a, \"B\")", "SELECT * FROM (SELECT 1 AS a, 1 AS \"B\") AS t (a, \"B\")"),
        ] {
            assert_eq!(named(sql), expected);
        }
    }

    #[test]
    fn every_other_item_stays() {
        for sql in [
            "WITH t (a, b) AS (SELECT 1, 2) SELECT a FROM t",
            "WITH t AS (SELECT 1, 1) SELECT 1 FROM t",
            "SELECT * FROM (SELECT 1, 1) AS t (a)",
            "SELECT * FROM (SELECT *, 1, 1 FROM u) AS t (a, b, c)",
            "SELECT * FROM (SELECT 1 AS x, 1 AS y) AS t (a, b)",
        ] {
            assert_eq!(named(sql), sql);
        }
    }

    fn named(sql: &str) -> String {
        let mut sql = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        name(&mut sql);
        sql.to_string()
    }
}
