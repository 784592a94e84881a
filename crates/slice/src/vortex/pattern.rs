//! [`TextPattern`]: a LIKE pattern as the substrings that it consists of.

use memchr::memmem::Finder;

/// A pattern of `%` and plain text with at least one substring that may be anywhere. Patterns without `_` mean the same
/// for bytes as for characters.
#[derive(Debug)]
pub(super) struct TextPattern {
    /// The beginning of the text.
    start: Vec<u8>,
    /// The parts that follow in this order, with anything between them; not empty.
    middle: Vec<Finder<'static>>,
    /// The end of the text.
    end: Vec<u8>,
    /// The part of `middle` that is searched for first: the longest, which usually occurs in the fewest texts.
    longest: usize,
}

impl TextPattern {
    /// The parts of a pattern. None if the pattern has `_`, or no substring that may be anywhere.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        if pattern.contains('_') {
            return None;
        }
        let parts: Vec<&str> = pattern.split('%').collect();
        let [start, middle @ .., end] = parts.as_slice() else { return None };
        let middle: Vec<&str> = middle.iter().copied().filter(|part| !part.is_empty()).collect();
        let longest = (0..middle.len()).max_by_key(|part| middle.get(*part).map_or(0, |part| part.len()))?;
        Some(Self {
            start: start.as_bytes().to_vec(),
            middle: middle.iter().map(|part| Finder::new(part.as_bytes()).into_owned()).collect(),
            end: end.as_bytes().to_vec(),
            longest,
        })
    }

    /// Whether one text matches.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let Some(text) = text.strip_prefix(self.start.as_slice()) else { return false };
        let Some(mut text) = text.strip_suffix(self.end.as_slice()) else { return false };
        for part in &self.middle {
            let Some(at) = part.find(text) else { return false };
            text = text.get(at + part.needle().len()..).unwrap_or_default();
        }
        true
    }

    /// The texts that match, in ascending order. In `texts` they follow one another, and `ends` has the end of each.
    /// One search goes over all of them, which costs less than one search for each.
    pub(super) fn search(&self, texts: &[u8], ends: &[u32]) -> Vec<usize> {
        let Some(finder) = self.middle.get(self.longest) else { return Vec::new() };
        let alone = self.middle.len() == 1 && self.start.is_empty() && self.end.is_empty();
        let (mut found, mut from, mut row) = (Vec::new(), 0, 0);
        while let Some(at) = texts.get(from..).and_then(|rest| finder.find(rest)) {
            let at = from + at;
            row += first_over(ends.get(row..).unwrap_or_default(), at);
            let Some(end) = ends.get(row).map(|end| *end as usize) else { break };
            if at + finder.needle().len() > end {
                // This match begins in one text and ends in the next.
                from = at + 1;
                continue;
            }
            let start = row.checked_sub(1).and_then(|before| ends.get(before)).map_or(0, |end| *end as usize);
            if alone || texts.get(start..end).is_some_and(|text| self.matches(text)) {
                found.push(row);
            }
            from = end;
        }
        found
    }
}

/// The number of these ends, which ascend, that are not beyond a position. The position is usually near the first of
/// them.
fn first_over(ends: &[u32], place: usize) -> usize {
    let beyond = |end: &u32| *end as usize > place;
    let mut step = 1;
    while ends.get(step - 1).is_some_and(|end| !beyond(end)) {
        step *= 2;
    }
    let from = step / 2;
    from + ends.get(from..step.min(ends.len())).unwrap_or_default().partition_point(|end| !beyond(end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// LIKE, by its definition.
    fn like(text: &[u8], pattern: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'%', rest)) => (0..=text.len()).any(|skip| like(&text[skip..], rest)),
            Some((byte, rest)) => text.split_first().is_some_and(|(first, text)| first == byte && like(text, rest)),
        }
    }

    proptest! {
        #[test]
        fn a_search_finds_what_the_definition_does(
            texts in prop::collection::vec("[abé]{0,12}", 0..40),
            pattern in "[abé%]{0,3}%[abé%]{1,5}%[abé%]{0,3}",
        ) {
            let expected: Vec<usize> =
                (0..texts.len()).filter(|row| like(texts[*row].as_bytes(), pattern.as_bytes())).collect();
            let Some(pattern) = TextPattern::new(&pattern) else { return Ok(()) };
            let ends: Vec<u32> = texts.iter().scan(0, |end, text| { *end += text.len() as u32; Some(*end) }).collect();
            prop_assert_eq!(pattern.search(texts.concat().as_bytes(), &ends), expected.clone());
            let one_by_one: Vec<usize> = (0..texts.len()).filter(|row| pattern.matches(texts[*row].as_bytes())).collect();
            prop_assert_eq!(one_by_one, expected);
        }

        #[test]
        fn the_place_is_found_from_anywhere(lengths in prop::collection::vec(0u32..4, 0..60), place in 0usize..130) {
            let ends: Vec<u32> = lengths.iter().scan(0, |end, length| { *end += length; Some(*end) }).collect();
            prop_assert_eq!(first_over(&ends, place), ends.iter().filter(|end| **end as usize <= place).count());
        }
    }

    #[test]
    fn what_is_not_substrings_is_left_alone() {
        for pattern in ["", "a", "a%", "%a", "a%b", "%", "%%", "%a_b%"] {
            assert!(TextPattern::new(pattern).is_none(), "{pattern}");
        }
        assert!(TextPattern::new("%a%").is_some_and(|pattern| pattern.matches(b"bab") && !pattern.matches(b"b")));
    }

    #[test]
    fn parts_do_not_share_bytes() {
        let pattern = TextPattern::new("a%b%a").unwrap();
        assert_eq!(
            ["aba", "ab", "ba", "abba", "a"].map(|text| pattern.matches(text.as_bytes())),
            [true, false, false, true, false]
        );
    }
}
