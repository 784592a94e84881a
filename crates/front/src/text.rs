//! Values as text.

use std::io::Write;

use arrow::array::timezone::Tz;
use chrono::{DateTime, Offset, TimeZone, Utc};

use crate::arrays;
use crate::columns::Column;
use crate::digits::{padded, signed};
use crate::numbers::{decimal, float};

/// Days from 1970-01-01 to 0000-03-01, from which eras of 400 years are counted.
const DAYS_BEFORE: i64 = 719_468;
const DAY_MICROS: i64 = 86_400_000_000;

/// Writes the value of a row, which is not NULL.
pub(crate) fn write(out: &mut Vec<u8>, column: &Column, row: usize, zone: &Tz) {
    match column {
        Column::Null => {}
        Column::Bool(array) => out.push(if array.value(row) { b't' } else { b'f' }),
        Column::Int2(array) => signed(out, i64::from(array.value(row))),
        Column::Int4(array) => signed(out, i64::from(array.value(row))),
        Column::Int8(array) => signed(out, array.value(row)),
        Column::Float4(array) => {
            let value = array.value(row);
            float(out, &format!("{value:e}"), f64::from(value), 6);
        }
        Column::Float8(array) => {
            let value = array.value(row);
            float(out, &format!("{value:e}"), value, 15);
        }
        Column::Text(array) => out.extend_from_slice(array.value(row).as_bytes()),
        Column::Made(array, _) => out.extend_from_slice(array.value(row).as_bytes()),
        Column::Bytes(array) => {
            out.extend_from_slice(b"\\x");
            hexadecimal(out, array.value(row));
        }
        Column::Uuid(array) => uuid(out, array.value(row)),
        Column::Numeric(array, scale) => decimal(out, array.value(row), *scale),
        Column::Date(array) => {
            let era = date(out, i64::from(array.value(row)));
            out.extend_from_slice(era);
        }
        Column::Time(array) => time(out, array.value(row)),
        Column::Timestamp { values, zoned } => timestamp(out, values.value(row), zoned.then_some(zone)),
        Column::Interval(array) => {
            let value = array.value(row);
            interval(out, value.months, value.days, value.nanoseconds / 1000);
        }
        Column::List { lists, items, .. } => {
            let offsets = lists.value_offsets();
            arrays::write_text(out, items, offsets[row] as usize..offsets[row + 1] as usize, zone);
        }
    }
}

fn hexadecimal(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
}

/// Writes an identifier.
pub(crate) fn uuid(out: &mut Vec<u8>, bytes: &[u8]) {
    for (place, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&place) {
            out.push(b'-');
        }
        hexadecimal(out, std::slice::from_ref(byte));
    }
}

/// Writes a day, by days since 1970. What comes after all else: the era, where it is not the usual one.
fn date(out: &mut Vec<u8>, days: i64) -> &'static [u8] {
    let (year, month, day) = civil(days);
    // The year before 1 is 1 BC.
    let (year, era): (i64, &[u8]) = if year > 0 { (year, b"") } else { (1 - year, b" BC") };
    padded(out, year as u64, 4);
    for part in [month, day] {
        out.push(b'-');
        padded(out, part as u64, 2);
    }
    era
}

/// Year, month and day (Hinnant, chrono-compatible low-level date algorithms, 2013).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Writes a time of day.
fn time(out: &mut Vec<u8>, micros: i64) {
    clock(out, micros.unsigned_abs());
}

/// Writes hours, minutes and seconds of so many microseconds, without zeros at the end of the fraction.
fn clock(out: &mut Vec<u8>, micros: u64) {
    let (seconds, mut fraction) = (micros / 1_000_000, micros % 1_000_000);
    padded(out, seconds / 3600, 2);
    for part in [seconds / 60 % 60, seconds % 60] {
        out.push(b':');
        padded(out, part, 2);
    }
    if fraction != 0 {
        let mut width = 6;
        while fraction % 10 == 0 {
            (fraction, width) = (fraction / 10, width - 1);
        }
        out.push(b'.');
        padded(out, fraction, width);
    }
}

