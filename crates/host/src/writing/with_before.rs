//! `WITH x AS (…) INSERT INTO t SELECT … FROM x`, and the same before UPDATE, DELETE and MERGE: the queries of WITH go to where the
//! statement reads them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    FromTable, Ident, Query, SetExpr, Statement as Sql, TableAlias, TableFactor, TableWithJoins, UpdateTableFromKind,
    VisitorMut, With,
};
use pithead_syntax::walk_mut;

use crate::dialect::{normal, query_over};

/// The statement that follows a WITH, with what WITH says. Another one stays as it is.
pub(crate) fn take_with(statement: Sql) -> Sql {
    let Sql::Query(query) = statement else { return statement };
    let mut query = *query;
    let has_more = query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some();
    match (query.with.take(), *query.body) {
        (
            Some(with),
            SetExpr::Insert(mut written)
            | SetExpr::Update(mut written)
            | SetExpr::Delete(mut written)
            | SetExpr::Merge(mut written),
        ) if !has_more => {
            give(&mut written, &with);
            written
        }
        (with, body) => Sql::Query(Box::new(Query { with, body: Box::new(body), ..query })),
    }
}

fn give(written: &mut Sql, with: &With) {
    let mut tables: Vec<&mut TableFactor> = Vec::new();
    match written {
        Sql::Insert(insert) => return insert.source.iter_mut().for_each(|source| put_before(source, with)),
        Sql::Update(update) => {
            if let Some(UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) = &mut update.from {
                tables.extend(from.iter_mut().flat_map(factors));
            }
        }
        Sql::Delete(delete) => {
            // Those that rows are deleted from come first.
            let from = match &mut delete.from {
                FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) => from,
            };
            tables.extend(from.iter_mut().skip(1).flat_map(factors));
            tables.extend(delete.using.iter_mut().flatten().flat_map(factors));
        }
        Sql::Merge(merge) => tables.push(&mut merge.source),
        _ => {}
    }
    tables.into_iter().for_each(|table| in_place_of_name(table, with));
    let _ = walk_mut(written, &mut Outermost { with, depth: 0 });
}

fn factors(from: &mut TableWithJoins) -> impl Iterator<Item = &mut TableFactor> {
    std::iter::once(&mut from.relation).chain(from.joins.iter_mut().map(|join| &mut join.relation))
}

/// A query of WITH that is read by its name alone becomes a query in its place.
fn in_place_of_name(table: &mut TableFactor, with: &With) {
    let TableFactor::Table { name, alias, args: None, .. } = &mut *table else { return };
    let [part] = name.0.as_slice() else { return };
    let Some(ident) = part.as_ident().filter(|ident| has(with, ident)).cloned() else { return };
    let named = TableAlias { explicit: true, name: ident, columns: vec![], at: None };
    let alias = alias.take().unwrap_or(named);
    let subquery = Box::new(query_over(table.clone()));
    *table = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
}

fn has(with: &With, name: &Ident) -> bool {
    with.cte_tables.iter().any(|cte| normal(&cte.alias.name) == normal(name))
}

/// Puts queries of a WITH before those of a query's own, but those whose names it gives to others.
fn put_before(query: &mut Query, with: &With) {
    match &mut query.with {
        None => query.with = Some(with.clone()),
        Some(own) => {
            let before = with.cte_tables.iter().filter(|cte| !has(own, &cte.alias.name)).cloned().collect::<Vec<_>>();
            own.recursive |= with.recursive;
            own.cte_tables.splice(..0, before);
        }
    }
}

/// Gives a WITH to each query that is within no other one.
struct Outermost<'a> {
    with: &'a With,
    depth: usize,
}

impl VisitorMut for Outermost<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        if self.depth == 0 {
            put_before(query, self.with);
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
    fn queries_of_with_go_to_where_they_are_read() {
        for (written, expected) in [
            ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", "INSERT INTO t WITH x AS (SELECT 1) SELECT * FROM x"),
            (
                "WITH x AS (SELECT 1), y AS (SELECT 2) INSERT INTO t WITH x AS (SELECT 3) SELECT * FROM x, y",
                "INSERT INTO t WITH y AS (SELECT 2), x AS (SELECT 3) SELECT * FROM x, y",
            ),
            (
                "WITH x AS (SELECT 1 AS a) DELETE FROM t WHERE a IN (SELECT a FROM x WHERE a IN (SELECT a FROM x))",
                "DELETE FROM t WHERE a IN (WITH x AS (SELECT 1 AS a) SELECT a FROM x WHERE a IN (SELECT a FROM x))",
            ),
            (
                "WITH x AS (SELECT 1 AS a) UPDATE t SET b = x.a FROM x WHERE t.a = x.a",
                "UPDATE t SET b = x.a FROM (WITH x AS (SELECT 1 AS a) SELECT * FROM x) AS x WHERE t.a = x.a",
            ),
            (
                "WITH x AS (SELECT 1 AS a) DELETE FROM t USING x AS y WHERE t.a = y.a",
                "DELETE FROM t USING (WITH x AS (SELECT 1 AS a) SELECT * FROM x) AS y WHERE t.a = y.a",
            ),
            ("WITH x AS (SELECT 1) SELECT * FROM x", "WITH x AS (SELECT 1) SELECT * FROM x"),
        ] {
            let read = |sql: &str| Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            assert_eq!(take_with(read(written)).to_string(), read(expected).to_string(), "{written}");
        }
    }
}
