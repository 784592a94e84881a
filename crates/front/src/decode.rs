//! Values from clients: parameters in text and in binary, and the fields of COPY FROM.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{CastOptions, cast_with_options, concat, is_not_null};
use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use pithead_functions::{interval_with_units, moments_at};
use pithead_pg_catalog::{TYPES, pg_type};

use crate::error::{Complaint, NOT_SUPPORTED, WRONG_BINARY, WRONG_ENCODING, WRONG_TEXT};
use crate::moments::{Wrong, day, interval, micros, time_of_day};
use crate::numbers::decimal_from_binary;
use crate::text;
use crate::{arrays, dates};

/// The type whose values are taken for those of a type of PostgreSQL; none: it has no values here.
pub(crate) fn arrow_type(oid: u32) -> Option<DataType> {
    Some(match oid {
        16 => DataType::Boolean,
        17 => DataType::Binary,
        20 | 26 => DataType::Int64,
        21 => DataType::Int16,
        23 => DataType::Int32,
        0 | 18 | 19 | 25 | 114 | 705 | 1042 | 1043 | 2205 | 2206 | 2950 | 3802 => DataType::Utf8,
        700 => DataType::Float32,
        701 => DataType::Float64,
        1082 => DataType::Date32,
        1083 => DataType::Time64(TimeUnit::Microsecond),
        1114 => DataType::Timestamp(TimeUnit::Microsecond, None),
        1184 => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        1186 => DataType::Interval(IntervalUnit::MonthDayNano),
        1700 => DataType::Decimal128(38, 9),
        array => {
            let item = TYPES.iter().find(|known| known.array == array && array != 0)?;
            DataType::new_list(arrow_type(item.oid)?, true)
        }
    })
}

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
    let wanted = inferred.filter(|wanted| pg_type(&Field::new("", (*wanted).clone(), true)) == oid || oid == 0);
    let Some(bytes) = bytes else { return Ok(new_null_array(wanted.or(inferred).unwrap_or(&known), 1)) };
    let value = match binary {
        true => from_binary(oid, bytes)?,
        false => {
            let text = std::str::from_utf8(bytes)
                .map_err(|error| Complaint::error(WRONG_ENCODING, format!("a parameter is not UTF-8: {error}")))?;
            if text.contains('\0') {
                return Err(Complaint::error(WRONG_ENCODING, "invalid byte sequence for encoding \"UTF8\": 0x00"));
            }
            let plain = plain_decimal(text);
            from_text(&own_scale(wanted.unwrap_or(&known), &plain), &[Some(text)], zone)?
        }
    };
    Ok(match inferred {
        // Identifiers are texts, unless bytes are wanted.
        Some(inferred @ DataType::FixedSizeBinary(_)) if value.data_type() == &DataType::Utf8 => {
            let texts: Vec<Option<&str>> = value.as_string::<i32>().iter().collect();
            from_text(inferred, &texts, zone)?
        }
        Some(inferred) => fitted(value, inferred),
        None => value,
    })
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

/// The value as the type that the statement wants, where it is the same value in it; else as it is. What moment a wall time is, the
/// session's zone says, and the statement.
fn fitted(value: ArrayRef, wanted: &DataType) -> ArrayRef {
    let is_wall_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, None));
    let has_zone = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, Some(_)));
    if value.data_type() == wanted || is_wall_time(value.data_type()) && has_zone(wanted) {
        return value;
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let there = cast_with_options(&value, wanted, &options);
    let back = there.as_ref().ok().and_then(|there| cast_with_options(there, value.data_type(), &options).ok());
    match (there, back) {
        (Ok(there), Some(back)) if *back == *value => there,
        _ => value,
    }
}

fn wrong_text(data_type: &DataType, why: impl std::fmt::Display) -> Complaint {
    let oid = pg_type(&Field::new("", data_type.clone(), true));
    let name = TYPES.iter().find(|known| known.oid == oid).map_or("array", |known| known.sql);
    Complaint::error(WRONG_TEXT, format!("invalid input syntax for type {name}: {why}"))
}

