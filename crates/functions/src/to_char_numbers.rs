//! Numbers by PostgreSQL's patterns of `to_char`: `FM999,990.00`, `S9999`, `9.99EEEE`, `RN` and their like.

use std::fmt::Write;

/// What stands in a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// A digit that is left out where there is none: `9`.
    Digit,
    /// A digit that is there in any case: `0`.
    Zero,
    Point,
    Group,
    /// `L`, which is a blank where no currency is known.
    Currency,
    Minus,
    Plus,
    Sign,
    Roman {
        is_lower: bool,
    },
    Ordinal {
        is_lower: bool,
    },
    /// What says something of the whole, and stands for nothing itself.
    Mark(Mark),
    Text(char),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// `FM`: without blanks and zeros that only fill.
    Tight,
    /// `S`: a sign beside the number.
    Beside,
    /// `PR`: negative numbers in angle brackets.
    Brackets,
    /// `V`: the digits behind it shift the point.
    Shift,
    /// `EEEE`.
    Scientific,
    /// What PostgreSQL knows, and what changes nothing: `B`, `C` and `SP`.
    Nothing,
}

/// The words of patterns, the longer ones first. In small letters they mean the same.
const WORDS: [(&str, Item); 20] = [
    ("EEEE", Item::Mark(Mark::Scientific)),
    ("FM", Item::Mark(Mark::Tight)),
    ("MI", Item::Minus),
    ("PL", Item::Plus),
    ("PR", Item::Mark(Mark::Brackets)),
    ("RN", Item::Roman { is_lower: false }),
    ("SG", Item::Sign),
    ("SP", Item::Mark(Mark::Nothing)),
    ("TH", Item::Ordinal { is_lower: false }),
    (",", Item::Group),
    (".", Item::Point),
    ("0", Item::Zero),
    ("9", Item::Digit),
    ("B", Item::Mark(Mark::Nothing)),
    ("C", Item::Mark(Mark::Nothing)),
    ("D", Item::Point),
    ("G", Item::Group),
    ("L", Item::Currency),
    ("S", Item::Mark(Mark::Beside)),
    ("V", Item::Mark(Mark::Shift)),
];

/// Letters that a Roman number has at most, which is its width.
const ROMAN_WIDTH: usize = 15;
/// Digits of a float that say something.
const FLOAT_DIGITS: usize = 15;

/// A pattern of numbers, read.
#[derive(Clone, Debug)]
pub(crate) struct NumberPattern {
    items: Vec<Item>,
    /// Digits before the point, and behind it.
    whole: usize,
    fraction: usize,
    /// Digits by which the point is shifted.
    shift: usize,
    /// The first digit before the point that is there in any case.
    first_zero: Option<usize>,
    /// How many digits there are up to the last one that is there in any case.
    to_last_zero: usize,
    is_tight: bool,
    has_point: bool,
    signs: Signs,
    is_scientific: bool,
}

/// How a number shows its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signs {
    /// Before its first digit: `-` or a blank.
    Before,
    /// The same, as `+` or `-`.
    BeforeAlways,
    /// Behind its last digit, as `+` or `-`.
    After,
    Brackets,
    /// Only where the pattern says it.
    Elsewhere,
}

/// A number that is rounded to the digits that a pattern has for it.
struct Rounded {
    is_negative: bool,
    whole: String,
    fraction: String,
}

impl NumberPattern {
    /// Reads a pattern.
    pub(crate) fn read(pattern: &str) -> Result<NumberPattern, String> {
        let items = items(pattern);
        let marked = |mark| items.contains(&Item::Mark(mark));
        let mut read = NumberPattern {
            whole: 0,
            fraction: 0,
            shift: 0,
            first_zero: None,
            to_last_zero: 0,
            is_tight: marked(Mark::Tight),
            has_point: items.contains(&Item::Point),
            signs: Signs::Before,
            is_scientific: marked(Mark::Scientific),
            items: vec![],
        };
        read.count(&items);
        read.signs = read.signs_of(&items)?;
        refuse_unclear(&items)?;
        read.items = items;
        Ok(read)
    }

