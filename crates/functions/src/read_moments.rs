//! `strptime` and `try_strptime`: moments in texts of a format that is given, as in DuckDB.
//!
//! The letters are chrono's, except that `%f`, `%g` and `%n` are fractions of a second with up to six, three and nine digits. What a format
//! does not have is that of 1900-01-01 00:00:00.

use std::sync::Arc;

use arrow::array::{Array, AsArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use chrono::format::{Item, Numeric, Parsed, StrftimeItems, parse_and_remainder};
use chrono::{NaiveDateTime, TimeDelta};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::wall_time::as_given;

pub(crate) fn read_moments_udfs() -> [ScalarUDF; 2] {
    let signature = Signature::exact(vec![DataType::Utf8View, DataType::Utf8View], Volatility::Immutable);
    [("strptime", true), ("try_strptime", false)]
        .map(|(name, must_fit)| ScalarUDF::new_from_impl(ReadMoments { name, must_fit, signature: signature.clone() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadMoments {
    name: &'static str,
    /// Whether a text that does not fit is an error, and not NULL.
    must_fit: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ReadMoments {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [texts, formats] = args.args.as_slice() else { return internal_err!("expected two arguments") };
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let (texts, formats) = (texts.to_array(rows)?, formats.to_array(rows)?);
        let (texts, formats) = (texts.as_string_view(), formats.as_string_view());
        let mut known: Option<(&str, Format)> = None;
        let mut moments: Vec<Option<i64>> = Vec::with_capacity(rows);
        for row in 0..rows {
            if texts.is_null(row) || formats.is_null(row) {
                moments.push(None);
                continue;
            }
            let (text, written) = (texts.value(row), formats.value(row));
            let format = match known.take() {
                Some((of, format)) if of == written => format,
                _ => Format::of(written)?,
            };
            let moment = format.read(text);
            if moment.is_none() && self.must_fit {
                return exec_err!("{} expects a text of the format '{written}', and '{text}' was given", self.name);
            }
            moments.push(moment.map(|moment| moment.and_utc().timestamp_micros()));
            known = Some((written, format));
        }
        as_given(Arc::new(TimestampMicrosecondArray::from(moments)), is_scalar)
    }
}

/// A format, cut behind each fraction of a second: what chrono reads, and how many digits the fraction has at most.
struct Format<'a>(Vec<(Vec<Item<'a>>, usize)>);

impl<'a> Format<'a> {
    fn of(written: &'a str) -> Result<Self> {
        let mut parts = Vec::new();
        let (mut first, mut at) = (0, 0);
        while let Some(found) = written[at..].find('%') {
            let sign = at + found;
            let letter = written[sign + 1..].chars().next();
            let digits = match letter {
                Some('f') => 6,
                Some('g') => 3,
                Some('n') => 9,
                _ => 0,
            };
            at = sign + 1 + letter.map_or(0, char::len_utf8);
            if digits > 0 {
                parts.push((items(written, first..sign)?, digits));
                first = at;
            }
        }
        parts.push((items(written, first..written.len())?, 0));
        Ok(Self(parts))
    }

    /// The moment in a text; none: the text does not fit.
    fn read(&self, text: &str) -> Option<NaiveDateTime> {
        let mut parsed = Parsed::new();
        let mut rest = text.trim();
        for (items, digits_max) in &self.0 {
            for item in items {
                let is_year = matches!(item, Item::Numeric(Numeric::Year | Numeric::IsoYear, _));
                if is_year && rest.trim_start().starts_with('+') {
                    return None;
                }
                rest = parse_and_remainder(&mut parsed, rest, std::iter::once(item)).ok()?;
            }
            if *digits_max > 0 {
                let count = rest.bytes().take_while(u8::is_ascii_digit).count();
                if !(1..=*digits_max).contains(&count) {
                    return None;
                }
                let (digits, behind) = rest.split_at(count);
                parsed.set_nanosecond(format!("{digits:0<9}").parse().ok()?).ok()?;
                rest = behind;
            }
        }
        if rest.trim().is_empty() { moment_of(parsed) } else { None }
    }
}

fn items(written: &str, part: std::ops::Range<usize>) -> Result<Vec<Item<'_>>> {
    let items: Vec<Item> = StrftimeItems::new(&written[part]).collect();
    if items.contains(&Item::Error) {
        return exec_err!("'{written}' is no format of moments: it has letters that stand for nothing");
    }
    Ok(items)
}

fn moment_of(mut parsed: Parsed) -> Option<NaiveDateTime> {
    // A leap second is none in SQL.
    if parsed.second() == Some(60) {
        return None;
    }
    // Two digits are years from 1969 to 2068; chrono's are from 1970 to 2069.
    if parsed.year_mod_100() == Some(69) && parsed.year().is_none() && parsed.year_div_100().is_none() {
        parsed.set_year(1969).ok()?;
    }
    if parsed.timestamp().is_some() {
        return parsed.to_naive_datetime_with_offset(0).ok();
    }
    let of_weeks = [parsed.ordinal(), parsed.isoweek(), parsed.week_from_sun(), parsed.week_from_mon()];
    if of_weeks.iter().all(Option::is_none) {
        if parsed.year().is_none() && parsed.year_mod_100().is_none() {
            parsed.set_year(1900).ok()?;
        }
        if parsed.month().is_none() {
            parsed.set_month(1).ok()?;
        }
        if parsed.day().is_none() {
            parsed.set_day(1).ok()?;
        }
    }
    match (parsed.hour_div_12(), parsed.hour_mod_12()) {
        (_, None) => parsed.set_hour(0).ok()?,
        (None, _) => parsed.set_ampm(false).ok()?,
        _ => {}
    }
    if parsed.minute().is_none() {
        parsed.set_minute(0).ok()?;
    }
    if parsed.second().is_none() {
        parsed.set_second(0).ok()?;
    }
    let moment = parsed.to_naive_date().ok()?.and_time(parsed.to_naive_time().ok()?);
    moment.checked_sub_signed(TimeDelta::seconds(parsed.offset().unwrap_or(0).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_by_their_format() {
        for (text, format, expected) in [
            ("2024-01-02 03:04:05.5", "%Y-%m-%d %H:%M:%S.%f", Some("2024-01-02T03:04:05.500")),
            ("2024-01-02 03:04:05.123", "%Y-%m-%d %H:%M:%S.%g", Some("2024-01-02T03:04:05.123")),
            ("2024-01-02 03:04:05", "%Y-%m-%d %H:%M:%S.%f", None),
            ("2024-01-02 03:04:05.1234567", "%Y-%m-%d %H:%M:%S.%f", None),
            ("9999-12-31", "%Y-%m-%d", Some("9999-12-31T00:00:00")),
            ("0001-01-01", "%Y-%m-%d", Some("0001-01-01T00:00:00")),
            ("03:04", "%H:%M", Some("1900-01-01T03:04:00")),
            ("2024/01", "%Y/%m", Some("2024-01-01T00:00:00")),
            ("2 Jan 2024, 3 PM", "%d %b %Y, %I %p", Some("2024-01-02T15:00:00")),
            ("2024-01-02 03:04:05 +0200", "%Y-%m-%d %H:%M:%S %z", Some("2024-01-02T01:04:05")),
            ("69", "%y", Some("1969-01-01T00:00:00")),
            ("68", "%y", Some("2068-01-01T00:00:00")),
            ("70", "%y", Some("1970-01-01T00:00:00")),
            ("23:59:60", "%H:%M:%S", None),
            ("+2024-01-01", "%Y-%m-%d", None),
            ("x +2024", "x %Y", None),
            ("2024-02-30", "%Y-%m-%d", None),
            ("2024-01-02 x", "%Y-%m-%d", None),
            ("x", "%Y", None),
        ] {
            let expected = expected.map(|moment| moment.parse::<NaiveDateTime>().unwrap());
            assert_eq!(Format::of(format).unwrap().read(text), expected, "{text}");
        }
        assert!(Format::of("%Y-%!").is_err());
    }
}
