//! Expressions that have a value for each row, whatever the row has, so that they may be computed over rows that a join would drop.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

use crate::Estimate;

/// Digits of the largest decimals.
const DIGITS_MAX: u32 = 38;
/// Digits of decimals of which more rows can be summed up than there are.
const SUMMED_DIGITS_MAX: u32 = DIGITS_MAX - 10;
/// Whole numbers up to here can be summed up over more rows than there are.
const SUMMED_MAX: f64 = u32::MAX as f64;

/// A column or a literal, perhaps as a number of a type that has all its values, or comes near them.
pub(crate) fn is_plain(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Column(_) | Expr::Literal(..) => true,
        Expr::Cast(cast) => match (cast.expr.get_type(schema), expr.get_type(schema)) {
            (Ok(from), Ok(to)) => {
                is_plain(&cast.expr, schema) && from.is_numeric() && (to == DataType::Float64 || is_wider(&to, &from))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Whether no sum of an expression's values can overflow: its type has room for very many rows of the largest.
pub(crate) fn sum_fits(expr: &Expr, schema: &DFSchema, estimate: &Estimate) -> bool {
    match expr.get_type(schema) {
        Ok(DataType::Decimal128(_, scale)) => digits(expr, schema).is_some_and(|(whole, fraction)| {
            let largest = largest(expr, schema, estimate).map(|largest| largest * 10_f64.powi(scale.into()));
            whole + fraction <= SUMMED_DIGITS_MAX || largest.is_some_and(|it| it <= 10_f64.powi(SUMMED_DIGITS_MAX as i32))
        }),
        Ok(of) if of.is_integer() => {
            is_short(expr, schema) || largest(expr, schema, estimate).is_some_and(|largest| largest <= SUMMED_MAX)
        }
        Ok(of) => of.is_floating(),
        Err(_) => false,
    }
}

/// The largest amount that values of an expression can have, by the bounds of its columns.
fn largest(expr: &Expr, schema: &DFSchema, estimate: &Estimate) -> Option<f64> {
    let scaled = |unscaled: f64| match expr.get_type(schema) {
        Ok(DataType::Decimal128(_, scale)) => unscaled / 10_f64.powi(scale.into()),
        _ => unscaled,
    };
    match expr {
        Expr::Column(_) => {
            let (low, high) = estimate.column(expr, schema)?.range?;
            Some(scaled(low.abs().max(high.abs())))
        }
        Expr::Literal(ScalarValue::Decimal128(Some(value), ..), _) => Some(scaled(value.unsigned_abs() as f64)),
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some(value.unsigned_abs() as f64),
        Expr::Cast(cast) => largest(&cast.expr, schema, estimate),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (left, right) = (largest(left, schema, estimate)?, largest(right, schema, estimate)?);
            match op {
                Operator::Plus | Operator::Minus => Some(left + right),
                Operator::Multiply => Some(left * right),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A whole number of 32 bits or fewer, perhaps as one of more.
fn is_short(expr: &Expr, schema: &DFSchema) -> bool {
    let own = if let Expr::Cast(cast) = expr { &cast.expr } else { expr };
    own.get_type(schema).is_ok_and(|of| of.is_integer() && of.primitive_width().is_some_and(|bytes| bytes <= 4))
}

fn is_wider(to: &DataType, from: &DataType) -> bool {
    to.is_integer()
        && from.is_integer()
        && to.primitive_width() > from.primitive_width()
        && (to.is_signed_integer() || from.is_unsigned_integer())
}

/// Digits before and after the point that values of a decimal expression can have, if they always fit.
pub(crate) fn digits(expr: &Expr, schema: &DFSchema) -> Option<(u32, u32)> {
    let (whole, fraction) = match expr {
        Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), _) => {
            let fraction = u32::try_from(*scale).ok()?;
            let all = value.unsigned_abs().checked_ilog10().map_or(1, |digits| digits + 1);
            (all.saturating_sub(fraction), fraction)
        }
        Expr::Column(_) => match expr.get_type(schema).ok()? {
            DataType::Decimal128(precision, scale) => {
                let fraction = u32::try_from(scale).ok()?;
                (u32::from(precision).checked_sub(fraction)?, fraction)
            }
            _ => return None,
        },
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (left, right) = (digits(left, schema)?, digits(right, schema)?);
            match op {
                Operator::Plus | Operator::Minus => (left.0.max(right.0) + 1, left.1.max(right.1)),
                Operator::Multiply => (left.0 + right.0, left.1 + right.1),
                _ => return None,
            }
        }
        _ => return None,
    };
    let fits = match expr.get_type(schema).ok()? {
        DataType::Decimal128(_, scale) => u32::try_from(scale).ok()? == fraction && whole + fraction <= DIGITS_MAX,
        _ => false,
    };
    fits.then_some((whole, fraction))
}
