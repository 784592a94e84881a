//! Functions in FROM, as PostgreSQL has them: those that give rows, and those that give one value.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, TableAlias, TableAliasColumnDef, TableFactor, TableFunctionArgs,
    Value, VisitorMut,
};
use pithead_syntax::any_expression;

use crate::syntax::{called, parts, selecting};
use crate::{PG_CATALOG, known, tables};

/// What gives rows of whole numbers or moments.
const SERIES: &str = "generate_series";
/// Functions of the engine that give one value, and that clients of PostgreSQL's write in FROM.
const OF_ENGINE: [&str; 2] = ["string_to_array", "now"];

/// The column of what gives rows of numbers, where nothing else is said.
const SERIES_COLUMN: &str = "value";

/// Writes them as the engine has them.
pub(crate) struct Factors {
    /// Whether the column of a series is called as PostgreSQL calls it: like its table.
    pub(crate) names_columns: bool,
}

impl VisitorMut for Factors {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
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
        if args.is_empty() && is_catalog_table(name) {
            if let TableFactor::Table { args, .. } = factor {
                *args = None;
            }
            return ControlFlow::Continue(());
        }
        let (Some(function), Some(arguments)) = (function(name), plain(args)) else { return ControlFlow::Continue(()) };
        if function == SERIES {
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

fn is_catalog_table(name: &ObjectName) -> bool {
    matches!(parts(name).as_slice(), [schema, table] if schema == PG_CATALOG && tables::is_table(table))
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
            ("SELECT name FROM pg_show_all_settings()", "SELECT name FROM pg_catalog.pg_show_all_settings"),
            ("SELECT * FROM range(3), words(x)", "SELECT * FROM range(3), words(x)"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }
}
