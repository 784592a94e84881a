//! Formats as they are written, read into [`Part`]s.

use std::iter::Peekable;
use std::str::Chars;

use datafusion::common::{Result, exec_err};

use super::style::Style;

/// The most characters that a value is padded to, and the most digits behind its point.
const SIZE_MAX: usize = 1_000;

/// A part of a format.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    /// The value at a place among the arguments behind the format.
    Value(usize, Spec),
}

/// How a value is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) fill: char,
    /// None: as the kind of value has it.
    pub(super) align: Option<Align>,
    /// What stands before a number that is not below zero.
    pub(super) sign: Option<char>,
    /// Whether a base is told, and a float keeps its zeros.
    pub(super) is_alternate: bool,
    /// What stands between groups of three digits.
    pub(super) thousands: Option<char>,
    pub(super) width: usize,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Align {
    Left,
    Right,
    Center,
    /// The sign stands before what fills.
    AfterSign,
}

impl Align {
    fn of(character: char) -> Option<Align> {
        Some(match character {
            '<' => Align::Left,
            '>' => Align::Right,
            '^' => Align::Center,
            '=' => Align::AfterSign,
            _ => return None,
        })
    }
}

impl Default for Spec {
    fn default() -> Self {
        Spec { fill: ' ', align: None, sign: None, is_alternate: false, thousands: None, width: 0, precision: None, kind: None }
    }
}

impl Style {
    /// The parts of a format, one after the other.
    pub(super) fn parts(self, format: &str) -> Result<Vec<Part>> {
        let mut reader = Reader { style: self, rest: format.chars().peekable(), places: Places::default() };
        let mut parts = Vec::new();
        let mut text = String::new();
        while let Some(character) = reader.rest.next() {
            let is_doubled = reader.rest.peek() == Some(&character);
            match (self, character) {
                (Style::Braces, '{' | '}') | (Style::Percent, '%') if is_doubled => text.extend(reader.rest.next()),
                (Style::Braces, '}') => return exec_err!("format: a }} stands alone; write }}}} for the character itself"),
                (Style::Braces, '{') | (Style::Percent, '%') => {
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(if self == Style::Braces { reader.braces()? } else { reader.percent()? });
                }
                _ => text.push(character),
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(parts)
    }
}

/// What was read of which arguments come next.
#[derive(Default)]
struct Places {
    next: usize,
    are_numbered: bool,
}

struct Reader<'a> {
    style: Style,
    rest: Peekable<Chars<'a>>,
    places: Places,
}

impl Reader<'_> {
    /// What follows a `{`, with the `}`.
    fn braces(&mut self) -> Result<Part> {
        let number = self.number()?;
        let place = self.place(number)?;
        let spec = if self.take(|it| it == ':').is_some() { self.spec()? } else { Spec::default() };
        match self.rest.next() {
            Some('}') => Ok(Part::Value(place, spec)),
            Some(other) => {
                exec_err!("format: expected {{}}, {{0}} or {{:.2f}} and the like, and {other:?} stands where a }} should")
            }
            None => exec_err!("format: a {{ is not closed; write {{{{ for the character itself"),
        }
    }

    /// What follows a `:`.
    fn spec(&mut self) -> Result<Spec> {
        let mut spec = Spec::default();
        let mut ahead = self.rest.clone();
        match (ahead.next(), ahead.next().and_then(Align::of)) {
            (Some(fill), Some(align)) if !matches!(fill, '{' | '}') => {
                (spec.fill, spec.align) = (fill, Some(align));
                self.rest.nth(1);
            }
            (Some(first), _) if Align::of(first).is_some() => {
                spec.align = Align::of(first);
                self.rest.next();
            }
            _ => {}
        }
        spec.sign = self.take(|it| matches!(it, '+' | '-' | ' ')).filter(|sign| *sign != '-');
        spec.is_alternate = self.take(|it| it == '#').is_some();
        if self.take(|it| it == '0').is_some() {
            (spec.fill, spec.align) = ('0', Some(Align::AfterSign));
        }
        spec.thousands = self.take(|it| matches!(it, ',' | '_' | '\''));
        self.size(&mut spec)?;
        spec.kind = self.take(|it| it.is_ascii_alphabetic());
        Ok(spec)
    }

    /// What follows a `%`.
    fn percent(&mut self) -> Result<Part> {
        let mut spec = Spec { align: Some(Align::Right), ..Spec::default() };
        let mut ahead = self.rest.clone();
        while ahead.next_if(char::is_ascii_digit).is_some() {}
        let number = if ahead.next() == Some('$') { self.number()? } else { None };
        if number.is_some() {
            self.rest.next();
        }
        while let Some(flag) = self.take(|it| matches!(it, '-' | '+' | ' ' | '#' | '0' | ',' | '_' | '\'')) {
            match flag {
                '-' if spec.fill == ' ' => spec.align = Some(Align::Left),
                '-' => {}
                '+' | ' ' => spec.sign = Some(flag),
                '#' => spec.is_alternate = true,
                '0' => (spec.fill, spec.align) = ('0', Some(Align::AfterSign)),
                _ => spec.thousands = Some(flag),
            }
        }
        self.size(&mut spec)?;
        // How many bits C gives to the number.
        while self.take(|it| matches!(it, 'h' | 'l' | 'q' | 'j' | 'z' | 't' | 'L')).is_some() {}
        spec.kind = self.take(|it| it.is_ascii_alphabetic());
        if spec.kind.is_none() {
            return exec_err!("printf: expected %d, %s, %.2f and the like; write %% for the character itself");
        }
        let place = self.place(number)?;
        Ok(Part::Value(place, spec))
    }

    /// Width and precision.
    fn size(&mut self, spec: &mut Spec) -> Result<()> {
        spec.width = self.number()?.unwrap_or(0);
        if self.take(|it| it == '.').is_some() {
            spec.precision = Some(match (self.number()?, self.style) {
                (Some(precision), _) => precision,
                (None, Style::Percent) => 0,
                (None, Style::Braces) => return exec_err!("format: expected digits behind the point, as in {{:.2f}}"),
            });
        }
        match self.rest.peek() {
            Some('{' | '*') => {
                exec_err!("{}: a width that is an argument is not supported; write it as digits", self.style.name())
            }
            _ => Ok(()),
        }
    }

    /// The argument of this number, or the next one.
    fn place(&mut self, number: Option<usize>) -> Result<usize> {
        let is_first = self.places.next == 0 && !self.places.are_numbered;
        if !is_first && number.is_some() != self.places.are_numbered {
            return exec_err!("{}: either all places have a number, or none has", self.style.name());
        }
        let Some(number) = number else {
            self.places.next += 1;
            return Ok(self.places.next - 1);
        };
        self.places.are_numbered = true;
        // C counts from 1.
        match (self.style, number.checked_sub(1)) {
            (Style::Braces, _) => Ok(number),
            (Style::Percent, Some(place)) => Ok(place),
            (Style::Percent, None) => exec_err!("printf: places are counted from 1"),
        }
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let mut number = None;
        while let Some(digit) = self.take(|it| it.is_ascii_digit()) {
            let more = number.unwrap_or(0) * 10 + digit as usize - '0' as usize;
            if more > SIZE_MAX {
                return exec_err!("{}: a width is at most {SIZE_MAX}, and so is a precision", self.style.name());
            }
            number = Some(more);
        }
        Ok(number)
    }

    fn take(&mut self, is_wanted: impl Fn(char) -> bool) -> Option<char> {
        self.rest.next_if(|it| is_wanted(*it))
    }
}
