//! Patterns over codes beside the same patterns over texts.

use pithead_model::Value;
use proptest::prelude::*;

use super::super::pattern::tests::patterns;
use super::super::symbols::ESCAPE;
use super::*;

/// A table of symbols and texts as codes of it. The codes are any that there are, not those that a compressor would
/// choose, so that a text is written in many ways.
#[derive(Clone, Debug)]
struct TextsAsCodes {
    symbols: Vec<Vec<u8>>,
    /// The codes of each text.
    texts: Vec<Vec<u8>>,
}

impl TextsAsCodes {
    fn table(&self) -> Symbols {
        let number = |symbol: &Vec<u8>| symbol.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let lengths: Vec<u8> = self.symbols.iter().map(|symbol| symbol.len() as u8).collect();
        Symbols::new(self.symbols.iter().map(number), &lengths)
    }

    /// Codes with something before them, and where each text starts.
    fn codes(&self) -> (Vec<u8>, Vec<u32>) {
        let mut codes = vec![ESCAPE; 3];
        let mut offsets = vec![3];
        for text in &self.texts {
            codes.extend(text);
            offsets.push(codes.len() as u32);
        }
        (codes, offsets)
    }

    fn plain(&self) -> Vec<Vec<u8>> {
        let table = self.table();
        let text = |codes: &Vec<u8>| {
            let mut text = Vec::new();
            table.decompress(codes, &mut text).to_vec()
        };
        self.texts.iter().map(text).collect()
    }
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![8 => Just(b'a'), 8 => Just(b'b'), 2 => Just(0xc3), 2 => Just(0xa9), 1 => Just(ESCAPE), 1 => Just(0), 1 => 0u8..5]
}

fn made() -> impl Strategy<Value = TextsAsCodes> {
    let symbols = prop::collection::vec(prop::collection::vec(byte(), 1..=8), 1..40);
    (symbols, 0usize..100).prop_flat_map(|(symbols, texts)| {
        let count = symbols.len() as u8;
        let unit = prop_oneof![3 => (0..count).prop_map(|code| vec![code]), 1 => byte().prop_map(|byte| vec![ESCAPE, byte])];
        let text = prop::collection::vec(unit, 0..12).prop_map(|units| units.concat());
        prop::collection::vec(text, texts).prop_map(move |texts| TextsAsCodes { symbols: symbols.clone(), texts })
    })
}

/// A pattern of bytes that some text has.
fn pattern_of(texts: &[Vec<u8>], (row, from, bytes, shape): (usize, usize, usize, u8)) -> Option<BytePattern> {
    let text = texts.get(row % texts.len().max(1))?;
    let from = from % (text.len() + 1);
    let part = &text[from..text.len().min(from + bytes)];
    let like = |before: &str, after: &str| {
        let part = std::str::from_utf8(part).ok().filter(|part| !part.contains(['%', '_']))?;
        Some(BytePattern::like(&format!("{before}{part}{after}")))
    };
    match shape {
        0 => like("%", "%"),
        1 => like("%", ""),
        2 => like("", "%"),
        3 => like("_%", "_"),
        4 => BytePattern::one_of(&[Value::Bytes(text.clone())]),
        5 => BytePattern::one_of(&[Value::Bytes(text.clone()), Value::Bytes(part.to_vec())]),
        6 => Some(BytePattern::Between { low: Some((part.to_vec(), true)), high: Some((text.clone(), true)) }),
        _ => Some(BytePattern::Between { low: Some((text.clone(), false)), high: None }),
    }
}

/// All ways to search for a pattern.
fn ways(pattern: &BytePattern, texts: &Coded<'_>) -> Vec<CodeSearch> {
    let part = |(part, then): (&[u8], Then)| {
        let start = &part[..part.len().min(NEEDLE_BYTES_MAX)];
        let then = if start.len() < part.len() { Then::Text } else { then };
        CodeSearch(Way::Part(Box::new(Needle::new(start, texts.symbols, &Sample::of(texts.codes))), then))
    };
    let parts = parts(pattern).into_iter().map(part);
    let texts_way = CodeSearch(Way::Texts(Box::new(Firsts::new(pattern, texts.symbols))));
    parts.chain([texts_way, CodeSearch::new(pattern, texts)]).collect()
}

