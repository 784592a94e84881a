//! Names of tables, as PostgreSQL looks them up: within the one database, and along a search path.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query, Statement as Sql, VisitorMut};
use pithead_syntax::{relations_mut, walk_mut};

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
    let mut own = OwnNames::default();
    let _ = walk_mut(statement, &mut own);
    // What a statement makes, it makes in the first domain.
    let made = if let Sql::CreateTable(create) = statement { Some(create.name.clone()) } else { None };
    let _ = relations_mut(statement, |name| {
        if let [bare] = parts(name).as_slice()
            && !own.0.contains(bare)
            && let Some(domain) = elsewhere.get(bare)
        {
            name.0.insert(0, ObjectNamePart::Identifier(Ident::with_quote('"', domain.as_str())));
        }
        ControlFlow::<()>::Continue(())
    });
    if let (Sql::CreateTable(create), Some(made)) = (statement, made) {
        create.name = made;
    }
}

/// The names that a statement gives to queries of its own.
#[derive(Default)]
struct OwnNames(BTreeSet<String>);

impl VisitorMut for OwnNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0.extend(tables.map(|table| folded(&table.alias.name)));
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
