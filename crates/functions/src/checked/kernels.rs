//! Arithmetic with a check. Whole numbers are computed and checked a block at a time. Only where something wrapped does
//! the engine's slower kernel decide whether it was a value, or the meaningless number below a NULL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::numeric::{add, div, mul, neg, sub};
use arrow::datatypes::{
    ArrowPrimitiveType, DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION,
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr_common::datum::apply;

use super::{decimals, shifts};
use crate::fault;

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    Add,
    Subtract,
    Multiply,
    /// The operation over decimals; the engine itself checks the division of whole numbers.
    Divide,
    Negate,
    ShiftLeft,
    ShiftRight,
    /// The optimiser takes `x ^ x` for 0 also where `x` may be NULL.
    ExclusiveOr,
}

impl Operation {
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Add => "addition",
            Self::Subtract => "subtraction",
            Self::Multiply => "multiplication",
            Self::Divide => "division",
            Self::Negate => "negation",
            Self::ShiftLeft | Self::ShiftRight => "shift",
            Self::ExclusiveOr => "exclusive or",
        }
    }
}

/// Computes the operation over `left` and `right`; an error if a result does not fit its type.
pub(super) fn combine(operation: Operation, left: &ColumnarValue, right: &ColumnarValue) -> Result<ColumnarValue> {
    if let Some(result) = whole(operation, left, right)? {
        return Ok(ColumnarValue::Array(result));
    }
    if let Some(result) = decimals::small(operation, left, right)? {
        return Ok(ColumnarValue::Array(result));
    }
    let kernel = match operation {
        Operation::Add => add,
        Operation::Subtract => sub,
        Operation::Multiply => mul,
        Operation::Divide => div,
        Operation::ShiftLeft => return shifts::left(left, right),
        Operation::ShiftRight => return shifts::right(left, right),
        Operation::ExclusiveOr => return shifts::exclusive_or(left, right),
        Operation::Negate => return internal_err!("negation has one operand"),
    };
    let result = apply(left, right, |left, right| kernel(left, right))
        .map_err(|error| name_overflow(operation.noun(), &left.data_type(), error))?;
    match &result {
        ColumnarValue::Array(array) => check_decimals(operation.noun(), array.as_ref())?,
        ColumnarValue::Scalar(scalar) if scalar.data_type().is_decimal() => {
            check_decimals(operation.noun(), scalar.to_array()?.as_ref())?;
        }
        ColumnarValue::Scalar(_) => {}
    }
    Ok(result)
}

/// Computes `-value`; an error if it does not fit its type.
pub(super) fn negate(value: &ColumnarValue) -> Result<ColumnarValue> {
    let negated = |array: &dyn Array| neg(array).map_err(|error| name_overflow("negation", array.data_type(), error.into()));
    match value {
        ColumnarValue::Array(array) => negated(array.as_ref()).map(ColumnarValue::Array),
        ColumnarValue::Scalar(scalar) => {
            let array = negated(scalar.to_array()?.as_ref())?;
            ScalarValue::try_from_array(array.as_ref(), 0).map(ColumnarValue::Scalar)
        }
    }
}

/// An error, which names an `addition` and so on, if a decimal has more digits than its type. This can only happen to
/// types of the largest precision: the type of a result grows with its operands up to that.
pub fn check_decimals(operation: &str, values: &dyn Array) -> Result<()> {
    let fits = match values.data_type() {
        DataType::Decimal32(digits @ DECIMAL32_MAX_PRECISION, _) => {
            values.as_primitive::<Decimal32Type>().validate_decimal_precision(*digits)
        }
        DataType::Decimal64(digits @ DECIMAL64_MAX_PRECISION, _) => {
            values.as_primitive::<Decimal64Type>().validate_decimal_precision(*digits)
        }
        DataType::Decimal128(digits @ DECIMAL128_MAX_PRECISION, _) => {
            let values = values.as_primitive::<Decimal128Type>();
            match has_39_digits(values.values()) {
                true => values.validate_decimal_precision(*digits),
                false => Ok(()),
            }
        }
        DataType::Decimal256(digits @ DECIMAL256_MAX_PRECISION, _) => {
            values.as_primitive::<Decimal256Type>().validate_decimal_precision(*digits)
        }
        _ => Ok(()),
    };
    match fits {
        Ok(()) => Ok(()),
        Err(_) => Err(fault::overflow(format!("overflow in {operation}: a result does not fit in {}", values.data_type()))),
    }
}

/// Whether a value has more than 38 digits; the numbers below NULLs count, too.
fn has_39_digits(values: &[i128]) -> bool {
    const LIMIT: u128 = 10u128.pow(38);
    values.iter().fold(false, |over, value| over | (value.unsigned_abs() >= LIMIT))
}

