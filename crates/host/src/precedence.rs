//! What binds how strongly around IS DISTINCT FROM.
//!
//! The parser takes everything after `x IS [NOT] DISTINCT FROM` for its other side: `x IS NOT DISTINCT FROM y AND z` becomes
//! `x IS NOT DISTINCT FROM (y AND z)`, which is an error, or where `y` is a truth value another answer. [`mend`] puts such
//! expressions together again as SQL has it: OR binds least, then AND, then NOT, then IS.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};
use pithead_syntax::expressions_mut;

use crate::dialect::binary;

/// Mends all expressions of a statement.
pub(crate) fn mend(statement: &mut Statement) {
    let Statement::Statement(statement) = statement else { return };
    // Inner expressions come first.
    let _ = expressions_mut(statement, |expr| {
        if binds_least(expr) || is_comparison(expr) {
            let taken = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *expr = Parts::of(taken).expression();
        }
        ControlFlow::<()>::Continue(())
    });
}

fn binds_least(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryOp { op, .. } => matches!(op, BinaryOperator::And | BinaryOperator::Or),
        Expr::UnaryOp { op, .. } => matches!(op, UnaryOperator::Not),
        _ => false,
    }
}

fn is_comparison(expr: &Expr) -> bool {
    matches!(expr, Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..))
}

/// An expression as it is written, from left to right.
#[derive(Default)]
struct Parts(Vec<ChainItem>);

#[expect(clippy::large_enum_variant, reason = "there are as many operands as operators")]
enum ChainItem {
    Operand(Expr),
    Not,
    And,
    Or,
}

impl Parts {
    fn of(expr: Expr) -> Parts {
        let mut parts = Parts::default();
        parts.add(expr);
        // The last comes first, to be taken.
        parts.0.reverse();
        parts
    }

    fn add(&mut self, expr: Expr) {
        match expr {
            Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
                self.add(*left);
                self.0.push(if op == BinaryOperator::And { ChainItem::And } else { ChainItem::Or });
                self.add(*right);
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
                self.0.push(ChainItem::Not);
                self.add(*expr);
            }
            Expr::IsDistinctFrom(left, right) => {
                self.add_comparison(*right, |right| Expr::IsDistinctFrom(left, Box::new(right)))
            }
            Expr::IsNotDistinctFrom(left, right) => {
                self.add_comparison(*right, |right| Expr::IsNotDistinctFrom(left, Box::new(right)));
            }
            operand => self.0.push(ChainItem::Operand(operand)),
        }
    }

    /// A comparison with the first operand of what was taken for its other side, and then the rest of that.
    fn add_comparison(&mut self, taken: Expr, compare: impl FnOnce(Expr) -> Expr) {
        let mut rest = Parts::of(taken);
        let first = rest.operand();
        self.0.push(ChainItem::Operand(compare(first)));
        rest.0.reverse();
        self.0.append(&mut rest.0);
    }

    /// The next operand, with the NOTs before it.
    fn operand(&mut self) -> Expr {
        match self.0.pop() {
            Some(ChainItem::Not) => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(self.operand()) },
            Some(ChainItem::Operand(operand)) => operand,
            // Operators stand between operands: they came from a tree.
            Some(ChainItem::And | ChainItem::Or) | None => Expr::Value(Value::Null.into()),
        }
    }

    fn conjunction(&mut self) -> Expr {
        let mut left = self.operand();
        while matches!(self.0.last(), Some(ChainItem::And)) {
            self.0.pop();
            left = binary(left, BinaryOperator::And, self.operand());
        }
        left
    }

    fn expression(mut self) -> Expr {
        let mut left = self.conjunction();
        while self.0.pop().is_some() {
            left = binary(left, BinaryOperator::Or, self.conjunction());
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    fn parsed(sql: &str) -> Statement {
        DFParserBuilder::new(sql).build().unwrap().parse_statements().unwrap().pop_front().unwrap()
    }

    #[test]
    fn comparisons_end_where_they_should() {
        for (written, meant) in [
            ("a IS NOT DISTINCT FROM b AND c", "(a IS NOT DISTINCT FROM b) AND c"),
            ("a AND b IS DISTINCT FROM c AND d OR e", "a AND (b IS DISTINCT FROM c) AND d OR e"),
            ("NOT a IS DISTINCT FROM b OR NOT c", "NOT (a IS DISTINCT FROM b) OR NOT c"),
            ("a IS DISTINCT FROM b AND c IS DISTINCT FROM d OR e", "(a IS DISTINCT FROM b) AND (c IS DISTINCT FROM d) OR e"),
            ("a IS NOT DISTINCT FROM (b AND c)", "a IS NOT DISTINCT FROM (b AND c)"),
            ("a IS NOT DISTINCT FROM b = c AND d", "(a IS NOT DISTINCT FROM b = c) AND d"),
            ("a OR b AND NOT c OR d", "a OR b AND NOT c OR d"),
            ("(a OR b IS DISTINCT FROM c AND d) AND e", "(a OR (b IS DISTINCT FROM c) AND d) AND e"),
        ] {
            let mut found = parsed(&format!("SELECT * FROM t WHERE {written}"));
            mend(&mut found);
            let mut expected = parsed(&format!("SELECT * FROM t WHERE {meant}"));
            flatten(&mut expected);
            flatten(&mut found);
            assert_eq!(found, expected, "{written}");
        }
    }

    /// Takes parentheses away around what is no chain of AND and OR, so that only the structure is compared.
    fn flatten(statement: &mut Statement) {
        let Statement::Statement(statement) = statement else { return };
        let _ = expressions_mut(statement, |expr| {
            if let Expr::Nested(inner) = expr
                && is_comparison(inner)
            {
                *expr = inner.as_ref().clone();
            }
            ControlFlow::<()>::Continue(())
        });
    }
}
