//! [`SeenMoments`]: which type the days and moments of a column of CSV have. Arrow's guess goes by how they are written alone,
//! and takes 2024-01-01 24:00:00 for a moment, or 2500-01-01 for one in nanoseconds.

use arrow::datatypes::{DataType, TimeUnit};
use chrono::Utc;

use crate::moments::{Zones, day, moment, says_zone};

/// The zone of moments that are guessed to have one.
const GUESSED_ZONE: &str = "UTC";

/// What was seen in a column.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenMoments {
    some_say_zone: bool,
    some_say_none: bool,
    some_are_no_day: bool,
    some_are_no_microsecond: bool,
    some_are_no_nanosecond: bool,
}

impl SeenMoments {
    /// Takes note of a value.
    pub(crate) fn look(&mut self, text: &str) {
        match says_zone(text) {
            true => self.some_say_zone = true,
            false => self.some_say_none = true,
        }
        let is_moment = |unit| moment(text, &Utc, unit, Zones::Any).is_some();
        self.some_are_no_day |= day(text).is_none();
        self.some_are_no_microsecond |= !is_moment(TimeUnit::Microsecond);
        self.some_are_no_nanosecond |= !is_moment(TimeUnit::Nanosecond);
    }

    /// The type of the column, of which another one was guessed.
    pub(crate) fn data_type(self, guessed: &DataType) -> DataType {
        let unit = match guessed {
            DataType::Date32 if !self.some_are_no_day => return DataType::Date32,
            DataType::Timestamp(TimeUnit::Nanosecond, _) if !self.some_are_no_nanosecond => TimeUnit::Nanosecond,
            DataType::Timestamp(..) if !self.some_are_no_microsecond => TimeUnit::Microsecond,
            _ => return DataType::Utf8,
        };
        match (self.some_say_zone, self.some_say_none) {
            (true, true) => DataType::Utf8,
            (true, false) => DataType::Timestamp(unit, Some(GUESSED_ZONE.into())),
            (false, _) => DataType::Timestamp(unit, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_guessed_that_holds_all_that_was_seen() {
        let of = |texts: &[&str], guessed: &DataType| {
            let mut seen = SeenMoments::default();
            texts.iter().for_each(|text| seen.look(text));
            seen.data_type(guessed).to_string()
        };
        let (seconds, nanoseconds) = (TimeUnit::Second, TimeUnit::Nanosecond);
        let (seconds, nanoseconds) = (DataType::Timestamp(seconds, None), DataType::Timestamp(nanoseconds, None));
        for (texts, guessed, expected) in [
            (["2024-01-01 00:00:00.123456789", "2024-01-01"], &nanoseconds, "Timestamp(ns)"),
            (["2024-01-01 00:00:00.123456000", "2500-01-01"], &nanoseconds, "Timestamp(µs)"),
            (["2024-01-01 00:00:00.123456789", "2500-01-01 00:00:00"], &nanoseconds, "Utf8"),
            (["2024-01-01 23:00:00", "2500-01-01 00:00:00"], &seconds, "Timestamp(µs)"),
            (["2024-01-01 23:00:00Z", "2024-01-01 23:00:00+02:00"], &seconds, "Timestamp(µs, \"UTC\")"),
            (["2024-01-01 23:00:00Z", "2024-01-01 23:00:00"], &seconds, "Utf8"),
            (["2024-01-01 23:00:00", "2024-01-01 24:00:00"], &seconds, "Utf8"),
            (["2024-01-01", "2024-02-29"], &DataType::Date32, "Date32"),
            (["2024-01-01", "0000-00-00"], &DataType::Date32, "Utf8"),
        ] {
            assert_eq!(of(&texts, guessed), expected, "{texts:?}");
        }
    }
}
