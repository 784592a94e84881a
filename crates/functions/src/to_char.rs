//! `to_char`: moments, intervals and numbers as texts, by a pattern of PostgreSQL's. A pattern of moments that has a `%` is one of
//! `strftime`, which DataFusion knows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use chrono::{Datelike, NaiveDateTime, Offset, TimeZone, Timelike};
use chrono_tz::OffsetName;
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::functions::datetime;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::to_char_moments::{Moment, MomentPattern};
use crate::to_char_numbers::NumberPattern;
use crate::wall_time::{Unit, as_given, zone_of};

/// Digits of the largest decimals that have a column of their own.
const DIGITS_MAX: u8 = 38;
/// Digits of the largest whole number of 64 bits without a sign.
const UNSIGNED_DIGITS: u8 = 20;

pub(crate) fn to_char_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(ToChar {
        aliases: vec!["date_format".to_owned()],
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    aliases: Vec<String>,
    signature: Signature,
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &'static str {
        "to_char"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [value, pattern] if pattern.is_string() || pattern.is_null() => Ok(vec![taken(value)?, DataType::Utf8View]),
            _ => plan_err!("to_char expects a moment, an interval or a number, and a pattern, which is a text"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [values, patterns] = args.args.as_slice() else { return internal_err!("to_char expects two arguments") };
        let is_scalar = [values, patterns].iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let is_constant = matches!(patterns, ColumnarValue::Scalar(_));
        let texts = patterns.to_array(if is_constant { 1 } else { rows })?;
        let patterns = Patterns { texts, is_constant, may_be_strftimes: takes_strftime(&values.data_type()) };
        if is_constant && patterns.are_strftimes() {
            return strftime(args);
        }
        let values = values.to_array(rows)?;
        let own = match values.data_type() {
            DataType::Int64 | DataType::Float64 | DataType::Decimal128(..) => numbers(&values, &patterns),
            _ => moments(&values, &patterns),
        };
        let texts = if patterns.are_strftimes() { merged(args, &patterns, &own?, rows) } else { own };
        as_given(texts?, is_scalar)
    }
}

/// The type of the values that it takes one for.
fn taken(of: &DataType) -> Result<DataType> {
    Ok(match of {
        DataType::Null => DataType::Timestamp(TimeUnit::Microsecond, None),
        text if text.is_string() => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::UInt64 => DataType::Decimal128(UNSIGNED_DIGITS, 0),
        whole if whole.is_integer() => DataType::Int64,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        DataType::Decimal32(digits, scale) | DataType::Decimal64(digits, scale) | DataType::Decimal128(digits, scale)
            if *scale >= 0 =>
        {
            DataType::Decimal128(*digits, *scale)
        }
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) => DataType::Decimal128(DIGITS_MAX, 0),
        DataType::Decimal256(_, scale) => DataType::Decimal128(DIGITS_MAX, (*scale).max(0)),
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        of if takes_strftime(of) => of.clone(),
        other => return plan_err!("to_char expects a moment, an interval or a number, and {other} was given"),
    })
}

fn takes_strftime(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Duration(_)
    )
}

/// One pattern for each row, or one for all.
struct Patterns {
    texts: ArrayRef,
    is_constant: bool,
    /// Whether those with a `%` are of `strftime`.
    may_be_strftimes: bool,
}

impl Patterns {
    /// That of a row.
    fn any_at(&self, row: usize) -> Option<&str> {
        let (texts, row): (&StringViewArray, _) = (self.texts.as_string_view(), if self.is_constant { 0 } else { row });
        texts.is_valid(row).then(|| texts.value(row))
    }

    /// That of a row, if it is one of PostgreSQL's.
    fn at(&self, row: usize) -> Option<&str> {
        self.any_at(row).filter(|text| !self.is_strftimes(text))
    }

    fn is_strftimes(&self, text: &str) -> bool {
        self.may_be_strftimes && text.contains('%')
    }

    /// Whether there is one of `strftime`.
    fn are_strftimes(&self) -> bool {
        self.texts.as_string_view().iter().flatten().any(|text| self.is_strftimes(text))
    }
}

/// The text of each row. Patterns that follow one another are read once.
fn each<P>(
    values: &ArrayRef,
    patterns: &Patterns,
    read: impl Fn(&str) -> Result<P>,
    write: impl Fn(&P, usize) -> Result<String>,
) -> Result<ArrayRef> {
    let mut texts = StringBuilder::new();
    let mut known: Option<(&str, P)> = None;
    for row in 0..values.len() {
        let Some(pattern) = patterns.at(row).filter(|_| values.is_valid(row)) else {
            texts.append_null();
            continue;
        };
        let (_, read) = match known.take().filter(|(text, _)| *text == pattern) {
            Some(same) => known.insert(same),
            None => known.insert((pattern, read(pattern)?)),
        };
        texts.append_value(write(read, row)?);
    }
    Ok(Arc::new(texts.finish()))
}

