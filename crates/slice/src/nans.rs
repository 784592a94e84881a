//! One NaN: stored data has the positive NaN without a payload in the place of every NaN.
//!
//! SQL has one NaN, which is larger than all numbers. By the total order of floats, which kernels and bounds use, a NaN
//! with its sign set (the result of `0.0 / 0.0` on x86) is below them all.

use std::sync::Arc;

use arrow::array::types::Float16Type;
use arrow::array::{Array, ArrayRef, AsArray, make_array};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;

/// The column with the one NaN for every NaN, also inside lists and structs. It comes back unchanged if it has no other
/// NaN.
pub(crate) fn one_nan(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Float16 => Ok(floats::<Float16Type>(column)),
        DataType::Float32 => Ok(floats::<Float32Type>(column)),
        DataType::Float64 => Ok(floats::<Float64Type>(column)),
        data_type if holds_float(data_type) => {
            let data = column.to_data();
            let children = data.child_data().iter().map(|child| Ok(one_nan(&make_array(child.clone()))?.to_data()));
            let children = children.collect::<Result<Vec<_>, ArrowError>>()?;
            let same = children.iter().zip(data.child_data()).all(|(new, old)| new.ptr_eq(old));
            if same { Ok(Arc::clone(column)) } else { Ok(make_array(data.into_builder().child_data(children).build()?)) }
        }
        _ => Ok(Arc::clone(column)),
    }
}

fn holds_float(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| holds_float(field.data_type())),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::Map(item, _) => {
            holds_float(item.data_type())
        }
        data_type => data_type.is_floating(),
    }
}

fn floats<T: Nan>(column: &ArrayRef) -> ArrayRef {
    let values = column.as_primitive::<T>();
    // The loop has no branch, so that it becomes vector code.
    match values.values().iter().fold(false, |odd, value| odd | T::is_odd(*value)) {
        true => Arc::new(values.unary::<_, T>(|value| if T::is_odd(value) { T::NAN } else { value })),
        false => Arc::clone(column),
    }
}

trait Nan: ArrowPrimitiveType {
    const NAN: Self::Native;

    /// Whether the value is a NaN other than that one.
    fn is_odd(value: Self::Native) -> bool;
}

macro_rules! nan {
    ($type:ty) => {
        impl Nan for $type {
            const NAN: Self::Native = Self::Native::NAN;

            #[inline]
            fn is_odd(value: Self::Native) -> bool {
                value.is_nan() & (value.to_bits() != Self::NAN.to_bits())
            }
        }
    };
}

nan!(Float16Type);
nan!(Float32Type);
nan!(Float64Type);

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, ListArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn every_nan_is_the_one_and_zeros_keep_their_sign() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![-f64::NAN, -0.0, f64::from_bits(f64::NAN.to_bits() | 7)]));
        let item = Arc::new(Field::new("item", DataType::Float64, true));
        let lists: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([1, 2]), Arc::clone(&floats), None));
        let (flat, nested) = (one_nan(&floats).unwrap(), one_nan(&lists).unwrap());
        for values in [&flat, nested.as_list::<i32>().values()] {
            let bits: Vec<u64> = values.as_primitive::<Float64Type>().values().iter().map(|value| value.to_bits()).collect();
            assert_eq!(bits, [f64::NAN.to_bits(), (-0.0f64).to_bits(), f64::NAN.to_bits()]);
        }
        assert!(Arc::ptr_eq(&one_nan(&flat).unwrap(), &flat));
        assert!(Arc::ptr_eq(&one_nan(&nested).unwrap(), &nested));
    }
}
