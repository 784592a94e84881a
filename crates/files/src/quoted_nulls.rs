//! [`QuotedNulls`]: texts in quotes that are what stands for NULL without them. Arrow's decoder cannot tell the two
//! apart, so such a text gets another one in its place on the way to the decoder, and is put back into the decoded
//! rows.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, StringViewArray};
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use memchr::memchr;
use memchr::memmem::Finder;

use crate::quotes::Quotes;

/// Characters that are of no meaning to anybody, of which stand-ins are made.
const PRIVATE_USE: u32 = 0xe000;
const PRIVATE_BITS: u32 = 12;
const STAND_IN_CHARS: u32 = 5;

/// Bytes that are copied at a time where there are such texts.
const PIECE_BYTES: usize = 1 << 16;

/// What is looked for, and what is put in its place.
#[derive(Clone, Debug)]
pub(crate) struct QuotedNulls {
    null: String,
    stand_in: String,
    /// Whether columns are of texts, or of bytes. Elsewhere quotes around what stands for NULL mean nothing.
    is_text: Vec<bool>,
    /// Whether any has been met.
    met: Arc<AtomicBool>,
}

impl QuotedNulls {
    /// None: there is nothing to tell apart. That is so, too, where what stands for NULL has to be in quotes itself,
    /// and in a file of one column, in which an empty field can be written in no other way.
    pub(crate) fn of(schema: &Schema, only: Option<usize>, null: &str, delimiter: u8) -> Option<Self> {
        let is_text = schema.fields().iter().enumerate().map(|(column, field)| {
            only.is_none_or(|only| only == column)
                && matches!(field.data_type(), DataType::Utf8 | DataType::Utf8View | DataType::BinaryView)
        });
        let is_text: Vec<bool> = is_text.collect();
        let is_quoted = null.bytes().any(|byte| byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r'));
        let is_lost = is_quoted || (null.is_empty() && is_text.len() == 1);
        (is_text.contains(&true) && !is_lost).then(|| Self {
            null: null.to_owned(),
            stand_in: stand_in(),
            is_text,
            met: Arc::default(),
        })
    }

    /// The rows with the texts that others stand for.
    pub(crate) fn restored(&self, batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
        if !self.met.load(Ordering::Relaxed) {
            return Ok(batch);
        }
        let columns = batch.columns().iter().map(|column| self.restored_column(column)).collect();
        RecordBatch::try_new(batch.schema(), columns)
    }

    fn restored_column(&self, column: &ArrayRef) -> ArrayRef {
        let is_met = |text: Option<&str>| text == Some(self.stand_in.as_str());
        match column.data_type() {
            DataType::Utf8 if column.as_string::<i32>().iter().any(is_met) => {
                let texts = column.as_string::<i32>().iter();
                Arc::new(texts.map(|text| text.map(|text| self.restored_text(text))).collect::<StringArray>())
            }
            DataType::Utf8View if column.as_string_view().iter().any(is_met) => {
                let texts = column.as_string_view().iter();
                Arc::new(texts.map(|text| text.map(|text| self.restored_text(text))).collect::<StringViewArray>())
            }
            _ => Arc::clone(column),
        }
    }

    fn restored_text<'a>(&'a self, text: &'a str) -> &'a str {
        if text == self.stand_in { &self.null } else { text }
    }
}

/// A text that is in no file: of 60 bits that nobody could know before.
fn stand_in() -> String {
    let bits = RandomState::new().build_hasher().finish();
    let digit = |number: u32| (bits >> (number * PRIVATE_BITS)) as u32 & ((1 << PRIVATE_BITS) - 1);
    (0..STAND_IN_CHARS).filter_map(|number| char::from_u32(PRIVATE_USE + digit(number))).collect()
}

/// The text of a file on its way, in which such texts are replaced. What has none is not copied.
pub(crate) struct Replacing {
    nulls: QuotedNulls,
    delimiter: u8,
    finder: Finder<'static>,
    stand_in: Vec<u8>,
    /// Bytes at the start of the text that have nothing to replace.
    clean: usize,
    /// What was read and may be the start of something to replace.
    held: Vec<u8>,
    /// What was copied, from a place on.
    out: Vec<u8>,
    at: usize,
}

impl Replacing {
    pub(crate) fn new(nulls: QuotedNulls, delimiter: u8) -> Self {
        let quoted = |text: &str| format!("\"{text}\"").into_bytes();
        let finder = Finder::new(&quoted(&nulls.null)).into_owned();
        let stand_in = quoted(&nulls.stand_in);
        Self { nulls, delimiter, finder, stand_in, clean: 0, held: Vec::new(), out: Vec::new(), at: 0 }
    }

    /// What is ready of what was copied.
    pub(crate) fn copied(&self) -> &[u8] {
        &self.out[self.at..]
    }

    /// How many bytes of the text are ready as they are.
    pub(crate) fn clean(&self) -> usize {
        self.clean
    }

    /// Whether something has to be read before anything is ready.
    pub(crate) fn is_idle(&self) -> bool {
        self.clean == 0 && self.at == self.out.len()
    }

    /// So many bytes of what is ready have gone. Whether they were of what was copied, and not of the text itself.
    pub(crate) fn consume(&mut self, count: usize) -> bool {
        let is_copied = self.at < self.out.len();
        match is_copied {
            true => self.at += count,
            false => self.clean = self.clean.saturating_sub(count),
        }
        is_copied
    }