fn numbers(values: &ArrayRef, patterns: &Patterns) -> Result<ArrayRef> {
    let read = |pattern: &str| match NumberPattern::read(pattern) {
        Ok(read) => Ok(read),
        Err(why) => exec_err!("to_char: the pattern '{pattern}' cannot be read: {why}"),
    };
    match values.data_type() {
        DataType::Int64 => {
            let whole = values.as_primitive::<Int64Type>();
            each(values, patterns, read, |pattern, row| Ok(pattern.of_decimal(i128::from(whole.value(row)), 0)))
        }
        DataType::Decimal128(_, scale) => {
            let scale = usize::try_from(*scale).unwrap_or(0);
            let decimals = values.as_primitive::<Decimal128Type>();
            each(values, patterns, read, |pattern, row| Ok(pattern.of_decimal(decimals.value(row), scale)))
        }
        DataType::Float64 => {
            let floats = values.as_primitive::<Float64Type>();
            each(values, patterns, read, |pattern, row| Ok(pattern.of_float(floats.value(row))))
        }
        other => internal_err!("to_char expects numbers, and {other} was given"),
    }
}

fn moments(values: &ArrayRef, patterns: &Patterns) -> Result<ArrayRef> {
    let spans = |span: &dyn Fn(usize) -> Moment| by_moment(values, patterns, |row| Ok(span(row)));
    match values.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => points::<TimestampSecondType>(values, patterns),
        DataType::Timestamp(TimeUnit::Millisecond, _) => points::<TimestampMillisecondType>(values, patterns),
        DataType::Timestamp(TimeUnit::Microsecond, _) => points::<TimestampMicrosecondType>(values, patterns),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => points::<TimestampNanosecondType>(values, patterns),
        DataType::Date32 | DataType::Date64 => {
            points::<TimestampSecondType>(&cast(values, &DataType::Timestamp(TimeUnit::Second, None))?, patterns)
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let times = cast(values, &DataType::Time64(TimeUnit::Nanosecond))?;
            let times = times.as_primitive::<Time64NanosecondType>();
            spans(&|row| span(0, 0, times.value(row) / 1_000))
        }
        DataType::Duration(_) => {
            let durations = cast(values, &DataType::Duration(TimeUnit::Microsecond))?;
            let durations = durations.as_primitive::<DurationMicrosecondType>();
            spans(&|row| span(0, 0, durations.value(row)))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let intervals = values.as_primitive::<IntervalMonthDayNanoType>();
            spans(&|row| {
                let interval = intervals.value(row);
                span(i64::from(interval.months), i64::from(interval.days), interval.nanoseconds / 1_000)
            })
        }
        other => internal_err!("to_char expects moments, and {other} was given"),
    }
}

fn by_moment(values: &ArrayRef, patterns: &Patterns, moment: impl Fn(usize) -> Result<Moment>) -> Result<ArrayRef> {
    each(
        values,
        patterns,
        |pattern| Ok(MomentPattern::read(pattern)),
        |pattern, row| match pattern.of(&moment(row)?) {
            Ok(text) => Ok(text),
            Err(why) => exec_err!("to_char: {why}"),
        },
    )
}

/// Moments of their zone, or wall times.
fn points<T: Unit>(values: &ArrayRef, patterns: &Patterns) -> Result<ArrayRef> {
    let DataType::Timestamp(_, zone) = values.data_type() else { return internal_err!("to_char expects moments") };
    let named: Option<chrono_tz::Tz> = zone.as_deref().and_then(|zone| zone.parse().ok());
    let zone = zone.as_deref().map(zone_of).transpose()?;
    let moments = values.as_primitive::<T>();
    by_moment(values, patterns, |row| {
        let value = moments.value(row);
        let Some(moment) = T::read(value) else { return exec_err!("the moment {value} is out of the range of dates") };
        let Some(zone) = &zone else { return Ok(point(moment)) };
        let offset = zone.offset_from_utc_datetime(&moment).fix();
        let shown = point(moment.checked_add_offset(offset).unwrap_or(moment));
        let name = named.and_then(|named| named.offset_from_utc_datetime(&moment).abbreviation().map(str::to_owned));
        // A zone that has no name but its offset.
        let by_offset = || offset.to_string().trim_end_matches(":00").to_owned();
        Ok(Moment { offset: i64::from(offset.local_minus_utc()), zone: name.unwrap_or_else(by_offset), ..shown })
    })
}

/// A wall time in parts.
fn point(moment: NaiveDateTime) -> Moment {
    Moment {
        year: i64::from(moment.year()),
        month: i64::from(moment.month()),
        day: i64::from(moment.day()),
        hour: i64::from(moment.hour()),
        minute: i64::from(moment.minute()),
        second: i64::from(moment.second()),
        microsecond: i64::from(moment.nanosecond() / 1_000),
        date: Some(moment.date()),
        ..Moment::default()
    }
}

