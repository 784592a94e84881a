//! `INTERVAL 3 DAY`, whose number the planner of windows takes only as a text, and `INTERVAL (n) DAY`, which is a product.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Interval, Statement as Sql, UnaryOperator, Value,
};
use pithead_syntax::{expressions_mut, walk_mut};

use super::binary;
use super::macros::Naming;

/// Writes numbers of such intervals as texts, and those with other expressions as products.
pub(super) fn expand(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Naming(&|expr| product(expr).is_some()));
    let _ = expressions_mut(sql, |expr| {
        if let Some(product) = product(expr) {
            *expr = product;
        } else if let Expr::Interval(Interval { value, leading_field: Some(_), .. }) = expr
            && let Some(text) = literal(value)
        {
            **value = Expr::Value(Value::SingleQuotedString(text).into());
        }
        ControlFlow::<()>::Continue(())
    });
}

/// So many times one unit; none: it is no interval, or one with a literal.
fn product(expr: &Expr) -> Option<Expr> {
    let Expr::Interval(interval) = expr else { return None };
    let Interval { value, leading_field: Some(_), leading_precision: None, last_field: None, .. } = interval else {
        return None;
    };
    if interval.fractional_seconds_precision.is_some() || literal(value).is_some() {
        return None;
    }
    let count = match unnested(value) {
        // Of a parameter, or of NULL, no type is known.
        value @ Expr::Value(_) => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(value.clone()),
            data_type: DataType::Double(ExactNumberInfo::None),
            array: false,
            format: None,
        },
        value => Expr::Nested(Box::new(value.clone())),
    };
    let one = Box::new(Expr::Value(Value::SingleQuotedString("1".to_owned()).into()));
    let unit = Expr::Interval(Interval { value: one, ..interval.clone() });
    Some(Expr::Nested(Box::new(binary(count, BinaryOperator::Multiply, unit))))
}

/// The text of a number or of a text.
fn literal(expr: &Expr) -> Option<String> {
    match unnested(expr) {
        Expr::Value(value) => match &value.value {
            Value::Number(number, false) => Some(number.clone()),
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            literal(expr).filter(|text| text.starts_with(|first: char| first.is_ascii_digit())).map(|text| format!("-{text}"))
        }
        _ => None,
    }
}

fn unnested(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => unnested(inner),
        expr => expr,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn intervals_are_texts_or_products() {
        for (sql, expected) in [
            ("SELECT INTERVAL 3 DAY", "SELECT INTERVAL '3' DAY"),
            ("SELECT INTERVAL -2 HOUR", "SELECT INTERVAL '-2' HOUR"),
            ("SELECT INTERVAL '3 days'", "SELECT INTERVAL '3 days'"),
            ("SELECT a + INTERVAL n DAY AS b FROM t", "SELECT a + ((n) * INTERVAL '1' DAY) AS b FROM t"),
            (
                "SELECT INTERVAL (n + 1) MONTH FROM t",
                "SELECT ((n + 1) * INTERVAL '1' MONTH) AS \"INTERVAL (n + 1) MONTH\" FROM t",
            ),
            ("SELECT 1 FROM t WHERE a < INTERVAL $1 DAY", "SELECT 1 FROM t WHERE a < (CAST($1 AS DOUBLE) * INTERVAL '1' DAY)"),
            (
                "SELECT sum(a) OVER (ORDER BY b RANGE BETWEEN INTERVAL 1 MONTH PRECEDING AND CURRENT ROW) AS s FROM t",
                "SELECT sum(a) OVER (ORDER BY b RANGE BETWEEN INTERVAL '1' MONTH PRECEDING AND CURRENT ROW) AS s FROM t",
            ),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            expand(&mut statement);
            assert_eq!(statement.to_string(), expected, "{sql}");
        }
    }
}
