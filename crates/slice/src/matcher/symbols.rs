//! [`Symbols`]: the table of symbols by which texts are compressed with FSST (Boncz, Neumann and Leis, FSST: Fast Random
//! Access String Compression, 2020).

/// The most bytes that a code represents.
pub(crate) const SYMBOL_BYTES: usize = 8;
/// The code that precedes a byte which represents itself.
pub(super) const ESCAPE: u8 = 255;

/// The bytes that each code represents.
#[derive(Debug)]
pub(crate) struct Symbols {
    bytes: [[u8; SYMBOL_BYTES]; 256],
    /// Bytes of each symbol; 0 for [`ESCAPE`] and for codes that the table does not have.
    lengths: [u8; 256],
}

impl Symbols {
    /// The table of these symbols, whose first bytes are the lowest of each number.
    pub(crate) fn new(symbols: impl Iterator<Item = u64>, lengths: &[u8]) -> Self {
        let mut made = Self { bytes: [[0; SYMBOL_BYTES]; 256], lengths: [0; 256] };
        for (code, (symbol, length)) in symbols.zip(lengths).take(usize::from(ESCAPE)).enumerate() {
            made.bytes[code] = symbol.to_le_bytes();
            made.lengths[code] = (*length).min(SYMBOL_BYTES as u8);
        }
        made
    }

    /// The bytes of a symbol.
    pub(super) fn symbol(&self, code: u8) -> &[u8] {
        &self.bytes[usize::from(code)][..self.length(code)]
    }

    /// The number of a symbol's bytes.
    #[inline]
    pub(super) fn length(&self, code: u8) -> usize {
        usize::from(self.lengths[usize::from(code)])
    }

    /// What the codes represent, written over what was in `scratch`. An escape without its byte is left out.
    pub(super) fn decompress<'a>(&self, codes: &[u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let most = codes.len() * SYMBOL_BYTES;
        if scratch.len() < most {
            scratch.resize(most, 0);
        }
        let (mut end, mut codes) = (0, codes.iter());
        while let Some(code) = codes.next() {
            // Each symbol is written with all of its eight bytes, and the next one overwrites those that are too many.
            let Some(out) = scratch.get_mut(end..).and_then(|rest| rest.first_chunk_mut()) else { break };
            if *code == ESCAPE {
                let Some(literal) = codes.next() else { break };
                out[0] = *literal;
                end += 1;
            } else {
                *out = self.bytes[usize::from(*code)];
                end += self.length(*code);
            }
        }
        &scratch[..end]
    }
}

/// Whether the byte at a place is one that an escape precedes. Before a run of escape bytes something else ends, so the
/// first of the run is an escape, the second its byte, and so on. `codes` begin with a code.
#[inline]
pub(super) fn is_literal(codes: &[u8], place: usize) -> bool {
    match place.checked_sub(1).and_then(|before| codes.get(before)) {
        Some(&ESCAPE) => codes[..place].iter().rev().take_while(|code| **code == ESCAPE).count() % 2 == 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn literals_are_told_from_codes(codes in prop::collection::vec(prop_oneof![Just(ESCAPE), 0u8..4], 0..40)) {
            let mut place = 0;
            while place < codes.len() {
                prop_assert!(!is_literal(&codes, place));
                if codes[place] == ESCAPE && place + 1 < codes.len() {
                    place += 1;
                    prop_assert!(is_literal(&codes, place));
                }
                place += 1;
            }
        }

        #[test]
        fn any_codes_can_be_decompressed(codes in prop::collection::vec(any::<u8>(), 0..40)) {
            let symbols = Symbols::new([u64::from_le_bytes(*b"abcdefgh"), u64::from(b'x')].into_iter(), &[8, 1]);
            let mut text = b"something else".to_vec();
            prop_assert!(symbols.decompress(&codes, &mut text).len() <= codes.len() * SYMBOL_BYTES);
        }
    }

    #[test]
    fn codes_become_their_symbols() {
        let symbols =
            Symbols::new([u64::from_le_bytes(*b"abcdefgh"), u64::from_le_bytes(*b"xy\0\0\0\0\0\0")].into_iter(), &[8, 2]);
        let mut scratch = vec![7; 200];
        for _ in 0..2 {
            assert_eq!(
                symbols.decompress(&[0, 1, ESCAPE, b'!', ESCAPE, ESCAPE, 1, 9, ESCAPE], &mut scratch),
                b"abcdefghxy!\xffxy"
            );
            scratch.clear();
        }
    }
}
