//! [`AnyFloats`]: JSON whose floats may be `NaN`, `Infinity` and `-Infinity`, as Pithead and DuckDB write them. JSON
//! has no such numbers, and arrow's decoder refuses them; as texts it reads them into columns of floats.

use std::io::{self, BufRead, Read};

use memchr::memmem::Finder;
use memchr::{memchr2, memchr2_iter, memrchr};

/// The words. The last of them may have a minus before it.
const WORDS: [&[u8]; 2] = [b"NaN", b"Infinity"];
const LONGEST_WORD: &[u8] = b"-Infinity";
const LONGEST: usize = LONGEST_WORD.len();

/// Bytes that are copied at a time where there are such words.
const PIECE_BYTES: usize = 1 << 16;

/// What is put in the place of such a float.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StandIn {
    /// The same word as a text.
    Text,
    /// A number, for who guesses the types of columns.
    Number,
}

/// The text of a file, in which such floats are replaced. What has none is not copied.
pub(crate) struct AnyFloats<R> {
    text: R,
    stand_in: StandIn,
    finders: [Finder<'static>; 2],
    place: Place,
    /// Bytes at the start of the text that have nothing to replace.
    clean: usize,
    /// What was read and may be the start of a word.
    held: Vec<u8>,
    /// What was copied, from a place on.
    out: Vec<u8>,
    at: usize,
}

/// Where the next byte is. A text of JSON ends before its line does.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    in_text: bool,
    is_escaped: bool,
}

impl<R: BufRead> AnyFloats<R> {
    pub(crate) fn new(text: R, stand_in: StandIn) -> Self {
        let finders = WORDS.map(Finder::new);
        let (place, held, out) = (Place::default(), Vec::new(), Vec::new());
        Self { text, stand_in, finders, place, clean: 0, held, out, at: 0 }
    }

    /// Reads until something is ready, or nothing more comes.
    fn prepare(&mut self) -> io::Result<()> {
        while self.clean == 0 && self.at == self.out.len() {
            self.at = 0;
            self.out.clear();
            let bytes = self.text.fill_buf()?;
            let is_last = bytes.is_empty();
            if self.held.is_empty() {
                let found = self.finders.iter().filter_map(|finder| finder.find(bytes)).min();
                // A minus may be before it.
                self.clean = found.map_or_else(|| tail(bytes, 0), |at| at.saturating_sub(1));
                if self.clean > 0 || is_last {
                    return Ok(());
                }
            }
            let taken = bytes.len().min(PIECE_BYTES);
            self.held.extend_from_slice(&bytes[..taken]);
            self.text.consume(taken);
            self.replace(is_last);
        }
        Ok(())
    }

    fn replace(&mut self, is_last: bool) {
        let text = std::mem::take(&mut self.held);
        let (mut passed, mut from) = (0, 0);
        while let Some((at, word)) = next_word(&text, from) {
            let start = at - usize::from(word == WORDS[1] && at > passed && text[at - 1] == b'-');
            self.place.pass(&text[passed..start]);
            self.out.extend_from_slice(&text[passed..start]);
            (passed, from) = (start, at + word.len());
            if !self.place.in_text {
                self.out.extend(self.stand_in.of(&text[start..from]));
                passed = from;
            }
        }
        let end = if is_last { text.len() } else { tail(&text, from) };
        self.place.pass(&text[passed..end]);
        self.out.extend_from_slice(&text[passed..end]);
        self.held.extend_from_slice(&text[end..]);
    }
}

/// The first word from a place on, and where it is.
fn next_word(text: &[u8], from: usize) -> Option<(usize, &'static [u8])> {
    let mut found = memchr2_iter(b'N', b'I', &text[from..]).map(|at| from + at);
    found.find_map(|at| Some((at, WORDS.into_iter().find(|word| text[at..].starts_with(word))?)))
}

