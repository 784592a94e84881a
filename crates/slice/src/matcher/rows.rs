//! [`RowSet`]: some rows of a page.

/// Rows of a range, a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowSet {
    /// Bits beyond the last row are 0.
    words: Vec<u64>,
    rows: usize,
}

impl RowSet {
    /// None of so many rows.
    pub(crate) fn none(rows: usize) -> Self {
        Self { words: vec![0; rows.div_ceil(64)], rows }
    }

    /// All of so many rows.
    pub(crate) fn all(rows: usize) -> Self {
        Self::from_words(std::iter::repeat(u64::MAX), rows)
    }

    /// The rows for which `is_in` is true.
    pub(crate) fn collect(rows: usize, mut is_in: impl FnMut(usize) -> bool) -> Self {
        let word = |first: usize| (first..rows.min(first + 64)).rev().fold(0, |word, row| word << 1 | u64::from(is_in(row)));
        Self { words: (0..rows).step_by(64).map(word).collect(), rows }
    }

    /// The rows whose bits are set, from the lowest bit of the first word on. Words that are missing are 0.
    pub(crate) fn from_words(words: impl Iterator<Item = u64>, rows: usize) -> Self {
        let mut words: Vec<u64> = words.take(rows.div_ceil(64)).collect();
        words.resize(rows.div_ceil(64), 0);
        if let Some(last) = words.last_mut().filter(|_| !rows.is_multiple_of(64)) {
            *last &= (1 << (rows % 64)) - 1;
        }
        Self { words, rows }
    }

    /// The rows of which these are some.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn contains(&self, row: usize) -> bool {
        self.words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Adds a row. It has no effect if there is no such row.
    pub(crate) fn insert(&mut self, row: usize) {
        if let Some(word) = self.words.get_mut(row / 64).filter(|_| row < self.rows) {
            *word |= 1 << (row % 64);
        }
    }

    /// The rows, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(place, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let row = (left != 0).then(|| place * 64 + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(row)
            })
        })
    }

    /// The bits of the rows.
    pub(crate) fn into_words(self) -> Vec<u64> {
        self.words
    }

    /// The rows that are in both.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= other);
        self
    }

    /// The rows that are in this one only.
    pub(crate) fn and_not(mut self, other: &Self) -> Self {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word &= !other);
        self
    }

    /// The rows that are in at least one.
    pub(crate) fn or(mut self, other: &Self) -> Self {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_are_what_their_rows_are(bits in prop::collection::vec(any::<(bool, bool)>(), 0..200)) {
            let rows = bits.len();
            let (left, right) = (RowSet::collect(rows, |row| bits[row].0), RowSet::collect(rows, |row| bits[row].1));
            let is = |set: &RowSet, wanted: &dyn Fn(bool, bool) -> bool| {
                let expected: Vec<usize> = (0..rows).filter(|row| wanted(bits[*row].0, bits[*row].1)).collect();
                set.iter().collect::<Vec<_>>() == expected
                    && set.count() == expected.len()
                    && (0..rows + 70).all(|row| set.contains(row) == expected.contains(&row))
            };
            prop_assert!(is(&left, &|left, _| left));
            prop_assert!(is(&left.clone().and(&right), &|left, right| left && right));
            prop_assert!(is(&left.clone().and_not(&right), &|left, right| left && !right));
            prop_assert!(is(&left.clone().or(&right), &|left, right| left || right));
            prop_assert!(is(&RowSet::all(rows), &|_, _| true));
            prop_assert!(is(&RowSet::none(rows), &|_, _| false));
            let mut made = RowSet::none(rows);
            left.iter().chain([rows, rows + 64]).for_each(|row| made.insert(row));
            prop_assert_eq!(&made, &left);
            prop_assert_eq!(RowSet::from_words(left.clone().into_words().into_iter(), rows), left);
        }
    }
}