    fn count(&mut self, items: &[Item]) {
        let (mut is_behind, mut is_shifting) = (false, false);
        for item in items {
            match item {
                Item::Point => is_behind = true,
                Item::Mark(Mark::Shift) => is_shifting = true,
                Item::Digit if is_shifting => self.shift += 1,
                Item::Digit | Item::Zero => {
                    let is_zero = *item == Item::Zero;
                    if is_zero && !is_behind && self.first_zero.is_none() {
                        self.first_zero = Some(self.whole);
                    }
                    *(if is_behind { &mut self.fraction } else { &mut self.whole }) += 1;
                    if is_zero {
                        self.to_last_zero = self.whole + self.fraction;
                    }
                }
                _ => {}
            }
        }
        // Shifted digits stand before the point.
        self.whole += self.shift;
    }

    fn signs_of(&self, items: &[Item]) -> Result<Signs, String> {
        let has = |item: Item| items.contains(&item);
        let has_signs = has(Item::Minus) || has(Item::Plus) || has(Item::Sign);
        let (beside, brackets) = (has(Item::Mark(Mark::Beside)), has(Item::Mark(Mark::Brackets)));
        if beside && (has_signs || brackets) {
            return Err("S stands with none of PL, MI, SG and PR".to_owned());
        }
        if brackets && has_signs {
            return Err("PR stands with none of S, PL, MI and SG".to_owned());
        }
        let is_digit = |item: &Item| matches!(item, Item::Digit | Item::Zero);
        Ok(match items.iter().position(|item| *item == Item::Mark(Mark::Beside)) {
            Some(place) => {
                let before_point = !items[..place].contains(&Item::Point);
                let point = items.iter().position(|item| *item == Item::Point).unwrap_or(items.len());
                match before_point && items[place..point.max(place)].iter().any(is_digit) {
                    true => Signs::BeforeAlways,
                    false => Signs::After,
                }
            }
            None if brackets => Signs::Brackets,
            None if has(Item::Minus) || has(Item::Sign) => Signs::Elsewhere,
            None => Signs::Before,
        })
    }

    /// A decimal: so many units of one by ten to the power of `scale`.
    pub(crate) fn of_decimal(&self, units: i128, scale: usize) -> String {
        if self.has_roman() {
            return self.roman(&Rounded::of_decimal(units, scale, 0, 0));
        }
        match self.is_scientific {
            true => scientific(units, scale, self.fraction),
            false => self.written(&Rounded::of_decimal(units, scale, self.shift, self.fraction)),
        }
    }

    /// A float, of which fifteen digits count.
    pub(crate) fn of_float(&self, value: f64) -> String {
        if self.has_roman() {
            return self.roman(&Rounded::of_float(value, 0));
        }
        if !value.is_finite() {
            return self.not_finite(value);
        }
        if self.is_scientific {
            return of_scientific(&format!("{:.*e}", self.fraction, value));
        }
        let shifted = value * 10_f64.powi(i32::try_from(self.shift).unwrap_or(i32::MAX));
        let before = format!("{:.0}", shifted.abs()).len();
        self.written(&Rounded::of_float(shifted, self.fraction.min(FLOAT_DIGITS.saturating_sub(before))))
    }

