//! Tables of `information_schema` that are others than the engine has them: its `views` has a row for each table, too, and its
//! `routines` and `parameters` have the names by which plans call functions of users, and none of their types.

mod routines;

pub(crate) use routines::{Routine, Routines, routines_of};

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Query, Statement as Sql, TableAlias, TableFactor, VisitorMut};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pithead_model::RESERVED;
use pithead_syntax::walk_mut;

use crate::tokens::parts;

/// The views without the tables.
const VIEWS: &str = "SELECT * FROM information_schema.views WHERE definition IS NOT NULL";

/// The schema of the rows that functions of users have, whose name no statement can spell.
const FUNCTIONS: &str = "functions";

/// Puts queries in the places of these tables, wherever a statement reads them.
pub(crate) fn complete(statement: &mut Syntax) {
    if let Syntax::Statement(statement) = statement
        && let Sql::Query(query) = statement.as_mut()
    {
        let _ = walk_mut(query, &mut Factors);
    }
}

/// Whether a schema is that of the rows of users' functions, [`Routines`].
pub(crate) fn is_of_functions(schema: &str) -> bool {
    schema.strip_prefix(RESERVED) == Some(FUNCTIONS)
}

struct Factors;

impl VisitorMut for Factors {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return ControlFlow::Continue(()) };
        if let Some((table, subquery)) = completed(name) {
            let named = TableAlias { explicit: true, name: Ident::new(table), columns: Vec::new(), at: None };
            let alias = Some(alias.take().unwrap_or(named));
            *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        }
        ControlFlow::Continue(())
    }
}

/// The bare name of such a table, and the query in its place; none: it is another one.
fn completed(name: &ObjectName) -> Option<(String, Box<Query>)> {
    let parts = parts(name).ok()?;
    let [.., schema, table] = parts.as_slice() else { return None };
    let sql = match table.as_str() {
        _ if schema != "information_schema" => return None,
        "views" => VIEWS.to_owned(),
        "routines" | "parameters" => with_functions(table),
        _ => return None,
    };
    let query = Parser::new(&GenericDialect {}).try_with_sql(&sql).and_then(|mut parser| parser.parse_query()).ok()?;
    Some((table.clone(), query))
}

/// The rows of the engine's own functions, and those of users' as statements call them. Names with a point in them are users', and
/// bare ones may be.
fn with_functions(table: &str) -> String {
    let functions = format!("\"{RESERVED}{FUNCTIONS}\"");
    format!(
        "SELECT * FROM information_schema.{table} AS listed WHERE listed.specific_name NOT LIKE '%.%' AND NOT EXISTS \
         (SELECT 1 FROM {functions}.routines AS own WHERE own.specific_name = listed.specific_name) \
         UNION ALL SELECT * FROM {functions}.{table} AS own"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::TryStreamExt;
    use pithead_door::Door;
    use pithead_fakes::FakeDoor;

    use super::*;
    use crate::{Host, HostOptions, Session};

    fn completed(sql: &str) -> String {
        let mut statement = datafusion::sql::parser::DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
        complete(&mut statement);
        statement.to_string()
    }

    #[test]
    fn queries_stand_in_the_places_of_tables() {
        let sql = "SELECT a FROM pithead.information_schema.views WHERE a IN (SELECT b FROM INFORMATION_SCHEMA.Views AS v)";
        let expected = format!("SELECT a FROM ({VIEWS}) AS views WHERE a IN (SELECT b FROM ({VIEWS}) AS v)");
        assert_eq!(completed(sql), expected);
        let routines = completed("SELECT * FROM information_schema.routines");
        assert!(routines.contains("UNION ALL SELECT * FROM \"\0functions\".routines AS own) AS routines"), "{routines}");
        let parameters = completed("SELECT * FROM information_schema.parameters p");
        assert!(parameters.contains("FROM information_schema.parameters AS listed WHERE "), "{parameters}");
        for kept in ["SELECT * FROM information_schema.tables", "SELECT * FROM lab.routines, views"] {
            assert_eq!(completed(kept), kept);
        }
        assert!(is_of_functions("\0functions") && !is_of_functions("functions"));
    }

    async fn session() -> Session {
        let drive: Arc<dyn Door> = FakeDoor::new(1);
        Host::connect(vec![drive], HostOptions::default()).await.unwrap().session()
    }

    /// The rows of a statement: how many, and of how many columns.
    async fn size(session: &Session, sql: &str) -> (usize, usize) {
        let answer = session.run(sql).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
        let columns = answer.schema.fields().len();
        let batches: Vec<_> = answer.rows.try_collect().await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
        (batches.iter().map(|batch| batch.num_rows()).sum(), columns)
    }

    #[tokio::test]
    async fn functions_of_the_engine_are_listed_without_any_of_users() {
        let session = session().await;
        let (routines, columns) = size(&session, "SELECT * FROM information_schema.routines").await;
        assert!(routines > 100 && columns == 12, "{routines} {columns}");
        let (parameters, columns) = size(&session, "SELECT * FROM pithead.information_schema.parameters AS p").await;
        assert!(parameters > 100 && columns == 10, "{parameters} {columns}");
        let tables = "SELECT 1 FROM information_schema.routines r WHERE r.function_type = 'TABLE' AND routine_name = 'range'";
        assert_eq!(size(&session, tables).await.0, 1);
        assert_eq!(size(&session, "SELECT * FROM information_schema.views").await.0, 0);
    }

    #[tokio::test]
    async fn functions_are_shown_by_patterns_and_conditions() {
        let session = session().await;
        let (all, columns) = size(&session, "SHOW FUNCTIONS").await;
        assert!(all > 100 && columns == 7, "{all} {columns}");
        let (few, _) = size(&session, "SHOW FUNCTIONS LIKE 'abs'").await;
        assert!((1..50).contains(&few), "{few}");
        assert_eq!(size(&session, "SHOW FUNCTIONS ILIKE 'ABS'").await.0, few);
        assert_eq!(size(&session, "SHOW FUNCTIONS LIKE 'ABS'").await.0, 0);
        assert_eq!(size(&session, "SHOW FUNCTIONS WHERE function_name = 'abs'").await.0, few);
        let tables = "SHOW FUNCTIONS WHERE function_type = 'TABLE' AND function_name IN ('range', 'generate_series')";
        assert_eq!(size(&session, tables).await.0, 2);
        assert!(session.run("SHOW FUNCTIONS WHERE nothing = 1").await.is_err());
    }
}
