//! Values as texts.

use datafusion::common::{Result, exec_err};

use super::parse::{Align, Spec};
use super::style::Style;

/// The most digits before a float's point, with its sign.
const FLOAT_DIGITS: usize = 310;
/// The most characters of a number that is written in another way, beside the digits that are asked for.
const OTHER_DIGITS: usize = 70;

/// A value that is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Bool(bool),
    Whole(i128),
    Float(f64),
    Text(&'a str),
}

impl Value<'_> {
    fn name(&self) -> &'static str {
        match self {
            Value::Bool(_) => "a truth value",
            Value::Whole(_) => "a whole number",
            Value::Float(_) => "a number with a fraction",
            Value::Text(_) => "a text",
        }
    }
}

impl Spec {
    /// The most bytes that are written by this of a value that is no text.
    pub(super) fn bytes_max(&self) -> usize {
        let before = if matches!(self.kind, Some('f' | 'F')) { FLOAT_DIGITS } else { OTHER_DIGITS };
        let digits = before + self.precision.unwrap_or(0);
        let grouped = if self.thousands.is_some() { digits / 3 } else { 0 };
        (self.width * self.fill.len_utf8()).max(digits + grouped)
    }

    /// Adds a value to a text.
    pub(super) fn write(&self, text: &mut String, value: Value, style: Style) -> Result<()> {
        match (value, self.kind) {
            (Value::Text(value), None | Some('s')) => self.write_text(text, value, style),
            (Value::Bool(value), None) => self.write_text(text, if value { "true" } else { "false" }, style),
            (Value::Bool(value), Some('s')) if style == Style::Percent => {
                self.write_text(text, if value { "true" } else { "false" }, style)
            }
            (Value::Bool(value), Some(kind)) => self.write_whole(text, value.into(), kind, style),
            (Value::Whole(value), kind) => self.write_whole(text, value, kind.unwrap_or('d'), style),
            (Value::Float(value), kind) => self.write_float(text, value, kind, style),
            (value, Some(kind)) => no_kind(kind, value.name(), style),
        }
    }

    fn write_text(&self, text: &mut String, value: &str, style: Style) -> Result<()> {
        let is_of_number = self.sign.is_some() || self.is_alternate || self.align == Some(Align::AfterSign);
        if is_of_number && style == Style::Braces {
            return exec_err!("format: signs, # and 0 are for numbers, and a text was given");
        }
        let end = self.precision.and_then(|most| value.char_indices().nth(most)).map_or(value.len(), |(end, _)| end);
        let fill = if self.align == Some(Align::AfterSign) { ' ' } else { self.fill };
        let align = match self.align {
            None => Align::Left,
            Some(Align::AfterSign) => Align::Right,
            Some(align) => align,
        };
        pad(text, ["", &value[..end]], self.width, fill, align);
        Ok(())
    }

    fn write_whole(&self, text: &mut String, value: i128, kind: char, style: Style) -> Result<()> {
        // C knows no negative numbers but in base 10.
        let is_bits = style == Style::Percent && value < 0 && matches!(kind, 'u' | 'x' | 'X' | 'o');
        let size = if is_bits { u128::from(value as u64) } else { value.unsigned_abs() };
        let (base, mut digits) = match kind {
            'd' | 'i' | 'u' | 'n' => ("", size.to_string()),
            'x' => ("0x", format!("{size:x}")),
            'X' => ("0X", format!("{size:X}")),
            'o' => ("0", format!("{size:o}")),
            'b' => ("0b", format!("{size:b}")),
            'B' => ("0B", format!("{size:b}")),
            'c' if style == Style::Percent => match u32::try_from(value).ok().and_then(char::from_u32) {
                Some(character) => {
                    let whole = Spec { precision: None, ..self.clone() };
                    return whole.write_text(text, character.encode_utf8(&mut [0; 4]), style);
                }
                None => return exec_err!("printf: {value} is the number of no character"),
            },
            other => return no_kind(other, Value::Whole(value).name(), style),
        };
        match (self.precision, style) {
            (Some(least), Style::Percent) => digits.insert_str(0, &"0".repeat(least.saturating_sub(digits.len()))),
            (Some(_), Style::Braces) => return exec_err!("format: a whole number has no digits behind its point"),
            (None, _) => {}
        }
        // C tells no base of zero, and none that a leading zero tells.
        let is_told =
            self.is_alternate && !(style == Style::Percent && value == 0) && !(kind == 'o' && digits.starts_with('0'));
        let base = if is_told { base } else { "" };
        self.write_number(text, value < 0 && !is_bits, base, &digits);
        Ok(())
    }