    fn has_roman(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Roman { .. }))
    }

    /// Signs where digits would be, as for a number that has too many of them.
    fn not_finite(&self, value: f64) -> String {
        let too_large =
            Rounded { is_negative: value < 0.0, whole: "1".repeat(self.whole + 1), fraction: "0".repeat(self.fraction) };
        match self.is_scientific {
            true => format!(" {}.{}", "#".repeat(self.whole), "#".repeat(self.fraction + 4)),
            false => self.written(&too_large),
        }
    }

    fn written(&self, number: &Rounded) -> String {
        let shown = self.shown(number);
        let mut writer =
            Writer { pattern: self, number: &shown, out: String::new(), place: 0, has_sign: false, in_digits: false };
        let last = self.last_shown(&shown);
        for item in &self.items {
            writer.item(item, last);
        }
        writer.out
    }

    /// The characters of a number at the places that the pattern has for digits.
    fn shown(&self, number: &Rounded) -> Shown {
        let is_too_long = number.whole.len() > self.whole;
        let blanks = self.whole.saturating_sub(number.whole.len());
        // The zero before the point is one of those that a pattern has to ask for.
        let is_zero_hidden = number.whole == "0" && self.fraction > 0 && self.first_zero.is_none();
        let fraction = match is_too_long {
            true => "#".repeat(self.fraction),
            false => number.fraction.clone(),
        };
        let kept = match self.is_tight && self.has_point {
            true => {
                let needed = self.to_last_zero.saturating_sub(self.whole);
                fraction.trim_end_matches('0').len().max(needed).min(fraction.len())
            }
            false => fraction.len(),
        };
        let place = |place: usize| match place.checked_sub(blanks) {
            _ if is_too_long => Some('#'),
            None => self.first_zero.filter(|first| *first <= place).map(|_| '0'),
            Some(_) if is_zero_hidden && !(self.is_tight && kept == 0) => None,
            Some(digit) => number.whole[digit..].chars().next(),
        };
        Shown {
            is_negative: number.is_negative,
            last_digit: number.whole.clone(),
            whole: (0..self.whole).map(place).collect(),
            fraction: fraction[..kept].chars().collect(),
            has_fraction: !fraction.is_empty(),
            is_too_long,
        }
    }

    /// The place of the last digit, or of the point, that is written.
    fn last_shown(&self, shown: &Shown) -> usize {
        let point = usize::from(self.has_point);
        match self.is_tight {
            true => (self.whole + point + shown.fraction.len()).saturating_sub(1),
            false => (self.whole + point + self.fraction).saturating_sub(1),
        }
    }

    fn roman(&self, number: &Rounded) -> String {
        let value = number.whole.parse::<u32>().ok().filter(|value| (1..4_000).contains(value) && !number.is_negative);
        let letters = value.map_or_else(|| "#".repeat(ROMAN_WIDTH), roman);
        let mut out = String::new();
        for item in &self.items {
            match item {
                Item::Roman { is_lower } => {
                    let letters = if *is_lower { letters.to_lowercase() } else { letters.clone() };
                    let width = if self.is_tight { 0 } else { ROMAN_WIDTH };
                    let _ = write!(out, "{letters:>width$}");
                }
                Item::Text(text) => out.push(*text),
                _ => {}
            }
        }
        out
    }
}

/// What is written of a number.
struct Shown {
    is_negative: bool,
    /// The whole part as it is, which says how an ordinal ends.
    last_digit: String,
    /// A character for each place before the point; none: a blank.
    whole: Vec<Option<char>>,
    fraction: Vec<char>,
    has_fraction: bool,
    is_too_long: bool,
}

struct Writer<'a> {
    pattern: &'a NumberPattern,
    number: &'a Shown,
    out: String,
    /// How many places of digits, and points, were written.
    place: usize,
    has_sign: bool,
    /// Whether the last place had a digit, so that a sign of groups may follow.
    in_digits: bool,
}