/// Values of a type from texts.
pub(crate) fn from_text(data_type: &DataType, texts: &[Option<&str>], zone: &str) -> Result<ArrayRef, Complaint> {
    match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            bytes(data_type, texts)
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            lists(data_type, item, texts, zone)
        }
        DataType::Timestamp(unit, Some(_)) => {
            // What names no zone is in the session's.
            let local = converted(texts, &DataType::Timestamp(*unit, Some(zone.into())), data_type);
            let local = local.or_else(|complaint| by_clocks(texts, *unit, zone).ok_or(complaint))?;
            casted(&local, data_type)
        }
        DataType::Struct(_) | DataType::Map(..) | DataType::Union(..) => {
            Err(Complaint::error(NOT_SUPPORTED, format!("values of the type {data_type} cannot be given as text")))
        }
        // As PostgreSQL reads them: a day's time is left out, and so is the zone of what has none.
        DataType::Date32 | DataType::Date64 => converted(&each(texts, dates::day_of), data_type, data_type),
        DataType::Timestamp(_, None) => converted(&each(texts, dates::without_zone), data_type, data_type),
        DataType::Time32(_) | DataType::Time64(_) => converted(&each(texts, dates::time_without_zone), data_type, data_type),
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            let plain: Vec<Option<Cow<'_, str>>> = texts.iter().map(|text| text.map(plain_decimal)).collect();
            converted(&plain.iter().map(Option::as_deref).collect::<Vec<_>>(), data_type, data_type)
        }
        DataType::Interval(_) => {
            let plain: Vec<Option<Cow<'_, str>>> = texts.iter().map(|text| text.map(plain_interval)).collect();
            converted(&plain.iter().map(Option::as_deref).collect::<Vec<_>>(), data_type, data_type)
        }
        other => converted(texts, other, other),
    }
}

/// As it is written with units for all of its parts.
fn plain_interval(text: &str) -> Cow<'_, str> {
    interval_with_units(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Moments of which some are wall times that the zone's clocks skip or show twice. None: one of them is no moment.
fn by_clocks(texts: &[Option<&str>], unit: TimeUnit, zone: &str) -> Option<ArrayRef> {
    let is_wall_time = |text: &str| {
        text.trim().bytes().all(|byte| byte.is_ascii_digit() || b"-:. T".contains(&byte)) && dates::without_zone(text) == text
    };
    let of = |wanted: bool| texts.iter().map(|text| text.filter(|text| is_wall_time(text) == wanted)).collect::<Vec<_>>();
    let zoned = DataType::Timestamp(unit, Some(zone.into()));
    let named = converted(&of(false), &zoned, &zoned).ok()?;
    let wall_times = DataType::Timestamp(unit, None);
    let shown = moments_at(&converted(&of(true), &wall_times, &wall_times).ok()?, zone).ok()?;
    zip(&is_not_null(&shown).ok()?, &shown, &named).ok()
}

/// `1.5e3` as `1500`; what is written otherwise stays.
fn plain_decimal(text: &str) -> Cow<'_, str> {
    const DIGITS_MAX: i64 = 100;
    let plain = || {
        let (digits, exponent) = text.trim().split_once(['e', 'E'])?;
        let exponent: i64 = exponent.parse().ok().filter(|exponent: &i64| exponent.abs() <= DIGITS_MAX)?;
        let (sign, digits) = match digits.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", digits.strip_prefix('+').unwrap_or(digits)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = !(whole.is_empty() && fraction.is_empty())
            && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
        let point = whole.len() as i64 + exponent;
        let mut all = format!("{whole}{fraction}");
        let before = usize::try_from(-point.min(0)).ok()?;
        all.insert_str(0, &"0".repeat(before));
        let point = usize::try_from(point.max(0)).ok()?;
        if all.len() < point {
            all.push_str(&"0".repeat(point - all.len()));
        }
        is_number.then(|| format!("{sign}{}.{}", if point == 0 { "0" } else { &all[..point] }, &all[point..]))
    };
    plain().map_or(Cow::Borrowed(text), |text| Cow::Owned(text.trim_end_matches('.').to_owned()))
}

fn each<'a>(texts: &[Option<&'a str>], part: fn(&'a str) -> &'a str) -> Vec<Option<&'a str>> {
    texts.iter().map(|text| text.map(part)).collect()
}