/// Where a text ends, from a place on, in what may be the start of a word; its end, if it does not.
fn tail(text: &[u8], from: usize) -> usize {
    let from = from.max(text.len().saturating_sub(LONGEST - 1));
    let begins = |at: &usize| {
        let rest = &text[*at..];
        let is_start_of = |word: &[u8]| word.len() > rest.len() && word.starts_with(rest);
        WORDS.into_iter().any(is_start_of) || is_start_of(LONGEST_WORD)
    };
    (from..text.len()).find(begins).unwrap_or(text.len())
}

impl StandIn {
    fn of(self, word: &[u8]) -> Vec<u8> {
        match self {
            StandIn::Text => [b"\"", word, b"\""].concat(),
            StandIn::Number => b"0.5".to_vec(),
        }
    }
}

impl Place {
    fn pass(&mut self, bytes: &[u8]) {
        let mut rest = match memrchr(b'\n', bytes) {
            Some(end) => {
                *self = Place::default();
                &bytes[end + 1..]
            }
            None => bytes,
        };
        if self.is_escaped && !rest.is_empty() {
            self.is_escaped = false;
            rest = &rest[1..];
        }
        while let Some(at) = memchr2(b'"', b'\\', rest) {
            let is_escape = rest[at] == b'\\';
            self.in_text ^= !is_escape;
            self.is_escaped = is_escape && at + 1 == rest.len();
            rest = rest.get(at + 1 + usize::from(is_escape)..).unwrap_or_default();
        }
    }
}

impl<R: BufRead> BufRead for AnyFloats<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.prepare()?;
        if self.at < self.out.len() {
            return Ok(&self.out[self.at..]);
        }
        let bytes = self.text.fill_buf()?;
        Ok(&bytes[..self.clean.min(bytes.len())])
    }

    fn consume(&mut self, count: usize) {
        if self.at < self.out.len() {
            self.at += count;
            return;
        }
        // What is in the buffer is given again, and nothing is read for it.
        if count > 0
            && let Ok(bytes) = self.text.fill_buf()
        {
            self.place.pass(&bytes[..count.min(bytes.len())]);
        }
        self.clean = self.clean.saturating_sub(count);
        self.text.consume(count);
    }
}

impl<R: BufRead> Read for AnyFloats<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(to)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn read(text: &str, stand_in: StandIn, size: usize) -> String {
        let mut found = String::new();
        AnyFloats::new(BufReader::with_capacity(size, text.as_bytes()), stand_in).read_to_string(&mut found).unwrap();
        found
    }

    #[test]
    fn floats_are_replaced_and_texts_are_not_wherever_a_piece_ends() {
        for (text, expected) in [
            ("{\"a\":NaN,\"b\":-Infinity}\n", "{\"a\":\"NaN\",\"b\":\"-Infinity\"}\n"),
            ("{\"a\":[NaN, Infinity,-1,{\"N\":NaN}]}", "{\"a\":[\"NaN\", \"Infinity\",-1,{\"N\":\"NaN\"}]}"),
            ("{\"NaN\":\"a: NaN, -Infinity\",\"b\":NaN}", "{\"NaN\":\"a: NaN, -Infinity\",\"b\":\"NaN\"}"),
            ("{\"a\":\"\\\"NaN\\\\\",\"b\":NaN}", "{\"a\":\"\\\"NaN\\\\\",\"b\":\"NaN\"}"),
            ("{\"a\":\"In N-\"}\n{\"a\":null}\n", "{\"a\":\"In N-\"}\n{\"a\":null}\n"),
            ("{\"a\":Na", "{\"a\":Na"),
            ("[-", "[-"),
        ] {
            for size in 1..=text.len() + 1 {
                assert_eq!(read(text, StandIn::Text, size), expected, "{text} by {size}");
            }
        }
        assert_eq!(read("[NaN,-Infinity]", StandIn::Number, 4), "[0.5,0.5]");
        let rows: String =
            (0..30_000).map(|row| format!("{{\"a\":{}}}\n", if row % 5 == 0 { "NaN" } else { "\"NaN\"" })).collect();
        assert!(read(&rows, StandIn::Text, 1 << 20) == "{\"a\":\"NaN\"}\n".repeat(30_000));
    }
}
