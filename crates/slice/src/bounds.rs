//! Bounds of a column's values, by which slices and pages can be skipped without being read.

use arrow::array::{Array, ArrayRef, ArrowNumericType, AsArray, PrimitiveArray};
use arrow::compute;
use arrow::datatypes::*;
use pithead_model::{BOUND_BYTES_MAX, ColumnSummary, Value};

/// Runs `$then!(T)` for the Arrow primitive type `T` behind a type whose values are whole numbers of at most 128 bits,
/// and `$otherwise` for other types.
macro_rules! for_integers {
    ($data_type:expr, $then:ident, $otherwise:expr) => {
        match $data_type {
            DataType::Int8 => $then!(Int8Type),
            DataType::Int16 => $then!(Int16Type),
            DataType::Int32 => $then!(Int32Type),
            DataType::Int64 => $then!(Int64Type),
            DataType::UInt8 => $then!(UInt8Type),
            DataType::UInt16 => $then!(UInt16Type),
            DataType::UInt32 => $then!(UInt32Type),
            DataType::UInt64 => $then!(UInt64Type),
            DataType::Decimal32(..) => $then!(Decimal32Type),
            DataType::Decimal64(..) => $then!(Decimal64Type),
            DataType::Decimal128(..) => $then!(Decimal128Type),
            DataType::Date32 => $then!(Date32Type),
            DataType::Date64 => $then!(Date64Type),
            DataType::Time32(TimeUnit::Second) => $then!(Time32SecondType),
            DataType::Time32(TimeUnit::Millisecond) => $then!(Time32MillisecondType),
            DataType::Time64(TimeUnit::Microsecond) => $then!(Time64MicrosecondType),
            DataType::Time64(TimeUnit::Nanosecond) => $then!(Time64NanosecondType),
            DataType::Timestamp(TimeUnit::Second, _) => $then!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => $then!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => $then!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => $then!(TimestampNanosecondType),
            DataType::Duration(TimeUnit::Second) => $then!(DurationSecondType),
            DataType::Duration(TimeUnit::Millisecond) => $then!(DurationMillisecondType),
            DataType::Duration(TimeUnit::Microsecond) => $then!(DurationMicrosecondType),
            DataType::Duration(TimeUnit::Nanosecond) => $then!(DurationNanosecondType),
            _ => $otherwise,
        }
    };
}
pub(crate) use for_integers;

/// The value in a row; `None` if it is NULL or NaN, or if its type has no [`Value`].
pub fn value_at(array: &dyn Array, row: usize) -> Option<Value> {
    if array.is_null(row) {
        return None;
    }
    macro_rules! integer {
        ($type:ty) => {
            Some(Value::Int(array.as_primitive::<$type>().value(row).into()))
        };
    }
    for_integers!(array.data_type(), integer, other_value_at(array, row))
}

fn other_value_at(array: &dyn Array, row: usize) -> Option<Value> {
    match array.data_type() {
        DataType::Boolean => Some(Value::Int(array.as_boolean().value(row).into())),
        DataType::Float16 => float(array.as_primitive::<Float16Type>().value(row).to_f64()),
        DataType::Float32 => float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Some(Value::Text(array.as_string::<i32>().value(row).into())),
        DataType::LargeUtf8 => Some(Value::Text(array.as_string::<i64>().value(row).into())),
        DataType::Utf8View => Some(Value::Text(array.as_string_view().value(row).into())),
        DataType::Binary => Some(Value::Bytes(array.as_binary::<i32>().value(row).into())),
        DataType::LargeBinary => Some(Value::Bytes(array.as_binary::<i64>().value(row).into())),
        DataType::BinaryView => Some(Value::Bytes(array.as_binary_view().value(row).into())),
        DataType::FixedSizeBinary(_) => Some(Value::Bytes(array.as_fixed_size_binary().value(row).into())),
        _ => None,
    }
}

fn float(value: f64) -> Option<Value> {
    (!value.is_nan()).then_some(Value::Float(value))
}

/// Bounds and nulls of a column of a dataset. The number of distinct values is left unknown.
pub(crate) fn bounds(array: &ArrayRef) -> ColumnSummary {
    let nulls = array.logical_null_count() as u64;
    if nulls == array.len() as u64 {
        return ColumnSummary { exact: true, nulls, ..Default::default() };
    }
    macro_rules! integer {
        ($type:ty) => {
            integers(array.as_primitive::<$type>())
        };
    }
    let bounds = for_integers!(array.data_type(), integer, other_bounds(array));
    ColumnSummary { nulls, ..bounds }
}