impl Writer<'_> {
    fn item(&mut self, item: &Item, last: usize) {
        let is_negative = self.number.is_negative;
        match item {
            Item::Digit | Item::Zero | Item::Point => {
                self.place(*item == Item::Point);
                if self.place == last {
                    self.end();
                }
                self.place += 1;
            }
            Item::Group if self.in_digits => self.out.push(','),
            Item::Group => self.blank(),
            Item::Currency => self.out.push(' '),
            Item::Minus if is_negative => self.out.push('-'),
            Item::Plus if !is_negative => self.out.push('+'),
            Item::Minus | Item::Plus => self.blank(),
            Item::Sign => self.out.push(if is_negative { '-' } else { '+' }),
            Item::Ordinal { is_lower } => self.ordinal(*is_lower),
            Item::Text(text) => self.out.push(*text),
            Item::Roman { .. } | Item::Mark(_) => {}
        }
    }

    /// What stands at a place of a digit, or of the point.
    fn place(&mut self, is_point: bool) {
        let whole = self.number.whole.len();
        self.in_digits = false;
        if is_point {
            // One that no digits follow is left out.
            if self.number.has_fraction || self.number.is_too_long {
                self.begin();
                self.out.push('.');
            }
            return;
        }
        match self.place < whole {
            true => match self.number.whole[self.place] {
                Some(digit) => self.digit(digit),
                None => self.blank(),
            },
            false => {
                let behind = self.place.saturating_sub(whole + usize::from(self.pattern.has_point));
                if let Some(digit) = self.number.fraction.get(behind).copied() {
                    self.digit(digit);
                }
            }
        }
    }

    fn digit(&mut self, digit: char) {
        self.begin();
        self.out.push(digit);
        self.in_digits = true;
    }

    fn blank(&mut self) {
        if !self.pattern.is_tight {
            self.out.push(' ');
        }
    }

    /// Writes the sign before the first digit.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.has_sign, true) {
            return;
        }
        let is_negative = self.number.is_negative;
        match self.pattern.signs {
            Signs::BeforeAlways => self.out.push(if is_negative { '-' } else { '+' }),
            Signs::Brackets if is_negative => self.out.push('<'),
            Signs::Before if is_negative => self.out.push('-'),
            Signs::Brackets | Signs::Before => self.blank(),
            Signs::After | Signs::Elsewhere => {}
        }
    }

    /// Writes the sign behind the last digit.
    fn end(&mut self) {
        let is_negative = self.number.is_negative;
        match self.pattern.signs {
            Signs::After => self.out.push(if is_negative { '-' } else { '+' }),
            Signs::Brackets if is_negative => self.out.push('>'),
            Signs::Brackets => self.blank(),
            Signs::Before | Signs::BeforeAlways | Signs::Elsewhere => {}
        }
    }

    fn ordinal(&mut self, is_lower: bool) {
        if self.number.is_negative || self.pattern.has_point || self.number.is_too_long {
            return;
        }
        let ending = ordinal(&self.number.last_digit);
        self.out.push_str(&if is_lower { ending.to_lowercase() } else { ending.to_owned() });
    }
}

impl Rounded {
    /// Half of the last digit is rounded away from zero.
    fn of_decimal(units: i128, scale: usize, shift: usize, fraction: usize) -> Rounded {
        let mut digits = units.unsigned_abs();
        let mut scale = scale as i64 - shift as i64;
        let cut = scale - fraction as i64;
        if cut > 0 {
            let divisor = u32::try_from(cut).ok().and_then(|cut| 10_u128.checked_pow(cut));
            digits = divisor.map_or(0, |divisor| {
                let (whole, rest) = (digits / divisor, digits % divisor);
                whole + u128::from(rest >= divisor - rest)
            });
            scale = fraction as i64;
        }
        let zeros = usize::try_from(fraction as i64 - scale).unwrap_or(0);
        let mut text = format!("{digits}{}", "0".repeat(if digits == 0 { 0 } else { zeros }));
        if text.len() <= fraction {
            text = format!("{}{text}", "0".repeat(fraction + 1 - text.len()));
        }
        let fraction = text.split_off(text.len() - fraction);
        Rounded { is_negative: units < 0 && digits != 0, whole: text, fraction }
    }

    fn of_float(value: f64, fraction: usize) -> Rounded {
        let text = format!("{:.fraction$}", value.abs());
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        Rounded { is_negative: value.is_sign_negative(), whole: whole.to_owned(), fraction: fraction.to_owned() }
    }
}

