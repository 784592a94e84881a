//! Names of results that a SELECT does not name: the text of their expression, as in DuckDB, `sum(x)` of `SELECT sum(x) FROM t`.
//!
//! The planner's own have the names of tables and types in them, `sum(t.x)`, and change with how a statement is planned.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CreateTable, Cte, DescribeAlias, Distinct, Expr, Function, Ident, ObjectName, ObjectNamePart, OrderBy, OrderByKind, Query,
    Select, SelectItem, SetExpr, Statement as Sql, TableFactor, Value, VisitorMut,
};
use pithead_syntax::{any_expression, expressions_mut, walk_mut};

use super::normal;
use super::postgres_names::{first, is_by_name, item_name, postgres_name};

/// In the state of a statement whose results have the names that PostgreSQL gives them.
pub(crate) struct PostgresNames;

/// Names the results of subqueries that are read as tables, of a query that makes a table, and of one that is described.
pub(super) fn give(sql: &mut Sql) {
    match sql {
        Sql::CreateTable(CreateTable { query: Some(query), .. }) => name_results(query),
        Sql::Explain { describe_alias: DescribeAlias::Describe | DescribeAlias::Desc, statement, .. } => {
            if let Sql::Query(query) = statement.as_mut() {
                name_results(query);
            }
        }
        _ => {}
    }
    let _ = walk_mut(sql, &mut Names(name_results));
}

/// Names the results of subqueries that are read as tables, by a function that names those of one.
struct Names(fn(&mut Query));

impl VisitorMut for Names {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for Cte { alias, query, .. } in query.with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            if alias.columns.is_empty() {
                (self.0)(query);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias, .. } = factor
            && alias.as_ref().is_none_or(|alias| alias.columns.is_empty())
        {
            (self.0)(subquery);
        }
        ControlFlow::Continue(())
    }
}

/// A statement with the names that PostgreSQL gives to results, where they are read as columns, and rewritten; results whose name would
/// hang on that keep it.
pub(crate) fn name_as_postgres(statement: &mut Statement, rewrite: impl FnOnce(&mut Statement)) {
    if let Statement::Statement(sql) = statement {
        if let Sql::CreateTable(CreateTable { query: Some(query), .. }) = sql.as_mut() {
            name_postgres_results(query);
        }
        let _ = walk_mut(sql, &mut Names(name_postgres_results));
        if let Sql::Query(query) = sql.as_mut() {
            order_by_results(query);
        }
    }
    let before = items_mut(statement).map(|items| items.iter().map(item_name).collect::<Vec<_>>());
    rewrite(statement);
    for (item, before) in items_mut(statement).into_iter().flatten().zip(before.into_iter().flatten()) {
        if let (SelectItem::UnnamedExpr(expr), Some(name)) = (&*item, before)
            && name != postgres_name(expr)
        {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
        }
    }
}

/// The items of the query that a statement is.
fn items_mut(statement: &mut Statement) -> Option<&mut Vec<SelectItem>> {
    let Statement::Statement(sql) = statement else { return None };
    let Sql::Query(query) = sql.as_mut() else { return None };
    first_mut(&mut query.body).map(|select| &mut select.projection)
}

/// The names of a view's columns as PostgreSQL gives them; none: its query names them itself, or some of them are not known.
pub(crate) fn view_names(statement: &Statement) -> Option<Vec<String>> {
    let Statement::Statement(sql) = statement else { return None };
    let Sql::Query(query) = sql.as_ref() else { return None };
    let items = &first(&query.body)?.projection;
    let names = items.iter().map(item_name).collect::<Option<Vec<String>>>()?;
    let is_given = |item: &SelectItem| text_of(item).is_some();
    let alone = names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len();
    (alone && items.iter().any(is_given)).then_some(names)
}

