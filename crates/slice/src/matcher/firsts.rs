//! [`Firsts`]: what the first code of a text says about a pattern.

use super::needle::{NEEDLE_BYTES_MAX, Needle};
use super::pattern::{BytePattern, Verdict};
use super::sample::Sample;
use super::symbols::{ESCAPE, Symbols};

/// A pattern that the beginnings of texts decide, prepared for the codes of one table.
#[derive(Debug)]
pub(super) struct Firsts {
    /// By the first code.
    codes: [Verdict; 256],
    /// By the first byte, where it is escaped.
    literals: [Verdict; 256],
    /// Whether the empty text matches.
    empty: bool,
    head: Option<Head>,
}

/// Bytes that texts have to begin with, where nothing else but perhaps their end decides.
#[derive(Debug)]
struct Head {
    needle: Needle,
    /// Whether texts end with the needle, too.
    ends: bool,
}

impl Firsts {
    pub(super) fn new(pattern: &BytePattern, symbols: &Symbols) -> Self {
        let of_code = |code: u8| match symbols.symbol(code) {
            [] => Verdict::No,
            symbol => pattern.after(symbol),
        };
        let head = head(pattern).filter(|(head, _)| (1..=NEEDLE_BYTES_MAX).contains(&head.len()));
        Self {
            codes: std::array::from_fn(|code| of_code(code as u8)),
            literals: std::array::from_fn(|byte| pattern.after(&[byte as u8])),
            empty: pattern.matches(&[]),
            head: head.map(|(head, ends)| Head { needle: Needle::new(head, symbols, &Sample::default()), ends }),
        }
    }

    /// The share of these texts, each a run of codes, that have to be looked at beyond the first code.
    pub(super) fn looked_at<'a>(&self, texts: impl Iterator<Item = &'a [u8]>) -> f32 {
        let (mut looked_at, mut all) = (0.0, 0.0);
        for codes in texts {
            looked_at += f32::from(u8::from(self.judge(codes) == Verdict::Look));
            all += 1.0;
        }
        looked_at / f32::max(all, 1.0)
    }

    fn judge(&self, codes: &[u8]) -> Verdict {
        match codes {
            [] if self.empty => Verdict::Yes,
            [] | [ESCAPE] => Verdict::No,
            [ESCAPE, byte, ..] => self.literals[usize::from(*byte)],
            [code, ..] => self.codes[usize::from(*code)],
        }
    }

    /// Whether a text matches. `text` is where it is decompressed if it has to be.
    #[inline]
    pub(super) fn matches(&self, pattern: &BytePattern, symbols: &Symbols, codes: &[u8], text: &mut Vec<u8>) -> bool {
        match (self.judge(codes), &self.head) {
            (Verdict::No, _) => false,
            (Verdict::Yes, _) => true,
            (Verdict::Look, Some(Head { needle, ends })) => {
                let at_start = needle.at_start(symbols, codes);
                at_start.is_some_and(|(end, with_it)| !ends || with_it && end == codes.len())
            }
            (Verdict::Look, None) => pattern.matches(symbols.decompress(codes, text)),
        }
    }
}

/// What texts begin with if that, and perhaps that they end there, is all.
fn head(pattern: &BytePattern) -> Option<(&[u8], bool)> {
    match pattern {
        BytePattern::Like(like) => like.is_head_only().then(|| (like.head(), false)),
        BytePattern::OneOf(values) => match values.as_slice() {
            [value] => Some((value, true)),
            _ => None,
        },
        BytePattern::Between { .. } => None,
    }
}
