//! Subqueries of a FROM that have no name: `FROM (SELECT …) JOIN (SELECT …)`.
//!
//! The planner would let their columns keep the names of the tables within: two subqueries over one table would be refused, and
//! `t.k` outside would be read as a column of the `t` inside.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Ident, Statement as Sql, TableAlias, TableFactor, VisitorMut};
use pithead_syntax::walk_mut;

/// Names them as DuckDB does: `unnamed_subquery`, `unnamed_subquery2` …
pub(super) fn give(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Names { given: 0 });
}

struct Names {
    given: usize,
}

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { alias: alias @ None, .. } = factor {
            self.given += 1;
            let name = match self.given {
                1 => "unnamed_subquery".to_owned(),
                number => format!("unnamed_subquery{number}"),
            };
            *alias = Some(TableAlias { explicit: true, name: Ident::new(name), columns: Vec::new(), at: None });
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
    fn each_gets_a_name_of_its_own() {
        for (sql, expected) in [
            (
                "SELECT * FROM (SELECT a FROM (SELECT 1 AS a)) JOIN (SELECT 2 AS a) USING (a)",
                "SELECT * FROM (SELECT a FROM (SELECT 1 AS a) AS unnamed_subquery2) AS unnamed_subquery JOIN (SELECT 2 AS a) AS \
                 unnamed_subquery3 USING(a)",
            ),
            ("SELECT * FROM (SELECT 1) AS t", "SELECT * FROM (SELECT 1) AS t"),
            ("SELECT EXISTS (SELECT 1 FROM (SELECT 1))", "SELECT EXISTS (SELECT 1 FROM (SELECT 1) AS unnamed_subquery)"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            give(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
