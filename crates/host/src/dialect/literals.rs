//! Literals that say more than the planner takes from them, and what is written with them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Ident, Interval, ObjectNamePart,
    Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, Statement as Sql, TableFactor, TableWithJoins, TypedString,
    UnaryOperator, Value, Values, VisitorMut,
};
use pithead_functions::{AT_ZONE, bytes_of_text, interval_with_units};
use pithead_syntax::{expressions_mut, walk_mut};

use super::{call, normal, null};

/// Digits that a decimal has at most.
const DIGITS_MAX: usize = 38;
/// Digits behind the point of a NUMERIC that does not say how many.
const SCALE: usize = 10;

/// Writes all of a statement's as the planner takes them.
pub(super) fn expand(sql: &mut Sql) {
    match sql {
        Sql::Query(query) => name_casts(query),
        Sql::Insert(insert) => insert.source.iter_mut().for_each(|source| name_casts(source)),
        Sql::CreateTable(create) => create.query.iter_mut().for_each(|query| name_casts(query)),
        _ => {}
    }
    let _ = expressions_mut(sql, |expr| {
        if let Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) = expr {
            in_micros(data_type);
        }
        if let Some(other) = expanded(expr) {
            *expr = other;
        }
        ControlFlow::<()>::Continue(())
    });
    match sql {
        Sql::Insert(insert) => {
            if let Some(source) = &mut insert.source {
                match source.body.as_mut() {
                    SetExpr::Values(values) if source.with.is_none() => {
                        for value in values.rows.iter_mut().flat_map(|row| row.iter_mut()) {
                            keep_digits(value);
                            default_is_null(value);
                            within_parentheses(value);
                        }
                    }
                    _ => {
                        let _ = walk_mut(source, &mut NestedValues);
                    }
                }
            }
        }
        Sql::CreateTable(create) => create.columns.iter_mut().for_each(|column| in_micros(&mut column.data_type)),
        Sql::Update(update) => update.assignments.iter_mut().for_each(assigned),
        _ => {}
    }
}

/// TIMESTAMP has microseconds, as in DuckDB and PostgreSQL, and so reaches from before our era to the year 9999 and on. The planner's
/// has nanoseconds, and ends in 2262.
fn in_micros(data_type: &mut DataType) {
    if let DataType::Timestamp(digits @ None, _) = data_type {
        *digits = Some(6);
    }
}

/// Writes the VALUES within the query of an INSERT as SELECTs: the planner takes their columns for those of the table.
struct NestedValues;

impl VisitorMut for NestedValues {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Values(values) = query.body.as_mut() {
            let rows = std::mem::take(&mut values.rows);
            let selects = rows.into_iter().map(|row| selected(row.content));
            let selects: Vec<SetExpr> = selects.collect();
            if let Some(all) = united(selects) {
                *query.body = all;
            }
        }
        ControlFlow::Continue(())
    }
}

/// A row of VALUES, whose columns have the names `column1`, `column2` and so on.
fn selected(row: Vec<Expr>) -> SetExpr {
    let mut query = super::macros::parsed("(SELECT 1)");
    if let Expr::Subquery(query) = &mut query
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        let named = |(place, expr)| SelectItem::ExprWithAlias { expr, alias: Ident::new(format!("column{place}")) };
        select.projection = (1..).zip(row).map(named).collect();
        return SetExpr::Select(select.clone());
    }
    SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows: vec![] })
}

/// UNION ALL of queries, as flat as it can be.
fn united(mut queries: Vec<SetExpr>) -> Option<SetExpr> {
    match queries.len() {
        0 | 1 => queries.pop(),
        count => {
            let right = united(queries.split_off(count / 2))?;
            Some(SetExpr::SetOperation {
                op: SetOperator::Union,
                set_quantifier: SetQuantifier::All,
                left: Box::new(united(queries)?),
                right: Box::new(right),
            })
        }
    }
}

