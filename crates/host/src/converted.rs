//! [`converted`]: values as another type, if they are the same there.

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;

/// The values as another type. None: one of them is not the same there, or not at all.
///
/// Servers tell clients the columns of a prepared statement before the values of its parameters are known, which may make other types.
pub fn converted(array: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let there = cast_with_options(array, to, &options).ok()?;
    let back = cast_with_options(&there, array.data_type(), &options).ok()?;
    (*back == **array).then_some(there)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    #[test]
    fn a_value_that_is_another_one_there_is_none() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), None]));
        assert!(converted(&numbers, &DataType::Int32).is_some() && converted(&numbers, &DataType::Utf8).is_some());
        for (array, to) in [
            (Arc::new(Int64Array::from(vec![1 << 40])) as ArrayRef, DataType::Int32),
            (Arc::new(Float64Array::from(vec![1.5])), DataType::Int64),
            (Arc::new(StringArray::from(vec!["5", "zz"])), DataType::Int64),
        ] {
            assert!(converted(&array, &to).is_none(), "{to}");
        }
    }
}
