//! `WITH a AS (…), b AS (WITH a AS (…) SELECT … FROM a) …`: a name that a WITH within another one gives again. The planner knows one
//! query of a name, so the inner one gets a name of its own, and is read under the one that it had.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Query, Statement as Sql, TableAlias, TableFactor, VisitorMut, With};
use pithead_model::RESERVED;
use pithead_syntax::walk_mut;

use super::normal;

/// Names such queries apart.
pub(super) fn name_apart(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Names::default());
}

/// The queries of WITH that can be read where the walk is.
#[derive(Default)]
struct Names {
    /// As each is read, and as it is named.
    known: Vec<(String, Ident)>,
    /// For each query around, how many were known before it, and what it is WITH, whose queries the walk has seen.
    around: Vec<(usize, Option<With>)>,
    given: usize,
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let before = self.known.len();
        let mut with = query.with.take();
        if let Some(with) = &mut with {
            for cte in &mut with.cte_tables {
                let name = normal(&cte.alias.name);
                if self.known[..before].iter().any(|(known, _)| *known == name) {
                    self.given += 1;
                    cte.alias.name = Ident::with_quote('"', format!("{name}{RESERVED}{}", self.given));
                }
                let known = (name, cte.alias.name.clone());
                // One that is not recursive reads the one around by its own name.
                let own = with.recursive.then(|| self.known.push(known.clone()));
                let _ = walk_mut(cte.query.as_mut(), self);
                if own.is_none() {
                    self.known.push(known);
                }
            }
        }
        self.around.push((before, with));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some((before, with)) = self.around.pop() {
            self.known.truncate(before);
            query.with = with;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = table else { return ControlFlow::Continue(()) };
        let [part] = name.0.as_slice() else { return ControlFlow::Continue(()) };
        let Some(ident) = part.as_ident().cloned() else { return ControlFlow::Continue(()) };
        let read = normal(&ident);
        let named = self.known.iter().rev().find(|(known, _)| *known == read).map(|(_, named)| named);
        if let Some(named) = named.filter(|named| normal(named) != read) {
            alias.get_or_insert(TableAlias { explicit: true, name: ident, columns: vec![], at: None });
            *name = ObjectName::from(vec![named.clone()]);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn inner_queries_get_names_of_their_own() {
        for (written, expected) in [
            (
                "WITH a AS (SELECT 1), b AS (WITH a AS (SELECT * FROM a) SELECT a.* FROM a) SELECT * FROM a, b",
                "WITH a AS (SELECT 1), b AS (WITH \"a#1\" AS (SELECT * FROM a) SELECT a.* FROM \"a#1\" AS a) SELECT * FROM a, b",
            ),
            (
                "WITH a AS (SELECT 1) SELECT (WITH A AS (SELECT 2) SELECT * FROM A AS x) FROM a",
                "WITH a AS (SELECT 1) SELECT (WITH \"a#1\" AS (SELECT 2) SELECT * FROM \"a#1\" AS x) FROM a",
            ),
            (
                "WITH a AS (SELECT 1) SELECT (WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a)",
                "WITH a AS (SELECT 1) SELECT (WITH RECURSIVE \"a#1\" AS (SELECT 1 UNION ALL SELECT * FROM \"a#1\" AS a) SELECT * FROM \"a#1\" AS a)",
            ),
            // The same name side by side is an error, and beside no other one it is as good as any.
            ("WITH a AS (SELECT 1), a AS (SELECT 2) SELECT * FROM a", "WITH a AS (SELECT 1), a AS (SELECT 2) SELECT * FROM a"),
            (
                "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) AS x, (WITH a AS (SELECT 2) SELECT * FROM a) AS y",
                "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) AS x, (WITH a AS (SELECT 2) SELECT * FROM a) AS y",
            ),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, written).unwrap().remove(0);
            name_apart(&mut statement);
            assert_eq!(statement.to_string().replace(RESERVED, "#"), expected);
        }
    }
}