fn converted(texts: &[Option<&str>], data_type: &DataType, named: &DataType) -> Result<ArrayRef, Complaint> {
    let texts: ArrayRef = Arc::new(texts.iter().copied().collect::<StringArray>());
    let is_text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let trimmed: ArrayRef = match is_text {
        true => texts,
        false => Arc::new(texts.as_string::<i32>().iter().map(|text| text.map(str::trim)).collect::<StringArray>()),
    };
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&trimmed, data_type, &options).map_err(|error| wrong_text(named, shortened(&error.to_string())))
}

pub(crate) fn casted(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, Complaint> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, data_type, &options).map_err(|error| wrong_text(data_type, shortened(&error.to_string())))
}

/// A message that repeats what a client sent only so far.
fn shortened(text: &str) -> String {
    const CHARACTERS: usize = 200;
    text.chars().take(CHARACTERS).collect()
}

/// `\x0a0b`, or bytes of which some are written `\\` or `\012`. Identifiers have hyphens between their digits.
fn bytes(data_type: &DataType, texts: &[Option<&str>]) -> Result<ArrayRef, Complaint> {
    let read = |text: &str| match data_type {
        DataType::FixedSizeBinary(_) if !text.starts_with("\\x") => {
            hexadecimal(&text.replace('-', "")).ok_or_else(|| wrong_text(data_type, shortened(text)))
        }
        _ => match text.strip_prefix("\\x") {
            Some(digits) => hexadecimal(digits).ok_or_else(|| wrong_text(data_type, "expected hexadecimal digits after \\x")),
            None => escaped(text).ok_or_else(|| wrong_text(data_type, "expected \\\\ or three octal digits after \\")),
        },
    };
    let values = texts.iter().map(|text| text.map(read).transpose()).collect::<Result<Vec<_>, _>>()?;
    let array: ArrayRef = Arc::new(values.iter().map(Option::as_deref).collect::<BinaryArray>());
    casted(&array, data_type)
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.trim().as_bytes().as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    pairs.iter().map(|[high, low]| u8::try_from(value(*high)? * 16 + value(*low)?).ok()).collect()
}

fn escaped(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                out.push(b'\\');
                rest = after;
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                out.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            (b'\\', _) => return None,
            (byte, _) => out.push(byte),
        }
    }
    Some(out)
}

fn lists(data_type: &DataType, item: &Arc<Field>, texts: &[Option<&str>], zone: &str) -> Result<ArrayRef, Complaint> {
    let (mut items, mut lengths, mut valid) = (Vec::new(), Vec::new(), Vec::new());
    for text in texts {
        let values = text.map(arrays::read_text).transpose().map_err(|why| Complaint::error(WRONG_TEXT, why))?;
        valid.push(values.is_some());
        let values = values.unwrap_or_default();
        lengths.push(values.len());
        items.extend(values);
    }
    let items: Vec<Option<&str>> = items.iter().map(Option::as_deref).collect();
    let values = from_text(item.data_type(), &items, zone)?;
    let field = Arc::new(Field::new("item", item.data_type().clone(), true));
    let lists = ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), values, Some(NullBuffer::from(valid)));
    let lists: ArrayRef = Arc::new(lists.map_err(|error| wrong_text(data_type, error))?);
    casted(&lists, data_type)
}

