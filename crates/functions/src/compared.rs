//! What a comparison compares, read anew where one side says what another one means.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Expr};

use crate::one_value::compares;

/// A comparison, BETWEEN or IN with a list, of which every part is read by `read` if one of them is what `is_meant` says. Another
/// expression stays as it is.
pub(crate) fn read_compared(
    expr: Expr,
    is_meant: impl Fn(&Expr) -> bool,
    read: impl Fn(Expr) -> Result<Expr>,
) -> Result<Transformed<Expr>> {
    let any_of = |parts: &[&Expr]| parts.iter().any(|part| is_meant(part));
    let boxed = |part: Box<Expr>| read(*part).map(Box::new);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) && any_of(&[&left, &right]) => {
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: boxed(left)?, op, right: boxed(right)? })))
        }
        Expr::Between(Between { expr, negated, low, high }) if any_of(&[&expr, &low, &high]) => {
            let (expr, low, high) = (boxed(expr)?, boxed(low)?, boxed(high)?);
            Ok(Transformed::yes(Expr::Between(Between { expr, negated, low, high })))
        }
        Expr::InList(InList { expr, list, negated }) if is_meant(&expr) || list.iter().any(&is_meant) => {
            let list = list.into_iter().map(&read).collect::<Result<_>>()?;
            Ok(Transformed::yes(Expr::InList(InList { expr: boxed(expr)?, list, negated })))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// The text of a literal.
pub(crate) fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}
