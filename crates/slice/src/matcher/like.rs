//! [`Like`]: a pattern of LIKE, and which texts match it.

use memchr::memmem::Finder;

/// A pattern of `%`, `_` and text.
#[derive(Debug)]
pub(crate) struct Like {
    /// What a text begins with.
    start: Piece,
    /// The pieces that follow, with anything before, between and after them. None if the pattern has no `%`, so that a
    /// text ends with `start`.
    rest: Option<Rest>,
}

#[derive(Debug)]
struct Rest {
    /// Pieces in their order; none is empty.
    middle: Vec<Piece>,
    /// What a text ends with.
    end: Piece,
}

/// What a pattern has between two `%`: runs of text (the first and the last may be empty) with one character between each
/// two of them.
#[derive(Debug)]
struct Piece {
    runs: Vec<Finder<'static>>,
}

impl Like {
    /// The parts of a pattern. A backslash is a character like others.
    pub(super) fn new(pattern: &str) -> Self {
        let mut pieces: Vec<Piece> = pattern.split('%').map(Piece::new).collect();
        let end = pieces.pop().filter(|_| !pieces.is_empty());
        let rest = end.map(|end| Rest { middle: pieces.drain(1..).filter(|piece| !piece.is_empty()).collect(), end });
        Self { start: pieces.pop().unwrap_or_else(|| Piece::new(pattern)), rest }
    }

    /// Whether a text matches. `_` stands for one character of UTF-8.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let Some(mut text) = self.start.strip_from_start(text) else { return false };
        let Some(rest) = &self.rest else { return text.is_empty() };
        for piece in &rest.middle {
            match piece.find(text) {
                Some(after) => text = after,
                None => return false,
            }
        }
        rest.end.is_at_end_of(text)
    }

    /// What each matching text has, in this order, byte by byte; none is empty.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (middle, end) = self.rest.as_ref().map_or((&[][..], None), |rest| (rest.middle.as_slice(), Some(&rest.end)));
        let pieces = std::iter::once(&self.start).chain(middle).chain(end);
        pieces.flat_map(|piece| &piece.runs).map(Finder::needle).filter(|run| !run.is_empty())
    }

    /// What each matching text begins with, which may be nothing.
    pub(super) fn head(&self) -> &[u8] {
        self.start.runs.first().map_or(&[], Finder::needle)
    }

    /// Whether every text matches that begins with [`Like::head`].
    pub(super) fn is_head_only(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.middle.is_empty() && rest.end.is_empty()) && self.start.runs.len() == 1
    }

    /// The substring, if every text matches that has it anywhere.
    pub(super) fn only_substring(&self) -> Option<&Finder<'static>> {
        let rest = self.rest.as_ref().filter(|rest| self.start.is_empty() && rest.end.is_empty())?;
        match rest.middle.as_slice() {
            [piece] if piece.runs.len() == 1 => piece.runs.first(),
            _ => None,
        }
    }

    /// The text, if every text matches that ends with it.
    pub(super) fn only_tail(&self) -> Option<&[u8]> {
        let rest = self.rest.as_ref().filter(|rest| self.start.is_empty() && rest.middle.is_empty())?;
        match rest.end.runs.as_slice() {
            [run] => Some(run.needle()),
            _ => None,
        }
    }

    /// The text, if no other text matches.
    pub(super) fn only_text(&self) -> Option<&[u8]> {
        match self.start.runs.as_slice() {
            [run] if self.rest.is_none() => Some(run.needle()),
            _ => None,
        }
    }
}

impl Piece {
    fn new(piece: &str) -> Self {
        Self { runs: piece.split('_').map(|run| Finder::new(run.as_bytes()).into_owned()).collect() }
    }

    fn is_empty(&self) -> bool {
        matches!(self.runs.as_slice(), [run] if run.needle().is_empty())
    }

