//! What DuckDB and PostgreSQL spell otherwise than the planner: names of types, `//`, SEMI and ANTI JOIN, LIKE with ESCAPE, ORDER BY
//! ALL, and collations by bytes.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, ExactNumberInfo, Expr, Join, JoinOperator, ObjectName, ObjectNamePart, OrderByExpr,
    OrderByKind, Query, Select, SelectItem, SetExpr, Statement as Sql, Subscript, TableFactor, TableWithJoins, TimezoneInfo,
    UnaryOperator, Value, ValueWithSpan, VisitorMut, WildcardAdditionalOptions,
};
use pithead_syntax::{any_expression, walk_mut};

use super::call;

/// Digits of the engine's largest decimals, by which HUGEINT is stored.
const HUGEINT_DIGITS: u64 = 38;
/// The character that takes the meaning of the next one in the planner's patterns.
const ESCAPE: char = '\\';

/// Collations that compare bytes.
const BY_BYTES: [&str; 4] = ["binary", "c", "posix", "ucs_basic"];

/// Puts the planner's spelling in the place of each.
pub(super) fn replace(sql: &mut Sql) -> Result<(), String> {
    if let Sql::CreateTable(table) = sql {
        table.columns.iter_mut().for_each(|column| respell(&mut column.data_type));
    }
    match walk_mut(sql, &mut Spellings) {
        ControlFlow::Break(refused) => Err(refused),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Spellings;

impl VisitorMut for Spellings {
    type Break = String;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<String> {
        match expr {
            Expr::Cast { data_type, .. } => respell(data_type),
            Expr::TypedString(typed) => respell(&mut typed.data_type),
            Expr::BinaryOp { op: op @ BinaryOperator::DuckIntegerDivide, .. } => *op = BinaryOperator::Divide,
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => escape(pattern, escape_char),
            Expr::CompoundFieldAccess { access_chain, .. } => access_chain.iter_mut().for_each(both_bounds),
            // The planner looks for columns of a list that is written out among those of its own query alone.
            Expr::Array(list) if list.elem.iter().any(reads_more) => *expr = call("make_array", std::mem::take(&mut list.elem)),
            Expr::Collate { expr: text, collation } if is_by_bytes(collation) => *expr = text.as_ref().clone(),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<String> {
        select.from.iter_mut().for_each(joins);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<String> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            joins(table_with_joins);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        let Some(OrderByKind::Expressions(order)) = query.order_by.as_mut().map(|order| &mut order.kind) else {
            return ControlFlow::Continue(());
        };
        let [OrderByExpr { expr: Expr::Identifier(name), .. }] = &order[..] else { return ControlFlow::Continue(()) };
        if name.quote_style.is_some() || !name.value.eq_ignore_ascii_case("all") {
            return ControlFlow::Continue(());
        }
        let Some(count) = items_of(&query.body) else {
            return ControlFlow::Break(
                "ORDER BY ALL is supported where SELECT names its columns; name them in place of *".to_owned(),
            );
        };
        let by = order[0].clone();
        let place = |place: usize| Expr::Value(Value::Number(place.to_string(), false).into());
        *order = (1..=count).map(|number| OrderByExpr { expr: place(number), ..by.clone() }).collect();
        ControlFlow::Continue(())
    }
}

/// Whether an expression reads columns, or has a subquery.
fn reads_more(expr: &Expr) -> bool {
    any_expression(expr, |part| {
        matches!(
            part,
            Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::Subquery(_)
                | Expr::Exists { .. }
                | Expr::InSubquery { .. }
        )
    })
}

/// A range of places that begins at the first one, or ends with the last, said so.
fn both_bounds(access: &mut AccessExpr) {
    let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) = access else { return };
    let place = |place: &str| Expr::Value(Value::Number(place.to_owned(), false).into());
    lower_bound.get_or_insert_with(|| place("1"));
    upper_bound.get_or_insert_with(|| Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(place("1")) });
}

/// Whether a collation is the engine's, which compares bytes.
fn is_by_bytes(collation: &ObjectName) -> bool {
    let name = collation.0.last().and_then(ObjectNamePart::as_ident).map(|name| name.value.to_lowercase());
    name.is_some_and(|name| BY_BYTES.contains(&&*name))
}

/// How many columns a query has, if it names them.
fn items_of(body: &SetExpr) -> Option<usize> {
    match body {
        SetExpr::Select(select) => {
            let count = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. } => Some(1),
                SelectItem::Wildcard(options) if *options == WildcardAdditionalOptions::default() => columns_of(&select.from),
                _ => None,
            };
            select.projection.iter().map(count).sum()
        }
        SetExpr::Query(query) => items_of(&query.body),
        SetExpr::SetOperation { left, .. } => items_of(left),
        SetExpr::Values(values) => values.rows.first().map(|row| row.len()),
        _ => None,
    }
}

/// How many columns a FROM has, if it is of one query that names them.
fn columns_of(from: &[TableWithJoins]) -> Option<usize> {
    match from {
        [TableWithJoins { relation: TableFactor::Derived { subquery, .. }, joins }] if joins.is_empty() => {
            items_of(&subquery.body)
        }
        _ => None,
    }
}

fn joins(table: &mut TableWithJoins) {
    for Join { join_operator: operator, .. } in &mut table.joins {
        match operator {
            JoinOperator::Semi(constraint) => *operator = JoinOperator::LeftSemi(constraint.clone()),
            JoinOperator::Anti(constraint) => *operator = JoinOperator::LeftAnti(constraint.clone()),
            _ => {}
        }
    }
}