/// Our message for the engine's error about an overflow of an `addition` and so on; any other error unchanged.
pub fn name_overflow(operation: &str, data_type: &DataType, error: DataFusionError) -> DataFusionError {
    let DataFusionError::ArrowError(arrow, _) = &error else { return error };
    let ArrowError::ArithmeticOverflow(message) = arrow.as_ref() else { return error };
    let what = message.strip_prefix("Overflow happened on: ").unwrap_or(message);
    fault::overflow(format!("overflow in {operation}: the result of {what} does not fit in {data_type}"))
}

/// The result over whole numbers if nothing wrapped; none for other types, for two constants, and for NULL as a
/// constant.
fn whole(operation: Operation, left: &ColumnarValue, right: &ColumnarValue) -> Result<Option<ArrayRef>> {
    macro_rules! of {
        ($type:ty) => {
            whole_of::<$type>(operation, left, right)
        };
    }
    match left.data_type() {
        DataType::Int8 => of!(Int8Type),
        DataType::Int16 => of!(Int16Type),
        DataType::Int32 => of!(Int32Type),
        DataType::Int64 => of!(Int64Type),
        DataType::UInt8 => of!(UInt8Type),
        DataType::UInt16 => of!(UInt16Type),
        DataType::UInt32 => of!(UInt32Type),
        DataType::UInt64 => of!(UInt64Type),
        _ => Ok(None),
    }
}

/// The values of an operand.
enum Operand<'a, N> {
    One(N),
    Each(&'a [N], Option<&'a NullBuffer>),
}

fn operand<T: ArrowPrimitiveType>(value: &ColumnarValue) -> Result<Option<Operand<'_, T::Native>>> {
    Ok(match value {
        ColumnarValue::Array(array) => array.as_primitive_opt::<T>().map(|array| Operand::Each(array.values(), array.nulls())),
        ColumnarValue::Scalar(scalar) if scalar.is_null() || scalar.data_type() != T::DATA_TYPE => None,
        ColumnarValue::Scalar(scalar) => Some(Operand::One(scalar.to_array()?.as_primitive::<T>().value(0))),
    })
}

fn whole_of<T: ArrowPrimitiveType<Native: Whole>>(
    operation: Operation,
    left: &ColumnarValue,
    right: &ColumnarValue,
) -> Result<Option<ArrayRef>> {
    let (Some(left), Some(right)) = (operand::<T>(left)?, operand::<T>(right)?) else { return Ok(None) };
    let computed = match operation {
        Operation::Add => block(left, right, T::Native::sum),
        Operation::Subtract => block(left, right, T::Native::difference),
        Operation::Multiply => block(left, right, T::Native::product),
        _ => None,
    };
    Ok(computed.map(|(values, nulls)| Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)) as ArrayRef))
}

/// Every result, if none of them wrapped. `compute` gives a result, and a number that is negative where the result
/// wrapped.
fn block<N: Whole>(
    left: Operand<'_, N>,
    right: Operand<'_, N>,
    compute: impl Fn(N, N) -> (N, N::Flag),
) -> Option<(Vec<N>, Option<NullBuffer>)> {
    let (values, nulls) = match (left, right) {
        (Operand::Each(left, left_nulls), Operand::Each(right, right_nulls)) if left.len() == right.len() => {
            (each(left.iter().zip(right), |(left, right)| compute(*left, *right)), NullBuffer::union(left_nulls, right_nulls))
        }
        (Operand::Each(left, nulls), Operand::One(right)) => (each(left.iter(), |left| compute(*left, right)), nulls.cloned()),
        (Operand::One(left), Operand::Each(right, nulls)) => {
            (each(right.iter(), |right| compute(left, *right)), nulls.cloned())
        }
        _ => return None,
    };
    Some((values?, nulls))
}

/// The results of `compute` for all items; none where a flag is negative. The loop becomes vector code.
fn each<I, N: Whole>(items: impl ExactSizeIterator<Item = I>, compute: impl Fn(I) -> (N, N::Flag)) -> Option<Vec<N>> {
    let mut values = vec![N::default(); items.len()];
    let mut flags = N::Flag::default();
    for (value, item) in values.iter_mut().zip(items) {
        let (computed, flag) = compute(item);
        *value = computed;
        flags = flags | flag;
    }
    (flags >= N::Flag::default()).then_some(values)
}

/// A whole number. Each operation gives the wrapped result, and a flag that is negative if it wrapped. The flags of a
/// block are or-ed together, which compilers turn into vector code; for `overflowing_add` they do not.
trait Whole: Copy + Default {
    type Flag: Copy + Default + PartialOrd + std::ops::BitOr<Output = Self::Flag>;

    fn sum(self, other: Self) -> (Self, Self::Flag);
    fn difference(self, other: Self) -> (Self, Self::Flag);
    fn product(self, other: Self) -> (Self, Self::Flag);
}

macro_rules! signed {
    ($native:ty) => {
        impl Whole for $native {
            type Flag = $native;

            #[inline]
            fn sum(self, other: Self) -> (Self, Self) {
                let sum = self.wrapping_add(other);
                (sum, (self ^ sum) & (other ^ sum))
            }

            #[inline]
            fn difference(self, other: Self) -> (Self, Self) {
                let difference = self.wrapping_sub(other);
                (difference, (self ^ other) & (self ^ difference))
            }

            #[inline]
            fn product(self, other: Self) -> (Self, Self) {
                let (product, wrapped) = self.overflowing_mul(other);
                (product, -Self::from(wrapped))
            }
        }
    };
}

