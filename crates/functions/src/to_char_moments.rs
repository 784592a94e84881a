//! Moments and intervals by PostgreSQL's patterns of `to_char`: `YYYY-MM-DD HH24:MI:SS`, `FMMonth DDth`, `IYYY-IW` and their like.

use std::fmt::Write;

use chrono::{Datelike, NaiveDate};

use crate::to_char_numbers::{ordinal, quoted};

/// What may be asked of a moment. `Letters`: of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Year(u32),
    YearInGroups,
    IsoYear(u32),
    Century,
    Quarter,
    Month,
    MonthName(Letters),
    MonthAbbreviation(Letters),
    RomanMonth(Letters),
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Day,
    DayOfYear,
    DayOfIsoYear,
    DayOfWeek,
    IsoDayOfWeek,
    DayName(Letters),
    DayAbbreviation(Letters),
    JulianDay,
    Hour24,
    Hour12,
    Minute,
    Second,
    SecondOfDay,
    Fraction(u32),
    Meridiem(Letters, Dots),
    Era(Letters, Dots),
    Zone(Letters),
    ZoneHours,
    ZoneMinutes,
    Offset,
    /// `FX`, which says how texts are read.
    Nothing,
}

impl Field {
    fn is_name(self) -> bool {
        matches!(
            self,
            Field::MonthName(_)
                | Field::MonthAbbreviation(_)
                | Field::DayName(_)
                | Field::DayAbbreviation(_)
                | Field::RomanMonth(_)
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Letters {
    Upper,
    Title,
    Lower,
}

/// Whether the letters of an abbreviation have dots behind them.
type Dots = bool;

use Letters::{Lower, Title, Upper};

/// Words in capital letters. Those in small letters mean the same, and what has letters is written in small ones.
const WORDS: [(&str, Field); 50] = [
    ("CC", Field::Century),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("D", Field::DayOfWeek),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("FX", Field::Nothing),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("IDDD", Field::DayOfIsoYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("I", Field::IsoYear(1)),
    ("J", Field::JulianDay),
    ("MI", Field::Minute),
    ("MM", Field::Month),
    ("MS", Field::Fraction(3)),
    ("OF", Field::Offset),
    ("Q", Field::Quarter),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("TZH", Field::ZoneHours),
    ("TZM", Field::ZoneMinutes),
    ("US", Field::Fraction(6)),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("Y,YYY", Field::YearInGroups),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("RM", Field::RomanMonth(Upper)),
    ("A.M.", Field::Meridiem(Upper, true)),
    ("P.M.", Field::Meridiem(Upper, true)),
    ("A.D.", Field::Era(Upper, true)),
    ("B.C.", Field::Era(Upper, true)),
    ("AM", Field::Meridiem(Upper, false)),
    ("PM", Field::Meridiem(Upper, false)),
    ("AD", Field::Era(Upper, false)),
    ("BC", Field::Era(Upper, false)),
    ("TZ", Field::Zone(Upper)),
];

/// Words by whose letters those of the result go.
const NAMES: [(&str, Field); 12] = [
    ("MONTH", Field::MonthName(Upper)),
    ("Month", Field::MonthName(Title)),
    ("month", Field::MonthName(Lower)),
    ("MON", Field::MonthAbbreviation(Upper)),
    ("Mon", Field::MonthAbbreviation(Title)),
    ("mon", Field::MonthAbbreviation(Lower)),
    ("DAY", Field::DayName(Upper)),
    ("Day", Field::DayName(Title)),
    ("day", Field::DayName(Lower)),
    ("DY", Field::DayAbbreviation(Upper)),
    ("Dy", Field::DayAbbreviation(Title)),
    ("dy", Field::DayAbbreviation(Lower)),
];

const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN_MONTHS: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];
/// Characters of a name that stands for itself, which are filled up with blanks.
const NAME_WIDTH: usize = 9;
const ROMAN_WIDTH: usize = 4;
/// Days of Julian days before the first of our era.
const JULIAN_DAYS: i64 = 1_721_425;

/// A moment of a zone, a wall time or an interval, in parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    /// The year before the year 1 is the year 0.
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) microsecond: i64,
    /// Its day; none: it is an interval.
    pub(crate) date: Option<NaiveDate>,
    /// How far its zone is before UTC, in seconds.
    pub(crate) offset: i64,
    /// The abbreviation of its zone; empty: it has none.
    pub(crate) zone: String,
}

/// A pattern of moments, read.
#[derive(Clone, Debug)]
pub(crate) struct MomentPattern {
    items: Vec<Item>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Text(char),
    /// `is_tight`: without what only fills its place. `ordinal`: in which letters `th` and its like follow.
    Field {
        field: Field,
        is_tight: bool,
        ordinal: Option<Letters>,
    },
}

impl MomentPattern {
    /// Reads a pattern. Whatever means nothing in it means itself.
    pub(crate) fn read(pattern: &str) -> MomentPattern {
        let (mut items, mut rest) = (Vec::new(), pattern);
        while !rest.is_empty() {
            let fill = ["FM", "fm", "TM", "tm"].into_iter().find(|word| rest.starts_with(word)).unwrap_or_default();
            rest = &rest[fill.len()..];
            if let Some((length, field)) = field(rest) {
                let (ordinal, behind) = ending(&rest[length..]);
                // TM is of names, which are those of no other language here.
                let is_tight = fill.eq_ignore_ascii_case("FM") || !fill.is_empty() && field.is_name();
                items.push(Item::Field { field, is_tight, ordinal });
                rest = behind;
            } else if let Some(text) = rest.strip_prefix('"') {
                rest = quoted(text, |character| items.push(Item::Text(character)));
            } else {
                let text = rest.strip_prefix('\\').filter(|behind| behind.starts_with('"')).unwrap_or(rest);
                let mut characters = text.chars();
                items.extend(characters.next().map(Item::Text));
                rest = characters.as_str();
            }
        }
        MomentPattern { items }
    }

