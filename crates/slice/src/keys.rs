//! [`KeySet`]: the numbers that a join's other side has, for scans that leave out rows without a partner.

use std::fmt;

/// Bytes for each number up to which a bitmap is preferred, since it is exact.
const BITMAP_BYTES_EACH: u64 = 16;
/// Bytes up to which a bitmap is preferred in any case.
const BITMAP_BYTES_MIN: u64 = 4 << 10;
/// Most bytes of a set.
const BYTES_MAX: u64 = 8 << 20;
/// Words of a block of the Bloom filter: each number sets one bit in each.
const BLOCK: usize = 8;
/// Bits of the Bloom filter for each number. About one number in 300 is found that is not in the set.
const BITS_EACH: u64 = 16;

/// Odd constants that choose a bit in each word of a block (Apache Parquet's split block Bloom filter).
const SALTS: [u32; BLOCK] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A set of whole numbers that never denies one of its own. It may have others that are not: it is exact where the numbers are near
/// each other, and else a Bloom filter of blocks (Putze, Sanders, Singler: Cache-, hash- and space-efficient Bloom filters).
pub struct KeySet {
    shape: KeySetForm,
    numbers: u64,
}

/// How a set of keys is stored.
enum KeySetForm {
    /// One bit for each number from the first on.
    Bits(i64, Vec<u64>),
    Blocks(Vec<[u32; BLOCK]>),
}

impl KeySet {
    /// The set of these numbers, the low 64 bits of each; none if it would be too large to be of use.
    pub fn of(numbers: &[i64]) -> Option<Self> {
        let (first, last) = (numbers.iter().min().copied().unwrap_or(0), numbers.iter().max().copied().unwrap_or(0));
        let (span, count) = (last.abs_diff(first), numbers.len() as u64);
        if span / 8 <= BITMAP_BYTES_EACH.saturating_mul(count).clamp(BITMAP_BYTES_MIN, BYTES_MAX) {
            return Some(Self::bits(first, span, numbers));
        }
        let bytes = count.saturating_mul(BITS_EACH) / 8;
        (bytes <= BYTES_MAX).then(|| Self::blocks(bytes, numbers))
    }

    fn bits(first: i64, span: u64, numbers: &[i64]) -> Self {
        let mut bits = vec![0_u64; if numbers.is_empty() { 0 } else { span as usize / 64 + 1 }];
        for number in numbers {
            let place = number.abs_diff(first) as usize;
            bits[place / 64] |= 1 << (place % 64);
        }
        let count = bits.iter().map(|word| u64::from(word.count_ones())).sum();
        Self { shape: KeySetForm::Bits(first, bits), numbers: count }
    }

    fn blocks(bytes: u64, numbers: &[i64]) -> Self {
        let mut blocks = vec![[0_u32; BLOCK]; (bytes as usize / size_of::<[u32; BLOCK]>()).max(1)];
        for number in numbers {
            let (block, bits) = place(*number, blocks.len());
            blocks[block].iter_mut().zip(bits).for_each(|(word, bit)| *word |= bit);
        }
        Self { shape: KeySetForm::Blocks(blocks), numbers: numbers.len() as u64 }
    }

    /// Whether the number is in the set; rarely true for one that is not.
    #[inline]
    pub fn has(&self, number: i64) -> bool {
        match &self.shape {
            KeySetForm::Bits(first, bits) => has_bit(bits, number.wrapping_sub(*first)),
            KeySetForm::Blocks(blocks) => {
                let (block, bits) = place(number, blocks.len());
                blocks[block].iter().zip(bits).fold(true, |all, (word, bit)| all & (word & bit == bit))
            }
        }
    }

    /// The first number and the bits from it on, if the set is exact.
    pub(crate) fn exact(&self) -> Option<(i64, &[u64])> {
        match &self.shape {
            KeySetForm::Bits(first, bits) => Some((*first, bits)),
            KeySetForm::Blocks(_) => None,
        }
    }

    /// How many numbers went in; of equal ones only some may be counted once.
    pub fn numbers(&self) -> u64 {
        self.numbers
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        match &self.shape {
            KeySetForm::Bits(_, bits) => size_of_val(bits.as_slice()),
            KeySetForm::Blocks(blocks) => size_of_val(blocks.as_slice()),
        }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_exact = matches!(self.shape, KeySetForm::Bits(..));
        f.debug_struct("KeySet").field("numbers", &self.numbers).field("is_exact", &is_exact).finish_non_exhaustive()
    }
}

/// Whether there is a bit at a place, and it is set.
pub(crate) fn has_bit(bits: &[u64], place: i64) -> bool {
    // A place before the first one becomes one far after the last.
    let place = place as u64 as usize;
    bits.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
}

/// A number's block, and its bits there.
fn place(number: i64, blocks: usize) -> (usize, [u32; BLOCK]) {
    let hash = mixed(number as u64);
    let block = ((u128::from(hash) * blocks as u128) >> 64) as usize;
    (block, SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27)))
}

/// Every bit of the number in every bit (the finaliser of MurmurHash3).
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn its_own_numbers_are_never_denied(
            numbers in prop::collection::vec(prop_oneof![any::<i64>(), -40_i64..40, Just(i64::MIN), Just(i64::MAX)], 0..300),
        ) {
            let set = KeySet::of(&numbers).expect("a small set");
            prop_assert!(numbers.iter().all(|number| set.has(*number)));
        }

        #[test]
        fn near_numbers_are_exact(numbers in prop::collection::vec(-500_i64..500, 0..50), asked in any::<i64>()) {
            let set = KeySet::of(&numbers).expect("a small set");
            for asked in (-600..600).chain([asked]) {
                prop_assert_eq!(set.has(asked), numbers.contains(&asked));
            }
        }
    }

    #[test]
    fn few_others_are_found() {
        let numbers: Vec<i64> = (0..100_000).map(|number: i64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)).collect();
        let set = KeySet::of(&numbers).unwrap();
        assert_eq!(set.bytes(), 200_000);
        let found = (1..100_000).filter(|number| set.has(number * 7 + 3)).count();
        assert!(found < 1_000, "{found} of 100,000");
    }

    #[test]
    fn too_many_numbers_far_apart_have_no_set() {
        let numbers: Vec<i64> = (0..5_000_000).map(|number| number * 1_000_003).collect();
        assert!(KeySet::of(&numbers).is_none());
        assert!(!KeySet::of(&[]).unwrap().has(0));
    }
}
