//! Functions of DuckDB and PostgreSQL that the engine has by another name or as an expression.
//!
//! Arguments stand in expressions as `$arg1`, `$arg2`. A function that the engine has, or that a user created, is not touched.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Select, SelectItem,
    Statement as Sql, Value, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pithead_syntax::{any_expression, expressions_mut, walk_mut};

use super::formats::with_fractions;
use super::null;

/// The same function under the engine's name: all clauses stay.
const RENAMED: [(&str, &str); 25] = [
    ("approx_count_distinct", "approx_distinct"),
    ("approx_quantile", "approx_percentile_cont"),
    ("arbitrary", "min"),
    ("ceiling", "ceil"),
    ("editdist3", "levenshtein"),
    ("every", "bool_and"),
    ("first", "first_value"),
    ("group_concat", "string_agg"),
    ("grouping_id", "grouping"),
    ("last", "last_value"),
    ("lcase", "lower"),
    ("list", "array_agg"),
    ("list_min", "array_min"),
    ("list_value", "make_array"),
    ("listagg", "string_agg"),
    ("ord", "ascii"),
    ("prefix", "starts_with"),
    ("regexp_matches", "regexp_like"),
    ("sign", "signum"),
    ("strftime", "to_char"),
    ("struct_extract", "get_field"),
    ("suffix", "ends_with"),
    ("typeof", "arrow_typeof"),
    ("ucase", "upper"),
    ("variance", "var_samp"),
];

/// The value in the row that has the least or the most of another one: of several such rows the least value. NULLs do not count.
const OF_LEAST: &str = "first_value($arg1 ORDER BY $arg2, $arg1) FILTER (WHERE $arg1 IS NOT NULL AND $arg2 IS NOT NULL)";
const OF_MOST: &str = "first_value($arg1 ORDER BY $arg2 DESC, $arg1) FILTER (WHERE $arg1 IS NOT NULL AND $arg2 IS NOT NULL)";

/// A part of a text that fits a pattern, and what a group of the pattern fits; empty where nothing fits.
const GROUP_0: &str = "CASE WHEN $arg1 IS NOT NULL AND $arg2 IS NOT NULL \
    THEN coalesce((regexp_match($arg1, '(' || $arg2 || ')'))[1], '') END";
const GROUP: &str = "CASE WHEN $arg1 IS NOT NULL AND $arg2 IS NOT NULL \
    THEN coalesce((regexp_match($arg1, '(' || $arg2 || ')'))[$arg3 + 1], '') END";

/// A date that is made of another's parts is one in any year.
const LAST_DAY: &str = "(make_date(CAST(date_part('year', $arg1) AS INT), CAST(date_part('month', $arg1) AS INT), 1) \
    + INTERVAL '1 month' - INTERVAL '1 day')";

/// Names under which texts are joined, by commas unless something else is named.
const JOINED: [&str; 3] = ["group_concat", "listagg", "string_agg"];

/// Units whose buckets begin with a month; others begin with a Monday, as in DuckDB.
const OF_MONTHS: [&str; 5] = ["mon", "quarter", "year", "decade", "centur"];

/// Aggregates that expressions call.
const LISTED: [&str; 2] = ["pithead_least", "pithead_most"];

