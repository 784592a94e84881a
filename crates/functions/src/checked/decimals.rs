//! Arithmetic of decimals that fit into 64 bits, as nearly all do. Nothing can overflow, so nothing is checked row by row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, Decimal128Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

use super::kernels::{Operation, check_decimals};

/// Largest difference of two scales: 10 to this power fits into 63 bits.
const RESCALE_MAX: i8 = 18;

/// The result over 128-bit decimals, at least one of them a column, if their numbers fit into 64 bits. None: they do not, or the
/// operands are others.
pub(super) fn small(operation: Operation, left: &ColumnarValue, right: &ColumnarValue) -> Result<Option<ArrayRef>> {
    let (Some(left), Some(right)) = (Operand::of(left), Operand::of(right)) else { return Ok(None) };
    let Some((precision, scale)) = result_type(operation, &left, &right) else { return Ok(None) };
    let Some(nulls) = rows_of(&left, &right) else { return Ok(None) };
    let [by_left, by_right] = [&left, &right].map(|operand| power_of_ten(scale - operand.scale));
    let values = match operation {
        Operation::Multiply => each(&left, &right, |left, right| i128::from(left) * i128::from(right)),
        Operation::Add => {
            each(&left, &right, |left, right| i128::from(left) * i128::from(by_left) + i128::from(right) * i128::from(by_right))
        }
        _ => {
            each(&left, &right, |left, right| i128::from(left) * i128::from(by_left) - i128::from(right) * i128::from(by_right))
        }
    };
    let values = Decimal128Array::new(values.into(), nulls).with_precision_and_scale(precision, scale)?;
    // A product of 64-bit numbers has at most 38 digits.
    if operation != Operation::Multiply {
        check_decimals(operation.noun(), &values)?;
    }
    Ok(Some(Arc::new(values)))
}

/// The type of the result as the engine has it; none for other operations, and where the engine would have to look closer.
fn result_type(operation: Operation, left: &Operand<'_>, right: &Operand<'_>) -> Option<(u8, i8)> {
    let digits = |operand: &Operand<'_>| i16::from(operand.precision) - i16::from(operand.scale);
    let (precision, scale) = match operation {
        Operation::Add | Operation::Subtract => {
            let scale = left.scale.max(right.scale);
            (i16::from(scale) + digits(left).max(digits(right)) + 1, scale)
        }
        Operation::Multiply => {
            (i16::from(left.precision) + i16::from(right.precision) + 1, left.scale.checked_add(right.scale)?)
        }
        _ => return None,
    };
    let rescales = operation != Operation::Multiply && scale - left.scale.min(right.scale) > RESCALE_MAX;
    let is_odd = left.scale < 0 || right.scale < 0 || scale > DECIMAL128_MAX_SCALE;
    (!rescales && !is_odd).then_some((precision.clamp(1, i16::from(DECIMAL128_MAX_PRECISION)) as u8, scale))
}

fn power_of_ten(exponent: i8) -> i64 {
    10i64.pow(u32::try_from(exponent).unwrap_or(0).min(RESCALE_MAX as u32))
}

/// An operand whose numbers fit into 64 bits.
struct Operand<'a> {
    values: Values<'a>,
    precision: u8,
    scale: i8,
}

enum Values<'a> {
    One(i64),
    Each(&'a Decimal128Array),
}

impl<'a> Operand<'a> {
    fn of(value: &'a ColumnarValue) -> Option<Self> {
        match value {
            ColumnarValue::Array(array) => {
                let DataType::Decimal128(precision, scale) = *array.data_type() else { return None };
                let array = array.as_primitive::<Decimal128Type>();
                fits(array.values()).then_some(Self { values: Values::Each(array), precision, scale })
            }
            ColumnarValue::Scalar(ScalarValue::Decimal128(Some(value), precision, scale)) => {
                let values = Values::One(i64::try_from(*value).ok()?);
                Some(Self { values, precision: *precision, scale: *scale })
            }
            ColumnarValue::Scalar(_) => None,
        }
    }
}

