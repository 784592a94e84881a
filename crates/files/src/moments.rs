//! Days, moments and times of day as they are written, of which nothing is cut.

use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime, string_to_time_nanoseconds};
use arrow::datatypes::{Date32Type, TimeUnit};
use chrono::{TimeZone, Timelike, Utc};

const DAY_CHARS: usize = 10;
const NANOSECOND_DIGITS: usize = 9;

/// What moments of a column say of their zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Zones {
    /// What they like.
    #[default]
    Any,
    /// Nothing: they are wall times.
    None,
    /// An offset, or a zone.
    Each,
}

/// The days since 1970. A moment is one at midnight.
pub(crate) fn day(text: &str) -> Option<i32> {
    let days = Date32Type::parse(text)?;
    if text.len() <= DAY_CHARS || text.starts_with(['+', '-']) {
        return Some(days);
    }
    let moment = string_to_datetime(&Utc, text).ok()?;
    let is_midnight = moment.num_seconds_from_midnight() == 0 && moment.nanosecond() == 0;
    (is_midnight && !is_finer_than_nanoseconds(text)).then_some(days)
}

/// The units since 1970. A moment that says no zone is one of `zone`; one between two units is none.
pub(crate) fn moment(text: &str, zone: &impl TimeZone, unit: TimeUnit, zones: Zones) -> Option<i64> {
    let fits = match zones {
        Zones::Any => true,
        Zones::None => !says_zone(text),
        Zones::Each => says_zone(text),
    };
    if !fits || is_finer_than_nanoseconds(text) {
        return None;
    }
    let moment = string_to_datetime(zone, text).ok()?;
    let (seconds, nanoseconds) = (moment.timestamp(), i64::from(moment.timestamp_subsec_nanos()));
    let units = units(nanoseconds, unit)?;
    seconds.checked_mul(per_second(unit))?.checked_add(units)
}

/// The units since midnight.
pub(crate) fn time_of_day(text: &str, unit: TimeUnit) -> Option<i64> {
    if is_finer_than_nanoseconds(text) {
        return None;
    }
    units(string_to_time_nanoseconds(text).ok()?, unit)
}

/// Whether something follows the time of day: `Z`, an offset, or the name of a zone.
pub(crate) fn says_zone(text: &str) -> bool {
    let is_of_time = |each: char| each.is_ascii_digit() || matches!(each, ':' | '.');
    text.get(DAY_CHARS + 1..).is_some_and(|time| !time.trim_start_matches(is_of_time).is_empty())
}

fn is_finer_than_nanoseconds(text: &str) -> bool {
    // No time of day with a fraction of so many digits is shorter.
    if text.len() <= "0:00:00.".len() + NANOSECOND_DIGITS {
        return false;
    }
    let Some((_, fraction)) = text.split_once('.') else { return false };
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    digits.skip(NANOSECOND_DIGITS).any(|digit| digit != b'0')
}

/// Nanoseconds in units, if they are whole ones.
fn units(nanoseconds: i64, unit: TimeUnit) -> Option<i64> {
    let each = per_second(TimeUnit::Nanosecond) / per_second(unit);
    (nanoseconds % each == 0).then_some(nanoseconds / each)
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_between_two_units_is_none_of_them() {
        let of = |text: &str, unit| moment(text, &Utc, unit, Zones::Any);
        for (text, unit, expected) in [
            ("1970-01-02", TimeUnit::Second, Some(86_400)),
            ("1970-01-01 00:00:01", TimeUnit::Second, Some(1)),
            ("1970-01-01T00:00:01.000", TimeUnit::Second, Some(1)),
            ("1970-01-01 00:00:01.75", TimeUnit::Second, None),
            ("1970-01-01 00:00:01.75", TimeUnit::Millisecond, Some(1_750)),
            ("1969-12-31 23:59:59.75", TimeUnit::Millisecond, Some(-250)),
            ("1970-01-01 00:00:01.7505", TimeUnit::Millisecond, None),
            ("1970-01-01 00:00:00.000000001", TimeUnit::Nanosecond, Some(1)),
            ("1970-01-01 00:00:00.0000000010000", TimeUnit::Nanosecond, Some(1)),
            ("1970-01-01 00:00:00.0000000011", TimeUnit::Nanosecond, None),
            ("1970-01-01 02:00:01+02:00", TimeUnit::Second, Some(1)),
            ("9999-01-01 00:00:00", TimeUnit::Nanosecond, None),
            ("tomorrow", TimeUnit::Second, None),
        ] {
            assert_eq!(of(text, unit), expected, "{text} in {unit:?}");
        }
    }

    #[test]
    fn a_zone_is_what_follows_the_time_of_day() {
        for text in [
            "2024-01-01T10:00:00Z",
            "2024-01-01 10:00:00.5+02:00",
            "2024-01-01 10:00:00 Europe/Berlin",
            "2024-01-01 10:00:00-08",
        ] {
            assert!(says_zone(text), "{text}");
            assert!(moment(text, &Utc, TimeUnit::Microsecond, Zones::Each).is_some(), "{text}");
            assert_eq!(moment(text, &Utc, TimeUnit::Microsecond, Zones::None), None, "{text}");
        }
        for text in ["2024-01-01", "2024-01-01 10:00:00", "2024-01-01T10:00:00.123456"] {
            assert!(!says_zone(text), "{text}");
            assert_eq!(moment(text, &Utc, TimeUnit::Microsecond, Zones::Each), None, "{text}");
        }
    }

    #[test]
    fn a_day_is_no_moment_but_midnight() {
        for (text, expected) in [
            ("1970-01-02", Some(1)),
            ("1970-1-2", Some(1)),
            ("19700102", Some(1)),
            ("+1970-01-02", Some(1)),
            ("1970-01-02 00:00:00.000", Some(1)),
            ("1970-01-02T00:00:00Z", Some(1)),
            ("1970-01-02T00:00:00+02:00", None),
            ("1970-01-02 10:30:00", None),
            ("1970-01-02 00:00:00.0000000001", None),
            ("yesterday", None),
        ] {
            assert_eq!(day(text), expected, "{text}");
        }
    }

    #[test]
    fn a_time_of_day_between_two_units_is_none_of_them() {
        assert_eq!(time_of_day("00:00:01.5", TimeUnit::Microsecond), Some(1_500_000));
        assert_eq!(time_of_day("00:00:01.0000005", TimeUnit::Microsecond), None);
        assert_eq!(time_of_day("0:00:01.00000000050", TimeUnit::Nanosecond), None);
        assert_eq!(time_of_day("00:00:01.5", TimeUnit::Second), None);
    }
}
