//! Numbers as they are written, digit by digit: 1.75, -3, 5e-1.

use std::num::IntErrorKind;

use arrow::array::ArrowNativeTypeOp;

/// So many digits are below 2^63.
const SHORT_DIGITS: usize = 18;

/// The whole number that a text is; 1.0 and 1e3 are some. None: it is no number, has a fraction, or its type does not hold
/// it.
pub(crate) fn whole<N: ArrowNativeTypeOp>(text: &str) -> Option<N> {
    let (value, is_exact) = Written::parse(text)?.times_power(0)?;
    is_exact.then_some(value)
}

/// The number of a text times 10 to the power of `scale`, rounded as decimals are: a half goes away from zero. None: it is
/// no number, or has too many digits for the type.
pub(crate) fn scaled<N: ArrowNativeTypeOp>(text: &str, scale: i8) -> Option<N> {
    Some(Written::parse(text)?.times_power(i64::from(scale))?.0)
}

/// A number as it is written.
struct Written<'a> {
    is_negative: bool,
    before_point: &'a [u8],
    behind_point: &'a [u8],
    exponent: i64,
}

impl Written<'_> {
    fn parse(text: &str) -> Option<Written<'_>> {
        let text = text.trim_ascii();
        let (is_negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (digits, exponent) = match rest.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, power(exponent)?),
            None => (rest, 0),
        };
        let (before, behind) = digits.split_once('.').unwrap_or((digits, ""));
        let (before_point, behind_point) = (before.as_bytes(), behind.as_bytes());
        let is_number =
            before_point.iter().chain(behind_point).all(u8::is_ascii_digit) && digits.len() > usize::from(digits == ".");
        is_number.then_some(Written { is_negative, before_point, behind_point, exponent })
    }

    /// The number times 10 to a power, rounded, and whether nothing was lost by that.
    fn times_power<N: ArrowNativeTypeOp>(&self, power: i64) -> Option<(N, bool)> {
        let written = self.before_point.len() + self.behind_point.len();
        let digits = || self.before_point.iter().chain(self.behind_point).map(|byte| byte - b'0');
        // Of the written digits, those before the new place of the point stay.
        let point = (self.before_point.len() as i64).saturating_add(self.exponent).saturating_add(power);
        let kept = usize::try_from(point).unwrap_or(0).min(written);
        let mut value = first_digits::<N>(digits().take(kept), kept)?;
        let ten = N::usize_as(10);
        let mut missing = point - kept as i64;
        while missing > 0 && !value.is_zero() {
            value = value.mul_checked(ten).ok()?;
            missing -= 1;
        }
        let half_or_more = point >= 0 && digits().nth(kept).is_some_and(|digit| digit >= 5);
        if half_or_more {
            value = value.add_checked(N::ONE).ok()?;
        }
        let is_exact = digits().skip(kept).all(|digit| digit == 0);
        let value = if self.is_negative { value.neg_checked().ok()? } else { value };
        Some((value, is_exact))
    }
}

fn first_digits<N: ArrowNativeTypeOp>(digits: impl Iterator<Item = u8>, count: usize) -> Option<N> {
    if count <= SHORT_DIGITS && size_of::<N>() >= size_of::<u64>() {
        let short = digits.fold(0_u64, |value, digit| value * 10 + u64::from(digit));
        return Some(N::usize_as(usize::try_from(short).ok()?));
    }
    let (mut value, ten) = (N::ZERO, N::usize_as(10));
    for digit in digits {
        value = value.mul_checked(ten).and_then(|value| value.add_checked(N::usize_as(usize::from(digit)))).ok()?;
    }
    Some(value)
}

/// An exponent, of which those that are beyond all types are as good as the largest.
fn power(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match text.parse::<i64>() {
        Ok(power) => Some(power),
        Err(error) => match error.kind() {
            IntErrorKind::PosOverflow => Some(i64::MAX),
            IntErrorKind::NegOverflow => Some(i64::MIN),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::i256;

    use super::*;

    #[test]
    fn whole_numbers_are_those_without_a_fraction_however_they_are_written() {
        for (text, expected) in [
            ("7", Some(7)),
            ("1.0", Some(1)),
            ("-2.500e1", Some(-25)),
            ("1e3", Some(1_000)),
            ("1000e-3", Some(1)),
            ("0e999999999999999999999", Some(0)),
            ("-0", Some(0)),
            ("9223372036854775807.0", Some(i64::MAX)),
            ("9007199254740993.0", Some(9_007_199_254_740_993)),
            ("9223372036854775808", None),
            ("1e999999999999999999999", None),
            ("1e-999999999999999999999", None),
            ("1.75", None),
            ("15e-1", None),
            ("0.5", None),
            (".", None),
            ("", None),
            ("-", None),
            ("e5", None),
            ("1e", None),
            ("1e+-5", None),
            ("1.2.3", None),
            ("true", None),
            ("1é", None),
        ] {
            assert_eq!(whole::<i64>(text), expected, "{text}");
        }
        assert_eq!(
            (whole::<u8>("255.0"), whole::<u8>("256.0"), whole::<u8>("-1.0"), whole::<u8>("-0.0")),
            (Some(255), None, None, Some(0))
        );
        assert_eq!(whole::<u64>("18446744073709551615.0"), Some(u64::MAX));
    }

    #[test]
    fn digits_beyond_the_scale_round_a_half_away_from_zero() {
        for (text, expected) in [
            ("1.009", Some(101)),
            ("1.005", Some(101)),
            ("-1.005", Some(-101)),
            ("1.00499999999999999999999999999999999999999999999", Some(100)),
            ("0.005", Some(1)),
            ("0.0049", Some(0)),
            ("0.0009", Some(0)),
            ("9e-3", Some(1)),
            ("9e-4", Some(0)),
            ("1.5e-1", Some(15)),
            (" 1.5 ", Some(150)),
            ("+.5", Some(50)),
            ("5.", Some(500)),
            ("1e2", Some(10_000)),
            ("12345678901234567890.125", Some(1_234_567_890_123_456_789_013)),
            ("abc", None),
            ("1e40", None),
        ] {
            assert_eq!(scaled::<i128>(text, 2), expected, "{text}");
        }
        assert_eq!(scaled::<i128>("1250", -2), Some(13));
        assert_eq!(scaled::<i256>(&"9".repeat(70), 0).unwrap().to_string(), "9".repeat(70));
    }
}
