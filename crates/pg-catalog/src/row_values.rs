//! Rows of values that are compared: conditions on their values, so that their parameters have types and bounds rule out slices.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator};

use crate::syntax::parts;

/// Values of a row that is compared by its values: each of them is an operator within the one before.
const VALUES_MAX: usize = 64;
/// Members of a list of rows that are compared one by one.
const MEMBERS_MAX: usize = 1_024;

/// `(a, b) > (c, d)` as `a > c OR (a = c AND b > d)`, which is NULL where PostgreSQL says so. None: it is no comparison of two rows.
pub(crate) fn compared(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let (left, right) = (row(left)?, row(right)?);
    if left.len() != right.len() || !(1..=VALUES_MAX).contains(&left.len()) {
        return None;
    }
    let pairs: Vec<(&Expr, &Expr)> = left.into_iter().zip(right).collect();
    match op {
        BinaryOperator::Eq => each(&pairs, BinaryOperator::Eq, BinaryOperator::And),
        BinaryOperator::NotEq => each(&pairs, BinaryOperator::NotEq, BinaryOperator::Or),
        BinaryOperator::Lt | BinaryOperator::LtEq => in_order(&pairs, op, &BinaryOperator::Lt),
        BinaryOperator::Gt | BinaryOperator::GtEq => in_order(&pairs, op, &BinaryOperator::Gt),
        _ => None,
    }
}

/// `(a, b) IN ((1, 2), (3, 4))`, by comparisons with each of the rows. None: it is something else.
pub(crate) fn among(value: &Expr, list: &[Expr], negated: bool) -> Option<Expr> {
    if row(value)?.len() < 2 || list.len() > MEMBERS_MAX {
        return None;
    }
    let equal = list.iter().map(|member| compared(value, &BinaryOperator::Eq, member)).collect::<Option<Vec<_>>>()?;
    let any = united(equal)?;
    Some(if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(any) } } else { any })
}

/// One of the conditions, as flat as it can be.
fn united(mut conditions: Vec<Expr>) -> Option<Expr> {
    match conditions.len() {
        0 | 1 => conditions.pop(),
        count => {
            let right = united(conditions.split_off(count / 2))?;
            Some(joined(united(conditions)?, BinaryOperator::Or, right))
        }
    }
}

/// Each pair compared by itself.
fn each(pairs: &[(&Expr, &Expr)], op: BinaryOperator, between: BinaryOperator) -> Option<Expr> {
    let compared = pairs.iter().map(|(one, other)| pair(one, op.clone(), other));
    compared.reduce(|one, next| joined(one, between.clone(), next))
}

/// By the first pair that differs, with `before`; the last pair by `last`.
fn in_order(pairs: &[(&Expr, &Expr)], last: &BinaryOperator, before: &BinaryOperator) -> Option<Expr> {
    let ((one, other), first) = pairs.split_last()?;
    let start = pair(one, last.clone(), other);
    Some(first.iter().rev().fold(start, |rest, (one, other)| {
        let is_equal = joined(pair(one, BinaryOperator::Eq, other), BinaryOperator::And, rest);
        joined(pair(one, before.clone(), other), BinaryOperator::Or, is_equal)
    }))
}

fn pair(one: &Expr, op: BinaryOperator, other: &Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(operand(one)), op, right: Box::new(operand(other)) }
}

/// A value beside an operator, in parentheses unless it is one word.
fn operand(value: &Expr) -> Expr {
    let is_plain = matches!(
        value,
        Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Value(_)
            | Expr::Function(_)
            | Expr::Nested(_)
            | Expr::Cast { .. }
    );
    if is_plain { value.clone() } else { Expr::Nested(Box::new(value.clone())) }
}

fn joined(one: Expr, op: BinaryOperator, other: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp { left: Box::new(one), op, right: Box::new(other) }))
}

/// The values of `(a, b)` and of `ROW(a, b)`.
fn row(expr: &Expr) -> Option<Vec<&Expr>> {
    match expr {
        Expr::Tuple(values) => Some(values.iter().collect()),
        Expr::Nested(inner) if !matches!(**inner, Expr::Nested(_)) => row(inner),
        Expr::Function(function) if function.over.is_none() && parts(&function.name) == ["row"] => {
            let FunctionArguments::List(list) = &function.args else { return None };
            let values = list.args.iter().map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
                _ => None,
            });
            values.collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::rewritten;

    #[test]
    fn rows_are_compared_by_their_values() {
        for (sql, expected) in [
            ("SELECT 1 FROM t WHERE (k, s) > ($1, 'a')", "SELECT 1 FROM t WHERE (k > $1 OR (k = $1 AND s > 'a'))"),
            (
                "SELECT 1 FROM t WHERE (a, b, c) <= (1, 2, x + 1)",
                "SELECT 1 FROM t WHERE (a < 1 OR (a = 1 AND (b < 2 OR (b = 2 AND c <= (x + 1)))))",
            ),
            ("SELECT 1 FROM t WHERE ROW(a, t.b) = (1, f(2))", "SELECT 1 FROM t WHERE (a = 1 AND t.b = f(2))"),
            ("SELECT 1 FROM t WHERE NOT (a, b) <> ROW($1, $2)", "SELECT 1 FROM t WHERE NOT (a <> $1 OR b <> $2)"),
            ("SELECT 1 FROM t WHERE ROW(a) < ROW(2)", "SELECT 1 FROM t WHERE a < 2"),
            (
                "SELECT 1 FROM t WHERE (a, b) IN (($1, $2), (3, 4), (5, 6))",
                "SELECT 1 FROM t WHERE ((a = $1 AND b = $2) OR ((a = 3 AND b = 4) OR (a = 5 AND b = 6)))",
            ),
            ("SELECT 1 FROM t WHERE (a, b) NOT IN ((1, 2))", "SELECT 1 FROM t WHERE NOT (a = 1 AND b = 2)"),
            // Rows that do not fit stay as they are, for the engine to refuse.
            ("SELECT 1 FROM t WHERE (a, b) = (1, 2, 3)", "SELECT 1 FROM t WHERE (a, b) = (1, 2, 3)"),
            ("SELECT 1 FROM t WHERE (a, b) IN (SELECT 1, 2)", "SELECT 1 FROM t WHERE (a, b) IN (SELECT 1, 2)"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn rows_that_are_too_long_stay_rows() {
        let row = |count: usize| format!("({})", vec!["1"; count].join(", "));
        let sql = |count| format!("SELECT 1 WHERE {} < {}", row(count), row(count));
        assert!(rewritten(&sql(64)).contains(" OR "));
        assert_eq!(rewritten(&sql(65)), sql(65));
    }
}