/// Functions that are expressions, by name and number of arguments.
pub(super) const EXPRESSIONS: [(&str, usize, &str); 64] = [
    ("age", 1, "pithead_age(CAST(current_date AS TIMESTAMP(6)), CAST($arg1 AS TIMESTAMP(6)))"),
    ("age", 2, "pithead_age(CAST($arg1 AS TIMESTAMP(6)), CAST($arg2 AS TIMESTAMP(6)))"),
    ("arg_max", 2, OF_MOST),
    ("arg_max", 3, "pithead_most($arg1, $arg2, $arg3)"),
    ("arg_min", 2, OF_LEAST),
    ("arg_min", 3, "pithead_least($arg1, $arg2, $arg3)"),
    ("argmax", 2, OF_MOST),
    ("argmax", 3, "pithead_most($arg1, $arg2, $arg3)"),
    ("argmin", 2, OF_LEAST),
    ("argmin", 3, "pithead_least($arg1, $arg2, $arg3)"),
    ("count_if", 1, "count(*) FILTER (WHERE $arg1)"),
    ("countif", 1, "count(*) FILTER (WHERE $arg1)"),
    ("date_add", 2, "($arg1 + $arg2)"),
    ("day", 1, "date_part('day', $arg1)"),
    ("dayname", 1, "to_char($arg1, '%A')"),
    ("dayofmonth", 1, "date_part('day', $arg1)"),
    ("dayofweek", 1, "date_part('dow', $arg1)"),
    ("dayofyear", 1, "date_part('doy', $arg1)"),
    ("epoch", 1, "date_part('epoch', $arg1)"),
    ("favg", 1, "avg(CAST($arg1 AS DOUBLE))"),
    ("from_base64", 1, "decode($arg1, 'base64')"),
    ("from_hex", 1, "decode($arg1, 'hex')"),
    ("fsum", 1, "sum(CAST($arg1 AS DOUBLE))"),
    ("geomean", 1, "exp(avg(ln($arg1)))"),
    ("geometric_mean", 1, "exp(avg(ln($arg1)))"),
    ("hour", 1, "date_part('hour', $arg1)"),
    ("if", 3, "CASE WHEN $arg1 THEN $arg2 ELSE $arg3 END"),
    ("iff", 3, "CASE WHEN $arg1 THEN $arg2 ELSE $arg3 END"),
    ("isfinite", 1, "(abs(CAST($arg1 AS DOUBLE)) < CAST('inf' AS DOUBLE))"),
    ("isinf", 1, "(abs(CAST($arg1 AS DOUBLE)) = CAST('inf' AS DOUBLE))"),
    ("isodow", 1, "date_part('isodow', $arg1)"),
    ("kahan_sum", 1, "sum(CAST($arg1 AS DOUBLE))"),
    ("last_day", 1, LAST_DAY),
    ("list_reverse_sort", 1, "array_sort($arg1, 'DESC', 'NULLS LAST')"),
    ("max_by", 2, OF_MOST),
    ("max_by", 3, "pithead_most($arg1, $arg2, $arg3)"),
    ("min_by", 2, OF_LEAST),
    ("min_by", 3, "pithead_least($arg1, $arg2, $arg3)"),
    ("minute", 1, "date_part('minute', $arg1)"),
    ("mod", 2, "($arg1 % $arg2)"),
    ("month", 1, "date_part('month', $arg1)"),
    ("monthname", 1, "to_char($arg1, '%B')"),
    ("quarter", 1, "date_part('quarter', $arg1)"),
    ("regexp_extract", 2, GROUP_0),
    ("regexp_extract", 3, GROUP),
    ("second", 1, "date_part('second', $arg1)"),
    ("sem", 1, "(stddev_pop($arg1) / sqrt(count($arg1)))"),
    ("sumkahan", 1, "sum(CAST($arg1 AS DOUBLE))"),
    ("time_bucket", 3, "date_bin($arg1, $arg2, $arg3)"),
    ("to_days", 1, "($arg1 * INTERVAL '1 day')"),
    ("to_hours", 1, "($arg1 * INTERVAL '1 hour')"),
    ("to_microseconds", 1, "($arg1 * INTERVAL '1 microsecond')"),
    ("to_milliseconds", 1, "($arg1 * INTERVAL '1 millisecond')"),
    ("to_minutes", 1, "($arg1 * INTERVAL '1 minute')"),
    ("to_months", 1, "($arg1 * INTERVAL '1 month')"),
    ("to_seconds", 1, "($arg1 * INTERVAL '1 second')"),
    ("to_weeks", 1, "($arg1 * INTERVAL '7 days')"),
    ("to_years", 1, "($arg1 * INTERVAL '1 year')"),
    ("unhex", 1, "decode($arg1, 'hex')"),
    ("week", 1, "date_part('week', $arg1)"),
    ("weekday", 1, "date_part('dow', $arg1)"),
    ("weekofyear", 1, "date_part('week', $arg1)"),
    ("xor", 2, "($arg1 ^ $arg2)"),
    ("year", 1, "date_part('year', $arg1)"),
];

