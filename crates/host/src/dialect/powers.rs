//! `a ^ b`, which is a power in DuckDB and PostgreSQL, and binds more strongly than all other operators; and `~a`, which has each bit
//! of `a` the other way.
//!
//! The parser takes it for the exclusive OR of bits, which binds less strongly than `+`: `2 * 3 ^ 2 + 1` becomes `(2 * 3) ^ (2 + 1)`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement as Sql, UnaryOperator};
use pithead_syntax::expressions_mut;

use super::macros::parsed;
use super::{binary, call, null};

/// Puts expressions with powers together again as they are written.
pub(super) fn expand(sql: &mut Sql) {
    // Inner expressions come first.
    let _ = expressions_mut(sql, |expr| {
        if let Expr::BinaryOp { left, op: BinaryOperator::BitwiseXor, right } = expr {
            let (left, right) = (std::mem::replace(left.as_mut(), null()), std::mem::replace(right.as_mut(), null()));
            *expr = together(left, right);
        }
        if let Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: of } = expr {
            let of = std::mem::replace(of.as_mut(), null());
            *expr = Expr::Nested(Box::new(binary(of, BinaryOperator::BitwiseXor, parsed("-1"))));
        }
        ControlFlow::<()>::Continue(())
    });
}

/// How strongly an operator binds that the parser may have put within a power; none: it is another one.
fn strength(op: &BinaryOperator) -> Option<u8> {
    match op {
        BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Modulo | BinaryOperator::DuckIntegerDivide => {
            Some(2)
        }
        BinaryOperator::Plus | BinaryOperator::Minus => Some(1),
        BinaryOperator::BitwiseAnd => Some(0),
        _ => None,
    }
}

/// Operands and the operators between them, as they are written.
#[derive(Default)]
struct Chain {
    operands: Vec<Expr>,
    operators: Vec<BinaryOperator>,
}

impl Chain {
    fn add(&mut self, expr: Expr) {
        match expr {
            Expr::BinaryOp { left, op, right } if strength(&op).is_some() => {
                self.add(*left);
                self.operators.push(op);
                self.add(*right);
            }
            operand => self.operands.push(operand),
        }
    }

    /// The expression of all operands, from the left.
    fn expression(self) -> Expr {
        let mut operands = self.operands.into_iter();
        let mut open: Vec<(Expr, BinaryOperator)> = Vec::new();
        let mut right = operands.next().unwrap_or_else(null);
        for (op, operand) in self.operators.into_iter().zip(operands) {
            while let Some((left, before)) = open.pop_if(|(_, before)| strength(before) >= strength(&op)) {
                right = binary(left, before, right);
            }
            open.push((right, op));
            right = operand;
        }
        while let Some((left, op)) = open.pop() {
            right = binary(left, op, right);
        }
        right
    }
}

/// The power of two parsed sides. It binds the last operand of the left side to the first operand of the right side.
fn together(left: Expr, right: Expr) -> Expr {
    let (mut chain, mut rest) = (Chain::default(), Chain::default());
    chain.add(left);
    rest.add(right);
    let mut after = rest.operands.into_iter();
    if let (Some(base), Some(exponent)) = (chain.operands.pop(), after.next()) {
        chain.operands.push(call("power", [base, exponent]));
    }
    chain.operands.extend(after);
    chain.operators.extend(rest.operators);
    chain.expression()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn bits_the_other_way_are_no_powers() {
        let mut statement = Parser::parse_sql(&GenericDialect {}, "SELECT ~a, ~(2 ^ 3) + 1").unwrap().remove(0);
        expand(&mut statement);
        assert_eq!(statement.to_string(), "SELECT (a ^ -1), ((\"power\"(2, 3)) ^ -1) + 1");
    }

    #[test]
    fn powers_bind_most() {
        for (written, meant) in [
            ("2 ^ 3", "power(2, 3)"),
            ("2 * 3 ^ 2 + 1", "2 * power(3, 2) + 1"),
            ("1 + 2 ^ 3 * 4 - 5", "1 + power(2, 3) * 4 - 5"),
            ("2 ^ 3 ^ 2", "power(power(2, 3), 2)"),
            ("2 * 3 ^ 2 ^ 2", "2 * power(power(3, 2), 2)"),
            ("(1 + 2) ^ (3 - 1)", "power((1 + 2), (3 - 1))"),
            ("a ^ 2 < b ^ 2 AND c", "power(a, 2) < power(b, 2) AND c"),
            ("a & b ^ 2", "a & power(b, 2)"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, &format!("SELECT {written}")).unwrap().remove(0);
            expand(&mut statement);
            let meant = Parser::parse_sql(&GenericDialect {}, &format!("SELECT {meant}")).unwrap().remove(0);
            assert_eq!(statement.to_string().replace('"', ""), meant.to_string(), "{written}");
            let of = |sql: &Sql| format!("{sql:?}").matches("BinaryOp").count();
            assert_eq!(of(&statement), of(&meant), "{written}");
        }
    }
}