/// Puts the result in the place of its name in ORDER BY, where only PostgreSQL gives it that name.
fn order_by_results(query: &mut Query) {
    let Query { body, order_by, .. } = query;
    let (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(order), .. })) = (body.as_mut(), order_by)
    else {
        return;
    };
    let names: Vec<Option<String>> = select.projection.iter().map(item_name).collect();
    // The planner finds what is no column among distinct results by its place alone.
    let by_place = select.distinct.is_some() && names.iter().all(Option::is_some);
    for by in order {
        let Expr::Identifier(name) = &by.expr else { continue };
        let name = Some(normal(name));
        let mut found = select.projection.iter().zip(&names).enumerate().filter(|(_, (_, known))| **known == name);
        if let (Some((place, (item, _))), None) = (found.next(), found.next())
            && let SelectItem::UnnamedExpr(expr) = item
            && text_of(item).is_some()
        {
            let place = Value::Number((place + 1).to_string(), false);
            by.expr = if by_place { Expr::Value(place.into()) } else { expr.clone() };
        }
    }
}

/// Names the results of a query. Those that are equal keep what tells them apart elsewhere.
pub(crate) fn name_results(query: &mut Query) {
    name_by(query, text_of);
}

/// The same with the names that PostgreSQL gives. Those that are equal have the text of their expressions.
fn name_postgres_results(query: &mut Query) {
    let names = first(&query.body).map(|select| select.projection.iter().filter_map(item_name).collect::<Vec<_>>());
    let names = names.unwrap_or_default();
    let is_alone = |name: &String| names.iter().filter(|known| *known == name).count() == 1;
    name_by(query, |item| match (item, text_of(item)) {
        (SelectItem::UnnamedExpr(expr), Some(text)) => Some(Some(postgres_name(expr)).filter(is_alone).unwrap_or(text)),
        _ => None,
    });
    order_by_results(query);
}

fn name_by(query: &mut Query, name_of: impl Fn(&SelectItem) -> Option<String>) {
    let Query { body, order_by, .. } = query;
    let Some(select) = first_mut(body) else { return };
    let is_distinct = select.distinct == Some(Distinct::Distinct);
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for item in &select.projection {
        *times.entry(name_of(item).unwrap_or_default()).or_default() += 1;
    }
    for item in &mut select.projection {
        if let Some(name) = name_of(item).filter(|name| times.get(name) == Some(&1))
            && let SelectItem::UnnamedExpr(expr) = item
        {
            let name = Ident::with_quote('"', name);
            if let Some(OrderBy { kind: OrderByKind::Expressions(order), .. }) = order_by
                && is_distinct
            {
                // The planner finds it among distinct results by its name alone.
                let same = order.iter_mut().filter(|by| by.expr == *expr);
                same.for_each(|by| by.expr = Expr::Identifier(name.clone()));
            }
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: name };
        }
    }
}

/// The names of a query's `count` results, where they are texts of expressions, or what PostgreSQL calls these; none where it is not
/// known which result an item is.
pub(crate) fn result_names(query: &Query, count: usize, as_postgres: bool) -> Option<Vec<Option<String>>> {
    let items = &first(&query.body)?.projection;
    let is_wildcard = |item: &&SelectItem| !matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    let wildcards = items.iter().filter(is_wildcard).count();
    let by_wildcard = count.checked_sub(items.len() - wildcards)?;
    // A struct in it becomes several results.
    let is_unnest =
        |part: &Expr| matches!(part, Expr::Function(function) if normal_name(function).as_deref() == Some("unnest"));
    let is_known = match wildcards {
        0 => by_wildcard == 0,
        1 => !any_expression(items, is_unnest),
        _ => false,
    };
    if !is_known {
        return None;
    }
    let names = items.iter().flat_map(|item| match is_wildcard(&item) {
        true => vec![None; by_wildcard],
        false => vec![if as_postgres { given_name(item) } else { text_of(item) }],
    });
    Some(names.collect())
}

/// What PostgreSQL calls an item that has no name and is no column.
fn given_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => None,
        SelectItem::UnnamedExpr(expr) => Some(postgres_name(expr)),
        _ => None,
    }
}

