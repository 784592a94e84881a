//! Values of flags that several benchmarks have.

use pithead_model::parse_rate;

/// Seconds that a benchmark takes.
pub(super) fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 1 to 1000000, such as 60".to_owned()),
    }
}

/// TPC-H's scale, or that of other tables.
pub(super) fn parse_scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 10_000.0 => Ok(scale),
        _ => Err("expected a number above 0, such as 0.1 or 1".to_owned()),
    }
}

/// A rate, as it was written.
pub(super) fn check_rate(text: &str) -> Result<String, String> {
    parse_rate(text).map(|_| text.to_owned()).map_err(|fault| fault.message)
}
