//! Casts that lose nothing: from the type that a file has to the type of the dataset.

use arrow::datatypes::{DataType, TimeUnit};
use pithead_model::Value;

/// Whether every value of `from` has its like in `to`, in the same order.
pub(super) fn fits(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        _ if from.equals_datatype(to) => true,
        (Null, _) => true,
        (List(from), List(to)) | (LargeList(from), LargeList(to)) => fits(from.data_type(), to.data_type()),
        (FixedSizeList(from, length), FixedSizeList(to, other)) => length == other && fits(from.data_type(), to.data_type()),
        (Struct(from), Struct(to)) => {
            let same = |(from, to): (&arrow::datatypes::FieldRef, &arrow::datatypes::FieldRef)| {
                from.name() == to.name() && fits(from.data_type(), to.data_type())
            };
            from.len() == to.len() && from.iter().zip(to).all(same)
        }
        (Utf8View, BinaryView) => true,
        (Float16, Float32 | Float64) | (Float32, Float64) => true,
        (from, Float32 | Float64) => match (bits(from), to) {
            (Some((bits, _)), Float32) => bits <= 16,
            (Some((bits, _)), _) => bits <= 32,
            (None, _) => false,
        },
        (Decimal128(precision, scale), Decimal128(wider, finer)) => {
            finer >= scale && i16::from(*wider) - i16::from(*finer) >= i16::from(*precision) - i16::from(*scale)
        }
        (from, Decimal128(precision, scale)) if *scale >= 0 => match bits(from) {
            Some((bits, signed)) => i16::from(*precision) - i16::from(*scale) >= digits(bits, signed),
            None => false,
        },
        _ if bits(from).is_some() && bits(to).is_some() => wider(bits(from), bits(to)),
        _ => factor(from, to).is_some(),
    }
}

/// Bits of an integer type, and whether it has a sign.
fn bits(data_type: &DataType) -> Option<(u8, bool)> {
    Some(match data_type {
        DataType::Int8 => (8, true),
        DataType::Int16 => (16, true),
        DataType::Int32 => (32, true),
        DataType::Int64 => (64, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    })
}

fn wider(from: Option<(u8, bool)>, to: Option<(u8, bool)>) -> bool {
    match (from, to) {
        (Some((from, signed)), Some((to, to_signed))) => match (signed, to_signed) {
            (true, false) => false,
            (false, true) => to > from,
            _ => to >= from,
        },
        _ => false,
    }
}

/// Decimal digits of the largest value.
fn digits(bits: u8, signed: bool) -> i16 {
    match (bits, signed) {
        (8, _) => 3,
        (16, _) => 5,
        (32, _) => 10,
        (_, true) => 19,
        _ => 20,
    }
}

/// What a time is multiplied by, as the other type counts it in finer units.
fn factor(from: &DataType, to: &DataType) -> Option<i128> {
    use DataType::*;
    let finer = |from: &TimeUnit, to: &TimeUnit| {
        let (from, to) = (per_second(from), per_second(to));
        (to >= from).then(|| to / from)
    };
    match (from, to) {
        (Timestamp(from, zone), Timestamp(to, other)) if zone.is_some() == other.is_some() => finer(from, to),
        (Time32(from), Time32(to) | Time64(to)) | (Time64(from), Time64(to)) => finer(from, to),
        (Duration(from), Duration(to)) => finer(from, to),
        (Date32, Date64) => Some(86_400_000),
        (Date32, Timestamp(to, None)) => Some(86_400 * per_second(to)),
        _ => None,
    }
}

fn per_second(unit: &TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// A bound of a column as its value is after the cast; none where that is not known.
pub(super) fn cast_bound(value: Value, from: &DataType, to: &DataType) -> Option<Value> {
    if from.equals_datatype(to) {
        return Some(value);
    }
    match (value, to) {
        (Value::Int(value), DataType::Float32 | DataType::Float64) => Some(Value::Float(value as f64)),
        (Value::Int(value), DataType::Decimal128(_, finer)) => {
            let scale = if let DataType::Decimal128(_, scale) = from { *scale } else { 0 };
            let power = u32::try_from(i16::from(*finer) - i16::from(scale)).ok()?;
            value.checked_mul(10_i128.checked_pow(power)?).map(Value::Int)
        }
        (Value::Int(value), _) if bits(from).is_some() && bits(to).is_some() => Some(Value::Int(value)),
        (Value::Int(value), _) => value.checked_mul(factor(from, to)?).map(Value::Int),
        (Value::Float(value), DataType::Float32 | DataType::Float64) => Some(Value::Float(value)),
        (Value::Text(text), DataType::BinaryView) => Some(Value::Bytes(text.into_bytes())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType::*;

    use super::*;

    #[test]
    fn only_casts_that_lose_nothing_fit() {
        let zone = Some("UTC".into());
        let fitting = [
            (Int32, Int64),
            (UInt32, Int64),
            (UInt8, UInt16),
            (Int16, Float32),
            (UInt32, Float64),
            (Float32, Float64),
            (Int32, Decimal128(12, 2)),
            (Decimal128(12, 2), Decimal128(15, 4)),
            (Timestamp(TimeUnit::Millisecond, zone.clone()), Timestamp(TimeUnit::Nanosecond, zone.clone())),
            (Date32, Timestamp(TimeUnit::Second, None)),
            (Null, Utf8View),
        ];
        for (from, to) in fitting {
            assert!(fits(&from, &to), "{from} {to}");
        }
        let losing = [
            (Int64, Int32),
            (UInt64, Int64),
            (Int8, UInt8),
            (Int64, Float64),
            (Int32, Float32),
            (Int64, Decimal128(19, 1)),
            (Decimal128(12, 2), Decimal128(13, 4)),
            (Decimal128(12, 4), Decimal128(38, 2)),
            (Timestamp(TimeUnit::Nanosecond, None), Timestamp(TimeUnit::Millisecond, None)),
            (Timestamp(TimeUnit::Second, None), Timestamp(TimeUnit::Second, zone)),
            (Utf8View, Int64),
            (Boolean, Int8),
        ];
        for (from, to) in losing {
            assert!(!fits(&from, &to), "{from} {to}");
        }
    }

    #[test]
    fn bounds_follow_their_values() {
        let cast = |value, from, to| cast_bound(value, &from, &to);
        assert_eq!(cast(Value::Int(-7), Int32, Decimal128(12, 2)), Some(Value::Int(-700)));
        assert_eq!(cast(Value::Int(-7), Decimal128(9, 1), Decimal128(12, 2)), Some(Value::Int(-70)));
        assert_eq!(cast(Value::Int(2), Date32, Timestamp(TimeUnit::Millisecond, None)), Some(Value::Int(172_800_000)));
        assert_eq!(cast(Value::Int(2), Int16, Float64), Some(Value::Float(2.0)));
        assert_eq!(cast(Value::Int(i128::MAX), Date32, Date64), None);
    }
}