fn expanded(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Value(_) => large_number(expr),
        Expr::BinaryOp { left, op, right } if COMPARISONS.contains(op) => {
            let [left, right] = with_digits([left, right])?.map(Box::new);
            Some(Expr::BinaryOp { left, op: op.clone(), right })
        }
        Expr::Between { expr, negated, low, high } => {
            let [expr, low, high] = with_digits([expr, low, high])?.map(Box::new);
            Some(Expr::Between { expr, negated: *negated, low, high })
        }
        Expr::InList { expr, list, negated } if list.iter().any(|member| many_digits(member).is_some()) => {
            let list = list.iter().map(|member| many_digits(member).unwrap_or_else(|| member.clone())).collect();
            Some(Expr::InList { expr: expr.clone(), list, negated: *negated })
        }
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: of, data_type: DataType::Bytea, .. } => {
            Some(bytes(text_of(of)?))
        }
        Expr::Cast { kind, expr: of, data_type, array: false, format: None } if is_decimal(data_type).is_some() => {
            let number = number_of(of)?;
            let data_type = match is_decimal(data_type)? {
                ExactNumberInfo::None => decimal_of(&number, SCALE)?,
                _ => data_type.clone(),
            };
            Some(cast(kind.clone(), number, data_type))
        }
        Expr::Cast { kind, expr: of, data_type: data_type @ DataType::Interval { .. }, .. } => {
            Some(cast(kind.clone(), interval_text(text_of(of)?)?, data_type.clone()))
        }
        Expr::Interval(interval) if interval.leading_field.is_none() => {
            let value =
                Box::new(Expr::Value(Value::SingleQuotedString(interval_with_units(text_of(&interval.value)?)?).into()));
            Some(Expr::Interval(Interval { value, ..interval.clone() }))
        }
        Expr::AtTimeZone { timestamp, .. } => Some(call(AT_ZONE, [expr.clone(), timestamp.as_ref().clone()])),
        _ => None,
    }
}

/// A cast interval with all of its units. A bare number are seconds, as in PostgreSQL and DuckDB; the engine's cast takes it for months.
fn interval_text(text: &str) -> Option<String> {
    let is_number = || text.trim().parse::<f64>().is_ok_and(f64::is_finite);
    interval_with_units(text).or_else(|| is_number().then(|| format!("{} seconds", text.trim())))
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// A number as it is written.
fn number_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) if digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => {
                Some(digits.clone())
            }
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number_of(expr).map(|digits| format!("-{digits}")),
        Expr::Nested(inner) => number_of(inner),
        _ => None,
    }
}

fn cast(kind: CastKind, text: String, data_type: DataType) -> Expr {
    let expr = Box::new(Expr::Value(Value::SingleQuotedString(text).into()));
    Expr::Cast { kind, expr, data_type, array: false, format: None }
}

fn is_decimal(data_type: &DataType) -> Option<&ExactNumberInfo> {
    match data_type {
        DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info) => Some(info),
        _ => None,
    }
}

/// A decimal with all digits of a number, and at least so many behind the point.
fn decimal_of(number: &str, scale: usize) -> Option<DataType> {
    let (whole, fraction) = number.trim_start_matches('-').split_once('.').unwrap_or((number.trim_start_matches('-'), ""));
    let scale = scale.max(fraction.len());
    let digits = whole.trim_start_matches('0').len() + scale;
    let digits = if scale == SCALE && fraction.len() <= SCALE { DIGITS_MAX } else { digits.max(1) };
    (digits <= DIGITS_MAX).then_some(DataType::Decimal(ExactNumberInfo::PrecisionAndScale(digits as u64, scale as i64)))
}

/// A whole number that 64 bits do not reach, as a decimal: the planner makes a float of it, which has 16 digits.
fn large_number(expr: &Expr) -> Option<Expr> {
    let number = number_of(expr).filter(|number| !number.contains('.') && number.parse::<u64>().is_err())?;
    Some(cast(CastKind::Cast, number.clone(), decimal_of(&number, 0)?))
}

/// Operators that compare.
const COMPARISONS: [BinaryOperator; 6] = [
    BinaryOperator::Eq,
    BinaryOperator::NotEq,
    BinaryOperator::Lt,
    BinaryOperator::LtEq,
    BinaryOperator::Gt,
    BinaryOperator::GtEq,
];

/// Operands that are compared, of which one at least is a number with more digits than a float; none: none is.
fn with_digits<const N: usize>(operands: [&Expr; N]) -> Option<[Expr; N]> {
    operands
        .iter()
        .any(|operand| many_digits(operand).is_some())
        .then(|| operands.map(|operand| many_digits(operand).unwrap_or_else(|| operand.clone())))
}

