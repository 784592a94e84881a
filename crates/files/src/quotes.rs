//! [`Quotes`]: which quotes of a CSV file open and close fields.

use memchr::{memchr_iter, memrchr2};

/// A mark of the encoding before the text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Which quotes open and close fields, as the decoder takes them: one opens a field where it is the first of it; within such a field
/// two stand for one, and one closes it.
pub(crate) struct Quotes {
    pub(crate) delimiter: u8,
    /// Whether fields of a record are counted.
    pub(crate) has_columns: bool,
    /// Those of the record before the next byte.
    column: usize,
    /// Bytes that were passed.
    passed: u64,
    /// The last of them.
    last: Option<u8>,
    has_mark: bool,
    /// Where the quote is that opened a field which is not closed.
    pub(crate) open: Option<u64>,
    /// Where a field was opened, and closed by a quote.
    closed: Option<(u64, u64)>,
}

impl Quotes {
    pub(crate) fn new(delimiter: u8) -> Self {
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
}
