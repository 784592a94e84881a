//! [`ByteSet`]: which of 64 bytes are among some values, asked in a few instructions.

/// A set of byte values. A byte is looked up by its two halves, which are small enough for the processor's shuffles of
/// bytes (Wojciech Muła, SIMDized check which bytes are in a set, 2018).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteSet {
    /// For each low half, the high halves 0 to 7 with which it makes a member: a bit for each.
    below: [u8; 16],
    /// The same for the high halves 8 to 15.
    above: [u8; 16],
}

impl ByteSet {
    pub(super) fn insert(&mut self, byte: u8) {
        let (low, high) = (usize::from(byte & 15), byte >> 4);
        let half = if high < 8 { &mut self.below } else { &mut self.above };
        half[low] |= 1 << (high & 7);
    }

    #[cfg(any(test, not(target_feature = "avx2")))]
    fn contains(&self, byte: u8) -> bool {
        let (low, high) = (usize::from(byte & 15), byte >> 4);
        let half = if high < 8 { &self.below } else { &self.above };
        half[low] >> (high & 7) & 1 == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.below == [0; 16] && self.above == [0; 16]
    }

    /// All members that are in another set, too, and all members of the other.
    pub(super) fn add_all(&mut self, other: &Self) {
        for half in 0..16 {
            self.below[half] |= other.below[half];
            self.above[half] |= other.above[half];
        }
    }

    /// The sum of what the members weigh.
    pub(super) fn weight(&self, weights: &[f32; 256]) -> f32 {
        let mut sum = 0.0;
        for low in 0..16 {
            let mut highs = u16::from(self.below[low]) | u16::from(self.above[low]) << 8;
            while highs != 0 {
                sum += weights[(highs.trailing_zeros() as usize) << 4 | low];
                highs &= highs - 1;
            }
        }
        sum
    }

    /// A bit for each of the bytes that is a member, from the lowest bit on.
    #[cfg(target_feature = "avx2")]
    #[inline]
    pub(super) fn members(&self, bytes: &[u8; 64]) -> u64 {
        // SAFETY: this is compiled for processors that have AVX2.
        unsafe { self.members_by_shuffles(bytes) }
    }

    /// See [`ByteSet::members`].
    #[cfg(target_feature = "avx2")]
    #[target_feature(enable = "avx2")]
    #[inline]
    fn members_by_shuffles(&self, bytes: &[u8; 64]) -> u64 {
        use std::arch::x86_64::{
            __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256,
            _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_shuffle_epi8,
            _mm256_srli_epi16, _mm256_xor_si256,
        };
        // SAFETY: each array has the 16 bytes that are read.
        let table = |half: &[u8; 16]| _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(half.as_ptr().cast()) });
        let (below, above) = (table(&self.below), table(&self.above));
        let bits = _mm256_set1_epi64x(i64::from_le_bytes([1, 2, 4, 8, 16, 32, 64, 128]));
        let of_half = |bytes: __m256i| {
            // A shuffle gives 0 where the highest bit of the byte that asks is set, so each half of the set answers only
            // for its bytes.
            let flipped = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
            let row = _mm256_or_si256(_mm256_shuffle_epi8(below, bytes), _mm256_shuffle_epi8(above, flipped));
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), _mm256_set1_epi8(15));
            let bit = _mm256_shuffle_epi8(bits, high);
            let found = _mm256_cmpeq_epi8(_mm256_and_si256(row, bit), bit);
            u64::from(_mm256_movemask_epi8(found).cast_unsigned())
        };
        let (first, last) = bytes.split_at(32);
        // SAFETY: each half has the 32 bytes that are read.
        let (first, last) = unsafe { (_mm256_loadu_si256(first.as_ptr().cast()), _mm256_loadu_si256(last.as_ptr().cast())) };
        of_half(first) | of_half(last) << 32
    }

    /// A bit for each of the bytes that is a member, from the lowest bit on.
    #[cfg(not(target_feature = "avx2"))]
    pub(super) fn members(&self, bytes: &[u8; 64]) -> u64 {
        self.members_by_byte(bytes)
    }

    /// What [`ByteSet::members`] is where the processor has no shuffles of 32 bytes, and what its test compares it with.
    #[cfg(any(test, not(target_feature = "avx2")))]
    fn members_by_byte(&self, bytes: &[u8; 64]) -> u64 {
        bytes.iter().rev().fold(0, |found, byte| found << 1 | u64::from(self.contains(*byte)))
    }
}

impl FromIterator<u8> for ByteSet {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        let mut set = Self::default();
        bytes.into_iter().for_each(|byte| set.insert(byte));
        set
    }
}

/// The blocks of 64 bytes of these bytes, and for each the bits of the bytes that are there: the last block is filled up
/// with zeros.
#[inline(always)]
pub(super) fn blocks(bytes: &[u8], mut each: impl FnMut(&[u8; 64], u64)) {
    let mut last = [0; 64];
    for start in (0..bytes.len()).step_by(64) {
        // One call, so that `each` becomes a part of this loop and keeps its sets in registers.
        let (block, there) = match bytes[start..].first_chunk() {
            Some(block) => (block, u64::MAX),
            None => {
                let rest = &bytes[start..];
                last[..rest.len()].copy_from_slice(rest);
                (&last, (1 << rest.len()) - 1)
            }
        };
        each(block, there);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn members_are_found_wherever_they_are(
            values in prop::collection::vec(any::<u8>(), 0..60),
            bytes in prop::collection::vec(any::<u8>(), 64),
        ) {
            let set: ByteSet = values.iter().copied().collect();
            let bytes: [u8; 64] = bytes.try_into().unwrap();
            let found = set.members(&bytes);
            prop_assert_eq!(found, set.members_by_byte(&bytes));
            for (place, byte) in bytes.iter().enumerate() {
                prop_assert_eq!(found >> place & 1 == 1, values.contains(byte));
            }
            let distinct = (0..=255u8).filter(|value| values.contains(value)).count();
            prop_assert_eq!(set.weight(&[1.0; 256]) as usize, distinct);
            prop_assert_eq!(set.is_empty(), values.is_empty());
        }
    }

    #[test]
    fn the_last_block_says_what_is_there() {
        for length in [0, 1, 63, 64, 65, 200] {
            let mut there = 0;
            blocks(&vec![7; length], |block, bits| {
                there += bits.count_ones() as usize;
                assert!((0..64).all(|place| (block[place] == 7) == (bits >> place & 1 == 1)));
            });
            assert_eq!(there, length);
        }
    }
}
