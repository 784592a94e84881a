//! Columns that nobody reads by the name that their query gives: those of the source of an INSERT, and of a subquery whose
//! columns are named by a list, as `(SELECT 1, 1::BIGINT) AS t (a, b)`.
//!
//! The planner names `1::BIGINT` as `1`, and refuses two columns of one name.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, SelectItem, SetExpr, Statement as Sql, TableAlias, TableFactor, VisitorMut,
};
use pithead_model::RESERVED;
use pithead_syntax::walk_mut;

/// Gives those that have none a name that no other column has. False: there are none.
pub(crate) fn give(sql: &mut Sql) -> bool {
    let mut names = Names { found: false };
    if let Sql::Insert(insert) = sql
        && let Some(source) = &mut insert.source
    {
        names.name(&mut source.body);
    }
    let _ = walk_mut(sql, &mut names);
    names.found
}

struct Names {
    found: bool,
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for cte in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            self.name_listed(&mut cte.query, Some(&cte.alias));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias, .. } = factor {
            self.name_listed(subquery, alias.as_ref());
        }
        ControlFlow::Continue(())
    }
}

impl Names {
    fn name_listed(&mut self, query: &mut Query, alias: Option<&TableAlias>) {
        let listed = alias.map_or(0, |alias| alias.columns.len());
        if listed > 0 && items(&query.body).is_some_and(|items| items.len() == listed) {
            self.name(&mut query.body);
        }
    }

    /// Later branches of a UNION have the names of the first.
    fn name(&mut self, body: &mut SetExpr) {
        match body {
            SetExpr::Select(select) => {
                for (place, item) in select.projection.iter_mut().enumerate() {
                    if let SelectItem::UnnamedExpr(expr) = item
                        && !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
                    {
                        self.found = true;
                        let alias = Ident::with_quote('"', format!("{RESERVED}column_{place}"));
                        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                    }
                }
            }
            SetExpr::SetOperation { left, .. } => self.name(left),
            SetExpr::Query(query) => self.name(&mut query.body),
            _ => {}
        }
    }
}

/// The items of a query, if they are one column each.
fn items(body: &SetExpr) -> Option<&[SelectItem]> {
    match body {
        SetExpr::Select(select) => {
            let is_column = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
            select.projection.iter().all(is_column).then_some(select.projection.as_slice())
        }
        SetExpr::SetOperation { left, .. } => items(left),
        SetExpr::Query(query) => items(&query.body),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn columns_that_nobody_reads_by_their_name_get_another() {
        for (sql, expected) in [
            ("INSERT INTO t SELECT 1, a, 1 AS b FROM u", "INSERT INTO t SELECT 1 AS \"column_0\", a, 1 AS b FROM u"),
            (
                "SELECT 1 FROM (SELECT 1, 2 UNION ALL SELECT 3, 4) AS t (a, b)",
                "SELECT 1 FROM (SELECT 1 AS \"column_0\", 2 AS \"column_1\" UNION ALL SELECT 3, 4) AS t (a, b)",
            ),
            ("WITH t (a) AS (SELECT 1) TABLE t", "WITH t (a) AS (SELECT 1 AS \"column_0\") TABLE t"),
            ("SELECT 1 FROM (SELECT 1, 1) AS t (a)", "SELECT 1 FROM (SELECT 1, 1) AS t (a)"),
            ("SELECT 1 FROM (SELECT *, 1 FROM u) AS t (a, b)", "SELECT 1 FROM (SELECT *, 1 FROM u) AS t (a, b)"),
            ("SELECT 1 FROM (SELECT 1) AS t", "SELECT 1 FROM (SELECT 1) AS t"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            assert_eq!(give(&mut statement), sql != expected);
            assert_eq!(statement.to_string().replace(RESERVED, ""), expected);
        }
    }
}
