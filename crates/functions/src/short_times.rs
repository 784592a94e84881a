//! Moments that are written without seconds, `'2024-01-01 02:00'`, as PostgreSQL and DuckDB take them.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{Between, Cast, InList, TryCast};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable};

use crate::one_value::compares;

/// A moment without seconds: `d` is a digit, and in the place of the blank may be a T.
const SHAPE: &[u8] = b"dddd-dd-dd dd:dd";

/// Whether a constant is a text of this form.
pub(crate) fn is_short(expr: &Expr) -> bool {
    whole(expr).is_some()
}

/// An expression in which such texts that are read as moments have seconds.
pub(crate) fn with_seconds(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let beside_moment = |other: &Expr| other.get_type(schema).is_ok_and(|of| is_moment(&of));
    match expr {
        Expr::Cast(Cast { expr, field }) if is_moment(field.data_type()) => {
            seconds(*expr).update_data(|expr| Expr::Cast(Cast { expr: expr.into(), field }))
        }
        Expr::TryCast(TryCast { expr, field }) if is_moment(field.data_type()) => {
            seconds(*expr).update_data(|expr| Expr::TryCast(TryCast { expr: expr.into(), field }))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(op) => {
            let (short_left, short_right) = (is_short(&left), is_short(&right));
            let (left, right) = match () {
                () if short_left && beside_moment(&right) => (seconds(*left), Transformed::no(*right)),
                () if short_right && beside_moment(&left) => (Transformed::no(*left), seconds(*right)),
                () => (Transformed::no(*left), Transformed::no(*right)),
            };
            let changed = left.transformed || right.transformed;
            let compared = BinaryExpr { left: left.data.into(), op, right: right.data.into() };
            Transformed::new_transformed(Expr::BinaryExpr(compared), changed)
        }
        Expr::Between(Between { expr, negated, low, high }) if (is_short(&low) || is_short(&high)) && beside_moment(&expr) => {
            let [low, high] = [low, high].map(|bound| Box::new(seconds(*bound).data));
            Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
        }
        Expr::InList(InList { expr, list, negated }) if list.iter().any(is_short) && beside_moment(&expr) => {
            let list = list.into_iter().map(|member| seconds(member).data).collect();
            Transformed::yes(Expr::InList(InList { expr, list, negated }))
        }
        expr => Transformed::no(expr),
    }
}

fn is_moment(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(..))
}

fn seconds(expr: Expr) -> Transformed<Expr> {
    match whole(&expr) {
        Some(whole) => Transformed::yes(whole),
        None => Transformed::no(expr),
    }
}

/// The text with seconds, if it is a moment without.
fn whole(expr: &Expr) -> Option<Expr> {
    let Expr::Literal(value, metadata) = expr else { return None };
    let text = value.try_as_str()??;
    let (moment, rest) = text.split_at_checked(SHAPE.len())?;
    let fits = moment.bytes().zip(SHAPE).all(|(byte, place)| match place {
        b'd' => byte.is_ascii_digit(),
        b' ' => byte == b' ' || byte == b'T',
        place => byte == *place,
    });
    if !fits || rest.starts_with(':') {
        return None;
    }
    let whole = ScalarValue::from(format!("{moment}:00{rest}")).cast_to(&value.data_type()).ok()?;
    Some(Expr::Literal(whole, metadata.clone()))
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::lit;

    use super::*;

    #[test]
    fn only_moments_without_seconds_get_some() {
        let whole = |text: &str| whole(&lit(text));
        for (text, expected) in [
            ("2024-01-01 02:00", "2024-01-01 02:00:00"),
            ("2024-01-01T02:00Z", "2024-01-01T02:00:00Z"),
            ("2024-01-01 02:00+01", "2024-01-01 02:00:00+01"),
        ] {
            assert_eq!(whole(text), Some(lit(expected)));
        }
        for text in ["2024-01-01 02:00:01", "2024-01-01", "2024-01-01 2:00", "", "ä024-01-01 02:00"] {
            assert_eq!(whole(text), None, "{text}");
        }
    }
}
