//! [`Quoted`]: CSV on its way to a decoder, which takes the rest of a file for one field where a quote is never closed.

use std::io::{self, BufRead, Read};

use memchr::{memchr_iter, memrchr2};
use pithead_model::Fault;

use crate::input::Input;
use crate::quoted_nulls::{QuotedNulls, Replacing};
use crate::source::damaged;
use crate::text::open_text;

/// A mark of the encoding before the text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The text of a file. Its end is an error within a quoted field.
pub(crate) struct Quoted<R> {
    text: R,
    input: Input,
    quotes: Quotes,
    replacing: Option<Replacing>,
}

impl<R: BufRead> Quoted<R> {
    pub(crate) fn new(text: R, input: &Input, delimiter: u8) -> Self {
        Self { text, input: input.clone(), quotes: Quotes::new(delimiter), replacing: None }
    }

    /// The same, in which texts in quotes are told from NULL.
    pub(crate) fn with_nulls(self, nulls: Option<QuotedNulls>) -> Self {
        let delimiter = self.quotes.delimiter;
        let quotes = Quotes { has_columns: nulls.is_some(), ..self.quotes };
        Self { quotes, replacing: nulls.map(|nulls| Replacing::new(nulls, delimiter)), ..self }
    }

    /// The text as it comes.
    fn fill_plain(&mut self) -> io::Result<&[u8]> {
        let bytes = self.text.fill_buf()?;
        match self.quotes.open {
            Some(open) if bytes.is_empty() => Err(io::Error::other(fault(&self.input, open))),
            _ => Ok(bytes),
        }
    }
}

/// The fault of a file with a quote that nothing closes; none: it has none, or cannot be read.
pub(crate) fn unclosed(input: &Input, delimiter: u8) -> Option<Fault> {
    let mut text = Quoted::new(open_text(input, &Default::default()).ok()?, input, delimiter);
    let read = io::copy(&mut text, &mut io::sink());
    crate::source::fault_within(&read.err()?)
}

impl<R: BufRead> BufRead for Quoted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let Some(replacing) = &mut self.replacing else { return self.fill_plain() };
        let mut is_end = false;
        while replacing.is_idle() && !is_end {
            let bytes = self.text.fill_buf()?;
            is_end = bytes.is_empty();
            let taken = replacing.take(bytes, &mut self.quotes);
            self.text.consume(taken);
        }
        match self.replacing.as_ref().map(|replacing| (replacing.is_idle(), replacing.clean())) {
            Some((false, 0)) => Ok(self.replacing.as_ref().map_or(&[], Replacing::copied)),
            Some((false, clean)) => self.text.fill_buf().map(|bytes| &bytes[..clean.min(bytes.len())]),
            _ => self.fill_plain(),
        }
    }

    fn consume(&mut self, count: usize) {
        if self.replacing.as_mut().is_some_and(|replacing| replacing.consume(count)) {
            return;
        }
        // What is in the buffer is given again, and nothing is read for it.
        if count > 0
            && let Ok(bytes) = self.text.fill_buf()
        {
            self.quotes.pass(&bytes[..count.min(bytes.len())]);
        }
        self.text.consume(count);
    }
}

impl<R: BufRead> Read for Quoted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(to)?;
        self.consume(read);
        Ok(read)
    }
}

/// Which quotes open and close fields, as the decoder takes them: one opens a field where it is the first of it; within such a field
/// two stand for one, and one closes it.
pub(crate) struct Quotes {
    delimiter: u8,
    /// Whether fields of a record are counted.
    has_columns: bool,
    /// Those of the record before the next byte.
    column: usize,
    /// Bytes that were passed.
    passed: u64,
    /// The last of them.
    last: Option<u8>,
    has_mark: bool,
    /// Where the quote is that opened a field which is not closed.
    open: Option<u64>,
    /// Where a field was opened, and closed by a quote.
    closed: Option<(u64, u64)>,
}