    fn write_float(&self, text: &mut String, value: f64, kind: Option<char>, style: Style) -> Result<()> {
        let size = value.abs();
        let digits = match kind {
            _ if value.is_nan() => "nan".to_owned(),
            _ if value.is_infinite() => "inf".to_owned(),
            None => plain(size, self.precision),
            Some('f' | 'F') => fixed(size, self.precision.unwrap_or(6), self.is_alternate),
            Some('e' | 'E') => exponential(size, self.precision.unwrap_or(6), false),
            Some('g' | 'G' | 'n') if self.is_alternate => plain(size, Some(self.precision.unwrap_or(6).max(1))),
            Some('g' | 'G' | 'n') => general(size, self.precision.unwrap_or(6), false),
            Some(other) => return no_kind(other, Value::Float(value).name(), style),
        };
        let digits = if kind.is_some_and(char::is_uppercase) { digits.to_uppercase() } else { digits };
        let is_negative = value.is_sign_negative() && !value.is_nan();
        if value.is_finite() {
            self.write_number(text, is_negative, "", &digits);
        } else {
            let (fill, align) = match self.align {
                Some(Align::AfterSign) => (' ', None),
                align => (self.fill, align),
            };
            Spec { fill, align, ..self.clone() }.write_number(text, is_negative, "", &digits);
        }
        Ok(())
    }

    fn write_number(&self, text: &mut String, is_negative: bool, base: &str, digits: &str) {
        let sign = if is_negative { Some('-') } else { self.sign };
        let before: String = sign.into_iter().chain(base.chars()).collect();
        let digits = self.thousands.map_or_else(|| digits.to_owned(), |between| grouped(digits, between));
        pad(text, [&before, &digits], self.width, self.fill, self.align.unwrap_or(Align::Right));
    }
}

fn no_kind(kind: char, value: &str, style: Style) -> Result<()> {
    let first = if style == Style::Braces { "{:" } else { "%" };
    let last = if style == Style::Braces { "}" } else { "" };
    exec_err!("{}: {first}{kind}{last} does not write {value}; write another letter, or cast the value", style.name())
}

/// Adds a value in two parts, with as many characters as it is to have.
fn pad(text: &mut String, [before, value]: [&str; 2], width: usize, fill: char, align: Align) {
    let missing = width.saturating_sub(before.chars().count() + value.chars().count());
    let (left, middle, right) = match align {
        Align::Left => (0, 0, missing),
        Align::Right => (missing, 0, 0),
        Align::Center => (missing / 2, 0, missing - missing / 2),
        Align::AfterSign => (0, missing, 0),
    };
    let mut put = |fills: usize, part: &str| {
        text.extend(std::iter::repeat_n(fill, fills));
        text.push_str(part);
    };
    put(left, before);
    put(middle, value);
    put(right, "");
}

/// Digits before the point in groups of three.
fn grouped(digits: &str, between: char) -> String {
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    let mut text = String::with_capacity(digits.len() + whole / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index < whole && (whole - index).is_multiple_of(3) {
            text.push(between);
        }
        text.push(digit);
    }
    text
}

fn fixed(size: f64, precision: usize, keeps_point: bool) -> String {
    let point = if keeps_point && precision == 0 { "." } else { "" };
    format!("{size:.precision$}{point}")
}

/// One digit before the point, and an exponent of two digits at least, as C writes it.
fn exponential(size: f64, precision: usize, keeps_point: bool) -> String {
    let text = format!("{size:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let point = if keeps_point && precision == 0 { "." } else { "" };
    format!("{digits}{point}{}", with_exponent(exponent))
}

fn with_exponent(exponent: &str) -> String {
    match exponent.strip_prefix('-') {
        Some(below) => format!("e-{below:0>2}"),
        None => format!("e+{exponent:0>2}"),
    }
}

/// With as many digits in all, in the shorter of both forms.
fn general(size: f64, digits: usize, keeps_zeros: bool) -> String {
    let digits = digits.max(1);
    let scientific = exponential(size, digits - 1, true);
    let exponent: i64 = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let text = match usize::try_from(digits as i64 - 1 - exponent) {
        Ok(behind) if exponent >= -4 => fixed(size, behind, true),
        _ => scientific,
    };
    if keeps_zeros { text } else { without_zeros(&text) }
}

/// Without zeros at the end of the digits, and a point that they leave.
fn without_zeros(text: &str) -> String {
    let (digits, exponent) = text.split_at(text.find('e').unwrap_or(text.len()));
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}{exponent}")
}

/// A float without a letter that says how: all its digits, or so many, and one behind the point at least.
fn plain(size: f64, precision: Option<usize>) -> String {
    let text = match precision {
        None => return shortest(size),
        Some(0) => return general(size, 1, false),
        Some(precision) => general(size, precision, true),
    };
    let text = text.replace(".e", "e");
    let is_fraction = size > 0.0 && size < 1.0 && !text.contains('e');
    let text = if is_fraction { without_zeros(&text) } else { text };
    if text.ends_with('.') { format!("{text}0") } else { text }
}

/// The shortest digits that are read as the same float.
fn shortest(size: f64) -> String {
    if size == 0.0 || (1e-4..1e16).contains(&size) {
        return format!("{size:?}");
    }
    let text = format!("{size:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{digits}{}", with_exponent(exponent))
}
