//! [`Quoted`]: CSV on its way to a decoder, which takes the rest of a file for one field where a quote is never closed.

use std::io::{self, BufRead, Read};

use memchr::memchr_iter;
use pithead_model::Fault;

use crate::input::Input;
use crate::quoted_nulls::{QuotedNulls, Replacing};
use crate::quotes::Quotes;
use crate::source::damaged;
use crate::text::open_text;

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
        let mut quotes = self.quotes;
        quotes.has_columns = nulls.is_some();
        let replacing = nulls.map(|nulls| Replacing::new(nulls, quotes.delimiter));
        Self { quotes, replacing, ..self }
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