/// A value in binary, as an array of one.
fn from_binary(oid: u32, bytes: &[u8]) -> Result<ArrayRef, Complaint> {
    let of = Wrong(oid);
    let wrong = |what: &str| of.because(what);
    let length = |expected: usize| of.length(expected, bytes);
    macro_rules! number {
        ($array:ty, $native:ty) => {{
            let bytes = bytes.try_into().map_err(|_| length(size_of::<$native>()))?;
            Arc::new(<$array>::from(vec![<$native>::from_be_bytes(bytes)])) as ArrayRef
        }};
    }
    let of_text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Complaint::error("22021", format!("a parameter is not UTF-8: {error}")))?;
        Ok::<ArrayRef, Complaint>(Arc::new(StringArray::from(vec![text])))
    };
    Ok(match oid {
        16 => match bytes {
            [value] => Arc::new(BooleanArray::from(vec![*value != 0])),
            _ => return Err(length(1)),
        },
        17 => Arc::new(BinaryArray::from(vec![bytes])),
        20 => number!(Int64Array, i64),
        21 => number!(Int16Array, i16),
        23 => number!(Int32Array, i32),
        26 | 2205 | 2206 => {
            let bytes = bytes.try_into().map_err(|_| length(4))?;
            Arc::new(Int64Array::from(vec![i64::from(u32::from_be_bytes(bytes))]))
        }
        700 => number!(Float32Array, f32),
        701 => number!(Float64Array, f64),
        3802 => match bytes {
            // The version of the form comes first.
            [1, json @ ..] => of_text(json)?,
            _ => return Err(wrong("expected version 1")),
        },
        1082 => Arc::new(Date32Array::from(vec![day(bytes, of)?])),
        1083 => Arc::new(Time64MicrosecondArray::from(vec![time_of_day(bytes, of)?])),
        1114 => Arc::new(TimestampMicrosecondArray::from(vec![micros(bytes, of)?])),
        1184 => Arc::new(TimestampMicrosecondArray::from(vec![micros(bytes, of)?]).with_timezone("UTC")),
        1186 => Arc::new(IntervalMonthDayNanoArray::from(vec![interval(bytes, of)?])),
        1700 => {
            let decimal = decimal_from_binary(bytes).map_err(wrong)?;
            from_text(&own_scale(&DataType::Decimal128(38, 0), &decimal), &[Some(&decimal)], "UTC")?
        }
        2950 => {
            let uuid: &[u8; 16] = bytes.try_into().map_err(|_| length(16))?;
            let mut written = Vec::with_capacity(36);
            text::uuid(&mut written, uuid);
            Arc::new(StringArray::from_iter_values(std::str::from_utf8(&written)))
        }
        oid if arrow_type(oid) == Some(DataType::Utf8) => of_text(bytes)?,
        _ => array(oid, bytes)?,
    })
}

pub(crate) fn array(oid: u32, bytes: &[u8]) -> Result<ArrayRef, Complaint> {
    let wrong = |what: String| Complaint::error(WRONG_BINARY, format!("an array is malformed: {what}"));
    let known = TYPES.iter().find(|known| known.array == oid).ok_or_else(|| wrong(format!("{oid} is no type of arrays")))?;
    let (item_type, items) = arrays::read_binary(bytes).map_err(wrong)?;
    let is_text = |oid: u32| arrow_type(oid) == Some(DataType::Utf8);
    if item_type != known.oid && !(is_text(item_type) && is_text(known.oid)) {
        return Err(wrong(format!("its values are of the type {item_type}, and should be of {}", known.oid)));
    }
    let wanted = arrow_type(known.oid).unwrap_or(DataType::Utf8);
    let mut values = Vec::with_capacity(items.len());
    for item in &items {
        values.push(match item {
            Some(bytes) => casted(&from_binary(known.oid, bytes)?, &wanted)?,
            None => new_null_array(&wanted, 1),
        });
    }
    let parts: Vec<&dyn Array> = values.iter().map(AsRef::as_ref).collect();
    let values =
        if parts.is_empty() { new_null_array(&wanted, 0) } else { concat(&parts).map_err(|error| wrong(error.to_string()))? };
    let field = Arc::new(Field::new("item", wanted, true));
    let lists = ListArray::try_new(field, OffsetBuffer::from_lengths([values.len()]), values, None);
    Ok(Arc::new(lists.map_err(|error| wrong(error.to_string()))?))
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn shown(array: &ArrayRef) -> String {
        format!("{} {}", array_value_to_string(array, 0).unwrap(), array.data_type())
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
            (1007, "{1,NULL}", "[1, ] List(Int32)"),
        ] {
            let value = parameter(oid, None, false, Some(text.as_bytes()), "Europe/Berlin").unwrap();
            assert_eq!(shown(&value), expected, "{oid} {text}");
        }
        for (oid, text) in
            [(23, "x"), (23, "99999999999"), (16, "maybe"), (17, "\\xzz"), (1082, "yesterday"), (1007, "{x}"), (12_345, "1")]
        {
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