/// Writes a moment, with its distance from UTC in `zone`.
fn timestamp(out: &mut Vec<u8>, micros: i64, zone: Option<&Tz>) {
    let offset = zone.map(|zone| {
        let moment = DateTime::<Utc>::from_timestamp_micros(micros).unwrap_or_default();
        i64::from(zone.offset_from_utc_datetime(&moment.naive_utc()).fix().local_minus_utc())
    });
    let local = micros.saturating_add(offset.unwrap_or(0) * 1_000_000);
    let era = date(out, local.div_euclid(DAY_MICROS));
    out.push(b' ');
    time(out, local.rem_euclid(DAY_MICROS));
    if let Some(offset) = offset {
        let (sign, offset) = (if offset < 0 { '-' } else { '+' }, offset.abs());
        let _ = write!(out, "{sign}{:02}", offset / 3600);
        if offset % 3600 != 0 {
            let _ = write!(out, ":{:02}", offset / 60 % 60);
        }
        if offset % 60 != 0 {
            let _ = write!(out, ":{:02}", offset % 60);
        }
    }
    out.extend_from_slice(era);
}

/// Writes an interval as PostgreSQL's style of that name does.
fn interval(out: &mut Vec<u8>, months: i32, days: i32, micros: i64) {
    let start = out.len();
    let mut negative_before = false;
    let parts = [(months / 12, "year"), (months % 12, "mon"), (days, "day")];
    for (value, unit) in parts.into_iter().filter(|(value, _)| *value != 0) {
        let space = if out.len() > start { " " } else { "" };
        let plus = if negative_before && value > 0 { "+" } else { "" };
        let many = if value == 1 { "" } else { "s" };
        let _ = write!(out, "{space}{plus}{value} {unit}{many}");
        negative_before = value < 0;
    }
    if micros != 0 || out.len() == start {
        if out.len() > start {
            out.push(b' ');
        }
        let sign = if micros < 0 {
            "-"
        } else if negative_before {
            "+"
        } else {
            ""
        };
        out.extend_from_slice(sign.as_bytes());
        clock(out, micros.unsigned_abs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn moments_are_written_as_postgresql_writes_them() {
        let zone: Tz = "Europe/Berlin".parse().unwrap();
        let india: Tz = "+05:30".parse().unwrap();
        assert_eq!(of(|out| timestamp(out, 0, None)), "1970-01-01 00:00:00");
        assert_eq!(of(|out| timestamp(out, 1_500_000, Some(&zone))), "1970-01-01 01:00:01.5+01");
        assert_eq!(of(|out| timestamp(out, -1, Some(&india))), "1970-01-01 05:29:59.999999+05:30");
        assert_eq!(of(|out| timestamp(out, 253_402_300_800_000_000, None)), "10000-01-01 00:00:00");
        assert_eq!(of(|out| timestamp(out, -62_135_596_800_000_001, None)), "0001-12-31 23:59:59.999999 BC");
        assert_eq!(of(|out| assert!(date(out, -1).is_empty())), "1969-12-31");
        assert_eq!(of(|out| assert!(date(out, 11_016).is_empty())), "2000-02-29");
        assert_eq!(of(|out| timestamp(out, i64::MAX, Some(&zone))).len(), "294247-01-10 04:00:54.775807+00".len());
    }

    #[test]
    fn intervals_are_written_as_postgresql_writes_them() {
        assert_eq!(of(|out| interval(out, 0, 0, 0)), "00:00:00");
        assert_eq!(of(|out| interval(out, 14, 3, 3_723_000_001)), "1 year 2 mons 3 days 01:02:03.000001");
        assert_eq!(of(|out| interval(out, -1, 2, -1_000_000)), "-1 mons +2 days -00:00:01");
        assert_eq!(of(|out| interval(out, 0, -1, 1_000_000)), "-1 days +00:00:01");
    }
}
