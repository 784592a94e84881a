//! [`CodeSearch`]: a pattern that is searched for in texts compressed with FSST, by their codes.

use super::firsts::Firsts;
use super::needle::{NEEDLE_BYTES_MAX, Needle};
use super::pattern::BytePattern;
use super::rows::RowSet;
use super::sample::Sample;
use super::symbols::Symbols;

/// Texts of a sample.
const SAMPLE_TEXTS: usize = 256;
/// What steps take, in nanoseconds, measured on a virtual machine with AVX2: to pass over a code, to look at a place
/// where a needle may be, to look at a text's first code, and at the rest of the text.
const CODE_NS: f32 = 0.1;
const CANDIDATE_NS: f32 = 12.0;
const TEXT_NS: f32 = 1.5;
const REST_NS: f32 = 8.0;
/// If one text in so many is wanted, or fewer, texts are looked at one by one.
const FEW: usize = 48;

/// Texts, as runs of codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coded<'a> {
    symbols: &'a Symbols,
    codes: &'a [u8],
    /// The start of each text and the end of the last one, counted from `base` before `codes`.
    offsets: &'a [u32],
    base: usize,
}

impl<'a> Coded<'a> {
    /// Texts between each two offsets into `codes`. None if the offsets lie outside.
    pub(crate) fn new(symbols: &'a Symbols, codes: &'a [u8], offsets: &'a [u32]) -> Option<Self> {
        let (first, last) = (*offsets.first()? as usize, *offsets.last()? as usize);
        Some(Self { symbols, codes: codes.get(first..last)?, offsets, base: first })
    }

    pub(crate) fn texts(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The codes of a text. Offsets that lie have none.
    #[inline]
    fn text(&self, row: usize) -> &'a [u8] {
        let (start, end) = (self.place(row), self.place(row + 1));
        self.codes.get(start..end).unwrap_or_default()
    }

    /// Where the text of a row starts among the codes.
    #[inline]
    fn place(&self, row: usize) -> usize {
        self.offsets.get(row).map_or(usize::MAX, |offset| (*offset as usize).wrapping_sub(self.base))
    }
}

/// A pattern, prepared for texts that have one table of symbols.
#[derive(Debug)]
pub(crate) struct CodeSearch(Way);

#[derive(Debug)]
enum Way {
    /// A part of the pattern is searched for in all texts at once.
    Part(Box<Needle>, Then),
    /// Each text's first code is looked at.
    Texts(Box<Firsts>),
}

/// What makes a text with the part match.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Where it has the part.
    Place { begins: bool, ends: bool },
    /// The whole text.
    Text,
}

impl CodeSearch {
    /// Prepares a pattern. A sample of the texts says which of its parts is rare.
    pub(crate) fn new(pattern: &BytePattern, texts: &Coded<'_>) -> Self {
        let parts = parts(pattern);
        let sample = if parts.is_empty() { Sample::default() } else { Sample::of(texts.codes) };
        let needles = parts.into_iter().map(|(part, then)| match part.get(..NEEDLE_BYTES_MAX) {
            Some(start) if start.len() < part.len() => (Needle::new(start, texts.symbols, &sample), Then::Text),
            _ => (Needle::new(part, texts.symbols, &sample), then),
        });
        let rarest = needles.min_by(|(one, _), (other, _)| one.candidates().total_cmp(&other.candidates()));
        let Some((needle, then)) = rarest else {
            return Self(Way::Texts(Box::new(Firsts::new(pattern, texts.symbols))));
        };
        if starts_are_known(pattern) {
            let firsts = Firsts::new(pattern, texts.symbols);
            let step = (texts.texts() / SAMPLE_TEXTS).max(1);
            let looked_at = firsts.looked_at((0..texts.texts()).step_by(step).map(|row| texts.text(row)));
            let codes_per_text = texts.codes.len() as f32 / texts.texts().max(1) as f32;
            if TEXT_NS + looked_at * REST_NS < codes_per_text * (CODE_NS + needle.candidates() * CANDIDATE_NS) {
                return Self(Way::Texts(Box::new(firsts)));
            }
        }
        Self(Way::Part(Box::new(needle), then))
    }