    /// Writes a moment.
    pub(crate) fn of(&self, moment: &Moment) -> Result<String, String> {
        let mut out = String::new();
        for item in &self.items {
            match item {
                Item::Text(text) => out.push(*text),
                Item::Field { field, is_tight, ordinal: letters } => {
                    let start = out.len();
                    moment.write(*field, *is_tight, &mut out)?;
                    if let Some(letters) = letters
                        && out[start..].starts_with(|first: char| first.is_ascii_digit() || first == '-')
                        && *field != Field::ZoneMinutes
                    {
                        let ending = ordinal(&out[start..]);
                        out.push_str(&in_letters(ending, *letters));
                    }
                }
            }
        }
        Ok(out)
    }
}

impl Moment {
    fn write(&self, field: Field, is_tight: bool, out: &mut String) -> Result<(), String> {
        match field {
            Field::MonthName(letters) => self.month_name(letters, NAME_WIDTH, is_tight, out),
            Field::MonthAbbreviation(letters) => self.month_name(letters, 0, is_tight, out),
            Field::DayName(letters) => self.day_name(letters, NAME_WIDTH, is_tight, out),
            Field::DayAbbreviation(letters) => self.day_name(letters, 0, is_tight, out),
            Field::RomanMonth(letters) => {
                self.day_of("RM")?;
                let roman = usize::try_from(self.month - 1).ok().and_then(|place| ROMAN_MONTHS.get(place));
                filled(&in_letters(roman.unwrap_or(&""), letters), ROMAN_WIDTH, is_tight, out);
                Ok(())
            }
            Field::Meridiem(letters, dots) => {
                let is_after_noon = self.hour % 24 >= 12;
                abbreviation(if is_after_noon { "PM" } else { "AM" }, letters, dots, out);
                Ok(())
            }
            Field::Era(letters, dots) => {
                self.day_of("AD")?;
                abbreviation(if self.year <= 0 { "BC" } else { "AD" }, letters, dots, out);
                Ok(())
            }
            Field::Zone(_) | Field::ZoneHours | Field::ZoneMinutes | Field::Offset => self.zone(field, is_tight, out),
            Field::Nothing => Ok(()),
            field => self.number(field, is_tight, out),
        }
    }

    fn number(&self, field: Field, is_tight: bool, out: &mut String) -> Result<(), String> {
        let (value, width) = match field {
            Field::Year(digits) => (last_digits(self.shown_year(), digits), digits as usize),
            Field::YearInGroups => {
                let year = self.shown_year();
                let _ = write!(out, "{},{:03}", year / 1_000, year % 1_000);
                return Ok(());
            }
            Field::IsoYear(digits) => {
                let year = i64::from(self.day_of("IYYY")?.iso_week().year());
                (last_digits(before_our_era(year), digits), digits as usize)
            }
            Field::Century => (self.century(), 2),
            Field::Quarter if self.month == 0 => return Ok(()),
            Field::Quarter => ((self.month - 1) / 3 + 1, 1),
            Field::Month => (self.month, 2),
            Field::WeekOfMonth => ((self.day - 1) / 7 + 1, 1),
            Field::WeekOfYear => ((self.day_of_year() - 1) / 7 + 1, 2),
            Field::IsoWeek => (i64::from(self.day_of("IW")?.iso_week().week()), 2),
            Field::Day => (self.day, 2),
            Field::DayOfYear => (self.day_of_year(), 3),
            Field::DayOfIsoYear => {
                let day = self.day_of("IDDD")?;
                (i64::from(day.iso_week().week0()) * 7 + i64::from(day.weekday().number_from_monday()), 3)
            }
            Field::DayOfWeek => (i64::from(self.day_of("D")?.weekday().number_from_sunday()), 1),
            Field::IsoDayOfWeek => (i64::from(self.day_of("ID")?.weekday().number_from_monday()), 1),
            Field::JulianDay => (i64::from(self.day_of("J")?.num_days_from_ce()) + JULIAN_DAYS, 1),
            Field::Hour24 => (self.hour, 2),
            Field::Hour12 => (if self.hour % 12 == 0 { 12 } else { self.hour % 12 }, 2),
            Field::Minute => (self.minute, 2),
            Field::Second => (self.second, 2),
            Field::SecondOfDay => ((self.hour * 60 + self.minute) * 60 + self.second, 1),
            // Its zeros say where the point is.
            Field::Fraction(digits) => {
                let value = self.microsecond / 10_i64.pow(6 - digits.min(6));
                number(value, digits as usize, false, out);
                return Ok(());
            }
            _ => return Ok(()),
        };
        number(value, width, is_tight, out);
        Ok(())
    }