/// A number with a point and more digits than the float that the planner would make of it, as a decimal. A float that was printed with
/// all of its digits is none.
fn many_digits(expr: &Expr) -> Option<Expr> {
    let number = number_of(expr).filter(|number| number.contains('.'))?;
    let float: f64 = number.parse().ok()?;
    let plain = |text: &str| {
        let (whole, fraction) = text.trim_start_matches('-').split_once('.').unwrap_or((text.trim_start_matches('-'), ""));
        (whole.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned())
    };
    if plain(&number) == plain(&float.to_string()) {
        return None;
    }
    Some(cast(CastKind::Cast, number.clone(), decimal_of(&number, 0)?))
}

/// A number with a point that is to be stored keeps its digits: the planner makes a float of it, which has 16.
fn keep_digits(value: &mut Expr) {
    if let Some(number) = number_of(value).filter(|number| number.contains('.'))
        && let Some(data_type) = decimal_of(&number, 0)
    {
        *value = cast(CastKind::Cast, number, data_type);
    }
}

/// DEFAULT as a value is NULL: columns have no other default.
fn default_is_null(value: &mut Expr) {
    if matches!(value, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default")) {
        *value = null();
    }
}

/// Puts a placeholder with a name into parentheses: the planner takes one that stands by itself in VALUES for one by its
/// place.
fn within_parentheses(value: &mut Expr) {
    let has_name = |name: &str| name.get(1..).is_none_or(|name| name.parse::<usize>().is_err());
    if matches!(value, Expr::Value(it) if matches!(&it.value, Value::Placeholder(name) if has_name(name))) {
        *value = Expr::Nested(Box::new(value.clone()));
    }
}

/// What UPDATE sets a column to, and the column as names are read everywhere else: the planner looks for it as it is
/// written.
fn assigned(assignment: &mut Assignment) {
    keep_digits(&mut assignment.value);
    default_is_null(&mut assignment.value);
    if let AssignmentTarget::ColumnName(name) = &mut assignment.target
        && let Some(ObjectNamePart::Identifier(column)) = name.0.last_mut()
    {
        *column = Ident::with_quote('"', normal(column));
    }
}

/// The bytes that a text stands for. What stands for none becomes a call that the engine refuses.
fn bytes(text: &str) -> Expr {
    match bytes_of_text(text) {
        Some(bytes) => Expr::Value(Value::HexStringLiteral(bytes.iter().map(|byte| format!("{byte:02x}")).collect()).into()),
        None => call("decode", [text, "hex"].map(|text| Expr::Value(Value::SingleQuotedString(text.to_owned()).into()))),
    }
}

/// Names results that are casts of columns as their columns, as PostgreSQL does, where no other result has that name. The planner
/// makes the name of the table a part of it, and nothing outside of a subquery finds it.
fn name_casts(query: &mut Query) {
    let tables = query.with.iter_mut().flat_map(|with| &mut with.cte_tables);
    tables.for_each(|table| name_casts(&mut table.query));
    name_casts_of(&mut query.body);
}

/// The subqueries of expressions keep theirs: what they are compared with may have that name.
fn name_casts_of(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            select.from.iter_mut().for_each(name_casts_from);
            name_items(select);
        }
        SetExpr::SetOperation { left, right, .. } => {
            name_casts_of(left);
            name_casts_of(right);
        }
        SetExpr::Query(query) => name_casts(query),
        _ => {}
    }
}

fn name_casts_from(from: &mut TableWithJoins) {
    for table in std::iter::once(&mut from.relation).chain(from.joins.iter_mut().map(|join| &mut join.relation)) {
        match table {
            TableFactor::Derived { subquery, lateral: false, .. } => name_casts(subquery),
            TableFactor::NestedJoin { table_with_joins, .. } => name_casts_from(table_with_joins),
            _ => {}
        }
    }
}

fn name_items(select: &mut Select) {
    let named: Vec<Option<Ident>> = select.projection.iter().map(name_of).collect();
    let is_clear = named.iter().all(Option::is_some);
    for place in 0..select.projection.len() {
        let (SelectItem::UnnamedExpr(expr @ Expr::Cast { .. }), Some(alias)) = (&select.projection[place], &named[place])
        else {
            continue;
        };
        let has_name =
            |other: &&Option<Ident>| other.as_ref().is_some_and(|other| other.value.eq_ignore_ascii_case(&alias.value));
        if is_clear && !alias.value.is_empty() && named.iter().filter(has_name).count() == 1 {
            select.projection[place] = SelectItem::ExprWithAlias { expr: expr.clone(), alias: alias.clone() };
        }
    }
}