    /// Looks at what comes next; nothing is the end. Returns how many of its bytes were taken: none, if those at its
    /// start are ready as they are.
    pub(crate) fn take(&mut self, text: &[u8], quotes: &mut Quotes) -> usize {
        (self.at, self.clean) = (0, 0);
        self.out.clear();
        if self.held.is_empty() {
            self.clean = self.finder.find(text).unwrap_or_else(|| self.tail(text, 0));
            if self.clean > 0 {
                return 0;
            }
        }
        let taken = text.len().min(PIECE_BYTES);
        self.held.extend_from_slice(&text[..taken]);
        self.replace(quotes, text.is_empty());
        taken
    }

    /// Where the text ends in something that may go on to be replaced; its end, if it does not.
    fn tail(&self, text: &[u8], from: usize) -> usize {
        let from = from.max(text.len().saturating_sub(self.finder.needle().len())).min(text.len());
        memchr(b'"', &text[from..]).map_or(text.len(), |at| from + at)
    }

    fn replace(&mut self, quotes: &mut Quotes, is_last: bool) {
        let text = std::mem::take(&mut self.held);
        let (mut passed, mut from) = (0, 0);
        while let Some(found) = self.finder.find(&text[from..]) {
            let (at, after) = (from + found, from + found + self.finder.needle().len());
            if after == text.len() && !is_last {
                break;
            }
            self.pass(&text[passed..at], quotes);
            passed = at;
            from = at + 1;
            let ends = |byte: &u8| *byte == self.delimiter || matches!(*byte, b'\n' | b'\r');
            let is_field = quotes.at_field() && text.get(after).is_none_or(ends);
            if is_field && self.nulls.is_text.get(quotes.column()) == Some(&true) {
                quotes.pass(&text[at..after]);
                self.out.extend_from_slice(&self.stand_in);
                self.nulls.met.store(true, Ordering::Relaxed);
                (passed, from) = (after, after);
            }
        }
        let end = if is_last { text.len() } else { self.tail(&text, from) };
        self.pass(&text[passed..end], quotes);
        self.held.extend_from_slice(&text[end..]);
    }

    fn pass(&mut self, text: &[u8], quotes: &mut Quotes) {
        quotes.pass(text);
        self.out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Read};
    use std::path::PathBuf;

    use arrow::datatypes::Field;

    use super::*;
    use crate::input::Input;
    use crate::quoted::Quoted;

    /// A text as a decoder gets it, of columns that are texts where the letter is `t`, read in pieces of a size.
    fn passed(text: &str, columns: &str, null: &str, size: usize) -> String {
        let types = columns.chars().map(|column| if column == 't' { DataType::Utf8 } else { DataType::Int64 });
        let fields = types.enumerate().map(|(number, data_type)| Field::new(number.to_string(), data_type, true));
        let nulls = QuotedNulls::of(&Schema::new(fields.collect::<Vec<_>>()), None, null, b',');
        let text = BufReader::with_capacity(size, text.as_bytes());
        let mut passed = String::new();
        let mut quoted = Quoted::new(text, &Input::Local(PathBuf::from("rows.csv")), b',').with_nulls(nulls.clone());
        quoted.read_to_string(&mut passed).unwrap();
        nulls.map_or(passed.clone(), |nulls| passed.replace(&nulls.stand_in, "*"))
    }

    #[test]
    fn only_whole_fields_of_columns_of_texts_are_replaced_wherever_a_piece_ends() {
        for (columns, null, text, expected) in [
            ("tt", "", "\"\",\"\"\n,\"\"", "\"*\",\"*\"\n,\"*\""),
            ("nt", "", "1,\"\"\r\n\"\",2\r\n", "1,\"*\"\r\n\"\",2\r\n"),
            ("tn", "", "\"\"\"\",1\n\"a\"\"\",2\n", "\"\"\"\",1\n\"a\"\"\",2\n"),
            ("tn", "", "\"\"\"a\",\"\"\n\"\",3", "\"\"\"a\",\"\"\n\"*\",3"),
            ("nt", "", "\"a,\n\"\",\",\"\"\n5\" x,\"\"\n", "\"a,\n\"\",\",\"*\"\n5\" x,\"*\"\n"),
            (
                "nt",
                "NULL",
                "1,\"NULL\"\n2,NULL\n3,\"NULL \"\n4,x\"NULL\"\n5,\"NULL\"",
                "1,\"*\"\n2,NULL\n3,\"NULL \"\n4,x\"NULL\"\n5,\"*\"",
            ),
            ("ntn", "é", "\"é\",\"é\",\"é\"\n", "\"é\",\"*\",\"é\"\n"),
            ("t", "", "\"\"\n", "\"\"\n"),
            ("t", "-", "\"-\"\n", "\"*\"\n"),
            ("tt", "a,b", "\"a,b\",\"\"\n", "\"a,b\",\"\"\n"),
            ("nn", "", "\"\",\"\"\n", "\"\",\"\"\n"),
        ] {
            for size in 1..=text.len() + 1 {
                assert_eq!(passed(text, columns, null, size), expected, "{text:?} by {size}");
            }
        }
        assert_eq!(passed("\u{feff}\"\",1\n", "tn", "", 100), "\u{feff}\"*\",1\n");
    }

    #[test]
    fn long_texts_are_passed_whole() {
        let rows: String =
            (0..50_000).map(|row| if row % 3 == 0 { format!("{row},\"\"\n") } else { format!("{row},\"x\"\n") }).collect();
        for size in [1 << 12, 1 << 16, 1 << 20] {
            assert!(passed(&rows, "nt", "", size) == rows.replace("\"\"", "\"*\""), "by {size}");
        }
    }
}