    /// What follows the piece in a text that begins with it.
    fn strip_from_start<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        let (first, others) = self.runs.split_first()?;
        let mut text = text.strip_prefix(first.needle())?;
        for run in others {
            text = text.get(first_character(text)?..)?.strip_prefix(run.needle())?;
        }
        Some(text)
    }

    /// What follows the piece where a text first has it.
    fn find<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        let first = self.runs.first()?;
        let mut from = 0;
        loop {
            let rest = text.get(from..)?;
            let at = first.find(rest)?;
            if let Some(after) = self.strip_from_start(&rest[at..]) {
                return Some(after);
            }
            // A text without a first run can begin at any character, but at no other byte.
            from += at + first_character(&rest[at..])?;
        }
    }

    fn is_at_end_of(&self, mut text: &[u8]) -> bool {
        for (place, run) in self.runs.iter().enumerate().rev() {
            let Some(before) = text.strip_suffix(run.needle()) else { return false };
            text = match place {
                0 => return true,
                _ => match before.iter().rposition(|byte| !is_continuation(*byte)) {
                    Some(start) => &before[..start],
                    None => return false,
                },
            };
        }
        true
    }
}

/// The bytes of a text's first character; none if there is no character.
fn first_character(text: &[u8]) -> Option<usize> {
    let (_, rest) = text.split_first()?;
    Some(1 + rest.iter().take_while(|byte| is_continuation(**byte)).count())
}

/// Whether a byte of UTF-8 is not the first of its character.
fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// LIKE, by its definition.
    pub(crate) fn is_like(text: &str, pattern: &str) -> bool {
        let mut rest = pattern.chars();
        match (rest.next(), text.chars().next()) {
            (None, first) => first.is_none(),
            (Some('%'), _) => {
                is_like(text, rest.as_str())
                    || text.chars().next().is_some_and(|first| is_like(&text[first.len_utf8()..], pattern))
            }
            (Some('_'), Some(first)) => is_like(&text[first.len_utf8()..], rest.as_str()),
            (Some(wanted), Some(first)) => wanted == first && is_like(&text[first.len_utf8()..], rest.as_str()),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn texts_match_as_the_definition_says(
            texts in prop::collection::vec("[abé\u{1f980}]{0,10}", 1..20),
            pattern in "[abé_%\u{1f980}\\\\]{0,7}",
        ) {
            let like = Like::new(&pattern);
            for text in texts.iter().chain([&pattern]) {
                let matches = like.matches(text.as_bytes());
                prop_assert_eq!(matches, is_like(text, &pattern), "{} LIKE {}", text, &pattern);
                let has = |part: &[u8]| Finder::new(part).find(text.as_bytes()).is_some();
                prop_assert!(!matches || text.as_bytes().starts_with(like.head()) && like.parts().all(has));
                if like.is_head_only() {
                    prop_assert_eq!(matches, text.as_bytes().starts_with(like.head()));
                }
                if let Some(part) = like.only_substring() {
                    prop_assert_eq!(matches, has(part.needle()));
                }
                if let Some(tail) = like.only_tail() {
                    prop_assert_eq!(matches, text.as_bytes().ends_with(tail));
                }
                if let Some(only) = like.only_text() {
                    prop_assert_eq!(matches, text.as_bytes() == only);
                }
            }
        }

        #[test]
        fn any_bytes_can_be_asked(text in prop::collection::vec(prop_oneof![Just(0x80), Just(0xff), Just(b'a')], 0..20), pattern in "[a_%]{0,7}") {
            Like::new(&pattern).matches(&text);
        }
    }

    #[test]
    fn shapes_are_known() {
        let shape = |pattern: &str| {
            let like = Like::new(pattern);
            (like.is_head_only(), like.only_substring().is_some(), like.only_tail().is_some(), like.only_text().is_some())
        };
        assert_eq!(shape("ab%"), (true, false, false, false));
        assert_eq!(shape("%ab%"), (false, true, false, false));
        assert_eq!(shape("%ab"), (false, false, true, false));
        assert_eq!(shape("ab"), (false, false, false, true));
        assert_eq!(shape("%"), (true, false, true, false));
        for pattern in ["a_b", "a%b", "%a%b%", "a_%", "%_a", "%a_b%"] {
            assert_eq!(shape(pattern), (false, false, false, false), "{pattern}");
        }
        assert_eq!(Like::new("a_b%c%_d").parts().collect::<Vec<_>>(), [b"a", b"b", b"c", b"d"]);
    }

    #[test]
    fn parts_do_not_share_bytes() {
        let like = Like::new("a%b%a");
        assert_eq!(
            ["aba", "ab", "ba", "abba", "a"].map(|text| like.matches(text.as_bytes())),
            [true, false, false, true, false]
        );
    }
}
