//! Names of time zones, as clients write them.

use arrow::array::timezone::Tz;

use crate::error::Complaint;
use crate::sql_state::WRONG_SETTING;

/// A time zone under a name that the engine knows.
pub(crate) fn zone(value: &str) -> Result<String, Complaint> {
    let value = value.trim();
    let known = match value.to_ascii_lowercase().as_str() {
        "utc" | "gmt" | "z" | "zulu" | "etc/utc" | "localtime" | "local" | "default" => "UTC",
        _ => value,
    };
    if known.parse::<Tz>().is_ok() {
        return Ok(known.to_owned());
    }
    let hours = known.parse::<i32>().ok().filter(|hours| (-15..=15).contains(hours)).map(|hours| format!("{hours:+03}:00"));
    let found = hours.or_else(|| posix(known)).filter(|found| found.parse::<Tz>().is_ok());
    found.ok_or_else(|| {
        Complaint::error(WRONG_SETTING, format!("invalid value for TimeZone: {value:?}"))
            .hint("a name such as 'Europe/Berlin', or an offset such as '+02:00'")
    })
}

/// `GMT-02:00`, as POSIX writes zones, and PostgreSQL with it: an abbreviation, and how long before UTC its time is. So its sign is that
/// of the west, and this one is two hours ahead of UTC. pgjdbc turns the signs of Java's names to write them so.
fn posix(value: &str) -> Option<String> {
    const ABBREVIATION: usize = 3;
    let letters = value.find(|character: char| !character.is_ascii_alphabetic())?;
    let (abbreviation, offset) = value.split_at(letters);
    let (sign, time) = match offset.strip_prefix('-') {
        Some(time) => ('+', time),
        None => ('-', offset.strip_prefix('+').unwrap_or(offset)),
    };
    let mut parts = time.split(':');
    let number = |part: Option<&str>, most: u32| match part {
        None => Some(0),
        Some(digits) => {
            let number = digits.parse::<u32>().ok().filter(|number| *number <= most && digits.len() <= 2);
            number.filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
        }
    };
    let (hours, minutes) = (number(Some(parts.next()?), 15)?, number(parts.next(), 59)?);
    let is_whole = number(parts.next(), 0) == Some(0) && parts.next().is_none();
    (abbreviation.len() >= ABBREVIATION && is_whole).then(|| format!("{sign}{hours:02}:{minutes:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_those_of_postgresql() {
        for (written, expected) in [
            ("utc", "UTC"),
            ("Europe/Berlin", "Europe/Berlin"),
            ("2", "+02:00"),
            ("-7", "-07:00"),
            ("+02:00", "+02:00"),
            ("GMT-02:00", "+02:00"),
            ("GMT+03:30", "-03:30"),
            ("UTC+5", "-05:00"),
            ("Etc/GMT+5", "Etc/GMT+5"),
            ("EST5EDT", "EST5EDT"),
            ("XYZ-05:45:00", "+05:45"),
        ] {
            assert_eq!(zone(written).unwrap(), expected, "{written}");
        }
        for wrong in ["Nowhere", "GM-2", "GMT-", "GMT-2:60", "GMT-16", "GMT-02:00:01", "GMT-+2", "", "99"] {
            assert!(zone(wrong).is_err(), "{wrong}");
        }
    }
}