/// The text of an item that is neither named nor, casts aside, a column, whose name it has. Names of functions are in small letters.
fn text_of(item: &SelectItem) -> Option<String> {
    let SelectItem::UnnamedExpr(expr) = item else { return None };
    if is_column(expr) {
        return None;
    }
    let mut written = expr.clone();
    let _ = expressions_mut(&mut written, |part| {
        if let Expr::Function(Function { name, .. }) = part {
            let small = |part: &ObjectNamePart| part.as_ident().map(|part| Ident { value: normal(part), ..part.clone() });
            if let Some(parts) = name.0.iter().map(small).collect::<Option<Vec<_>>>() {
                *name = ObjectName::from(parts);
            }
        }
        ControlFlow::<()>::Continue(())
    });
    Some(written.to_string())
}

fn normal_name(function: &Function) -> Option<String> {
    function.name.0.last().and_then(ObjectNamePart::as_ident).map(normal)
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Cast { expr, .. } | Expr::Nested(expr) => is_column(expr),
        _ => false,
    }
}

fn first_mut(body: &mut SetExpr) -> Option<&mut Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { set_quantifier, .. } if is_by_name(*set_quantifier) => None,
        SetExpr::SetOperation { left, .. } => first_mut(left),
        SetExpr::Query(query) => first_mut(&mut query.body),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn parsed(sql: &str) -> Sql {
        Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0)
    }

    #[test]
    fn results_that_are_read_as_columns_are_named() {
        for (sql, expected) in [
            ("SELECT sum(a) FROM t", "SELECT sum(a) FROM t"),
            (
                "SELECT * FROM (SELECT a, b AS c, sum(a), (t.a), CAST(a AS INT) FROM t) AS t",
                "SELECT * FROM (SELECT a, b AS c, sum(a) AS \"sum(a)\", (t.a), CAST(a AS INT) FROM t) AS t",
            ),
            (
                "SELECT * FROM (SELECT 1 + a UNION SELECT 2 + a) AS t",
                "SELECT * FROM (SELECT 1 + a AS \"1 + a\" UNION SELECT 2 + a) AS t",
            ),
            ("WITH t AS (SELECT 'x' || a, 1, 1) TABLE t", "WITH t AS (SELECT 'x' || a AS \"'x' || a\", 1, 1) TABLE t"),
            (
                "SELECT * FROM (SELECT DISTINCT ON (a % 2) a % 2, b FROM t ORDER BY a % 2, b) AS t",
                "SELECT * FROM (SELECT DISTINCT ON (a % 2) a % 2 AS \"a % 2\", b FROM t ORDER BY a % 2, b) AS t",
            ),
            (
                "SELECT * FROM (SELECT a + 1 UNION BY NAME SELECT 2) AS t",
                "SELECT * FROM (SELECT a + 1 UNION BY NAME SELECT 2) AS t",
            ),
            (
                "SELECT * FROM (SELECT DISTINCT a + 1, b FROM t ORDER BY a + 1 DESC, b) AS t",
                "SELECT * FROM (SELECT DISTINCT a + 1 AS \"a + 1\", b FROM t ORDER BY \"a + 1\" DESC, b) AS t",
            ),
            ("WITH t (a) AS (SELECT 1 + 1) TABLE t", "WITH t (a) AS (SELECT 1 + 1) TABLE t"),
            ("CREATE TABLE s AS SELECT count(*) FROM t", "CREATE TABLE s AS SELECT count(*) AS \"count(*)\" FROM t"),
            ("DESCRIBE SELECT sum(a) FROM t", "DESCRIBE SELECT sum(a) AS \"sum(a)\" FROM t"),
            ("EXPLAIN SELECT sum(a) FROM t", "EXPLAIN SELECT sum(a) FROM t"),
            ("SELECT a IN (SELECT b + 1 FROM t) FROM t", "SELECT a IN (SELECT b + 1 FROM t) FROM t"),
        ] {
            let mut statement = parsed(sql);
            give(&mut statement);
            assert_eq!(statement, parsed(expected), "{statement}");
        }
    }

    #[test]
    fn results_that_are_read_as_columns_have_the_names_of_postgresql() {
        for (sql, expected) in [
            ("SELECT count(*) FROM t", "SELECT count(*) FROM t"),
            ("SELECT count FROM (SELECT count(*) FROM t) AS t", "SELECT count FROM (SELECT count(*) AS \"count\" FROM t) AS t"),
            (
                "SELECT * FROM (SELECT max(a), max(b), max, 1 + a FROM t) AS t",
                "SELECT * FROM (SELECT max(a) AS \"max(a)\", max(b) AS \"max(b)\", max, 1 + a AS \"?column?\" FROM t) AS t",
            ),
            ("CREATE TABLE s AS SELECT count(*) FROM t", "CREATE TABLE s AS SELECT count(*) AS \"count\" FROM t"),
            (
                "SELECT a, count(*) FROM t GROUP BY a ORDER BY count DESC, a",
                "SELECT a, count(*) FROM t GROUP BY a ORDER BY count(*) DESC, a",
            ),
            ("SELECT max(a), max(b) FROM t ORDER BY max", "SELECT max(a), max(b) FROM t ORDER BY max"),
            ("SELECT DISTINCT a, upper(b) FROM t ORDER BY upper", "SELECT DISTINCT a, upper(b) FROM t ORDER BY 2"),
            (
                "WITH s AS (SELECT DISTINCT upper(a) FROM t ORDER BY upper) TABLE s",
                "WITH s AS (SELECT DISTINCT upper(a) AS \"upper\" FROM t ORDER BY upper) TABLE s",
            ),
        ] {
            let mut statement = Statement::Statement(Box::new(parsed(sql)));
            name_as_postgres(&mut statement, |_| ());
            assert_eq!(statement.to_string(), parsed(expected).to_string());
        }
        // What is rewritten keeps its name.
        let mut statement = Statement::Statement(Box::new(parsed("SELECT old(a), b")));
        name_as_postgres(&mut statement, |statement| {
            *statement = Statement::Statement(Box::new(parsed("SELECT new(a), b")));
        });
        assert_eq!(statement.to_string(), "SELECT new(a) AS \"old\", b");
    }

    #[test]
    fn views_have_the_names_of_postgresql_where_they_are_known() {
        let names = |sql: &str| view_names(&Statement::Statement(Box::new(parsed(sql))));
        let of = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(names("SELECT T.A, count(*), b AS c FROM t"), of(&["a", "count", "c"]));
        assert_eq!((names("SELECT a FROM t"), names("SELECT *, 1 FROM t"), names("SELECT 1, 2")), (None, None, None));
    }

    #[test]
    fn the_names_of_a_result_are_those_that_a_reader_wrote() {
        let none = || None::<String>;
        let some = |name: &str| Some(name.to_owned());
        for (sql, count, expected) in [
            ("SELECT a, a + MIN(\"A\"), sum(a) AS s FROM t", 3, Some(vec![none(), some("a + min(\"A\")"), none()])),
            ("SELECT a + 1, *, 2 FROM t", 4, Some(vec![some("a + 1"), none(), none(), some("2")])),
            ("SELECT a + 1, * FROM t", 1, Some(vec![some("a + 1")])),
            ("SELECT a + 1 FROM t EXCEPT SELECT 2", 1, Some(vec![some("a + 1")])),
            ("SELECT *, t.*, 1 FROM t", 5, None),
            ("SELECT *, a + 1 FROM t UNION BY NAME SELECT 5 AS z", 5, None),
            ("SELECT *, unnest(s) FROM t", 5, None),
            ("SELECT a FROM t", 2, None),
            ("VALUES (1)", 1, None),
        ] {
            let Sql::Query(query) = parsed(sql) else { panic!("{sql} is no query") };
            assert_eq!(result_names(&query, count, false), expected, "{sql}");
        }
    }
}