/// What a pattern has, in its order. A text in quotes stands for itself.
fn items(pattern: &str) -> Vec<Item> {
    let (mut items, mut rest) = (Vec::new(), pattern);
    while let Some(first) = rest.chars().next() {
        let is_next =
            |word: &&(&str, Item)| rest.get(..word.0.len()).is_some_and(|next| next == word.0 || next == word.0.to_lowercase());
        if let Some((word, item)) = WORDS.iter().find(is_next) {
            let is_lower = rest.starts_with(|first: char| first.is_lowercase());
            items.push(match item {
                Item::Roman { .. } => Item::Roman { is_lower },
                Item::Ordinal { .. } => Item::Ordinal { is_lower },
                other => other.clone(),
            });
            rest = &rest[word.len()..];
        } else if first == '"' {
            rest = quoted(&rest[1..], |text| items.push(Item::Text(text)));
        } else {
            rest = &rest[first.len_utf8()..];
            let is_escaped = first == '\\' && rest.starts_with('"');
            items.push(Item::Text(if is_escaped { '"' } else { first }));
            rest = if is_escaped { &rest[1..] } else { rest };
        }
    }
    items
}

/// What follows a text in quotes, which begins behind its first one. A backslash stands before a character that means itself.
pub(crate) fn quoted(text: &str, mut found: impl FnMut(char)) -> &str {
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => characters.next().into_iter().for_each(&mut found),
            other => found(other),
        }
    }
    characters.as_str()
}

fn refuse_unclear(items: &[Item]) -> Result<(), String> {
    let count = |wanted: Item| items.iter().filter(|item| **item == wanted).count();
    let place = |wanted: Item| items.iter().position(|item| *item == wanted);
    let is_digit = |item: &Item| matches!(item, Item::Digit | Item::Zero);
    if count(Item::Point) > 1 {
        return Err("it has several decimal points".to_owned());
    }
    if count(Item::Mark(Mark::Beside)) > 1 {
        return Err("it has S twice".to_owned());
    }
    if count(Item::Point) > 0 && count(Item::Mark(Mark::Shift)) > 0 {
        return Err("V and a decimal point do not go together".to_owned());
    }
    if let Some(brackets) = place(Item::Mark(Mark::Brackets))
        && items[brackets..].iter().any(is_digit)
    {
        return Err("PR stands behind all digits".to_owned());
    }
    if let Some(exponent) = place(Item::Mark(Mark::Scientific)) {
        let is_plain = |item: &Item| {
            is_digit(item) || matches!(item, Item::Point | Item::Group | Item::Currency | Item::Text(_) | Item::Ordinal { .. })
        };
        let is_last = items[exponent + 1..].iter().all(|item| matches!(item, Item::Text(_)));
        if !items[..exponent].iter().all(is_plain) || !is_last {
            return Err("EEEE stands behind digits and a point only".to_owned());
        }
    }
    Ok(())
}

/// A decimal with a power of ten.
fn scientific(units: i128, scale: usize, fraction: usize) -> String {
    let digits = units.unsigned_abs().to_string();
    let exponent = if units == 0 { 0 } else { digits.len() as i64 - 1 - scale as i64 };
    // Of its digits, one stands before the point.
    let rounded = Rounded::of_decimal(units.abs(), digits.len() - 1, 0, fraction);
    let (whole, exponent) = match rounded.whole.as_str() {
        "10" => ("1", exponent + 1),
        other => (other, exponent),
    };
    let point = if fraction > 0 { "." } else { "" };
    let sign = if units < 0 { "-" } else { "" };
    of_scientific(&format!("{sign}{whole}{point}{}e{exponent}", rounded.fraction))
}

/// A number with an exponent of two digits at least, and a blank where it has no sign.
fn of_scientific(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let blank = if mantissa.starts_with('-') { "" } else { " " };
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{blank}{mantissa}e{sign}{:02}", exponent.abs())
}