/// An interval in parts.
fn span(months: i64, days: i64, microseconds: i64) -> Moment {
    let seconds = microseconds / 1_000_000;
    Moment {
        year: months / 12,
        month: months % 12,
        day: days,
        hour: seconds / 3_600,
        minute: seconds / 60 % 60,
        second: seconds % 60,
        microsecond: microseconds % 1_000_000,
        ..Moment::default()
    }
}

fn strftime(mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
    for pattern in &mut args.args[1..] {
        *pattern = pattern.cast_to(&DataType::Utf8, None)?;
    }
    datetime::to_char().invoke_with_args(args)
}

/// The texts, of which some are of `strftime`'s patterns.
fn merged(args: ScalarFunctionArgs, patterns: &Patterns, own: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    let theirs = strftime(args)?.to_array(rows)?;
    let (own, theirs) = (own.as_string::<i32>(), theirs.as_string::<i32>());
    let mut texts = StringBuilder::new();
    for row in 0..rows {
        let is_theirs = patterns.any_at(row).is_some_and(|pattern| patterns.is_strftimes(pattern));
        let from = if is_theirs { theirs } else { own };
        texts.append_option(from.is_valid(row).then(|| from.value(row)));
    }
    Ok(Arc::new(texts.finish()))
}

#[cfg(test)]
mod tests {
    use datafusion::execution::context::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn shown(sql: &str) -> std::result::Result<Vec<String>, String> {
        let options = EngineOptions { time_zone: Some("Europe/Berlin".to_owned()), ..EngineOptions::default() };
        let context = SessionContext::new_with_state(session_state(&options));
        let batches = async { context.sql(sql).await?.collect().await }.await.map_err(|error| error.to_string())?;
        let rows = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
        let cell = |line: &str| line.trim_matches('|').trim().to_owned();
        Ok(rows.lines().skip(3).filter(|line| !line.starts_with('+')).map(cell).collect())
    }

    #[tokio::test]
    async fn each_kind_of_value_has_its_patterns() {
        for (call, expected) in [
            ("to_char(TIMESTAMP '2024-07-05 03:04:05.678901', 'YYYY-MM-DD HH24:MI:SS.US')", "2024-07-05 03:04:05.678901"),
            ("to_char(TIMESTAMPTZ '2024-07-05 01:04:05Z', 'HH24:MI TZ OF')", "03:04 CEST +02"),
            ("to_char(DATE '2024-02-29', 'FMDay DDth')", "Thursday 29th"),
            ("to_char(DATE '2024-02-29', '%d.%m.%Y')", "29.02.2024"),
            ("to_char(TIME '11:22:33', 'HH24:MI')", "11:22"),
            ("to_char(INTERVAL '14 months 26 hours', 'FMYYYY FMMM HH24')", "1 2 26"),
            ("to_char(INTERVAL '1 hour', 'HH24%')", "01%"),
            ("to_char(1234567, 'FM9,999,999')", "1,234,567"),
            ("to_char(-0.5, 'FM990.0%')", "-0.5%"),
            ("to_char(CAST(12.345 AS DECIMAL(10, 3)), '990.00')", "12.35"),
            ("to_char(CAST(18446744073709551615 AS BIGINT UNSIGNED), 'FM99999999999999999999')", "18446744073709551615"),
            ("to_char(NULL, 'YYYY')", ""),
            ("to_char(DATE '2024-02-29', NULL)", ""),
            ("date_format(DATE '2024-02-29', 'Mon')", "Feb"),
        ] {
            assert_eq!(shown(&format!("SELECT {call}")).await, Ok(vec![expected.to_owned()]), "{call}");
        }
        for (call, why) in [
            ("to_char(1, 'S9S')", "it has S twice"),
            ("to_char(INTERVAL '1 day', 'Day')", "an interval, which is of no day"),
            ("to_char(true, 'YYYY')", "to_char expects a moment, an interval or a number"),
            ("to_char(1, 2)", "a pattern, which is a text"),
        ] {
            let error = shown(&format!("SELECT {call}")).await.unwrap_err();
            assert!(error.contains(why), "{call}: {error}");
        }
    }

    #[tokio::test]
    async fn patterns_may_differ_by_row() {
        let rows = "(VALUES (1, 'YYYY'), (2, '%y'), (3, 'MM'), (4, NULL), (5, '%m')) AS t(k, p)";
        let sql = format!("SELECT to_char(CASE WHEN k = 3 THEN NULL ELSE DATE '2024-02-29' END, p) FROM {rows} ORDER BY k");
        assert_eq!(shown(&sql).await.unwrap(), ["2024", "24", "", "", "02"]);
        let sql = format!("SELECT to_char(k * 1.5, repeat('9', k) || '.9') FROM {rows} WHERE k < 3 ORDER BY k");
        assert_eq!(shown(&sql).await.unwrap(), ["1.5", "3.0"]);
    }
}
