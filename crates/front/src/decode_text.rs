//! Values from texts: parameters, and the fields of COPY FROM as text and CSV.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, ListArray, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{CastOptions, cast_with_options, is_not_null};
use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use pithead_functions::{interval_with_units, moments_at};
use pithead_pg_catalog::{TYPES, interval_in_units, pg_type};

use crate::error::Complaint;
use crate::sql_state::{NOT_SUPPORTED, WRONG_MOMENT, WRONG_TEXT};
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

fn wrong_text(data_type: &DataType, why: impl std::fmt::Display) -> Complaint {
    let oid = pg_type(&Field::new("", data_type.clone(), true));
    let name = TYPES.iter().find(|known| known.oid == oid).map_or("array", |known| known.sql);
    let code = if is_of_moments(data_type) { WRONG_MOMENT } else { WRONG_TEXT };
    Complaint::error(code, format!("invalid input syntax for type {name}: {why}"))
}

fn is_of_moments(data_type: &DataType) -> bool {
    use DataType as D;
    matches!(
        data_type,
        D::Date32 | D::Date64 | D::Time32(_) | D::Time64(_) | D::Timestamp(..) | D::Interval(_) | D::Duration(_)
    )
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
        DataType::Time32(_) | DataType::Time64(_) => {
            let texts = each(texts, dates::time_without_zone);
            match texts.iter().flatten().find(|text| !text.contains(':')) {
                // Arrow reads a number as one of nanoseconds.
                Some(number) => Err(wrong_text(data_type, format!("{}, expected hours:minutes", shortened(number)))),
                None => converted(&texts, data_type, data_type),
            }
        }
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
    match interval_in_units(text) {
        Some(units) => Cow::Owned(interval_with_units(&units).unwrap_or(units)),
        None => interval_with_units(text).map_or(Cow::Borrowed(text), Cow::Owned),
    }
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
pub(crate) fn plain_decimal(text: &str) -> Cow<'_, str> {
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
            let wrong = || Complaint::error(WRONG_TEXT, format!("invalid input syntax for type uuid: {}", shortened(text)));
            hexadecimal(&text.replace('-', "")).ok_or_else(wrong)
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