fn roman(mut value: u32) -> String {
    const LETTERS: [(u32, &str); 13] = [
        (1_000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let mut out = String::new();
    for (worth, letters) in LETTERS {
        while value >= worth {
            out.push_str(letters);
            value -= worth;
        }
    }
    out
}

/// What makes an ordinal of a number.
pub(crate) fn ordinal(digits: &str) -> &'static str {
    let is_teen = digits.len() > 1 && digits[..digits.len() - 1].ends_with('1');
    match digits.chars().next_back() {
        _ if is_teen => "TH",
        Some('1') => "ST",
        Some('2') => "ND",
        Some('3') => "RD",
        _ => "TH",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(pattern: &str) -> NumberPattern {
        NumberPattern::read(pattern).unwrap_or_else(|why| panic!("{pattern}: {why}"))
    }

    /// What PostgreSQL 15 gives.
    #[test]
    fn decimals_are_written_as_postgresql_writes_them() {
        for (value, shown, expected) in [
            ("1234.5", "999,999.99", "   1,234.50"),
            ("-1234.5", "999,999.99", "  -1,234.50"),
            ("7", "FM0000", "0007"),
            ("1234567.891", "FM9,999,990.00", "1,234,567.89"),
            ("0.1", "9.99", "  .10"),
            ("-0.1", "FM9.99", "-.1"),
            ("0", "FM9.9", "0."),
            ("1", "FM9.9", "1."),
            ("0.5", "0.00", " 0.50"),
            ("12", "S9999", "  +12"),
            ("-12", "9999S", "  12-"),
            ("-485", "999PR", "<485>"),
            ("485", "999PR", " 485 "),
            ("-485", "FM999MI", "485-"),
            ("12", "MI999", "  12"),
            ("12", "SG999", "+ 12"),
            ("12", "PL999", "+  12"),
            ("485", "RN", "        CDLXXXV"),
            ("485", "FMrn", "cdlxxxv"),
            ("4000", "FMRN", "###############"),
            ("21", "FM999th", "21st"),
            ("112", "999TH", " 112TH"),
            ("12.4", "99V999", " 12400"),
            ("1234.5", "9.99EEEE", " 1.23e+03"),
            ("-0.00012", "9.9EEEE", "-1.2e-04"),
            ("12345", "9,999.9", " #,###.#"),
            ("148.5", "\"Pre:\"999\" Post:\" .999", "Pre: 148 Post: .500"),
            ("12", "00000.000", " 00012.000"),
            ("3148.5", "9G999D999", " 3,148.500"),
            ("0.995", "FM999.99", "1."),
            ("485", "L999", "  485"),
            ("-7.50", "FM00.0", "-07.5"),
            ("1", "9 9 9", "     1"),
            ("100", "FM$9,999.00", "$100.00"),
        ] {
            let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
            let units = format!("{whole}{fraction}").parse().unwrap();
            assert_eq!(pattern(shown).of_decimal(units, fraction.len()), expected, "{value} {shown}");
        }
        assert_eq!(pattern("FM999999999999999999999999999999999999999").of_decimal(i128::MIN, 0), i128::MIN.to_string());
        assert_eq!(pattern("9.9").of_decimal(i128::MAX, 38), " 1.7");
    }

    #[test]
    fn floats_are_written_as_postgresql_writes_them() {
        for (value, shown, expected) in [
            (0.1, "9.99", "  .10"),
            (-1234.5, "FM999,999.0", "-1,234.5"),
            (12_345_678_901_234_567.0, "FM99999999999999999.99", "12345678901234568"),
            (2.5e-5, "9.99EEEE", " 2.50e-05"),
            (0.125, "FM0.00", "0.12"),
            (1e20, "999", " ###"),
            (484.5, "FMRN", "CDLXXXIV"),
            (f64::NAN, "9.9", " #.#"),
            (f64::NEG_INFINITY, "99", "-##"),
            (f64::INFINITY, "9.9EEEE", " #.#####"),
        ] {
            assert_eq!(pattern(shown).of_float(value), expected, "{value} {shown}");
        }
    }

    #[test]
    fn what_has_no_one_meaning_is_refused() {
        for (shown, why) in [
            ("9.9.9", "several decimal points"),
            ("S9S", "S twice"),
            ("SMI9", "S stands with none"),
            ("9MIPR", "PR stands with none"),
            ("PR9", "PR stands behind"),
            ("9.9V9", "V and a decimal point"),
            ("S9EEEE", "EEEE stands behind"),
            ("9EEEE9", "EEEE stands behind"),
        ] {
            let refused = NumberPattern::read(shown).unwrap_err();
            assert!(refused.contains(why), "{shown}: {refused}");
        }
    }
}
