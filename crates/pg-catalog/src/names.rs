//! Names of tables, as PostgreSQL looks them up: within the one database, and along a search path.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query, Statement as Sql, VisitorMut};
use pithead_syntax::walk_mut;

use crate::syntax::{folded, parts};

/// `database.schema.table` without the database, whose name is the client's own.
pub(crate) fn without_database(name: &mut ObjectName, database: &str) {
    if matches!(parts(name).as_slice(), [first, _, _] if first == database) {
        name.0.remove(0);
    }
}

/// Bare names of tables that the first domain of a search path does not have, with the domain that does. `elsewhere`: that domain.
pub(crate) fn qualify(statement: &mut Sql, elsewhere: &BTreeMap<String, String>) {
    if elsewhere.is_empty() {
        return;
    }
    // What a statement makes, it makes in the first domain.
    let made = if let Sql::CreateTable(create) = statement { Some(create.name.clone()) } else { None };
    let _ = walk_mut(statement, &mut Qualify { elsewhere, queries: Vec::new() });
    if let (Sql::CreateTable(create), Some(made)) = (statement, made) {
        create.name = made;
    }
}

struct Qualify<'a> {
    elsewhere: &'a BTreeMap<String, String>,
    /// The queries around, the innermost last.
    queries: Vec<OwnNames>,
}

/// The names that the WITH of a query gives to queries of its own, which come first of all that is within it. Each is known to those after
/// it, and only where it says RECURSIVE to itself.
struct OwnNames {
    names: Vec<String>,
    /// How many of them are known here.
    known: usize,
}

impl VisitorMut for Qualify<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let names: Vec<String> = tables.map(|table| folded(&table.alias.name)).collect();
        let known = if query.with.as_ref().is_some_and(|with| with.recursive) { names.len() } else { 0 };
        self.queries.push(OwnNames { names, known });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.queries.pop();
        if let Some(around) = self.queries.last_mut() {
            around.known = (around.known + 1).min(around.names.len());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        if let [bare] = parts(name).as_slice()
            && !self.queries.iter().any(|query| query.names[..query.known].contains(bare))
            && let Some(domain) = self.elsewhere.get(bare)
        {
            name.0.insert(0, ObjectNamePart::Identifier(Ident::with_quote('"', domain.as_str())));
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
    fn names_are_found_along_the_path() {
        let elsewhere = BTreeMap::from([("n".to_owned(), "lab".to_owned()), ("My T".to_owned(), "Lab 2".to_owned())]);
        for (sql, expected) in [
            ("SELECT n.a FROM N, t", "SELECT n.a FROM \"lab\".N, t"),
            ("SELECT * FROM \"My T\"", "SELECT * FROM \"Lab 2\".\"My T\""),
            ("SELECT * FROM \"N\", other.n", "SELECT * FROM \"N\", other.n"),
            ("WITH n AS (SELECT 1) SELECT * FROM n", "WITH n AS (SELECT 1) SELECT * FROM n"),
            // A query of WITH does not see itself, and is seen within its own statement only.
            ("WITH n AS (SELECT * FROM n) SELECT * FROM n", "WITH n AS (SELECT * FROM \"lab\".n) SELECT * FROM n"),
            (
                "WITH a AS (SELECT * FROM n), n AS (SELECT * FROM a), b AS (SELECT * FROM n) SELECT * FROM b, n",
                "WITH a AS (SELECT * FROM \"lab\".n), n AS (SELECT * FROM a), b AS (SELECT * FROM n) SELECT * FROM b, n",
            ),
            (
                "SELECT * FROM n WHERE a IN (WITH n AS (SELECT 1 AS a) SELECT a FROM n)",
                "SELECT * FROM \"lab\".n WHERE a IN (WITH n AS (SELECT 1 AS a) SELECT a FROM n)",
            ),
            (
                "WITH RECURSIVE n AS (SELECT 1 AS a UNION ALL SELECT a FROM n) SELECT * FROM n",
                "WITH RECURSIVE n AS (SELECT 1 AS a UNION ALL SELECT a FROM n) SELECT * FROM n",
            ),
            ("CREATE TABLE n AS SELECT * FROM n", "CREATE TABLE n AS SELECT * FROM \"lab\".n"),
            ("INSERT INTO n SELECT 1", "INSERT INTO \"lab\".n SELECT 1"),
            ("DELETE FROM n WHERE a IN (SELECT a FROM n)", "DELETE FROM \"lab\".n WHERE a IN (SELECT a FROM \"lab\".n)"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            qualify(&mut statement, &elsewhere);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