macro_rules! unsigned {
    ($native:ty, $flag:ty) => {
        impl Whole for $native {
            type Flag = $flag;

            #[inline]
            fn sum(self, other: Self) -> (Self, $flag) {
                let sum = self.wrapping_add(other);
                (sum, -<$flag>::from(sum < self))
            }

            #[inline]
            fn difference(self, other: Self) -> (Self, $flag) {
                (self.wrapping_sub(other), -<$flag>::from(self < other))
            }

            #[inline]
            fn product(self, other: Self) -> (Self, $flag) {
                let (product, wrapped) = self.overflowing_mul(other);
                (product, -<$flag>::from(wrapped))
            }
        }
    };
}

signed!(i8);
signed!(i16);
signed!(i32);
signed!(i64);
unsigned!(u8, i8);
unsigned!(u16, i16);
unsigned!(u32, i32);
unsigned!(u64, i64);

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Decimal128Array, Int8Array, Int64Array, UInt64Array};
    use proptest::prelude::*;

    fn edgy() -> impl Strategy<Value = Option<i64>> {
        prop_oneof![
            Just(None),
            Just(Some(i64::MAX)),
            Just(Some(i64::MIN)),
            any::<i64>().prop_map(Some),
            (-9i64..9).prop_map(Some),
        ]
    }

    fn exact(operation: Operation, left: i64, right: i64) -> Option<i64> {
        match operation {
            Operation::Add => left.checked_add(right),
            Operation::Subtract => left.checked_sub(right),
            _ => left.checked_mul(right),
        }
    }

    fn column(values: &[Option<i64>]) -> ColumnarValue {
        ColumnarValue::Array(Arc::new(Int64Array::from(values.to_vec())))
    }

    proptest! {
        #[test]
        fn results_are_exact_or_an_error(
            rows in prop::collection::vec((edgy(), edgy()), 0..20),
            constant in edgy(),
            operation in prop_oneof![Just(Operation::Add), Just(Operation::Subtract), Just(Operation::Multiply)],
        ) {
            let (left, right): (Vec<_>, Vec<_>) = rows.iter().copied().unzip();
            let scalar = ColumnarValue::Scalar(ScalarValue::Int64(constant));
            let constants = vec![constant; rows.len()];
            for (left, right, left_values, right_values) in [
                (column(&left), column(&right), &left, &right),
                (column(&left), scalar.clone(), &left, &constants),
                (scalar.clone(), column(&right), &constants, &right),
            ] {
                let expected: Option<Vec<Option<i64>>> = left_values
                    .iter()
                    .zip(right_values)
                    .map(|(left, right)| match (left, right) {
                        (Some(left), Some(right)) => exact(operation, *left, *right).map(Some),
                        _ => Some(None),
                    })
                    .collect();
                match (combine(operation, &left, &right), expected) {
                    (Ok(got), Some(expected)) => {
                        let got = got.into_array(rows.len()).unwrap();
                        prop_assert_eq!(got.as_primitive::<Int64Type>(), &Int64Array::from(expected));
                    }
                    (Err(error), None) => prop_assert!(error.to_string().contains("overflow in "), "{}", error),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }

    #[test]
    fn narrow_and_unsigned_types_have_their_own_ends() {
        let of = |array: ArrayRef| ColumnarValue::Array(array);
        let one = ColumnarValue::Scalar(ScalarValue::UInt64(Some(1)));
        let zero: ArrayRef = Arc::new(UInt64Array::from(vec![0]));
        let error = combine(Operation::Subtract, &of(zero), &one).unwrap_err().to_string();
        assert!(error.contains("overflow in subtraction: the result of 0 - 1 does not fit in UInt64"), "{error}");
        let small: ArrayRef = Arc::new(Int8Array::from(vec![100]));
        assert!(combine(Operation::Add, &of(Arc::clone(&small)), &of(small)).is_err());
        let least: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN]));
        assert!(negate(&of(least)).unwrap_err().to_string().contains("overflow in negation"));
    }

    #[test]
    fn decimals_end_at_38_digits() {
        let largest = ColumnarValue::Scalar(ScalarValue::Decimal128(Some(10i128.pow(38) - 1), 38, 0));
        let one: ArrayRef = Arc::new(Decimal128Array::from(vec![1]).with_precision_and_scale(38, 0).unwrap());
        let error = combine(Operation::Add, &largest, &ColumnarValue::Array(Arc::clone(&one))).unwrap_err().to_string();
        assert!(error.contains("overflow in addition: a result does not fit in Decimal128(38, 0)"), "{error}");
        assert!(combine(Operation::Subtract, &largest, &ColumnarValue::Array(one)).is_ok());
        assert!(combine(Operation::Add, &largest, &largest).is_err());
    }
}