/// How many borders of a unit of time lie between two moments.
const DIFFERENCES: [(&str, &str); 8] = [
    ("year", "date_part('year', $arg2) - date_part('year', $arg1)"),
    (
        "quarter",
        "(date_part('year', $arg2) - date_part('year', $arg1)) * 4 + date_part('quarter', $arg2) - date_part('quarter', $arg1)",
    ),
    (
        "month",
        "(date_part('year', $arg2) - date_part('year', $arg1)) * 12 + date_part('month', $arg2) - date_part('month', $arg1)",
    ),
    // Whole weeks of days, as in DuckDB.
    ("week", "trunc((date_part('epoch', date_trunc('day', $arg2)) - date_part('epoch', date_trunc('day', $arg1))) / 604800)"),
    ("day", "(date_part('epoch', date_trunc('day', $arg2)) - date_part('epoch', date_trunc('day', $arg1))) / 86400"),
    ("hour", "(date_part('epoch', date_trunc('hour', $arg2)) - date_part('epoch', date_trunc('hour', $arg1))) / 3600"),
    ("minute", "(date_part('epoch', date_trunc('minute', $arg2)) - date_part('epoch', date_trunc('minute', $arg1))) / 60"),
    ("second", "date_part('epoch', date_trunc('second', $arg2)) - date_part('epoch', date_trunc('second', $arg1))"),
];

/// Units whose borders are the same in each zone: time between two moments with a zone is time that passed, also where clocks were
/// changed.
const WITHIN_A_DAY: [&str; 3] = ["hour", "minute", "second"];
/// A moment of the kind that it is, and of a day its beginning.
const AS_MOMENT: &str = "($arg1 + INTERVAL '0 microseconds')";

/// Replaces calls of such functions. Results that have no name of their own keep that of the call as it is written.
pub(super) fn expand(state: &SessionState, sql: &mut Sql) {
    let is_known = |name: &str| {
        state.scalar_functions().contains_key(name)
            || state.aggregate_functions().contains_key(name)
            || state.window_functions().contains_key(name)
    };
    let of = |expr: &Expr| match expr {
        Expr::Function(function) => expanded(function, &is_known),
        _ => None,
    };
    if !any_expression(sql, |expr| of(expr).is_some()) {
        return;
    }
    let _ = walk_mut(sql, &mut Naming(&|expr| of(expr).is_some()));
    // Inner calls come first.
    let _ = expressions_mut(sql, |expr| {
        if let Some(expanded) = of(expr) {
            *expr = expanded;
        }
        ControlFlow::<()>::Continue(())
    });
}

/// Names the results that have such expressions as they are written.
pub(super) struct Naming<'a>(pub(super) &'a dyn Fn(&Expr) -> bool);

impl VisitorMut for Naming<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            if any_expression(expr, self.0) {
                let alias = Ident::with_quote('"', expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        ControlFlow::Continue(())
    }
}

/// What a call is in the engine's words; none: it is none of these functions, or is called as they cannot be.
fn expanded(function: &Function, is_known: &dyn Fn(&str) -> bool) -> Option<Expr> {
    let [name] = &function.name.0[..] else { return None };
    let name = name.as_ident()?.value.to_lowercase();
    // The engine knows them, and not all of their forms.
    match &*name {
        "mode" => return mode_within(function),
        "any_value" => return any_in_order(function),
        "array_sort" | "list_sort" => return nulls_last(function),
        "list_distinct" => return without_null(function),
        name if JOINED.contains(&name) => {
            if let Some(with_comma) = joined_by_comma(function) {
                return Some(Expr::Function(with_comma));
            }
        }
        _ => {}
    }
    if is_known(&name) {
        return None;
    }
    if let Some((_, to)) = RENAMED.iter().find(|(from, _)| *from == name) {
        let mut renamed = Function { name: ObjectName::from(vec![Ident::new(*to)]), ..function.clone() };
        if name == "strftime" {
            with_fractions(&mut renamed);
        }
        return Some(Expr::Function(renamed));
    }
    let args = plain_args(function)?;
    if let ("time_bucket", [width, _]) = (&*name, &args[..]) {
        let width = width.to_string().to_lowercase();
        let first = if OF_MONTHS.iter().any(|unit| width.contains(unit)) { "2000-01-01" } else { "2000-01-03" };
        return Some(with_args(&format!("date_bin($arg1, $arg2, TIMESTAMP '{first}')"), &args));
    }
    if name == "date_diff" || name == "datediff" {
        let [Expr::Value(unit), from, to] = &args[..] else { return None };
        let unit = unit.value.clone().into_string()?.to_lowercase();
        let (_, difference) = DIFFERENCES.iter().find(|(known, _)| unit.strip_suffix('s').unwrap_or(&unit) == *known)?;
        let is_day = !WITHIN_A_DAY.contains(&unit.strip_suffix('s').unwrap_or(&unit));
        let moments = [from, to].map(|moment| {
            let is_text = matches!(moment, Expr::Value(_));
            with_args(if is_day || is_text { "CAST($arg1 AS TIMESTAMP(6))" } else { AS_MOMENT }, std::slice::from_ref(moment))
        });
        return Some(with_args(&format!("CAST({difference} AS BIGINT)"), &moments));
    }
    let (_, _, to) = EXPRESSIONS.iter().find(|(from, count, _)| *from == name && *count == args.len())?;
    with_clauses(with_args(to, &args), function)
}