fn check(made: &TextsAsCodes, pattern: &BytePattern, wanted: &RowSet) {
    let (table, (codes, offsets)) = (made.table(), made.codes());
    let texts = Coded::new(&table, &codes, &offsets).unwrap();
    let plain = made.plain();
    let expected = RowSet::collect(plain.len(), |row| wanted.contains(row) && pattern.matches(&plain[row]));
    for search in ways(pattern, &texts) {
        assert_eq!(search.search(pattern, &texts, wanted), expected, "{search:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn codes_match_as_their_texts_do(
        made in made(),
        pattern in patterns(),
        near in (0usize..100, 0usize..40, 0usize..70, 0u8..8),
        every in prop_oneof![Just(1usize), Just(2), Just(60)],
    ) {
        let wanted = RowSet::collect(made.texts.len(), |row| row % every == 0);
        check(&made, &pattern, &wanted);
        if let Some(pattern) = pattern_of(&made.plain(), near) {
            check(&made, &pattern, &wanted);
        }
    }

    #[test]
    fn codes_and_offsets_that_lie_do_no_harm(
        lengths in prop::collection::vec(any::<u8>(), 0..300),
        codes in prop::collection::vec(prop_oneof![Just(ESCAPE), any::<u8>()], 0..200),
        offsets in prop::collection::vec(0u32..250, 0..80),
        pattern in patterns(),
    ) {
        let symbols = Symbols::new((0u64..300).map(|number| number * 0x0061_6261_0102_6162), &lengths);
        if let Some(texts) = Coded::new(&symbols, &codes, &offsets) {
            let wanted = RowSet::all(texts.texts());
            for search in ways(&pattern, &texts) {
                search.search(&pattern, &texts, &wanted);
            }
        }
    }

    #[test]
    fn the_place_is_found_from_anywhere(lengths in prop::collection::vec(0u32..4, 0..60), place in 0usize..130) {
        let ends: Vec<u32> = lengths.iter().scan(0, |end, length| { *end += length; Some(*end) }).collect();
        prop_assert_eq!(first_over(&ends, place), ends.iter().filter(|end| **end as usize <= place).count());
    }
}

/// A needle that overlaps itself, in symbols that have it several times.
#[test]
fn overlapping_needles_are_found_in_every_reading() {
    let symbols = [&b"aba"[..], b"ab", b"a", b"b", b"ababab"].map(<[u8]>::to_vec).to_vec();
    let texts = [&[0][..], &[1, 2], &[3, 0], &[0, 3], &[4], &[4, 2], &[ESCAPE, b'a', 3, ESCAPE, b'a'], &[], &[2], &[3, 3]];
    let made = TextsAsCodes { symbols, texts: texts.map(<[u8]>::to_vec).to_vec() };
    for pattern in ["%aba%", "aba%", "%aba", "aba", "%a", "a%", "%ababa%", "%b%b%", "_b_", "%a_a%"] {
        check(&made, &BytePattern::like(pattern), &RowSet::all(texts.len()));
    }
}

/// One code can end a needle that begins in the text before, and begin one that ends in the text after. The second once
/// moved the search to its row, where the first was then taken for a match.
#[test]
fn needles_across_texts_are_none() {
    let symbols = [&b"xa"[..], b"bbab", b"b", b"y"].map(<[u8]>::to_vec).to_vec();
    for padding in 0..12 {
        // More of the other codes make each place of the needle the rarest in turn.
        let texts = [vec![0], vec![1], vec![2], [3, padding % 4].repeat(1 + usize::from(padding)), vec![0], vec![1], vec![2]];
        let made = TextsAsCodes { symbols: symbols.clone(), texts: texts.to_vec() };
        for pattern in ["%abb%", "%ab%", "%bab%", "%ba%", "abb%", "%abb"] {
            check(&made, &BytePattern::like(pattern), &RowSet::all(texts.len()));
        }
    }
}

/// An escaped byte of 255 after another one, and a code whose number is a byte of the needle.
#[test]
fn escaped_bytes_are_no_codes() {
    let made =
        TextsAsCodes { symbols: vec![b"x".to_vec(); 100], texts: vec![vec![ESCAPE, ESCAPE, 97], vec![ESCAPE, 97], vec![97]] };
    for needle in [&b"a"[..], b"x", &[ESCAPE], &[ESCAPE, b'x']] {
        let pattern = BytePattern::one_of(&[Value::Bytes(needle.to_vec())]).unwrap();
        check(&made, &pattern, &RowSet::all(3));
    }
    for pattern in ["%a%", "%x%", "%x", "a%"] {
        check(&made, &BytePattern::like(pattern), &RowSet::all(3));
    }
}

#[test]
fn a_needle_longer_than_any_prepared_one_is_found() {
    let symbols = vec![b"abcdefgh".to_vec(), b"abc".to_vec()];
    let texts = vec![vec![0; 12], vec![0, 0, 0, 0, 0, 0, 0, 1], vec![1, 0, 0, 0, 0, 0, 0, 0, 0], vec![0; 7]];
    let made = TextsAsCodes { symbols, texts };
    let long = "abcdefgh".repeat(8);
    for pattern in [format!("%{long}%"), format!("{long}%"), format!("%{long}"), long.clone(), format!("%{}abc%", &long[8..])] {
        check(&made, &BytePattern::like(&pattern), &RowSet::all(4));
    }
}
