//! Sizes and rates as people write them, both ways.

use std::fmt;
use std::time::Duration;

use crate::{Blame, Fault};

/// A size, shown with decimal units: `1.5 MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
        let mut size = self.0 as f64;
        let mut unit = 0;
        while size >= 999.5 && unit + 1 < UNITS.len() {
            size /= 1000.0;
            unit += 1;
        }
        let digits = if unit == 0 || size >= 99.95 { 0 } else { 1 };
        write!(f, "{size:.digits$} {}", UNITS[unit])
    }
}

/// The sum of counts from other CSEs, at most the largest number. A peer that reports absurd counts is no reason to
/// fail.
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// A link's rate in bits a second, shown as `1 Gbit/s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Bits a second, above 0.
    pub bits_per_second: f64,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.bits_per_second {
            rate if rate >= 1e9 => (1e9, "Gbit/s"),
            rate if rate >= 1e6 => (1e6, "Mbit/s"),
            _ => (1e3, "kbit/s"),
        };
        write!(f, "{} {unit}", self.bits_per_second / scale)
    }
}

/// Reads `64MiB`, `1.5 GB`, `4096`.
pub fn parse_bytes(text: &str) -> Result<u64, Fault> {
    let (number, unit) = split(text);
    let scale: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1048576.0,
        "gib" => 1073741824.0,
        "tib" => 1099511627776.0,
        _ => return Err(expected("a size such as 512MiB or 2GB", text)),
    };
    match number.parse::<f64>() {
        Ok(number) if number >= 0.0 && number * scale < 1.8e19 => Ok((number * scale) as u64),
        _ => Err(expected("a size such as 512MiB or 2GB", text)),
    }
}

/// Reads `1gbit`, `100 Mbit/s`, `10Gbps`.
pub fn parse_rate(text: &str) -> Result<Rate, Fault> {
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let scale = match unit.trim_end_matches("/s").trim_end_matches("ps").trim_end_matches("it") {
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        _ => return Err(expected("a rate such as 1gbit or 100mbit", text)),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(Rate { bits_per_second: number * scale }),
        _ => Err(expected("a rate such as 1gbit or 100mbit", text)),
    }
}

/// Reads `14d`, `12h`, `30m`, `90s`, `500ms` and `0`.
pub fn parse_period(text: &str) -> Result<Duration, Fault> {
    let (number, unit) = split(text);
    let scale = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "" if number == "0" => 0.0,
        _ => return Err(expected("a time such as 14d, 12h, 30m or 90s, or 0", text)),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * scale).filter(|seconds| (0.0..1e10).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| expected("a time such as 14d, 12h, 30m or 90s, or 0", text))
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

fn expected(what: &str, text: &str) -> Fault {
    Fault::new(Blame::User, format!("expected {what}, got {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_read_as_written() {
        assert_eq!(parse_bytes("512MiB").unwrap(), 512 << 20);
        assert_eq!(parse_bytes("1.5 GB").unwrap(), 1_500_000_000);
        assert_eq!(parse_bytes("7").unwrap(), 7);
        assert!(parse_bytes("much").is_err());
        assert_eq!(parse_rate("1gbit").unwrap().bits_per_second, 1e9);
        assert_eq!(parse_rate("100 Mbit/s").unwrap().bits_per_second, 1e8);
        assert_eq!(parse_rate("10Gbps").unwrap().bits_per_second, 1e10);
        assert!(parse_rate("0gbit").is_err());
        assert!(parse_rate("fast").is_err());
    }

    #[test]
    fn times_read_as_written() {
        let seconds = |text| parse_period(text).map(|period| period.as_secs_f64());
        assert_eq!([seconds("14d"), seconds("1.5m"), seconds("500ms")], [Ok(1_209_600.0), Ok(90.0), Ok(0.5)]);
        assert_eq!(seconds("0"), Ok(0.0));
        for wrong in ["", "7", "soon", "-1d", "1e9d", "2w"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_show_three_digits() {
        assert_eq!(Bytes(999).to_string(), "999 B");
        assert_eq!(Bytes(1_234_567).to_string(), "1.2 MB");
        assert_eq!(Bytes(178_000_000).to_string(), "178 MB");
        assert_eq!(parse_rate("1gbit").unwrap().to_string(), "1 Gbit/s");
    }
}
