//! [`Place`]: says on which line of a file of JSON lines something is wrong. Arrow's decoder does not count lines, so they are
//! counted once there is an error.

use std::fmt;
use std::io::BufRead;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::Decoder;
use pithead_model::Fault;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::any_floats::{AnyFloats, StandIn};
use crate::exact::{Misfit, Unread};
use crate::input::Input;
use crate::source::damaged;
use crate::text::{open_plain_text, plain, told};

const LINES_HINT: &str = "expected JSON lines: one object a line";
const LIST_HINT: &str = "expected JSON lines: one object a line, without a list around them";

/// A file whose rows are decoded.
pub(super) struct Place {
    pub(super) input: Input,
    pub(super) schema_rows: usize,
    /// Whether types were guessed, and are not those of a dataset.
    pub(super) is_guessed: bool,
    /// The columns, in the types that they are decoded in.
    pub(super) decoded: SchemaRef,
    /// Whether rows may have no other columns.
    pub(super) is_strict: bool,
    pub(super) batch_rows: usize,
}

impl Place {
    pub(super) fn decoder(&self, batch_rows: usize) -> Result<Decoder, ArrowError> {
        ReaderBuilder::new(Arc::clone(&self.decoded))
            .with_batch_size(batch_rows)
            // Texts among which there are numbers, and numbers that are decoded as texts.
            .with_coerce_primitive(true)
            .with_strict_mode(self.is_strict)
            .build_decoder()
    }

    /// What a batch after so many rows has that its columns do not hold.
    pub(super) fn unread(&self, before: usize, unread: &Unread) -> Fault {
        match unread {
            Unread::Misfit(misfit) => self.misfit(before, misfit),
            Unread::Arrow(error) => self.unreadable(before, error),
        }
    }

    fn misfit(&self, before: usize, misfit: &Misfit) -> Fault {
        let Misfit { row, column, value, expected } = misfit;
        let row = before + row + 1;
        let place = match self.lines().and_then(|lines| line_of(lines, row)) {
            Some(line) => format!("line {line}"),
            None => format!("row {row}"),
        };
        let hint = match self.is_guessed {
            true => "types are guessed from the first rows",
            false => "the types are those of the dataset that the rows go to",
        };
        damaged(self.input.name(), format_args!("{place}: expected {expected} in column {column}, got {value:?}")).hint(hint)
    }

    /// What the decoder met in a batch after so many rows.
    pub(super) fn unreadable(&self, before: usize, error: &ArrowError) -> Fault {
        if matches!(error, ArrowError::IoError(..)) {
            return told(self.input.name(), error);
        }
        match self.lines().and_then(|lines| self.first_unread(lines, before)) {
            Some(Unfit::NotJson(bad)) => bad.fault(&self.input),
            Some(Unfit::Unread(line, error)) => self.undecoded(&format!("line {line}"), &error),
            None => self.undecoded(&format!("after row {before}"), error),
        }
    }

    fn undecoded(&self, place: &str, error: &ArrowError) -> Fault {
        let text = plain(error);
        match text.split('\'').nth(1).filter(|_| text.contains("missing from schema")) {
            Some(column) => {
                let what = format!("{place}: column {column} was not in the first {} rows", self.schema_rows);
                let hint = "put a row with all columns first, or load into a dataset that has the column";
                damaged(self.input.name(), what).hint(hint)
            }
            None => damaged(self.input.name(), format_args!("{place}: {text}")),
        }
    }