fn respell(data_type: &mut DataType) {
    *data_type = match data_type {
        DataType::CharacterVarying(length) | DataType::CharVarying(length) => DataType::Varchar(*length),
        DataType::UTinyInt => DataType::TinyIntUnsigned(None),
        DataType::USmallInt => DataType::SmallIntUnsigned(None),
        DataType::UBigInt => DataType::BigIntUnsigned(None),
        DataType::HugeInt => DataType::Decimal(ExactNumberInfo::PrecisionAndScale(HUGEINT_DIGITS, 0)),
        DataType::Blob(_) => DataType::Bytea,
        DataType::Datetime(_) => DataType::Timestamp(None, TimezoneInfo::None),
        DataType::Custom(name, arguments) if arguments.is_empty() => match alias(name) {
            Some(known) => known,
            None => return,
        },
        _ => return,
    };
}

/// The type of a name that the parser takes for one of somebody's own.
fn alias(name: &ObjectName) -> Option<DataType> {
    let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
    let moment = |digits| DataType::Timestamp(Some(digits), TimezoneInfo::None);
    Some(match name.value.to_lowercase().as_str() {
        "int1" => DataType::TinyInt(None),
        "short" => DataType::SmallInt(None),
        "long" => DataType::BigInt(None),
        "uinteger" => DataType::IntegerUnsigned(None),
        "bpchar" => DataType::Varchar(None),
        "timestamp_s" => moment(0),
        "timestamp_ms" => moment(3),
        "timestamp_us" => moment(6),
        "timestamp_ns" => moment(9),
        _ => return None,
    })
}

/// Writes a pattern by the planner's character of escape, if both are written out.
fn escape(pattern: &mut Expr, escape_char: &mut Option<ValueWithSpan>) {
    let Some(Value::SingleQuotedString(by)) = escape_char.as_ref().map(|by| &by.value) else { return };
    let Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = pattern else { return };
    let mut characters = by.chars();
    let (by, None) = (characters.next(), characters.next()) else { return };
    if let Some(escaped) = by_backslash(text, by) {
        *text = escaped;
        *escape_char = None;
    }
}

/// A pattern whose characters of escape are backslashes; none: it ends with one.
fn by_backslash(pattern: &str, by: Option<char>) -> Option<String> {
    let mut escaped = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if Some(character) == by {
            let next = characters.next()?;
            if ['%', '_', ESCAPE].contains(&next) {
                escaped.push(ESCAPE);
            }
            escaped.push(next);
        } else if character == ESCAPE {
            escaped.extend([ESCAPE, ESCAPE]);
        } else {
            escaped.push(character);
        }
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn spellings_become_those_of_the_planner() {
        let becomes = |sql: &str| {
            let mut sql = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            replace(&mut sql).map(|()| sql.to_string())
        };
        for (sql, expected) in [
            ("SELECT a FROM t SEMI JOIN u ON a = b", "SELECT a FROM t LEFT SEMI JOIN u ON a = b"),
            ("SELECT a FROM (t ANTI JOIN u ON a = b)", "SELECT a FROM (t LEFT ANTI JOIN u ON a = b)"),
            ("SELECT CAST(a AS CHARACTER VARYING)", "SELECT CAST(a AS VARCHAR)"),
            ("SELECT a LIKE '10!%!!\\%' ESCAPE '!'", "SELECT a LIKE '10\\%!\\\\%'"),
            ("SELECT a LIKE 'b\\' ESCAPE ''", "SELECT a LIKE 'b\\\\'"),
            ("SELECT a LIKE 'b!' ESCAPE '!'", "SELECT a LIKE 'b!' ESCAPE '!'"),
            ("SELECT a LIKE b ESCAPE '!'", "SELECT a LIKE b ESCAPE '!'"),
            ("SELECT a, b + 1 FROM t ORDER BY ALL DESC", "SELECT a, b + 1 FROM t ORDER BY 1 DESC, 2 DESC"),
            (
                "SELECT [a, 1 + b], [1, 2], [[1], [a]]",
                "SELECT \"make_array\"(a, 1 + b), [1, 2], \"make_array\"([1], \"make_array\"(a))",
            ),
            ("SELECT a[2:], b[:3], c[1:2]", "SELECT a[2:-1], b[1:3], c[1:2]"),
            (
                "SELECT * FROM (SELECT a, b FROM t) UNION SELECT c, d FROM u ORDER BY ALL",
                "SELECT * FROM (SELECT a, b FROM t) UNION SELECT c, d FROM u ORDER BY 1, 2",
            ),
            ("SELECT a COLLATE \"C\" FROM t", "SELECT a FROM t"),
            ("SELECT a COLLATE \"de_DE\" FROM t", "SELECT a COLLATE \"de_DE\" FROM t"),
            ("SELECT a FROM t ORDER BY \"all\"", "SELECT a FROM t ORDER BY \"all\""),
            ("SELECT a FROM t ORDER BY all, a", "SELECT a FROM t ORDER BY all, a"),
        ] {
            assert_eq!(becomes(sql).unwrap(), expected, "{sql}");
        }
        assert!(becomes("SELECT * FROM t ORDER BY ALL").unwrap_err().contains("name them"));
    }
}
