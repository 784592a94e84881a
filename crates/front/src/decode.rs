//! Parameters, in text and in binary.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef};
use pithead_pg_catalog::pg_type;

use crate::decode_columns::of_type;
use crate::decode_text::{arrow_type, from_text, plain_decimal};
use crate::error::Complaint;
use crate::moments::Wrong;
use crate::numbers::decimal_from_binary;
use crate::sql_state::{NOT_SUPPORTED, WRONG_ENCODING, WRONG_TEXT};
use crate::text;
use crate::zoned::{in_zone, zone_matters};

/// The number of the type of identifiers.
const UUID: u32 = 2950;

/// A parameter as an array of one value. `inferred`: the type that the statement wants there.
pub(crate) fn parameter(
    oid: u32,
    inferred: Option<&DataType>,
    binary: bool,
    bytes: Option<&[u8]>,
    zone: &str,
) -> Result<ArrayRef, Complaint> {
    let known =
        arrow_type(oid).ok_or_else(|| Complaint::error(NOT_SUPPORTED, format!("there is no type with the number {oid}")))?;
    let is_told = inferred.is_some_and(|wanted| pg_type(&Field::new("", wanted.clone(), true)) == oid || oid == 0);
    let inferred = inferred.map(without_marks);
    let inferred = inferred.as_ref();
    let wanted = inferred.filter(|_| is_told);
    let Some(bytes) = bytes else { return Ok(new_null_array(wanted.or(inferred).unwrap_or(&known), 1)) };
    let value = match binary {
        true => from_binary(oid, &known, bytes)?,
        false => {
            let text = std::str::from_utf8(bytes)
                .map_err(|error| Complaint::error(WRONG_ENCODING, format!("a parameter is not UTF-8: {error}")))?;
            if text.contains('\0') {
                return Err(Complaint::error(WRONG_ENCODING, "invalid byte sequence for encoding \"UTF8\": 0x00"));
            }
            let plain = plain_decimal(text);
            match oid {
                UUID => Arc::new(StringArray::from(vec![identifier(text, zone)?])),
                _ => from_text(&own_scale(wanted.unwrap_or(&known), &plain), &[Some(text)], zone)?,
            }
        }
    };
    Ok(match inferred {
        // Identifiers are texts, unless bytes are wanted.
        Some(inferred @ DataType::FixedSizeBinary(_)) if value.data_type() == &DataType::Utf8 => {
            let texts: Vec<Option<&str>> = value.as_string::<i32>().iter().collect();
            from_text(inferred, &texts, zone)?
        }
        Some(DataType::List(item)) if is_list_of_texts(&value) && matches!(item.data_type(), DataType::FixedSizeBinary(_)) => {
            identifiers(&value, item, zone)?
        }
        Some(inferred) => fitted(value, inferred, zone),
        None => value,
    })
}

/// The type of a list without what the field of its items says beside their type: a client is told by it what they are, and the engine
/// takes such lists for others.
pub(crate) fn without_marks(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(item) if !item.metadata().is_empty() => DataType::new_list(item.data_type().clone(), true),
        other => other.clone(),
    }
}

/// An identifier as a text of the one form that binary values have, too: equal ones are equal texts.
fn identifier(text: &str, zone: &str) -> Result<String, Complaint> {
    let bytes = from_text(&DataType::FixedSizeBinary(16), &[Some(text)], zone)?;
    let mut written = Vec::with_capacity(36);
    text::uuid(&mut written, bytes.as_fixed_size_binary().value(0));
    Ok(String::from_utf8_lossy(&written).into_owned())
}

fn is_list_of_texts(value: &ArrayRef) -> bool {
    matches!(value.data_type(), DataType::List(item) if item.data_type() == &DataType::Utf8)
}