    /// The first row of a batch that is not decoded, if each row is one line.
    fn first_unread(&self, lines: impl Iterator<Item = Line>, before: usize) -> Option<Unfit> {
        let (mut decoder, mut lines) = (self.decoder(1).ok()?, lines.peekable());
        let mut row = 0;
        while let Some(line) = lines.next() {
            row += 1;
            if let Err(bad) = line.object() {
                // Objects that go on in the next line, and several in one, are rows to the decoder.
                let may_be_rows = bad.is_cut() && lines.peek().is_some() || bad.has_more();
                return (row > before && !may_be_rows).then_some(Unfit::NotJson(bad));
            }
            if row > before {
                let decoded = decoder.decode(&line.text).and_then(|_| decoder.flush());
                if let Err(error) = decoded {
                    return Some(Unfit::Unread(line.number, error));
                }
            }
            if row >= before + self.batch_rows {
                return None;
            }
        }
        None
    }

    fn lines(&self) -> Option<impl Iterator<Item = Line> + use<>> {
        lines(&self.input).ok()
    }
}

/// Why a line is no row.
enum Unfit {
    NotJson(NotJson),
    Unread(u64, ArrowError),
}

/// What is wrong at one of the rows that types are guessed from, each of which is one line.
pub(super) fn unguessed(input: &Input, row: usize, error: &ArrowError) -> Fault {
    let line = lines(input).ok().and_then(|mut lines| lines.nth(row.saturating_sub(1)));
    match line.map(|line| (line.number, line.object())) {
        Some((_, Err(bad))) => bad.fault(input),
        Some((line, Ok(()))) => damaged(input.name(), format_args!("line {line}: {}", plain(error))),
        None => damaged(input.name(), plain(error)),
    }
}

/// The line of a row, if each row before it is one line.
fn line_of(mut lines: impl Iterator<Item = Line>, row: usize) -> Option<u64> {
    for _ in 1..row {
        lines.next()?.object().ok()?;
    }
    lines.next().filter(|line| line.object().is_ok()).map(|line| line.number)
}

/// The lines of a file that are not empty.
fn lines(input: &Input) -> Result<impl Iterator<Item = Line> + use<>, Fault> {
    let mut text = AnyFloats::new(open_plain_text(input, &Arc::default())?, StandIn::Text);
    let mut number = 0;
    let next = move || {
        let mut bytes = Vec::new();
        text.read_until(b'\n', &mut bytes).ok().filter(|bytes| *bytes > 0)?;
        number += 1;
        Some(Line { number, text: bytes })
    };
    Ok(std::iter::from_fn(next).filter(|line| !line.text.trim_ascii().is_empty()))
}

/// A line, counted from 1.
struct Line {
    number: u64,
    text: Vec<u8>,
}

impl Line {
    /// Whether it is one object.
    fn object(&self) -> Result<(), NotJson> {
        serde_json::from_slice::<Object>(self.text.trim_ascii_end()).map(drop).map_err(|error| NotJson {
            line: self.number,
            is_list: self.text.trim_ascii_start().starts_with(b"["),
            error,
        })
    }
}

/// A line that is no object.
struct NotJson {
    line: u64,
    is_list: bool,
    error: serde_json::Error,
}

impl NotJson {
    /// Whether it ends within an object.
    fn is_cut(&self) -> bool {
        self.error.is_eof()
    }

    /// Whether something follows the object.
    fn has_more(&self) -> bool {
        self.error.to_string().starts_with("trailing characters")
    }

    fn fault(&self, input: &Input) -> Fault {
        let (line, said) = (self.line, self.error.to_string());
        let what = said.split_once(" at line ").map_or(said.as_str(), |(what, _)| what);
        let fault = match self.error.is_data() {
            true => damaged(input.name(), format_args!("line {line}: {what}")),
            false => {
                let column = self.error.column();
                damaged(input.name(), format_args!("line {line}, column {column}: not valid JSON: {what}"))
            }
        };
        match (self.is_list, self.error.is_data() || self.is_cut() || self.has_more()) {
            (true, _) => fault.hint(LIST_HINT),
            (false, true) => fault.hint(LINES_HINT),
            (false, false) => fault,
        }
    }
}

/// An object, of which nothing is kept.
struct Object;

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        while let Some((IgnoredAny, IgnoredAny)) = map.next_entry()? {}
        Ok(Object)
    }
}
