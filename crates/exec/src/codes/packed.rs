//! [`Packed`]: combinations of few bits as one word each.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

/// Fibonacci hashing: 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
pub(super) const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Combinations that were there last.
const RECENT: usize = 1 << 8;

/// Rows whose combinations fit 64 bits: short texts and numbers of 32 bits, none of them NULL.
pub(super) struct Packed {
    /// One a row of the batch.
    pub(super) keys: Vec<u64>,
    /// Combinations that were there last, at [`packed_slot`].
    recent: Box<[(u64, usize); RECENT]>,
}

impl Default for Packed {
    /// Nothing is known: each place has a key that belongs to another one.
    fn default() -> Self {
        let other = |place| if place == packed_slot(0) { 1 } else { 0 };
        Self { keys: Vec::new(), recent: Box::new(std::array::from_fn(|place| (other(place), 0))) }
    }
}

impl Packed {
    /// The code of a combination, if it is among those that were there last.
    pub(super) fn recent(&self, key: u64) -> Option<usize> {
        let (known, code) = self.recent[packed_slot(key)];
        (known == key).then_some(code)
    }

    /// Keeps a combination's code.
    pub(super) fn keep(&mut self, key: u64, code: usize) {
        self.recent[packed_slot(key)] = (key, code);
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.recent) + self.keys.capacity() * size_of::<u64>()
    }

    /// Packs the words of a batch's columns; false where they do not fit.
    ///
    /// A text of at most 3 bytes takes 32 bits, its length above its bytes, and one of at most 7 bytes takes all 64.
    pub(super) fn pack(&mut self, columns: &[ArrayRef], words: &[Vec<u128>]) -> bool {
        let mut bits = Vec::with_capacity(columns.len());
        for (column, words) in columns.iter().zip(words) {
            let Some(taken) = packed_bits(column, words) else { return false };
            bits.push(taken);
        }
        if bits.iter().sum::<u32>() > u64::BITS {
            return false;
        }
        self.keys.clear();
        self.keys.resize(words[0].len(), 0);
        for ((column, words), bits) in columns.iter().zip(words).zip(bits) {
            let rows = self.keys.iter_mut().zip(words);
            match (column.data_type(), bits) {
                (DataType::Utf8View, 32) => {
                    rows.for_each(|(key, word)| *key = *key << 32 | u64::from((*word as u32) << 24 | (*word >> 32) as u32));
                }
                (DataType::Utf8View, _) => {
                    rows.for_each(|(key, word)| *key = u64::from(*word as u32) << 56 | (*word >> 32) as u64);
                }
                _ => rows.for_each(|(key, word)| *key = *key << 32 | u64::from(*word as u32)),
            }
        }
        true
    }
}

/// Bits that a column's words take in a packed key; none: they do not fit.
fn packed_bits(column: &ArrayRef, words: &[u128]) -> Option<u32> {
    if column.null_count() > 0 {
        return None;
    }
    match column.data_type() {
        DataType::Utf8View => match words.iter().map(|word| *word as u32).max().unwrap_or(0) {
            0..=3 => Some(32),
            4..=7 => Some(64),
            _ => None,
        },
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Date32 => Some(32),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Some(32),
        _ => None,
    }
}

/// Where a packed combination is kept among the recent ones.
fn packed_slot(key: u64) -> usize {
    (key.wrapping_mul(ODD) >> (u64::BITS - RECENT.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, StringViewArray};

    use super::super::combinations::Codes;
    use super::*;

    #[test]
    fn what_is_packed_fits() {
        let texts = |texts: &[&str]| Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef;
        let numbers = || Arc::new(Int32Array::from(vec![-1])) as ArrayRef;
        for (columns, fits) in [
            (vec![texts(&["abc"]), numbers()], true),
            (vec![texts(&["abcd"]), numbers()], false),
            (vec![texts(&["abcdefg"])], true),
            (vec![texts(&["abcdefgh"])], false),
            (vec![numbers(), numbers(), numbers()], false),
            (vec![Arc::new(Int32Array::from(vec![None])) as ArrayRef], false),
        ] {
            let mut codes = Codes::new(columns.iter().map(|column| column.data_type().clone()).collect());
            codes.of(&columns, &mut Vec::new()).unwrap();
            assert_eq!(codes.packs(), fits, "{columns:?}");
        }
    }

    #[test]
    fn nothing_is_known_at_first() {
        let packed = Packed::default();
        assert!((0..1_000).chain([u64::MAX]).all(|key| packed.recent(key).is_none()));
    }
}