fn integers<T: ArrowNumericType>(array: &PrimitiveArray<T>) -> ColumnSummary
where
    T::Native: Into<i128>,
{
    let value = |native: T::Native| Value::Int(native.into());
    summary(compute::min(array).map(value), compute::max(array).map(value), true)
}

fn other_bounds(array: &ArrayRef) -> ColumnSummary {
    match array.data_type() {
        DataType::Boolean => {
            let value = |value: bool| Value::Int(value.into());
            let array = array.as_boolean();
            summary(compute::min_boolean(array).map(value), compute::max_boolean(array).map(value), true)
        }
        DataType::Float16 => floats(array.as_primitive::<Float16Type>().iter().flatten().map(|value| value.to_f64())),
        DataType::Float32 => floats(array.as_primitive::<Float32Type>().iter().flatten().map(f64::from)),
        DataType::Float64 => floats(array.as_primitive::<Float64Type>().iter().flatten()),
        DataType::Utf8View => {
            let array = array.as_string_view();
            texts(compute::min_string_view(array), compute::max_string_view(array))
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            binaries(compute::min_binary_view(array), compute::max_binary_view(array))
        }
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary();
            binaries(compute::min_fixed_size_binary(array), compute::max_fixed_size_binary(array))
        }
        _ => ColumnSummary::default(),
    }
}

fn summary(min: Option<Value>, max: Option<Value>, exact: bool) -> ColumnSummary {
    ColumnSummary { min, max, exact, ..Default::default() }
}

/// A NaN is above all values, and a NaN with its sign set is below them. Either removes the bound on its side.
fn floats(values: impl Iterator<Item = f64>) -> ColumnSummary {
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    let (mut nan_above, mut nan_below) = (false, false);
    for value in values {
        if value.is_nan() {
            nan_above |= value.is_sign_positive();
            nan_below |= value.is_sign_negative();
            continue;
        }
        if value.total_cmp(&min).is_lt() {
            min = value;
        }
        if value.total_cmp(&max).is_gt() {
            max = value;
        }
    }
    let some = min.total_cmp(&max).is_le();
    summary(
        (some && !nan_below).then_some(Value::Float(min)),
        (some && !nan_above).then_some(Value::Float(max)),
        some && !nan_below && !nan_above,
    )
}

fn texts(min: Option<&str>, max: Option<&str>) -> ColumnSummary {
    let (Some(min), Some(max)) = (min, max) else { return ColumnSummary::default() };
    let exact = min.len() <= BOUND_BYTES_MAX && max.len() <= BOUND_BYTES_MAX;
    summary(Some(Value::Text(cut_text(min).into())), short_above(max).map(Value::Text), exact)
}

fn cut_text(text: &str) -> &str {
    &text[..text.floor_char_boundary(BOUND_BYTES_MAX)]
}

/// A short text that is not above these bytes of a text, and whether it is all of them. A bound that was cut within a
/// character keeps the characters before that.
pub(crate) fn text_below(bytes: &[u8]) -> (String, bool) {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let cut = cut_text(text);
    (cut.to_owned(), cut.len() == bytes.len())
}

/// A short text that is not below these bytes, and whether it is all of them; `None` if all short texts are below, or the
/// bytes are no text.
pub(crate) fn text_above(bytes: &[u8]) -> Option<(String, bool)> {
    let text = std::str::from_utf8(bytes).ok()?;
    short_above(text).map(|above| (above, bytes.len() <= BOUND_BYTES_MAX))
}

/// Short bytes that are not above these, and whether they are all of them.
pub(crate) fn bytes_below(bytes: &[u8]) -> (Vec<u8>, bool) {
    (bytes[..bytes.len().min(BOUND_BYTES_MAX)].to_vec(), bytes.len() <= BOUND_BYTES_MAX)
}

/// Short bytes that are not below these, and whether they are all of them; `None` if all short ones are below.
pub(crate) fn bytes_above(bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    short_bytes_above(bytes).map(|above| (above, bytes.len() <= BOUND_BYTES_MAX))
}