/// The name of a result, which is empty where it is none that a column has; none: it stands for several columns.
fn name_of(item: &SelectItem) -> Option<Ident> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        SelectItem::UnnamedExpr(expr) => Some(column_of(expr).unwrap_or_else(|| Ident::new(""))),
        _ => None,
    }
}

fn column_of(expr: &Expr) -> Option<Ident> {
    match expr {
        Expr::Identifier(name) => Some(name.clone()),
        Expr::CompoundIdentifier(parts) => parts.last().cloned(),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => column_of(expr),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn literals_keep_what_they_say() {
        for (sql, expected) in [
            ("SELECT '\\x0aFF'::bytea AS b", "SELECT X'0aff' AS b"),
            ("SELECT '\\x0'::bytea AS b", "SELECT \"decode\"('\\x0', 'hex') AS b"),
            ("SELECT 'a\\\\\\001'::bytea AS b", "SELECT X'615c01' AS b"),
            ("SELECT -1.005::numeric(10,2) AS n", "SELECT -'1.005'::NUMERIC(10,2) AS n"),
            ("SELECT CAST(-1.005 AS numeric) AS n", "SELECT CAST('-1.005' AS DECIMAL(38,10)) AS n"),
            ("SELECT 0.123456789012::numeric AS n", "SELECT '0.123456789012'::DECIMAL(12,12) AS n"),
            ("SELECT 1.5::double AS n, 1.5 AS m", "SELECT 1.5::DOUBLE AS n, 1.5 AS m"),
            ("SELECT INTERVAL '1 day -02:03:04.5' AS i", "SELECT INTERVAL '1 day -02 hours -03 minutes -04.5 seconds' AS i"),
            (
                "SELECT INTERVAL '1 day' AS i, '2:30'::interval AS j",
                "SELECT INTERVAL '1 day' AS i, '2 hours 30 minutes'::INTERVAL AS j",
            ),
            ("SELECT CAST('90' AS interval) AS i", "SELECT CAST('90 seconds' AS INTERVAL) AS i"),
            ("SELECT a::int, b.c::text, d FROM t", "SELECT a::INT AS a, b.c::TEXT AS c, d FROM t"),
            ("SELECT a, a::int FROM t", "SELECT a, a::INT FROM t"),
            ("SELECT *, a::int FROM t", "SELECT *, a::INT FROM t"),
            (
                "INSERT INTO t VALUES (1.005, -0.1, 2)",
                "INSERT INTO t VALUES (CAST('1.005' AS DECIMAL(4,3)), CAST('-0.1' AS DECIMAL(1,1)), 2)",
            ),
            (
                "UPDATE t SET a = 12345678901234567.89, B = DEFAULT, t.\"C\" = \"default\"",
                "UPDATE t SET \"a\" = CAST('12345678901234567.89' AS DECIMAL(19,2)), \"b\" = NULL, t.\"C\" = \"default\"",
            ),
            (
                "INSERT INTO t VALUES (20000000000000000001, -18446744073709551616, 18446744073709551615)",
                "INSERT INTO t VALUES (CAST('20000000000000000001' AS DECIMAL(20,0)), -CAST('18446744073709551616' AS DECIMAL(20,0)), \
                 18446744073709551615)",
            ),
            (
                "SELECT a FROM t WHERE m = 1234567890123.456789 AND -0.5 < m AND f = 0.30000000000000004 AND m IN (1.5, 12345678901234567.89)",
                "SELECT a FROM t WHERE m = CAST('1234567890123.456789' AS DECIMAL(19,6)) AND -0.5 < m AND f = 0.30000000000000004 \
                 AND m IN (1.5, CAST('12345678901234567.89' AS DECIMAL(19,2)))",
            ),
            (
                "SELECT a FROM t WHERE a = 99999999999999999999",
                "SELECT a FROM t WHERE a = CAST('99999999999999999999' AS DECIMAL(20,0))",
            ),
            ("INSERT INTO t VALUES ($1, $k, :n + 1, :n)", "INSERT INTO t VALUES ($1, ($k), :n + 1, (:n))"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            expand(&mut statement);
            assert_eq!(statement.to_string(), expected, "{sql}");
        }
    }
}