/// The expression with the call's FILTER and OVER; none: it cannot have them.
fn with_clauses(expanded: Expr, call: &Function) -> Option<Expr> {
    if call.filter.is_none() && call.over.is_none() {
        return Some(expanded);
    }
    let Expr::Function(mut function) = expanded else { return None };
    let is_ordered = matches!(&function.args, FunctionArguments::List(list) if !list.clauses.is_empty());
    if function.filter.is_none() && !is_aggregate(&function) || is_ordered && call.over.is_some() {
        return None;
    }
    function.filter = match (function.filter.take(), call.filter.clone()) {
        (Some(own), Some(filter)) => {
            let (left, right) = (Box::new(Expr::Nested(own)), Box::new(Expr::Nested(filter)));
            Some(Box::new(Expr::BinaryOp { left, op: BinaryOperator::And, right }))
        }
        (own, filter) => own.or(filter),
    };
    function.over.clone_from(&call.over);
    Some(Expr::Function(function))
}

/// Whether the expression of a function is an aggregate.
fn is_aggregate(function: &Function) -> bool {
    !function.within_group.is_empty() || LISTED.contains(&function.name.to_string().as_str())
}

/// PostgreSQL's `mode() WITHIN GROUP (ORDER BY x)`, which is `mode(x)`.
fn mode_within(function: &Function) -> Option<Expr> {
    let [of] = &function.within_group[..] else { return None };
    if !plain_args(function)?.is_empty() {
        return None;
    }
    let Expr::Function(mode) = with_args("mode($arg1)", std::slice::from_ref(&of.expr)) else { return None };
    Some(Expr::Function(Function { filter: function.filter.clone(), over: function.over.clone(), ..mode }))
}

/// Texts that are joined by nothing that is named, by a comma.
fn joined_by_comma(function: &Function) -> Option<Function> {
    let mut joined = function.clone();
    let FunctionArguments::List(list) = &mut joined.args else { return None };
    if list.args.len() != 1 {
        return None;
    }
    list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(parsed("','"))));
    joined.name = ObjectName::from(vec![Ident::new("string_agg")]);
    Some(joined)
}

/// `any_value(x ORDER BY y)`, which is the first value that is not NULL.
fn any_in_order(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] = &list.args[..] else { return None };
    if list.clauses.is_empty() {
        return None;
    }
    let Expr::Function(first) = with_args("first_value(0) FILTER (WHERE $arg1 IS NOT NULL)", std::slice::from_ref(value))
    else {
        return None;
    };
    with_clauses(Expr::Function(Function { args: function.args.clone(), ..first }), function)
}

/// A list that is sorted without a word about NULLs has them last, as in DuckDB.
fn nulls_last(function: &Function) -> Option<Expr> {
    let args = plain_args(function)?;
    let sorted = match args.len() {
        1 => "array_sort($arg1, 'ASC', 'NULLS LAST')",
        2 => "array_sort($arg1, $arg2, 'NULLS LAST')",
        _ => return None,
    };
    with_clauses(with_args(sorted, &args), function)
}

/// DuckDB's `list_distinct`, which leaves NULL out.
fn without_null(function: &Function) -> Option<Expr> {
    let args = plain_args(function)?;
    if args.len() != 1 {
        return None;
    }
    with_clauses(with_args("array_distinct(array_compact($arg1))", &args), function)
}

/// The arguments of a call that has nothing but arguments in its parentheses.
fn plain_args(function: &Function) -> Option<Vec<Expr>> {
    match &function.args {
        FunctionArguments::List(list) if list.clauses.is_empty() && list.duplicate_treatment.is_none() => {
            let plain = |arg: &FunctionArg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            };
            list.args.iter().map(plain).collect()
        }
        FunctionArguments::None => Some(vec![]),
        _ => None,
    }
}

/// An expression with arguments in the places of `$arg1`, `$arg2` and so on.
fn with_args(template: &str, args: &[Expr]) -> Expr {
    let mut expr = parsed(template);
    let _ = expressions_mut(&mut expr, |part| {
        if let Expr::Value(value) = part
            && let Value::Placeholder(name) = &value.value
            && let Some(arg) =
                name.strip_prefix("$arg").and_then(|number| args.get(number.parse::<usize>().ok()?.checked_sub(1)?))
        {
            *part = Expr::Nested(Box::new(arg.clone()));
        }
        ControlFlow::<()>::Continue(())
    });
    expr
}

