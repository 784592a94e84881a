//! Long chains of AND and OR, such as programs write as filters.
//!
//! The parser nests a chain as deep as it is long, and the engine names each part of an expression anew at each level: planning five
//! hundred alternatives would take seconds. Put together in halves, the same conditions nest a few levels deep. Their order stays.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement as Sql, VisitorMut};
use pithead_syntax::walk_mut;

use super::{binary, null};

/// Shorter chains stay as they are written.
const CHAIN_MIN: usize = 16;

/// Puts each long chain together in halves.
pub(super) fn balance(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Chains);
}

struct Chains;

impl VisitorMut for Chains {
    type Break = ();

    /// The outermost operator of a chain comes first, and what is made of it has no long chain of its operator any more.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        for op in [BinaryOperator::And, BinaryOperator::Or] {
            if depth(expr, &op) > CHAIN_MIN {
                let mut parts = Vec::new();
                take_apart(std::mem::replace(expr, null()), &op, &mut parts);
                *expr = together(parts, &op);
            }
        }
        ControlFlow::Continue(())
    }
}

/// How deep the left side of a chain nests.
fn depth(mut expr: &Expr, op: &BinaryOperator) -> usize {
    let mut depth = 0;
    while let Expr::BinaryOp { left, op: own, .. } = expr
        && own == op
    {
        (expr, depth) = (left, depth + 1);
    }
    depth
}

/// The conditions of a chain, in their order.
fn take_apart(expr: Expr, op: &BinaryOperator, parts: &mut Vec<Expr>) {
    let mut rest = vec![expr];
    while let Some(expr) = rest.pop() {
        match expr {
            Expr::BinaryOp { left, op: own, right } if own == *op => rest.extend([*right, *left]),
            part => parts.push(part),
        }
    }
}

fn together(mut parts: Vec<Expr>, op: &BinaryOperator) -> Expr {
    match parts.len() {
        0 => null(),
        1 => parts.remove(0),
        length => {
            let right = parts.split_off(length / 2);
            binary(together(parts, op), op.clone(), together(right, op))
        }
    }
}
