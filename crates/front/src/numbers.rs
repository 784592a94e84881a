//! Numbers as PostgreSQL writes them, in text and in binary.

use std::io::Write;

use crate::digits::padded;

/// Digits after a point up to which a number of 64 bits is written without formatting.
const DIGITS_SHORT: usize = 19;

/// A float as its shortest text that reads back as it. `digits`: from which power of ten on an exponent is written.
pub(crate) fn float(out: &mut Vec<u8>, shortest: &str, value: f64, digits: i32) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
        return;
    }
    if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
        return;
    }
    // `shortest` is that of `{:e}`: 1.5e-7.
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    out.extend_from_slice(sign.as_bytes());
    if !(-4..digits).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
        return;
    }
    let figures: Vec<u8> = mantissa.bytes().filter(|byte| *byte != b'.').collect();
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend_from_slice(&figures);
        return;
    }
    let whole = exponent as usize + 1;
    let kept = figures.len().min(whole);
    out.extend_from_slice(&figures[..kept]);
    out.extend(std::iter::repeat_n(b'0', whole - kept));
    if figures.len() > whole {
        out.push(b'.');
        out.extend_from_slice(&figures[whole..]);
    }
}

/// A decimal as text.
pub(crate) fn decimal(out: &mut Vec<u8>, value: i128, scale: i8) {
    if scale <= 0 {
        let _ = write!(out, "{value}");
        if value != 0 {
            out.extend(std::iter::repeat_n(b'0', scale.unsigned_abs() as usize));
        }
        return;
    }
    let scale = scale as usize;
    if value < 0 {
        out.push(b'-');
    }
    match u64::try_from(value.unsigned_abs()) {
        // At least one digit before the point.
        Ok(value) if scale < DIGITS_SHORT => padded(out, value, scale + 1),
        _ => {
            let _ = write!(out, "{:0width$}", value.unsigned_abs(), width = scale + 1);
        }
    }
    let end = out.len();
    out.push(b'.');
    // From behind all digits to before the last ones.
    out[end - scale..].rotate_right(1);
}

/// The sign of a negative number in binary.
const NEGATIVE: u16 = 0x4000;
/// What is no number, and the infinities.
const NOT_FINITE: [u16; 3] = [0xC000, 0xD000, 0xF000];
/// Decimal digits of a digit in binary.
const DIGITS: usize = 4;
/// Most digits after the point that a number in binary may have, as with PostgreSQL.
const SCALE_MAX: u16 = 16_383;

/// A decimal's text in binary: digits to the base of 10,000 around the point.
pub(crate) fn decimal_to_binary(out: &mut Vec<u8>, text: &[u8]) {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        text => (false, text),
    };
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let (whole, fraction) = (&text[..point], text.get(point + 1..).unwrap_or_default());
    let scale = fraction.len();
    let mut digits = vec![b'0'; (DIGITS - whole.len() % DIGITS) % DIGITS];
    digits.extend_from_slice(whole);
    let whole_groups = digits.len() / DIGITS;
    digits.extend_from_slice(fraction);
    digits.extend(std::iter::repeat_n(b'0', (DIGITS - digits.len() % DIGITS) % DIGITS));
    let groups = digits.chunks(DIGITS).map(|group| group.iter().fold(0_u16, |sum, digit| sum * 10 + u16::from(digit - b'0')));
    let groups: Vec<u16> = groups.collect();
    let first = groups.iter().position(|group| *group != 0).unwrap_or(groups.len());
    let last = groups.iter().rposition(|group| *group != 0).map_or(first, |place| place + 1);
    let weight = if first == last { 0 } else { whole_groups as i16 - first as i16 - 1 };
    let sign = if negative && first != last { NEGATIVE } else { 0 };
    for part in [(last - first) as u16, weight as u16, sign, scale as u16] {
        out.extend_from_slice(&part.to_be_bytes());
    }
    groups[first..last].iter().for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
}

/// The text of a decimal in binary; an error says why it is none.
pub(crate) fn decimal_from_binary(bytes: &[u8]) -> Result<String, &'static str> {
    let mut parts = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let mut part = || parts.next().ok_or("a numeric ends too early");
    let (count, weight, sign, scale) = (usize::from(part()?), part()? as i16, part()?, part()?);
    if NOT_FINITE.contains(&sign) {
        return Err("NaN and infinity are no numbers of this server's numeric");
    }
    if bytes.len() != 8 + 2 * count || (sign != 0 && sign != NEGATIVE) || scale > SCALE_MAX {
        return Err("a numeric is malformed");
    }
    // More digits than the largest number here has cannot be meant.
    if count > 64 || !(-64..64).contains(&weight) || scale > 128 {
        return Err("a numeric has too many digits");
    }
    let groups: Vec<u16> = parts.collect();
    if groups.iter().any(|group| *group > 9_999) {
        return Err("a numeric is malformed");
    }
    let group = |place: i32| -> u16 {
        let index = i32::from(weight) - place;
        usize::try_from(index).ok().and_then(|index| groups.get(index)).copied().unwrap_or(0)
    };
    let mut text = String::from(if sign == NEGATIVE { "-" } else { "" });
    if weight < 0 {
        text.push('0');
    }
    for place in (0..=i32::from(weight)).rev() {
        match place == i32::from(weight) {
            true => text.push_str(&group(place).to_string()),
            false => text.push_str(&format!("{:04}", group(place))),
        }
    }
    if scale > 0 {
        text.push('.');
        let groups = i32::from(scale.div_ceil(4));
        let fraction: String = (1..=groups).map(|place| format!("{:04}", group(-place))).collect();
        text.push_str(&fraction[..usize::from(scale)]);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double(value: f64) -> String {
        let mut out = Vec::new();
        float(&mut out, &format!("{value:e}"), value, 15);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn floats_are_written_as_postgresql_writes_them() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1234.5, "1234.5"),
            (1e15, "1e+15"),
            (123456789012345.0, "123456789012345"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e300, "1.5e+300"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(double(value), text);
        }
    }

    #[test]
    fn decimals_are_the_same_in_both_forms() {
        for (value, scale, text) in [
            (0, 0, "0"),
            (0, 2, "0.00"),
            (-5, 2, "-0.05"),
            (12_345_678, 2, "123456.78"),
            (10_000, 0, "10000"),
            (7, -3, "7000"),
            (i128::MAX, 10, "17014118346046923173168730371.5884105727"),
            (100_000_001, 8, "1.00000001"),
        ] {
            let mut out = Vec::new();
            decimal(&mut out, value, scale);
            assert_eq!(String::from_utf8(out.clone()).unwrap(), text);
            let mut binary = Vec::new();
            decimal_to_binary(&mut binary, &out);
            assert_eq!(decimal_from_binary(&binary).unwrap(), text);
        }
        // 12345.67, as PostgreSQL 15 sends it.
        let mut binary = Vec::new();
        decimal_to_binary(&mut binary, b"12345.67");
        assert_eq!(binary, [0, 3, 0, 1, 0, 0, 0, 2, 0, 1, 0x09, 0x29, 0x1a, 0x2c]);
    }

    #[test]
    fn malformed_decimals_are_refused() {
        for bytes in [
            &b""[..],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0xc0, 0, 0, 0],
            &[0, 1, 0x7f, 0xff, 0, 0, 0, 0, 0, 1],
            &[0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
        ] {
            assert!(decimal_from_binary(bytes).is_err());
        }
    }
}
