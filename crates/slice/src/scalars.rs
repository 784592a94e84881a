//! Values of directories as arrays.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewArray, BooleanArray, PrimitiveArray, StringViewArray};
use arrow::datatypes::*;
use pithead_model::Value;

use crate::bounds::for_integers;

/// A whole number as one of this type; none if it is none, or does not fit.
pub(crate) fn native<T: ArrowPrimitiveType>(value: &Value) -> Option<T::Native>
where
    T::Native: TryFrom<i128>,
{
    if let Value::Int(value) = value { T::Native::try_from(*value).ok() } else { None }
}

/// The value as an array of one row; none if the type cannot hold it.
pub fn one_row(data_type: &DataType, value: &Value) -> Option<ArrayRef> {
    macro_rules! integer {
        ($type:ty) => {{
            let value = native::<$type>(value)?;
            Some(Arc::new(PrimitiveArray::<$type>::from_value(value, 1).with_data_type(data_type.clone())) as ArrayRef)
        }};
    }
    for_integers!(data_type, integer, other_scalar(data_type, value))
}

fn other_scalar(data_type: &DataType, value: &Value) -> Option<ArrayRef> {
    Some(match (data_type, value) {
        (DataType::Boolean, Value::Int(value @ (0 | 1))) => Arc::new(BooleanArray::from(vec![*value == 1])),
        (DataType::Float64, Value::Float(value)) => Arc::new(PrimitiveArray::<Float64Type>::from_value(*value, 1)),
        (DataType::Float32, Value::Float(value)) if f64::from(*value as f32) == *value => {
            Arc::new(PrimitiveArray::<Float32Type>::from_value(*value as f32, 1))
        }
        (DataType::Utf8View, Value::Text(text)) => Arc::new(StringViewArray::from(vec![text.as_str()])),
        (DataType::BinaryView, Value::Bytes(bytes)) => Arc::new(BinaryViewArray::from(vec![bytes.as_slice()])),
        _ => return None,
    })
}
