//! Functions in FROM, as PostgreSQL has them: those that give rows, and those that give one value.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, TableAlias, TableAliasColumnDef, TableFactor,
    TableFunctionArgs, Value, VisitorMut,
};
use pithead_syntax::any_expression;

use crate::sets::{SERIES, TEXTS, of_moments};
use crate::syntax::{called, folded, parts, selecting};
use crate::{PG_CATALOG, known, tables};

/// The function of rows of lists.
const UNNEST: &str = "unnest";
/// Functions of the engine that give one value, and that clients of PostgreSQL's write in FROM.
const OF_ENGINE: [&str; 2] = ["string_to_array", "now"];

/// The column of what gives rows of numbers, where nothing else is said.
pub(crate) const SERIES_COLUMN: &str = "value";

/// Writes them as the engine has them.
pub(crate) struct Factors {
    /// Whether the column of a series is called as PostgreSQL calls it: like its table.
    pub(crate) names_columns: bool,
}

impl VisitorMut for Factors {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some(rows) = rows_of(factor) {
            *factor = rows;
            return ControlFlow::Continue(());
        }
        let TableFactor::Table {
            name,
            args: Some(TableFunctionArgs { args, settings: None }),
            alias,
            with_ordinality: false,
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        // The engine finds functions of rows by their letters alone.
        for part in &mut name.0 {
            if let ObjectNamePart::Identifier(ident) = part {
                *ident = Ident { value: folded(ident), ..ident.clone() };
            }
        }
        if args.is_empty() && is_catalog_table(name) || gives_nothing(name) {
            if let TableFactor::Table { args, .. } = factor {
                *args = None;
            }
            return ControlFlow::Continue(());
        }
        let (Some(function), Some(mut arguments)) = (function(name), plain(args)) else { return ControlFlow::Continue(()) };
        if function == SERIES {
            of_moments(&mut arguments);
            *args = arguments.iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument.clone()))).collect();
            let is_named = self.names_columns && alias.is_some();
            let is_computed = arguments.iter().any(is_computed);
            if is_named || is_computed {
                let table = alias.as_ref().map_or(SERIES, |alias| alias.name.value.as_str()).to_owned();
                name_column(alias, SERIES, if is_named { &table } else { SERIES_COLUMN });
            }
            if is_computed {
                *factor = TableFactor::UNNEST {
                    alias: alias.take(),
                    array_exprs: vec![called(SERIES, arguments)],
                    with_offset: false,
                    with_offset_alias: None,
                    with_ordinality: false,
                };
            }
        } else if (OF_ENGINE.contains(&function.as_str()) || known::is_known(&function))
            && let Some(subquery) = selecting(called(&function, arguments))
        {
            let table = alias.as_ref().map_or(function.as_str(), |alias| alias.name.value.as_str()).to_owned();
            name_column(alias, &function, &table);
            *factor = TableFactor::Derived { lateral: false, subquery, alias: alias.take(), sample: None };
        }
        ControlFlow::Continue(())
    }
}

/// What gives rows WITH ORDINALITY, as UNNEST of its lists and of the numbers of their items; and a function of rows that is known as one
/// of a list, as UNNEST of that. None: it is none of these.
fn rows_of(factor: &TableFactor) -> Option<TableFactor> {
    let (name, mut lists, alias, numbered) = match factor {
        TableFactor::UNNEST { array_exprs, alias, with_ordinality: true, with_offset: false, .. } => {
            (UNNEST.to_owned(), array_exprs.clone(), alias, true)
        }
        TableFactor::Table { name, args: Some(TableFunctionArgs { args, settings: None }), alias, with_ordinality, .. } => {
            let (name, mut arguments) = (function(name)?, plain(args)?);
            let lists = match name.as_str() {
                UNNEST if *with_ordinality => arguments,
                SERIES if *with_ordinality => {
                    of_moments(&mut arguments);
                    vec![called(SERIES, arguments)]
                }
                TEXTS => vec![called("string_to_array", arguments)],
                _ => return None,
            };
            (name, lists, alias, *with_ordinality)
        }
        _ => return None,
    };
    let mut alias = alias.clone();
    if lists.len() == 1 {
        let table = alias.as_ref().map_or(name.as_str(), |alias| alias.name.value.as_str()).to_owned();
        name_column(&mut alias, &name, &table);
    }
    if numbered {
        let of = alias.as_mut().filter(|alias| alias.columns.len() >= lists.len())?;
        if of.columns.len() == lists.len() {
            of.columns.push(TableAliasColumnDef { name: Ident::new("ordinality"), data_type: None });
        }
        let number = |number: &str| Expr::Value(Value::Number(number.to_owned(), false).into());
        let lengths: Vec<Expr> = lists.iter().map(|list| called("array_length", vec![list.clone(), number("1")])).collect();
        let longest = if let [one] = lengths.as_slice() { one.clone() } else { called("greatest", lengths) };
        lists.push(called(SERIES, vec![number("1"), longest]));
    }
    Some(TableFactor::UNNEST { alias, array_exprs: lists, with_offset: false, with_offset_alias: None, with_ordinality: false })
}

