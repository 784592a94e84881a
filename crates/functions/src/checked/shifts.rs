//! `<<` and `>>` with a check, and the exclusive or of bits. The engine's operators take the number of places modulo the bits of the type, so that `1
//! << 64` is 1.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, PrimitiveArray};
use arrow::compute::kernels::arity::try_binary;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::ColumnarValue;

use crate::fault;

/// The values, shifted to the left; an error if significant bits are lost or the sign would change.
pub(super) fn left(values: &ColumnarValue, places: &ColumnarValue) -> Result<ColumnarValue> {
    shifted(values, places, |value, places, bits| {
        let shifted = match (value, u32::try_from(places)) {
            (0, Ok(_)) => Some(0),
            (0.., Ok(places)) if i128::from(places) < bits => Some(value << places),
            _ => None,
        };
        shifted.ok_or_else(|| overflow(value, places))
    })
}

/// The values, shifted to the right; 0 where no bit is left.
pub(super) fn right(values: &ColumnarValue, places: &ColumnarValue) -> Result<ColumnarValue> {
    shifted(values, places, |value, places, bits| match u32::try_from(places) {
        Ok(places) if i128::from(places) < bits => Ok(value >> places),
        _ => Ok(0),
    })
}

/// The bits that one of two values has.
pub(super) fn exclusive_or(left: &ColumnarValue, right: &ColumnarValue) -> Result<ColumnarValue> {
    shifted(left, right, |left, right, _| Ok(left ^ right))
}

fn overflow(value: i128, places: i128) -> ArrowError {
    ArrowError::ArithmeticOverflow(format!("{value} << {places}"))
}

fn shifted(
    values: &ColumnarValue,
    places: &ColumnarValue,
    shift: impl Fn(i128, i128, i128) -> Result<i128, ArrowError> + Copy,
) -> Result<ColumnarValue> {
    let is_one = matches!((values, places), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
    let arrays = ColumnarValue::values_to_arrays(&[values.clone(), places.clone()])?;
    let [values, places] = arrays.as_slice() else { return internal_err!("expected two operands") };
    macro_rules! of {
        ($type:ty) => {
            shifted_of::<$type>(values, places, shift)
        };
    }
    let result = match values.data_type() {
        DataType::Int8 => of!(Int8Type),
        DataType::Int16 => of!(Int16Type),
        DataType::Int32 => of!(Int32Type),
        DataType::Int64 => of!(Int64Type),
        DataType::UInt8 => of!(UInt8Type),
        DataType::UInt16 => of!(UInt16Type),
        DataType::UInt32 => of!(UInt32Type),
        DataType::UInt64 => of!(UInt64Type),
        other => return internal_err!("{other} has no bits to shift"),
    };
    let result = result.map_err(|error| match error {
        ArrowError::ArithmeticOverflow(what) => {
            fault::overflow(format!("overflow in left shift: the result of {what} does not fit in {}", values.data_type()))
        }
        error => error.into(),
    })?;
    match is_one {
        true => datafusion::common::ScalarValue::try_from_array(result.as_ref(), 0).map(ColumnarValue::Scalar),
        false => Ok(ColumnarValue::Array(result)),
    }
}

fn shifted_of<T: ArrowPrimitiveType<Native: ArrowNativeTypeOp + TryFrom<i128> + Into<i128>>>(
    values: &ArrayRef,
    places: &ArrayRef,
    shift: impl Fn(i128, i128, i128) -> Result<i128, ArrowError>,
) -> Result<ArrayRef, ArrowError> {
    let bits = size_of::<T::Native>() as i128 * 8;
    let (Some(values), Some(places)) = (values.as_primitive_opt::<T>(), places.as_primitive_opt::<T>()) else {
        return Err(ArrowError::InvalidArgumentError(format!("cannot shift {} by {}", values.data_type(), places.data_type())));
    };
    let result: PrimitiveArray<T> = try_binary(values, places, |value, places| {
        let (value, places): (i128, i128) = (value.into(), places.into());
        T::Native::try_from(shift(value, places, bits)?).map_err(|_| overflow(value, places))
    })?;
    Ok(Arc::new(result))
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use datafusion::common::ScalarValue;

    use super::*;

    fn of(value: i64, places: i64, shift: fn(&ColumnarValue, &ColumnarValue) -> Result<ColumnarValue>) -> Option<i64> {
        let values = ColumnarValue::Array(Arc::new(Int64Array::from(vec![Some(value), None])));
        let places = ColumnarValue::Scalar(ScalarValue::Int64(Some(places)));
        let result = shift(&values, &places).ok()?.into_array(2).unwrap();
        assert!(result.is_null(1));
        Some(result.as_primitive::<Int64Type>().value(0))
    }

    /// The results are those of DuckDB.
    #[test]
    fn no_bits_are_lost_in_silence() {
        for (value, places, expected) in
            [(1, 62, Some(1 << 62)), (1, 63, None), (1, 64, None), (-1, 1, None), (1, -1, None), (0, 64, Some(0))]
        {
            assert_eq!(of(value, places, left), expected, "{value} << {places}");
        }
        for (value, places, expected) in [(1, 64, 0), (-8, 1, -4), (-8, 64, 0), (9, 3, 1)] {
            assert_eq!(of(value, places, right), Some(expected), "{value} >> {places}");
        }
    }
}
