//! `information_schema.views`: the engine's table of that name has a row for each table, too, without a definition.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as Syntax;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Query, Statement as Sql, TableAlias, TableFactor, VisitorMut};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pithead_syntax::walk_mut;

use crate::tokens::parts;

const VIEWS: &str = "SELECT * FROM information_schema.views WHERE definition IS NOT NULL";

/// Leaves the rows of tables out of `information_schema.views`, wherever a statement reads it.
pub(crate) fn only_views(statement: &mut Syntax) {
    if let Syntax::Statement(statement) = statement
        && let Sql::Query(query) = statement.as_mut()
    {
        let _ = walk_mut(query, &mut Factors);
    }
}

struct Factors;

impl VisitorMut for Factors {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return ControlFlow::Continue(()) };
        if is_of_views(name)
            && let Some(subquery) = views()
        {
            let named = TableAlias { explicit: true, name: Ident::new("views"), columns: Vec::new(), at: None };
            let alias = Some(alias.take().unwrap_or(named));
            *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        }
        ControlFlow::Continue(())
    }
}

fn is_of_views(name: &ObjectName) -> bool {
    parts(name).is_ok_and(
        |parts| matches!(parts.as_slice(), [.., schema, table] if schema == "information_schema" && table == "views"),
    )
}

fn views() -> Option<Box<Query>> {
    Parser::new(&GenericDialect {}).try_with_sql(VIEWS).and_then(|mut parser| parser.parse_query()).ok()
}