impl Quotes {
    fn new(delimiter: u8) -> Self {
        Self { delimiter, has_columns: false, column: 0, passed: 0, last: None, has_mark: false, open: None, closed: None }
    }

    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        self.has_mark |= self.passed == 0 && bytes.starts_with(BOM);
        let mut start = 0;
        for at in memchr_iter(b'"', bytes) {
            self.count(&bytes[start..at]);
            start = at + 1;
            let before = at.checked_sub(1).map_or(self.last, |before| Some(bytes[before]));
            self.meet(self.passed + at as u64, before);
        }
        self.count(&bytes[start..]);
        self.passed += bytes.len() as u64;
        self.last = bytes.last().copied().or(self.last);
    }

    /// Whether a field begins with the next byte.
    pub(crate) fn at_field(&self) -> bool {
        self.open.is_none() && self.is_first(self.passed, self.last)
    }

    /// The number of the field that the next byte is of, in its record, from 0.
    pub(crate) fn column(&self) -> usize {
        self.column
    }

    /// Takes note of the fields that begin between quotes.
    fn count(&mut self, between: &[u8]) {
        if !self.has_columns || self.open.is_some() || between.is_empty() {
            return;
        }
        // What is between quotes of one record, mostly.
        if between == [self.delimiter] {
            self.column += 1;
            return;
        }
        let (line, before) = match memrchr2(b'\n', b'\r', between) {
            Some(end) => (&between[end + 1..], 0),
            None => (between, self.column),
        };
        self.column = before + line.iter().filter(|byte| **byte == self.delimiter).count();
    }

    /// Whether what is at a place, after a byte, is the first of a field.
    fn is_first(&self, at: u64, before: Option<u8>) -> bool {
        let is_first = match before {
            None => true,
            Some(before) => before == self.delimiter || matches!(before, b'\n' | b'\r'),
        };
        is_first || (self.has_mark && at == BOM.len() as u64)
    }

    /// A quote at a place, after a byte.
    fn meet(&mut self, at: u64, before: Option<u8>) {
        if let Some(open) = self.open.take() {
            self.closed = Some((open, at));
            return;
        }
        self.open = match self.closed {
            // Two for one.
            Some((open, closed)) if closed + 1 == at => Some(open),
            _ if self.is_first(at, before) => Some(at),
            _ => None,
        };
    }
}

fn fault(input: &Input, open: u64) -> Fault {
    let line = line_at(input, open).map_or(String::new(), |line| format!("line {line}: "));
    damaged(input.name(), format_args!("{line}a quote opens a field there, and none closes it before the end of the file"))
        .hint("close the quote, or write it twice within quotes where it is a part of the text")
}

/// The line of a place in the text, from 1.
fn line_at(input: &Input, place: u64) -> Option<u64> {
    let mut before = open_text(input, &Default::default()).ok()?.take(place);
    let mut line = 1;
    loop {
        let bytes = before.fill_buf().ok()?;
        if bytes.is_empty() {
            return Some(line);
        }
        line += memchr_iter(b'\n', bytes).count() as u64;
        let count = bytes.len();
        before.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a quote is left open, read in pieces of this size.
    fn open(text: &[u8], size: usize) -> Option<u64> {
        let mut quotes = Quotes::new(b',');
        text.chunks(size).for_each(|bytes| quotes.pass(bytes));
        quotes.open
    }

    #[test]
    fn quotes_open_and_close_fields_as_the_decoder_has_it() {
        let cases: [(&[u8], Option<u64>); 10] = [
            (b"a,b\n1,\"x\n2\",3\n", None),
            (b"a,b\n1,\"x\n2,3\n", Some(6)),
            (b"a\n5\" pipe\n", None),
            (b"a\n\"5\"\" pipe\"\n", None),
            (b"a\n\"5\"\" pipe\n", Some(2)),
            (b"\"\",\"\"\"\"\n", None),
            (b"\"a\"b\"c\n", None),
            (b"a\r\n\"", Some(3)),
            (b"\xef\xbb\xbf\"a", Some(3)),
            (b"a\n\"x\"\"\"", None),
        ];
        for (text, expected) in cases {
            // A mark is told from the first piece.
            for size in [3, 4, 100] {
                assert_eq!(open(text, size), expected, "{} by {size}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn the_line_is_told_at_the_end_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, "a,b\n1,2\n3,\"x\n4,5\n").unwrap();
        let input = Input::Local(path.clone());
        let fault = unclosed(&input, b',').unwrap();
        assert!(fault.message.contains("line 3: a quote opens a field there") && fault.hint.is_some(), "{fault}");
        std::fs::write(&path, "a,b\n1,\"2\n\"\n").unwrap();
        assert!(unclosed(&input, b',').is_none());
    }
}
