//! [`in_full`]: the names of tables in a view's query with the domain that they are in.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Ident, ObjectNamePart, Query, TableFactor, VisitorMut};
use pithead_syntax::walk_mut;

/// Names tables and views of a domain with it. `is_there`: whether the domain has one of this name.
///
/// A plan knows its tables by the names that a statement has for them. A view's name means what it means in the domain of the view, and
/// the same name may mean another table in the query that reads the view.
pub(super) fn in_full(statement: &mut Statement, domain: &str, is_there: impl Fn(&str) -> bool) {
    if let Statement::Statement(sql) = statement {
        let _ = walk_mut(sql.as_mut(), &mut InFull { domain, is_there, queries: Vec::new() });
    }
}

struct InFull<'a, F> {
    domain: &'a str,
    is_there: F,
    /// The queries around, the innermost last.
    queries: Vec<With>,
}

/// What the WITH of a query names. Its queries come first of all that are within that query.
struct With {
    names: Vec<String>,
    /// How many of them are known here.
    known: usize,
}

impl<F: Fn(&str) -> bool> VisitorMut for InFull<'_, F> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let with = query.with.as_ref();
        let names: Vec<String> =
            with.map_or(Vec::new(), |with| with.cte_tables.iter().map(|cte| normal(&cte.alias.name)).collect());
        let known = if with.is_some_and(|with| with.recursive) { names.len() } else { 0 };
        self.queries.push(With { names, known });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries.pop();
        if let Some(around) = self.queries.last_mut() {
            around.known = (around.known + 1).min(around.names.len());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: None, .. } = factor
            && let [ObjectNamePart::Identifier(table)] = name.0.as_slice()
        {
            let table = normal(table);
            let is_own = self.queries.iter().any(|with| with.names[..with.known].contains(&table));
            if !is_own && (self.is_there)(&table) {
                name.0.insert(0, ObjectNamePart::Identifier(Ident::with_quote('"', self.domain)));
            }
        }
        ControlFlow::Continue(())
    }
}

/// A name as the planner looks it up.
fn normal(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::super::definition::query_of;
    use super::*;

    #[test]
    fn tables_are_named_with_their_domain_and_others_are_not() {
        for (sql, expected) in [
            ("SELECT t.x FROM t, T AS u, \"T\", s.t, other", "SELECT t.x FROM \"lab\".t, \"lab\".T AS u, \"T\", s.t, other"),
            (
                "WITH t AS (SELECT * FROM t), u AS (SELECT * FROM t) SELECT * FROM t JOIN u USING (x)",
                "WITH t AS (SELECT * FROM \"lab\".t), u AS (SELECT * FROM t) SELECT * FROM t JOIN u USING (x)",
            ),
            (
                "SELECT (WITH t AS (SELECT 1 AS x) SELECT max(x) FROM t), y FROM t WHERE y IN (SELECT y FROM t)",
                "SELECT (WITH t AS (SELECT 1 AS x) SELECT max(x) FROM t), y FROM \"lab\".t WHERE y IN (SELECT y FROM \"lab\".t)",
            ),
            (
                "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t WHERE x < 3) SELECT * FROM t",
                "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t WHERE x < 3) SELECT * FROM t",
            ),
            (
                "WITH a AS (SELECT (SELECT max(x) FROM t) AS m), t AS (SELECT * FROM a) SELECT * FROM t",
                "WITH a AS (SELECT (SELECT max(x) FROM \"lab\".t) AS m), t AS (SELECT * FROM a) SELECT * FROM t",
            ),
            ("SELECT * FROM t(3)", "SELECT * FROM t(3)"),
        ] {
            let (mut named, mut plain) = (query_of(sql).unwrap(), query_of(expected).unwrap());
            in_full(&mut named, "lab", |name| name == "t");
            in_full(&mut plain, "lab", |_| false);
            assert_eq!(named.to_string(), plain.to_string());
        }
    }
}