/// Whether all numbers fit into 64 bits; those below NULLs count, too.
fn fits(values: &[i128]) -> bool {
    // A negative number with its bits turned over is as small as the positive one beside it.
    let bits = values.iter().fold(0, |bits, value| bits | (value ^ (value >> 127)));
    bits <= i128::from(i64::MAX)
}

/// The NULLs of the result; none of it: two constants, or columns of different lengths.
fn rows_of(left: &Operand<'_>, right: &Operand<'_>) -> Option<Option<NullBuffer>> {
    match (&left.values, &right.values) {
        (Values::Each(left), Values::Each(right)) => {
            (left.len() == right.len()).then(|| NullBuffer::union(left.nulls(), right.nulls()))
        }
        (Values::Each(array), Values::One(_)) | (Values::One(_), Values::Each(array)) => Some(array.nulls().cloned()),
        (Values::One(_), Values::One(_)) => None,
    }
}

fn each(left: &Operand<'_>, right: &Operand<'_>, compute: impl Fn(i64, i64) -> i128) -> Vec<i128> {
    match (&left.values, &right.values) {
        (Values::Each(left), Values::Each(right)) => {
            left.values().iter().zip(right.values()).map(|(left, right)| compute(*left as i64, *right as i64)).collect()
        }
        (Values::Each(left), Values::One(right)) => left.values().iter().map(|left| compute(*left as i64, *right)).collect(),
        (Values::One(left), Values::Each(right)) => right.values().iter().map(|right| compute(*left, *right as i64)).collect(),
        (Values::One(left), Values::One(right)) => vec![compute(*left, *right)],
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Datum;
    use arrow::compute::kernels::numeric::{add, mul, sub};
    use arrow::error::ArrowError;
    use datafusion::physical_expr_common::datum::apply;
    use proptest::prelude::*;

    use super::*;

    fn edgy() -> impl Strategy<Value = Option<i128>> {
        prop_oneof![
            Just(None),
            Just(Some(i128::from(i64::MAX))),
            Just(Some(i128::from(i64::MIN))),
            Just(Some(i128::from(i64::MAX) + 1)),
            any::<i64>().prop_map(|value| Some(i128::from(value))),
            (-9i128..9).prop_map(Some),
        ]
    }

    proptest! {
        #[test]
        fn small_results_are_those_of_the_engine(
            rows in prop::collection::vec((edgy(), edgy()), 1..20),
            constant in edgy(),
            (left_precision, right_precision) in (20u8..=38, 20u8..=38),
            (left_scale, right_scale) in (0i8..20, 0i8..20),
        ) {
            let (left, right): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
            let column = |values: Vec<_>, precision, scale| {
                let array = Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap();
                ColumnarValue::Array(Arc::new(array))
            };
            let left = column(left, left_precision, left_scale);
            let right = column(right, right_precision, right_scale);
            let constant = ColumnarValue::Scalar(ScalarValue::Decimal128(constant, right_precision, right_scale));
            for (left, right) in [(&left, &right), (&left, &constant), (&constant, &left)] {
                type Kernel = fn(&dyn Datum, &dyn Datum) -> std::result::Result<ArrayRef, ArrowError>;
                let kernels: [(_, Kernel); 3] =
                    [(Operation::Add, add), (Operation::Subtract, sub), (Operation::Multiply, mul)];
                for (operation, kernel) in kernels {
                    let Ok(Some(got)) = small(operation, left, right) else { continue };
                    let expected = apply(left, right, kernel).unwrap().into_array(got.len()).unwrap();
                    prop_assert_eq!(&got, &expected);
                }
            }
        }
    }

    #[test]
    fn small_numbers_are_computed_here() {
        let price: ArrayRef =
            Arc::new(Decimal128Array::from(vec![Some(12_345), None]).with_precision_and_scale(15, 2).unwrap());
        let one = ColumnarValue::Scalar(ScalarValue::Decimal128(Some(1), 20, 0));
        let left = small(Operation::Subtract, &one, &ColumnarValue::Array(price)).unwrap().unwrap();
        assert_eq!(left.data_type(), &DataType::Decimal128(23, 2));
        assert_eq!(left.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>(), [Some(100 - 12_345), None]);
    }
}