    fn zone(&self, field: Field, is_tight: bool, out: &mut String) -> Result<(), String> {
        self.day_of("TZ")?;
        let sign = if self.offset < 0 { '-' } else { '+' };
        let (hours, minutes) = (self.offset.abs() / 3_600, self.offset.abs() / 60 % 60);
        match field {
            Field::Zone(letters) => out.push_str(&in_letters(&self.zone, letters)),
            Field::ZoneMinutes => number(minutes, 2, false, out),
            Field::ZoneHours => {
                out.push(sign);
                number(hours, 2, false, out);
            }
            _ => {
                out.push(sign);
                number(hours, 2, is_tight, out);
                if minutes != 0 {
                    out.push(':');
                    number(minutes, 2, false, out);
                }
            }
        }
        Ok(())
    }

    /// The day, which an interval has not.
    fn day_of(&self, word: &str) -> Result<NaiveDate, String> {
        self.date.ok_or_else(|| format!("{word} and its like say nothing of an interval, which is of no day"))
    }

    fn shown_year(&self) -> i64 {
        if self.date.is_some() { before_our_era(self.year) } else { self.year }
    }

    fn century(&self) -> i64 {
        match self.date {
            None => self.year / 100,
            Some(_) if self.year > 0 => (self.year - 1) / 100 + 1,
            Some(_) => self.year / 100 - 1,
        }
    }

    fn day_of_year(&self) -> i64 {
        self.date.map_or((self.year * 12 + self.month) * 30 + self.day, |date| i64::from(date.ordinal()))
    }

    fn month_name(&self, letters: Letters, width: usize, is_tight: bool, out: &mut String) -> Result<(), String> {
        name(MONTHS[self.day_of("Month")?.month0() as usize], letters, width, is_tight, out);
        Ok(())
    }

