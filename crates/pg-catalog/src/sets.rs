//! Functions that give rows and stand in SELECT, as PostgreSQL has them: UNNEST of lists that the engine's functions of their names give.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Select, SelectItem, TypedString,
    VisitorMut,
};

use crate::PG_CATALOG;
use crate::syntax::{called, literal, parts};

/// What gives rows of whole numbers or moments.
pub(crate) const SERIES: &str = "generate_series";
/// What gives rows of the parts of a text.
pub(crate) const TEXTS: &str = "string_to_table";
/// Functions that take lists, besides those whose names say so. What gives rows elsewhere gives a list to these.
const OF_LISTS: [&str; 9] =
    ["unnest", "cardinality", "flatten", "len", "length", "make_array", "range", SERIES, "generate_subscripts"];

/// Writes those of SELECT so.
pub(crate) struct Sets;

impl VisitorMut for Sets {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
                expand(expr);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Expands what gives rows within an item: wherever PostgreSQL takes one of its values, and no list.
fn expand(expr: &mut Expr) {
    match expr {
        Expr::Function(function) => match list_of(function) {
            Some(list) => *expr = called("unnest", vec![list]),
            None if takes_values(function) => arguments_mut(function).for_each(expand),
            None => {}
        },
        Expr::Cast { expr: inner, .. } | Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => expand(inner),
        Expr::BinaryOp { left, right, .. } => {
            expand(left);
            expand(right);
        }
        _ => {}
    }
}

/// The name of a function that is called plainly, whether or not with PostgreSQL's schema.
fn name_of(function: &Function) -> Option<String> {
    let is_plain = function.over.is_none() && function.filter.is_none() && function.within_group.is_empty();
    match parts(&function.name).as_slice() {
        [name] if is_plain => Some(name.clone()),
        [schema, name] if is_plain && schema == PG_CATALOG => Some(name.clone()),
        _ => None,
    }
}

fn takes_values(function: &Function) -> bool {
    let takes_lists = |name: &str| OF_LISTS.contains(&name) || name.starts_with("array") || name.starts_with("list");
    name_of(function).is_some_and(|name| !takes_lists(&name))
}

/// The list of the rows that a function gives; none: it gives one value.
fn list_of(function: &mut Function) -> Option<Expr> {
    let name = match name_of(function)?.as_str() {
        SERIES => SERIES,
        TEXTS => "string_to_array",
        _ => return None,
    };
    let mut arguments: Vec<Expr> = arguments_mut(function).map(|argument| argument.clone()).collect();
    if name == SERIES {
        of_moments(&mut arguments);
    }
    Some(called(name, arguments))
}

fn arguments_mut(function: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let args = match &mut function.args {
        FunctionArguments::List(list) => list.args.as_mut_slice(),
        _ => &mut [],
    };
    args.iter_mut().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// Texts among the arguments of a series as what they are read as beside moments: an end as a moment, and a step as an interval.
pub(crate) fn of_moments(arguments: &mut [Expr]) {
    let [first, last, step] = arguments else { return };
    let of = moment(first).or_else(|| moment(last));
    for end in [first, last] {
        if let (Some(of), Some(_)) = (&of, literal(end)) {
            casted(end, of.clone());
        }
    }
    if literal(step).is_some() {
        casted(step, DataType::Interval { fields: None, precision: None });
    }
}

/// The type that an expression is cast to, where it is one of moments.
fn moment(expr: &Expr) -> Option<DataType> {
    match expr {
        Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) => {
            matches!(data_type, DataType::Timestamp(..) | DataType::Date).then(|| data_type.clone())
        }
        Expr::Nested(inner) => moment(inner),
        _ => None,
    }
}

fn casted(expr: &mut Expr, data_type: DataType) {
    let inner = Box::new(expr.clone());
    *expr = Expr::Cast { kind: CastKind::DoubleColon, expr: inner, data_type, array: false, format: None };
}

#[cfg(test)]
mod tests {
    use crate::rewrite::rewritten;

    #[test]
    fn functions_of_rows_in_select_become_rows() {
        for (sql, expected) in [
            ("SELECT generate_series(1, 3)", "SELECT unnest(generate_series(1, 3))"),
            (
                "SELECT pg_catalog.generate_series(1, n) * 2 AS a, b FROM t",
                "SELECT unnest(generate_series(1, n)) * 2 AS a, b FROM t",
            ),
            (
                "SELECT a FROM (SELECT chr(generate_series(1, 3)::INT) AS a)",
                "SELECT a FROM (SELECT chr(unnest(generate_series(1, 3))::INT) AS a)",
            ),
            ("SELECT string_to_table('a,b', ',')", "SELECT unnest(string_to_array('a,b', ','))"),
            (
                "INSERT INTO t SELECT generate_series('2024-01-01'::DATE, '2024-01-03', '1 day')",
                "INSERT INTO t SELECT unnest(generate_series('2024-01-01'::DATE, '2024-01-03'::DATE, '1 day'::INTERVAL))",
            ),
            // Their lists are what is asked for here.
            ("SELECT unnest(generate_series(1, 3))", "SELECT unnest(generate_series(1, 3))"),
            ("SELECT array_length(generate_series(1, 3), 1)", "SELECT array_length(generate_series(1, 3), 1)"),
            ("SELECT a FROM t WHERE generate_series(1, 3) = a", "SELECT a FROM t WHERE generate_series(1, 3) = a"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }
}