/// A list of identifiers as texts, as one of bytes.
fn identifiers(value: &ArrayRef, item: &FieldRef, zone: &str) -> Result<ArrayRef, Complaint> {
    let lists = value.as_list::<i32>();
    let texts: Vec<Option<&str>> = lists.values().as_string::<i32>().iter().collect();
    let bytes = from_text(item.data_type(), &texts, zone)?;
    let lists = ListArray::try_new(Arc::clone(item), lists.offsets().clone(), bytes, lists.nulls().cloned());
    Ok(Arc::new(lists.map_err(|error| Complaint::error(WRONG_TEXT, format!("a list of identifiers: {error}")))?))
}

/// A decimal keeps the digits that it is written with, whatever the type has that it is compared with.
fn own_scale(data_type: &DataType, text: &str) -> DataType {
    let decimal = matches!(
        data_type,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..)
    );
    if !decimal {
        return data_type.clone();
    }
    let scale = text.trim().split_once('.').map_or(0, |(_, fraction)| fraction.bytes().take_while(u8::is_ascii_digit).count());
    DataType::Decimal128(38, scale.min(38) as i8)
}

/// The value as the type that the statement wants, where it is the same value in it; else as it is. Where the session's zone matters, the
/// statement itself makes of it what it wants, but for what is in a list. It makes texts of moments, too, since arrow writes a T into them.
fn fitted(value: ArrayRef, wanted: &DataType, zone: &str) -> ArrayRef {
    if value.data_type() == wanted || matches!(value.data_type(), DataType::Timestamp(..)) && wanted.is_string() {
        return value;
    }
    if zone_matters(value.data_type(), wanted, zone) {
        return match value.data_type() {
            DataType::List(_) => in_zone(&value, wanted, zone).unwrap_or(value),
            _ => value,
        };
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let there = cast_with_options(&value, wanted, &options);
    let back = there.as_ref().ok().and_then(|there| cast_with_options(there, value.data_type(), &options).ok());
    match (there, back) {
        (Ok(there), Some(back)) if *back == *value => there,
        _ => value,
    }
}

/// A value in binary, as an array of one; `known`: the type that its values are taken for.
fn from_binary(oid: u32, known: &DataType, bytes: &[u8]) -> Result<ArrayRef, Complaint> {
    match oid {
        1700 => {
            let decimal = decimal_from_binary(bytes).map_err(|what| Wrong(oid).because(what))?;
            from_text(&own_scale(known, &decimal), &[Some(&decimal)], "UTC")
        }
        // What has a name in text has a number in binary.
        2205 | 2206 => of_type(oid, &DataType::Int64, &[Some(bytes)]),
        _ => of_type(oid, known, &[Some(bytes)]),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn shown(array: &ArrayRef) -> String {
        format!("{} {}", array_value_to_string(array, 0).unwrap(), array.data_type())
    }

    #[test]
    fn identifiers_are_one_text_however_they_come() {
        let of = |text: &str| parameter(2950, None, false, Some(text.as_bytes()), "UTC").map(|value| shown(&value));
        let binary = parameter(2950, None, true, Some(&[0xab; 16]), "UTC").map(|value| shown(&value));
        let wanted = "abababab-abab-abab-abab-abababababab Utf8";
        assert_eq!([of("ABABABABabababababababababababab").unwrap(), binary.unwrap()], [wanted, wanted]);
        assert!(of("abab").is_err() && of("").is_err());
    }

    #[test]
    fn lists_of_identifiers_are_what_the_statement_wants() {
        let item = Field::new_list_field(DataType::FixedSizeBinary(16), true).with_metadata(pithead_model::uuid_metadata());
        let wanted = DataType::List(Arc::new(item));
        let int = |value: i32| value.to_be_bytes();
        let binary = [&int(1)[..], &int(0), &int(2950), &int(1), &int(1), &int(16), &[0xab; 16]].concat();
        for (oid, is_binary, bytes) in [
            (2951, false, &b"{ABABABAB-abab-abab-abab-abababababab}"[..]),
            (0, false, b"{abababababababababababababababab}"),
            (1009, false, b"{abababab-abab-abab-abab-abababababab}"),
            (2951, true, &binary),
        ] {
            let value = parameter(oid, Some(&wanted), is_binary, Some(bytes), "UTC").unwrap();
            assert_eq!(*value.data_type(), without_marks(&wanted), "{oid} {is_binary}");
            assert_eq!(array_value_to_string(&value, 0).unwrap(), format!("[{}]", "ab".repeat(16)), "{oid} {is_binary}");
        }
        assert!(parameter(2951, Some(&wanted), false, Some(b"{seven}"), "UTC").is_err());
    }

    #[test]
    fn texts_become_values() {
        for (oid, text, expected) in [
            (23, " 7 ", "7 Int32"),
            (16, "t", "true Boolean"),
            (1700, "1.005", "1.005 Decimal128(38, 3)"),
            (1082, "2024-02-29", "2024-02-29 Date32"),
            (17, "\\x0aFF", "0aff Binary"),
            (17, "a\\\\\\012", "615c0a Binary"),
            (25, " a", " a Utf8"),
            (1114, "2024-02-29 01:02:03.5", "2024-02-29T01:02:03.500 Timestamp(µs)"),
            (1184, "2024-02-29 01:02:03", "2024-02-29T00:02:03Z Timestamp(µs, \"UTC\")"),
            (1184, "2024-03-31 02:30:00", "2024-03-31T01:30:00Z Timestamp(µs, \"UTC\")"),
            (1184, "2024-10-27 02:30:00.5", "2024-10-27T01:30:00.500Z Timestamp(µs, \"UTC\")"),
            (1186, "-1 days +02:03:04", "-1 days 2 hours 3 mins 4.000000000 secs Interval(MonthDayNano)"),
            (
                1186,
                "1 year 2 mons 3 days 04:05:06.000001",
                "14 mons 3 days 4 hours 5 mins 6.000001000 secs Interval(MonthDayNano)",
            ),
            (1186, "25:00:00", "25 hours Interval(MonthDayNano)"),
            (1186, "P1Y2MT3H", "14 mons 3 hours Interval(MonthDayNano)"),
            (1186, "@ 3 04:05:06 ago", "-3 days -4 hours -5 mins -6.000000000 secs Interval(MonthDayNano)"),
            (1007, "{1,NULL}", "[1, ] List(Int32)"),
        ] {
            let value = parameter(oid, None, false, Some(text.as_bytes()), "Europe/Berlin").unwrap();
            assert_eq!(shown(&value), expected, "{oid} {text}");
        }
        for (oid, text) in [
            (23, "x"),
            (23, "99999999999"),
            (16, "maybe"),
            (1083, "12"),
            (17, "\\xzz"),
            (1082, "yesterday"),
            (1007, "{x}"),
            (12_345, "1"),
        ] {
            assert!(parameter(oid, None, false, Some(text.as_bytes()), "UTC").is_err(), "{oid} {text}");
        }
    }

    #[test]
    fn values_become_what_the_statement_wants_where_they_stay_the_same() {
        let fitted = |oid, inferred: DataType, text: &str| {
            shown(&parameter(oid, Some(&inferred), false, Some(text.as_bytes()), "UTC").unwrap())
        };
        assert_eq!(fitted(21, DataType::Int64, "7"), "7 Int64");
        assert_eq!(fitted(20, DataType::Int16, "70000"), "70000 Int64");
        assert_eq!(fitted(1700, DataType::Decimal128(15, 2), "1.50"), "1.50 Decimal128(15, 2)");
        assert_eq!(fitted(1700, DataType::Decimal128(15, 2), "1.005"), "1.005 Decimal128(38, 3)");
        assert_eq!(fitted(0, DataType::Date32, "2024-02-29"), "2024-02-29 Date32");
    }

    /// A regression: a moment was made a wall time or a day by UTC, and rows of other hours were found and stored.
    #[test]
    fn moments_and_wall_times_are_left_to_the_statement_and_its_zone() {
        let moment = |unit_zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, unit_zone.map(Into::into));
        let fitted = |oid, inferred: DataType, text: &str, zone| {
            shown(&parameter(oid, Some(&inferred), false, Some(text.as_bytes()), zone).unwrap())
        };
        let midnight = "2024-07-01 00:00:00+00";
        for wanted in [moment(None), DataType::Date32] {
            let kept = fitted(1184, wanted, midnight, "Europe/Berlin");
            assert_eq!(kept, "2024-07-01T00:00:00Z Timestamp(µs, \"UTC\")");
        }
        assert_eq!(fitted(1082, moment(Some("UTC")), "2024-07-01", "Europe/Berlin"), "2024-07-01 Date32");
        assert_eq!(fitted(1184, moment(None), midnight, "UTC"), "2024-07-01T00:00:00 Timestamp(µs)");
        let text = fitted(1114, DataType::Utf8, "2024-07-01 00:00:00", "UTC");
        assert_eq!(text, "2024-07-01T00:00:00 Timestamp(µs)", "and no text");
        let listed = fitted(1185, DataType::new_list(moment(None), true), &format!("{{{midnight}}}"), "Europe/Berlin");
        assert_eq!(listed, "[2024-07-01T02:00:00] List(Timestamp(µs))");
    }

    /// A regression: each value of an array was made an array of its own, which took hundreds of bytes.
    #[test]
    fn arrays_in_binary_are_read() {
        let int = |value: i32| value.to_be_bytes().to_vec();
        let array = |oid: u32, item: u32, values: &[Option<&[u8]>]| {
            let mut bytes = [int(1), int(0), int(item as i32), int(values.len() as i32), int(1)].concat();
            for value in values {
                bytes.extend(int(value.map_or(-1, |value| value.len() as i32)));
                bytes.extend(value.unwrap_or_default());
            }
            shown(&parameter(oid, None, true, Some(&bytes), "UTC").unwrap())
        };
        assert_eq!(array(1007, 23, &[Some(b"\0\0\0\x07"), None]), "[7, ] List(Int32)");
        assert_eq!(array(1028, 26, &[Some(b"\xff\xff\xff\xff")]), "[4294967295] List(Int64)");
        assert_eq!(array(1009, 25, &[Some(b"a b")]), "[a b] List(Utf8)");
        assert_eq!(array(2951, 2950, &[Some(&[0x11; 16])]), "[11111111-1111-1111-1111-111111111111] List(Utf8)");
        assert_eq!(array(3807, 3802, &[Some(b"\x01{}")]), "[{}] List(Utf8)");
        assert_eq!(array(1231, 1700, &[Some(b"\0\x02\0\0\0\0\0\x02\0\x01\x13\x88")]), "[1.500000000] List(Decimal128(38, 9))");
    }

    #[test]
    fn lying_bytes_are_refused() {
        for (oid, bytes) in [
            (23, &b"\0\0\0"[..]),
            (16, b""),
            (1082, b"\x7f\xff\xff\xff"),
            (1083, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
            (1114, b"\x7f\xff\xff\xff\xff\xff\xff\xff"),
            (1186, b"\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0"),
            (25, b"\xff"),
            (2950, b"short"),
            (1007, b"\0\0\0\x01\0\0\0\0\0\0\0\x14\0\0\0\x01\0\0\0\x01\0\0\0\x04\0\0\0\x01"),
        ] {
            assert!(parameter(oid, None, true, Some(bytes), "UTC").is_err(), "{oid}");
        }
        let int = parameter(23, Some(&DataType::Int64), true, Some(b"\0\0\0\x07"), "UTC").unwrap();
        assert_eq!(shown(&int), "7 Int64");
    }
}