    fn day_name(&self, letters: Letters, width: usize, is_tight: bool, out: &mut String) -> Result<(), String> {
        let weekday = self.day_of("Day")?.weekday();
        name(DAYS[weekday.num_days_from_sunday() as usize], letters, width, is_tight, out);
        Ok(())
    }
}

/// A name, or its first three letters where it has no width.
fn name(name: &str, letters: Letters, width: usize, is_tight: bool, out: &mut String) {
    let shown = if width == 0 { &name[..3] } else { name };
    filled(&in_letters(shown, letters), width, is_tight, out);
}

fn filled(text: &str, width: usize, is_tight: bool, out: &mut String) {
    let width = if is_tight { 0 } else { width };
    let _ = write!(out, "{text:width$}");
}

/// A number with zeros before it; a sign needs a place of its own.
fn number(value: i64, width: usize, is_tight: bool, out: &mut String) {
    let width = if is_tight { 0 } else { width + usize::from(value < 0) };
    let _ = write!(out, "{value:0width$}");
}

fn abbreviation(text: &str, letters: Letters, dots: Dots, out: &mut String) {
    for letter in in_letters(text, letters).chars() {
        out.push(letter);
        out.extend(dots.then_some('.'));
    }
}

fn in_letters(text: &str, letters: Letters) -> String {
    match letters {
        Letters::Upper => text.to_uppercase(),
        Letters::Title => text.to_owned(),
        Letters::Lower => text.to_lowercase(),
    }
}

/// A year before our era as it is counted back from it.
fn before_our_era(year: i64) -> i64 {
    if year <= 0 { 1 - year } else { year }
}

/// Of four digits, all are shown.
fn last_digits(year: i64, digits: u32) -> i64 {
    if digits < 4 { year % 10_i64.pow(digits) } else { year }
}

/// The word that a pattern begins with, by its length. The longest one counts.
fn field(pattern: &str) -> Option<(usize, Field)> {
    let is_next = |word: &str| {
        pattern
            .get(..word.len())
            .is_some_and(|next| next == word || next.chars().eq(word.chars().map(|it| it.to_ascii_lowercase())))
    };
    let names = NAMES.iter().filter(|(word, _)| pattern.starts_with(word));
    let words = WORDS.iter().filter(|(word, _)| is_next(word));
    let (word, field) = names.chain(words).max_by_key(|(word, _)| word.len())?;
    let is_lower = pattern.starts_with(|first: char| first.is_ascii_lowercase());
    let field = match *field {
        Field::RomanMonth(_) if is_lower => Field::RomanMonth(Lower),
        Field::Meridiem(_, dots) if is_lower => Field::Meridiem(Lower, dots),
        Field::Era(_, dots) if is_lower => Field::Era(Lower, dots),
        Field::Zone(_) if is_lower => Field::Zone(Lower),
        field => field,
    };
    Some((word.len(), field))
}

/// In which letters an ordinal's ending follows, and what follows it. `SP` is known and does nothing.
fn ending(pattern: &str) -> (Option<Letters>, &str) {
    const ENDINGS: [(&str, Option<Letters>); 4] = [("TH", Some(Upper)), ("th", Some(Lower)), ("SP", None), ("sp", None)];
    let found = ENDINGS.iter().find_map(|(word, letters)| Some((*letters, pattern.strip_prefix(word)?)));
    found.unwrap_or((None, pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(months: i64, days: i64, [hour, minute, second, microsecond]: [i64; 4]) -> Moment {
        Moment { year: months / 12, month: months % 12, day: days, hour, minute, second, microsecond, ..Moment::default() }
    }

    /// What PostgreSQL 15 gives.
    #[test]
    fn moments_are_written_as_postgresql_writes_them() {
        let moment = Moment {
            year: 2024,
            month: 7,
            day: 5,
            hour: 3,
            minute: 4,
            second: 5,
            microsecond: 678_901,
            date: NaiveDate::from_ymd_opt(2024, 7, 5),
            offset: 7_200,
            zone: "CEST".to_owned(),
        };
        for (pattern, expected) in [
            ("YYYY-MM-DD HH24:MI:SS", "2024-07-05 03:04:05"),
            ("YYYY-MM-DD\"T\"HH12:MI:SS.MS am", "2024-07-05T03:04:05.678 am"),
            ("Dy DD Mon YYYY", "Fri 05 Jul 2024"),
            ("FMDay, FMDDth FMMonth YYYY|", "Friday, 5th July 2024|"),
            ("DAY|Month|day|", "FRIDAY   |July     |friday   |"),
            ("D ID DDD Q WW IW W J CC", "6 5 187 3 27 27 1 2460497 21"),
            ("IYYY-IW-ID IDDD", "2024-27-5 187"),
            ("FF1 FF4 US SSSSS", "6 6789 678901 11045"),
            ("TZ tz OF TZH:TZM", "CEST cest +02 +02:00"),
            ("RM|FMrm|", "VII |vii|"),
            ("Y,YYY YYY YY Y AD b.c.", "2,024 024 24 4 AD a.d."),
            ("hh24 Hh24 FMHH24", "03 Hh24 3"),
            ("a\\\"b \"q\\\"r\"", "a\"b q\"r"),
            ("FXYYYY TMMonth é %", "2024 July é %"),
        ] {
            assert_eq!(MomentPattern::read(pattern).of(&moment).unwrap(), expected, "{pattern}");
        }
        let ides = Moment { year: -43, month: 3, day: 15, date: NaiveDate::from_ymd_opt(-43, 3, 15), ..Moment::default() };
        assert_eq!(MomentPattern::read("YYYY BC CC IYYY TZ OF").of(&ides).unwrap(), "0044 BC -01 0044  +00");
    }

    #[test]
    fn intervals_are_of_no_day() {
        let long = interval(14, 3, [25, 4, 5, 678_901]);
        for (pattern, expected) in [("YYYY-MM-DD HH24:MI:SS.MS", "0001-02-03 25:04:05.678"), ("FMHH12 am Q DDD", "1 am 1 423")]
        {
            assert_eq!(MomentPattern::read(pattern).of(&long).unwrap(), expected, "{pattern}");
        }
        let back = interval(0, 0, [-25, -4, -5, -500_000]);
        assert_eq!(MomentPattern::read("HH24:MI:SS.FF1").of(&back).unwrap(), "-25:-04:-05.-5");
        for pattern in ["Day", "Mon", "IW", "J", "AD", "TZH"] {
            let refused = MomentPattern::read(pattern).of(&long).unwrap_err();
            assert!(refused.contains("an interval, which is of no day"), "{pattern}: {refused}");
        }
    }
}