/// A short text that is not below `text`; `None` if all short texts are.
fn short_above(text: &str) -> Option<String> {
    let cut = cut_text(text);
    if cut.len() == text.len() {
        return Some(text.into());
    }
    let mut above = cut.to_string();
    while let Some(last) = above.pop() {
        // The range leaves out surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            above.push(next);
            return Some(above);
        }
    }
    None
}

fn binaries(min: Option<&[u8]>, max: Option<&[u8]>) -> ColumnSummary {
    let (Some(min), Some(max)) = (min, max) else { return ColumnSummary::default() };
    let exact = min.len() <= BOUND_BYTES_MAX && max.len() <= BOUND_BYTES_MAX;
    let cut = &min[..min.len().min(BOUND_BYTES_MAX)];
    summary(Some(Value::Bytes(cut.into())), short_bytes_above(max).map(Value::Bytes), exact)
}

fn short_bytes_above(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() <= BOUND_BYTES_MAX {
        return Some(bytes.into());
    }
    let mut above = bytes[..BOUND_BYTES_MAX].to_vec();
    while let Some(last) = above.pop() {
        if let Some(next) = last.checked_add(1) {
            above.push(next);
            return Some(above);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryViewArray, Date32Array, Decimal128Array, Float64Array, StringViewArray, UInt64Array};

    use super::*;

    fn of(array: impl Array + 'static) -> ColumnSummary {
        let array: ArrayRef = Arc::new(array);
        bounds(&array)
    }

    #[test]
    fn whole_numbers_have_exact_bounds() {
        let found = of(Date32Array::from(vec![Some(-4), None, Some(9)]));
        assert_eq!(found, ColumnSummary { nulls: 1, ..summary(Some(Value::Int(-4)), Some(Value::Int(9)), true) });
        let found = of(UInt64Array::from(vec![u64::MAX, 1]));
        assert_eq!(found.max, Some(Value::Int(u64::MAX.into())));
        let found = of(Decimal128Array::from(vec![i128::MIN, i128::MAX]));
        assert_eq!((found.min, found.max), (Some(Value::Int(i128::MIN)), Some(Value::Int(i128::MAX))));
    }

    #[test]
    fn a_nan_takes_the_bound_on_its_side() {
        let found = of(Float64Array::from(vec![1.0, f64::NAN, -0.0]));
        assert_eq!((found.min, found.max, found.exact), (Some(Value::Float(-0.0)), None, false));
        let found = of(Float64Array::from(vec![1.0, -f64::NAN]));
        assert_eq!((found.min, found.max), (None, Some(Value::Float(1.0))));
        assert_eq!(of(Float64Array::from(vec![f64::NAN])), ColumnSummary::default());
        assert_eq!(of(Float64Array::from(vec![0.0, f64::NEG_INFINITY])).min, Some(Value::Float(f64::NEG_INFINITY)));
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_rounded_outwards() {
        let long = "é".repeat(40);
        let found = of(StringViewArray::from(vec![long.as_str(), "z"]));
        assert!(!found.exact);
        let (Some(Value::Text(min)), Some(Value::Text(max))) = (found.min, found.max) else { panic!("bounds") };
        assert_eq!((min.as_str(), max.len()), ("z", 64));
        assert!(max.as_str() > long.as_str());
        assert_eq!(of(StringViewArray::from(vec![char::MAX.to_string().repeat(20)])).max, None);
        assert_eq!(short_above(&format!("{}\u{d7ff}xx", "a".repeat(61))).unwrap(), format!("{}\u{e000}", "a".repeat(61)));
    }

    #[test]
    fn long_bytes_are_rounded_outwards() {
        let found = of(BinaryViewArray::from(vec![[0xff; 70].as_slice()]));
        assert_eq!((found.min, found.max), (Some(Value::Bytes(vec![0xff; 64])), None));
        let mut bytes = vec![7; 63];
        bytes.extend([0xff, 1]);
        assert_eq!(short_bytes_above(&bytes).unwrap(), [vec![7; 62], vec![8]].concat());
    }

    #[test]
    fn nothing_but_nulls_is_exact_and_empty() {
        let found = of(StringViewArray::from(vec![None::<&str>, None]));
        assert_eq!(found, ColumnSummary { exact: true, nulls: 2, ..Default::default() });
    }
}