    /// The texts among `wanted` that match the pattern for which this was prepared.
    pub(crate) fn search(&self, pattern: &BytePattern, texts: &Coded<'_>, wanted: &RowSet) -> RowSet {
        let mut text = Vec::new();
        match &self.0 {
            Way::Texts(firsts) => {
                let matches = |row| firsts.matches(pattern, texts.symbols, texts.text(row), &mut text);
                one_by_one(wanted, texts.texts(), matches)
            }
            Way::Part(..) if wanted.count() * FEW <= texts.texts() => {
                let matches = |row| pattern.matches(texts.symbols.decompress(texts.text(row), &mut text));
                one_by_one(wanted, texts.texts(), matches)
            }
            Way::Part(needle, then) => find_part(needle, *then, pattern, texts, wanted),
        }
    }
}

/// The wanted rows that match.
fn one_by_one(wanted: &RowSet, rows: usize, mut matches: impl FnMut(usize) -> bool) -> RowSet {
    if wanted.count() == rows {
        return RowSet::collect(rows, matches);
    }
    let mut found = RowSet::none(rows);
    wanted.iter().filter(|row| matches(*row)).for_each(|row| found.insert(row));
    found
}

/// The wanted texts that match, as the places of a part of the pattern show.
fn find_part(needle: &Needle, then: Then, pattern: &BytePattern, texts: &Coded<'_>, wanted: &RowSet) -> RowSet {
    let (mut found, mut row, mut text) = (RowSet::none(texts.texts()), 0, Vec::new());
    let ends = &texts.offsets[1..];
    needle.find(texts.symbols, texts.codes, |part| {
        row += first_over(ends.get(row..).unwrap_or_default(), texts.base + part.codes.start);
        let (start, end) = (texts.place(row), texts.place(row + 1));
        if part.codes.start < start || part.codes.end > end {
            // It begins in one text and ends in another. It may begin before the row of an occurrence that was refused.
            return None;
        }
        let matches = match then {
            Then::Place { begins, ends } => {
                let is_there =
                    (!begins || part.begins && part.codes.start == start) && (!ends || part.ends && part.codes.end == end);
                if !is_there {
                    return None;
                }
                true
            }
            Then::Text => wanted.contains(row) && pattern.matches(texts.symbols.decompress(texts.text(row), &mut text)),
        };
        if matches {
            found.insert(row);
        }
        Some(end)
    });
    found.and(wanted)
}

/// Whether what a text begins with can rule it out.
fn starts_are_known(pattern: &BytePattern) -> bool {
    match pattern {
        BytePattern::Like(like) => !like.head().is_empty(),
        BytePattern::OneOf(_) | BytePattern::Between { .. } => true,
    }
}

/// Parts that each matching text has, and what makes a text with the part match.
fn parts(pattern: &BytePattern) -> Vec<(&[u8], Then)> {
    let place = |begins, ends| Then::Place { begins, ends };
    let then = match pattern {
        BytePattern::Like(like) if like.only_substring().is_some() => place(false, false),
        BytePattern::Like(like) if like.only_tail().is_some() => place(false, true),
        BytePattern::Like(like) if like.is_head_only() => place(true, false),
        BytePattern::OneOf(values) if values.len() == 1 => place(true, true),
        _ => Then::Text,
    };
    let parts = match pattern {
        BytePattern::Like(like) => like.parts().collect(),
        BytePattern::OneOf(_) | BytePattern::Between { .. } => vec![pattern.common_start()],
    };
    parts.into_iter().filter(|part| !part.is_empty()).map(|part| (part, then)).collect()
}

/// The number of these ends, which ascend, that are not beyond a position. The position is usually near the first of
/// them.
pub(super) fn first_over(ends: &[u32], place: usize) -> usize {
    let beyond = |end: &u32| *end as usize > place;
    let mut step = 1;
    while ends.get(step - 1).is_some_and(|end| !beyond(end)) {
        step *= 2;
    }
    let from = step / 2;
    from + ends.get(from..step.min(ends.len())).unwrap_or_default().partition_point(|end| !beyond(end))
}

#[cfg(test)]
mod tests;
