//! Comparisons of casts that change values.
//!
//! DataFusion compares what is cast, with the constant in its type: `CAST(x AS bigint) = 1` becomes `x = 1`. Where the cast cuts off
//! digits or does not reach all values of `x`, that is another question: `CAST(1.25 AS int) = 1` becomes `1.25 = 1.00`, and of
//! `TRY_CAST(x AS tinyint) > 5` also 300, which no tiny number is, would be true.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, ExprSchemable};

use super::canonical::one_value;
use super::keys::{compares, is_constant};

/// Whether an expression compares a cast with constants.
pub(crate) fn compares_cast(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            compares(*op) && (is_cast(left) && is_constant(right) || is_cast(right) && is_constant(left))
        }
        Expr::Between(Between { expr, low, high, .. }) => [expr, low, high].into_iter().any(|operand| is_cast(operand)),
        Expr::InList(InList { expr, .. }) => is_cast(expr),
        _ => false,
    }
}

fn is_cast(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast(_) | Expr::TryCast(_))
}

/// The same comparison with casts that stay where they change values.
pub(crate) fn with_cast_kept(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let changes = |expr: &Expr| changes_values(expr, schema);
    let kept = |expr: Box<Expr>| if changes(&expr) { Box::new(one_value(*expr)) } else { expr };
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if changes(&left) || changes(&right) => {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: kept(left), op, right: kept(right) }))
        }
        Expr::Between(Between { expr, negated, low, high }) if changes(&expr) || changes(&low) || changes(&high) => {
            Transformed::yes(Expr::Between(Between { expr: kept(expr), negated, low: kept(low), high: kept(high) }))
        }
        Expr::InList(InList { expr, list, negated }) if changes(&expr) => {
            Transformed::yes(Expr::InList(InList { expr: kept(expr), list, negated }))
        }
        expr => Transformed::no(expr),
    })
}

/// Whether an expression is a cast, or a cast of one and so on, to a type that does not have all values of the type before it.
fn changes_values(expr: &Expr, schema: &DFSchema) -> bool {
    let (inner, to, is_tried) = match expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type(), false),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type(), true),
        _ => return false,
    };
    let from = inner.get_type(schema).ok().as_ref().and_then(Digits::of);
    let loses = from.zip(Digits::of(to)).is_some_and(|(from, to)| from.is_lost_in(to, is_tried));
    loses || changes_values(inner, schema)
}

/// The numbers that a type of whole numbers or decimals has.
#[derive(Clone, Copy)]
struct Digits {
    /// Digits before the point of the largest number.
    whole: i16,
    /// Digits before the point of which it has all numbers.
    all: i16,
    /// Digits behind the point.
    scale: i16,
    is_signed: bool,
    /// The most digits that such a type can have: the engine takes it where no type is large enough.
    is_largest: bool,
}

impl Digits {
    fn of(data_type: &DataType) -> Option<Digits> {
        let number = |whole, all, is_signed| Some(Digits { whole, all, scale: 0, is_signed, is_largest: false });
        let decimal = |precision: u8, scale: i8, most: u8| {
            let whole = i16::from(precision) - i16::from(scale);
            Some(Digits { whole, all: whole, scale: scale.into(), is_signed: true, is_largest: precision == most })
        };
        match data_type {
            DataType::Int8 => number(3, 2, true),
            DataType::Int16 => number(5, 4, true),
            DataType::Int32 => number(10, 9, true),
            DataType::Int64 => number(19, 18, true),
            DataType::UInt8 => number(3, 2, false),
            DataType::UInt16 => number(5, 4, false),
            DataType::UInt32 => number(10, 9, false),
            DataType::UInt64 => number(20, 19, false),
            DataType::Decimal32(precision, scale) => decimal(*precision, *scale, 9),
            DataType::Decimal64(precision, scale) => decimal(*precision, *scale, 18),
            DataType::Decimal128(precision, scale) => decimal(*precision, *scale, 38),
            DataType::Decimal256(precision, scale) => decimal(*precision, *scale, 76),
            _ => None,
        }
    }

    /// Whether some of these numbers are others, or none, in another type.
    fn is_lost_in(self, to: Digits, is_tried: bool) -> bool {
        // Between types of whole numbers the larger one has more digits; of equal ones the sign decides.
        let is_wider = self.whole > to.all && !(self.whole == to.whole && self.all == to.all && self.is_signed == to.is_signed);
        let is_wider = is_wider && (is_tried || !to.is_largest);
        self.scale > to.scale || is_wider || self.is_signed && !to.is_signed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_that_reaches_all_values_changes_none() {
        let lost = |from: DataType, to: DataType| Digits::of(&from).unwrap().is_lost_in(Digits::of(&to).unwrap(), true);
        let decimal = DataType::Decimal128;
        for (from, to) in [
            (DataType::Int32, DataType::Int64),
            (DataType::Int64, DataType::Int64),
            (DataType::UInt32, DataType::Int64),
            (DataType::UInt8, DataType::Int16),
            (DataType::Int64, decimal(19, 0)),
            (DataType::UInt64, decimal(20, 0)),
            (decimal(15, 2), decimal(17, 4)),
            (decimal(9, 0), DataType::Int32),
        ] {
            assert!(!lost(from.clone(), to.clone()), "{from} to {to}");
        }
        for (from, to) in [
            (DataType::Int64, DataType::Int32),
            (DataType::Int32, DataType::UInt32),
            (DataType::UInt64, DataType::Int64),
            (DataType::UInt32, DataType::Int32),
            (DataType::Int64, decimal(5, 2)),
            (decimal(15, 2), DataType::Int64),
            (decimal(15, 2), decimal(15, 1)),
            (decimal(15, 2), decimal(5, 2)),
            (decimal(15, 0), DataType::Int32),
        ] {
            assert!(lost(from.clone(), to.clone()), "{from} to {to}");
        }
    }
}