fn is_catalog_table(name: &ObjectName) -> bool {
    matches!(parts(name).as_slice(), [schema, table] if schema == PG_CATALOG && tables::is_table(table))
}

/// Whether a function of the catalogue never gives rows, whatever it takes.
fn gives_nothing(name: &ObjectName) -> bool {
    is_catalog_table(name) && parts(name).last().is_some_and(|function| tables::is_empty(function))
}

/// The name of a function, whose schema is said or not.
fn function(name: &ObjectName) -> Option<String> {
    match parts(name).as_slice() {
        [name] => Some(name.clone()),
        [schema, name] if schema == PG_CATALOG => Some(name.clone()),
        _ => None,
    }
}

/// Arguments that are expressions; none: some are named, or a `*`.
fn plain(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let one = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    args.iter().map(one).collect()
}

/// Whether an argument is more than a literal, which is all that the engine's own function takes.
fn is_computed(argument: &Expr) -> bool {
    any_expression(argument, |part| match part {
        Expr::Function(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_) | Expr::BinaryOp { .. } => {
            true
        }
        Expr::Value(value) => matches!(value.value, Value::Placeholder(_)),
        _ => false,
    })
}

/// Names the one column, and a table that has no name like its function.
fn name_column(alias: &mut Option<TableAlias>, function: &str, column: &str) {
    let alias =
        alias.get_or_insert_with(|| TableAlias { explicit: true, name: Ident::new(function), columns: Vec::new(), at: None });
    if alias.columns.is_empty() {
        let name = Ident { value: column.to_owned(), ..alias.name.clone() };
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::rewritten;

    #[test]
    fn functions_in_from_become_tables() {
        for (sql, expected) in [
            ("SELECT i FROM generate_series(1, 3) AS i", "SELECT i FROM generate_series(1, 3) AS i (i)"),
            ("SELECT * FROM generate_series(1, 3)", "SELECT * FROM generate_series(1, 3)"),
            ("SELECT * FROM GENERATE_SERIES(1, 3), RANGE(3)", "SELECT * FROM generate_series(1, 3), range(3)"),
            (
                "SELECT * FROM generate_series(1, length('abc'))",
                "SELECT * FROM UNNEST(generate_series(1, length('abc'))) AS generate_series (value)",
            ),
            (
                "SELECT i FROM pg_catalog.generate_series(1, $1) AS s(i)",
                "SELECT i FROM UNNEST(generate_series(1, $1)) AS s (i)",
            ),
            (
                "SELECT s[1] FROM string_to_array(current_setting('search_path'), ',') s",
                "SELECT s[1] FROM (SELECT string_to_array(current_setting('search_path'), ',')) s (s)",
            ),
            (
                "SELECT * FROM generate_series('2024-01-01'::timestamp, '2024-01-03', '1 day')",
                "SELECT * FROM generate_series('2024-01-01'::TIMESTAMP, '2024-01-03'::TIMESTAMP, '1 day'::INTERVAL)",
            ),
            (
                "SELECT c.oid, s.n FROM pg_class c, LATERAL (SELECT count(*) AS n FROM pg_catalog.pg_partition_tree(c.oid)) s",
                "SELECT c.oid, s.n FROM pg_catalog.pg_class c, LATERAL (SELECT count(*) AS n FROM pg_catalog.pg_partition_tree) s",
            ),
            (
                "SELECT * FROM t, unnest(t.a) WITH ORDINALITY AS u (x, n)",
                "SELECT * FROM t, UNNEST(t.a, generate_series(1, array_length(t.a, 1))) AS u (x, n)",
            ),
            (
                "SELECT * FROM unnest(a, b) WITH ORDINALITY AS u (x, y)",
                "SELECT * FROM UNNEST(a, b, generate_series(1, greatest(array_length(a, 1), array_length(b, 1)))) AS u (x, y, ordinality)",
            ),
            (
                "SELECT * FROM string_to_table('a,b', ',') WITH ORDINALITY",
                "SELECT * FROM UNNEST(string_to_array('a,b', ','), generate_series(1, array_length(string_to_array('a,b', ','), 1))) \
                 AS string_to_table (string_to_table, ordinality)",
            ),
            ("SELECT x FROM string_to_table('a,b', ',') x", "SELECT x FROM UNNEST(string_to_array('a,b', ',')) x (x)"),
            ("SELECT name FROM pg_show_all_settings()", "SELECT name FROM pg_catalog.pg_show_all_settings"),
            ("SELECT * FROM range(3), words(x)", "SELECT * FROM range(3), words(x)"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }
}
