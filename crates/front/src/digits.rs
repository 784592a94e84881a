//! Whole numbers as decimal digits. Formatting by the standard library takes several times as long, and a row has many of them.

/// Most digits of a number of 64 bits.
const DIGITS_MAX: usize = 20;

/// Writes a number.
pub(crate) fn signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    padded(out, value.unsigned_abs(), 1);
}

/// Writes a number with zeros before it, so that it has at least so many digits, 20 at most.
pub(crate) fn padded(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let mut digits = [b'0'; DIGITS_MAX];
    let mut begin = DIGITS_MAX;
    while value > 0 {
        begin -= 1;
        digits[begin] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits[begin.min(DIGITS_MAX.saturating_sub(width))..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_formatting_writes_them() {
        for value in [0, 1, -1, 9, 10, -10, 99, 100, 12_345, i64::from(i32::MIN), i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            signed(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
        for (value, width) in [(0, 2), (7, 2), (59, 2), (1970, 4), (12_026, 4), (5, 6), (999_999, 6), (u64::MAX, 4)] {
            let mut out = b"x".to_vec();
            padded(&mut out, value, width);
            assert_eq!(String::from_utf8(out).unwrap(), format!("x{value:0width$}"));
        }
    }
}
