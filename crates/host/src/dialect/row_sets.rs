//! Functions that give any number of results for a row, as UNNEST of a list of them: `FROM t, words(t.text) AS w` and
//! `SELECT words(text) FROM t`. And names of what UNNEST gives, as PostgreSQL has them.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, Select, SelectItem, Statement as Sql,
    TableAlias, TableAliasColumnDef, TableFactor, TableFunctionArgs, VisitorMut,
};
use pithead_syntax::walk_mut;
use pithead_wasm_sql::returns_set;

use super::{call, normal};

/// The function of rows of lists.
const UNNEST: &str = "unnest";

/// Writes them so.
pub(super) fn expand(state: &SessionState, sql: &mut Sql) {
    let gives_set = |name: &str| state.scalar_functions().get(name).is_some_and(|function| returns_set(function));
    let _ = walk_mut(sql, &mut Sets { gives_set: &gives_set });
}

struct Sets<'a> {
    /// Whether a function gives any number of results.
    gives_set: &'a dyn Fn(&str) -> bool,
}

impl VisitorMut for Sets<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let (name, args, alias) = match factor {
            TableFactor::UNNEST { array_exprs, alias, with_offset: false, .. } => {
                if let [list] = array_exprs.as_slice()
                    && !matches!(list, Expr::Dictionary(_) | Expr::Struct { .. })
                {
                    name_column(alias, &Ident::new(UNNEST));
                }
                return ControlFlow::Continue(());
            }
            TableFactor::Function { name, args, alias, with_ordinality: false, .. } => (name, args, alias),
            TableFactor::Table {
                name,
                args: Some(TableFunctionArgs { args, settings: None }),
                alias,
                with_ordinality: false,
                ..
            } => (name, args, alias),
            _ => return ControlFlow::Continue(()),
        };
        let is_unnest = full_name(name).as_deref() == Some(UNNEST);
        let is_set = full_name(name).is_some_and(|name| (self.gives_set)(&name));
        let last = name.0.last().and_then(ObjectNamePart::as_ident).cloned();
        if let (true, Some(last), Some(args)) = (is_unnest || is_set, last, plain(args)) {
            let mut alias = alias.take();
            name_column(&mut alias, &last);
            let lists = match (is_set, full_name(name)) {
                (true, Some(name)) => vec![call(&name, args)],
                _ => args,
            };
            *factor = TableFactor::UNNEST {
                alias,
                array_exprs: lists,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality: false,
            };
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                && let Expr::Function(Function { name, .. }) = expr
                && full_name(name).is_some_and(|name| (self.gives_set)(&name))
            {
                *expr = call(UNNEST, [expr.clone()]);
            }
        }
        ControlFlow::Continue(())
    }
}

/// A function's name, as it is known by.
fn full_name(name: &ObjectName) -> Option<String> {
    let parts = name.0.iter().map(|part| part.as_ident().map(normal)).collect::<Option<Vec<_>>>()?;
    Some(parts.join("."))
}

/// Arguments that are expressions; none: some are named, or a `*`.
fn plain(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let one = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    args.iter().map(one).collect()
}

/// The one column is called like its table, and that like the function where it has no name.
fn name_column(alias: &mut Option<TableAlias>, function: &Ident) {
    let alias =
        alias.get_or_insert_with(|| TableAlias { explicit: true, name: function.clone(), columns: Vec::new(), at: None });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn functions_of_sets_become_rows_of_lists() {
        for (sql, expected) in [
            ("SELECT * FROM words('a b')", "SELECT * FROM UNNEST(\"words\"('a b')) AS words (words)"),
            ("SELECT w FROM t, main.words(t.x) AS w", "SELECT w FROM t, UNNEST(\"main.words\"(t.x)) AS w (w)"),
            (
                "SELECT z FROM t CROSS JOIN LATERAL words(x) AS w (z)",
                "SELECT z FROM t CROSS JOIN UNNEST(\"words\"(x)) AS w (z)",
            ),
            ("SELECT a, words(x) AS w FROM t", "SELECT a, \"unnest\"(words(x)) AS w FROM t"),
            ("SELECT u FROM t, unnest(x) AS u", "SELECT u FROM t, UNNEST(x) AS u (u)"),
            ("SELECT unnest FROM LATERAL unnest(x)", "SELECT unnest FROM UNNEST(x) AS unnest (unnest)"),
            ("SELECT * FROM unnest(x, y) AS u (a, b)", "SELECT * FROM UNNEST(x, y) AS u (a, b)"),
            ("SELECT others(x) FROM range(3), t WHERE words(x) = y", "SELECT others(x) FROM range(3), t WHERE words(x) = y"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            let gives_set = |name: &str| ["words", "main.words"].contains(&name);
            let _ = walk_mut(&mut statement, &mut Sets { gives_set: &gives_set });
            assert_eq!(statement.to_string(), expected);
        }
    }
}
