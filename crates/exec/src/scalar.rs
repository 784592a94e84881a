//! Values of directories as the engine's scalars, and back.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use pithead_model::Value;
use pithead_slice::value_at;

/// The scalar as a value of a column of type `column`. None for NULL, NaN, another type, or a type without values.
pub(crate) fn value_of(scalar: &ScalarValue, column: &DataType) -> Option<Value> {
    let same = scalar.data_type() == *column || (is_text(&scalar.data_type()) && is_text(column));
    if !same || scalar.is_null() {
        return None;
    }
    value_at(scalar.to_array().ok()?.as_ref(), 0)
}

/// A bound as the engine's scalar of this type.
pub(crate) fn scalar_of(value: &Value, data_type: &DataType) -> Option<ScalarValue> {
    match value {
        Value::Int(value) => scalar_of_int(*value, data_type),
        Value::Float(value) => match data_type {
            DataType::Float32 => Some(ScalarValue::Float32(Some(*value as f32))),
            DataType::Float64 => Some(ScalarValue::Float64(Some(*value))),
            _ => None,
        },
        Value::Text(text) => match data_type {
            DataType::Utf8 => Some(ScalarValue::Utf8(Some(text.clone()))),
            DataType::LargeUtf8 => Some(ScalarValue::LargeUtf8(Some(text.clone()))),
            DataType::Utf8View => Some(ScalarValue::Utf8View(Some(text.clone()))),
            _ => None,
        },
        Value::Bytes(bytes) => match data_type {
            DataType::Binary => Some(ScalarValue::Binary(Some(bytes.clone()))),
            DataType::LargeBinary => Some(ScalarValue::LargeBinary(Some(bytes.clone()))),
            DataType::BinaryView => Some(ScalarValue::BinaryView(Some(bytes.clone()))),
            _ => None,
        },
    }
}

fn scalar_of_int(value: i128, data_type: &DataType) -> Option<ScalarValue> {
    let (small, wide) = (|| i32::try_from(value).ok().map(Some), || i64::try_from(value).ok().map(Some));
    Some(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(value != 0)),
        DataType::Int8 => ScalarValue::Int8(Some(i8::try_from(value).ok()?)),
        DataType::Int16 => ScalarValue::Int16(Some(i16::try_from(value).ok()?)),
        DataType::Int32 => ScalarValue::Int32(small()?),
        DataType::Int64 => ScalarValue::Int64(wide()?),
        DataType::UInt8 => ScalarValue::UInt8(Some(u8::try_from(value).ok()?)),
        DataType::UInt16 => ScalarValue::UInt16(Some(u16::try_from(value).ok()?)),
        DataType::UInt32 => ScalarValue::UInt32(Some(u32::try_from(value).ok()?)),
        DataType::UInt64 => ScalarValue::UInt64(Some(u64::try_from(value).ok()?)),
        DataType::Date32 => ScalarValue::Date32(small()?),
        DataType::Date64 => ScalarValue::Date64(wide()?),
        DataType::Time32(TimeUnit::Second) => ScalarValue::Time32Second(small()?),
        DataType::Time32(TimeUnit::Millisecond) => ScalarValue::Time32Millisecond(small()?),
        DataType::Time64(TimeUnit::Microsecond) => ScalarValue::Time64Microsecond(wide()?),
        DataType::Time64(TimeUnit::Nanosecond) => ScalarValue::Time64Nanosecond(wide()?),
        DataType::Timestamp(TimeUnit::Second, zone) => ScalarValue::TimestampSecond(wide()?, zone.clone()),
        DataType::Timestamp(TimeUnit::Millisecond, zone) => ScalarValue::TimestampMillisecond(wide()?, zone.clone()),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => ScalarValue::TimestampMicrosecond(wide()?, zone.clone()),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => ScalarValue::TimestampNanosecond(wide()?, zone.clone()),
        DataType::Duration(TimeUnit::Second) => ScalarValue::DurationSecond(wide()?),
        DataType::Duration(TimeUnit::Millisecond) => ScalarValue::DurationMillisecond(wide()?),
        DataType::Duration(TimeUnit::Microsecond) => ScalarValue::DurationMicrosecond(wide()?),
        DataType::Duration(TimeUnit::Nanosecond) => ScalarValue::DurationNanosecond(wide()?),
        DataType::Decimal128(precision, scale) => ScalarValue::Decimal128(Some(value), *precision, *scale),
        _ => return None,
    })
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_survive_the_way_there_and_back() {
        let zone = Some("Europe/Athens".into());
        for scalar in [
            ScalarValue::Boolean(Some(true)),
            ScalarValue::Int8(Some(-7)),
            ScalarValue::UInt64(Some(u64::MAX)),
            ScalarValue::Float64(Some(f64::NEG_INFINITY)),
            ScalarValue::Date32(Some(-1)),
            ScalarValue::TimestampNanosecond(Some(-1), zone),
            ScalarValue::Decimal128(Some(i128::MIN / 2), 38, 2),
            ScalarValue::Utf8View(Some("é".into())),
            ScalarValue::BinaryView(Some(vec![0, 255])),
        ] {
            let data_type = scalar.data_type();
            let value = value_of(&scalar, &data_type).unwrap();
            assert_eq!(scalar_of(&value, &data_type), Some(scalar));
        }
    }

    #[test]
    fn what_has_no_value_gives_none() {
        assert_eq!(value_of(&ScalarValue::Float64(Some(f64::NAN)), &DataType::Float64), None);
        assert_eq!(value_of(&ScalarValue::Int64(None), &DataType::Int64), None);
        assert_eq!(value_of(&ScalarValue::Int64(Some(1)), &DataType::Int32), None);
        assert_eq!(scalar_of(&Value::Int(300), &DataType::Int8), None);
    }
}