/// An expression of ours; NULL if it cannot be parsed, which tests rule out.
pub(super) fn parsed(text: &str) -> Expr {
    let parser = Parser::new(&GenericDialect {}).try_with_sql(text);
    parser.and_then(|mut parser| parser.parse_expr()).unwrap_or_else(|_| null())
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion::sql::sqlparser::ast::Statement;

    use super::*;

    #[test]
    fn the_engine_has_none_of_these_and_knows_what_they_become() {
        let state = SessionContext::new().state();
        let is_known =
            |name: &str| state.scalar_functions().contains_key(name) || state.aggregate_functions().contains_key(name);
        for (from, to) in RENAMED {
            assert!(!is_known(from) && is_known(to), "{from}");
        }
        for (from, count, to) in EXPRESSIONS {
            assert!(!is_known(from), "{from}");
            assert!(to.contains(&format!("$arg{count}")) && parsed(to) != null(), "{from}");
        }
        for (unit, difference) in DIFFERENCES {
            assert!(parsed(difference) != null(), "{unit}");
        }
    }

    #[test]
    fn calls_are_expanded_and_results_keep_their_names() {
        let state = SessionContext::new().state();
        let becomes = |sql: &str| {
            let mut sql = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            expand(&state, &mut sql);
            let Statement::Query(_) = &sql else { panic!("expected a query") };
            sql.to_string()
        };
        for (sql, expected) in [
            ("SELECT abs(a) FROM t", "SELECT abs(a) FROM t"),
            ("SELECT year(d) FROM t", "SELECT date_part('year', (d)) AS \"year(d)\" FROM t"),
            ("SELECT LIST(DISTINCT a ORDER BY a) AS l FROM t", "SELECT array_agg(DISTINCT a ORDER BY a) AS l FROM t"),
            (
                "SELECT 1 FROM t WHERE if(if(a, b, c), 1, 2) = 1",
                "SELECT 1 FROM t WHERE CASE WHEN (CASE WHEN (a) THEN (b) ELSE (c) END) THEN (1) ELSE (2) END = 1",
            ),
            (
                "SELECT count_if(a) FILTER (WHERE b) OVER () AS n FROM t",
                "SELECT count(*) FILTER (WHERE ($arg1) AND (b)) OVER () AS n FROM t",
            ),
            (
                "SELECT any_value(a ORDER BY b) AS v, any_value(a) AS w FROM t",
                "SELECT first_value(a ORDER BY b) FILTER (WHERE $arg1 IS NOT NULL) AS v, any_value(a) AS w FROM t",
            ),
            (
                "SELECT listagg(DISTINCT a ORDER BY a) AS l, string_agg(a, b) AS s FROM t",
                "SELECT string_agg(DISTINCT a, ',' ORDER BY a) AS l, string_agg(a, b) AS s FROM t",
            ),
            (
                "SELECT time_bucket(INTERVAL '2 months', a) AS b FROM t",
                "SELECT date_bin((INTERVAL '2 months'), (a), TIMESTAMP '2000-01-01') AS b FROM t",
            ),
            ("SELECT list_sort(a) AS l FROM t", "SELECT array_sort($arg1, 'ASC', 'NULLS LAST') AS l FROM t"),
            ("SELECT array_sort(a, 'DESC', 'x') AS l FROM t", "SELECT array_sort(a, 'DESC', 'x') AS l FROM t"),
            ("SELECT list_distinct(a) AS l FROM t", "SELECT array_distinct(array_compact($arg1)) AS l FROM t"),
            ("SELECT strftime(a, '%S.%f %g%n %%f') AS s FROM t", "SELECT to_char(a, '%S.%6f %3f%9f %%f') AS s FROM t"),
            ("SELECT mode() WITHIN GROUP (ORDER BY a) AS m FROM t", "SELECT mode((a)) AS m FROM t"),
            (
                "SELECT year(d) OVER () AS y, arg_min(a, b) OVER () AS m FROM t",
                "SELECT year(d) OVER () AS y, arg_min(a, b) OVER () AS m FROM t",
            ),
        ] {
            assert_eq!(becomes(sql), expected.replace("$arg1", "(a)"), "{sql}");
        }
    }
}
