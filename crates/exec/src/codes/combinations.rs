//! [`Codes`]: numbers for combinations of values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray, downcast_integer_array};
use arrow::datatypes::{DataType, Date32Type};
use datafusion::common::{Result, exec_datafusion_err, internal_err};

use super::numbers::whole_numbers;
use super::packed::{ODD, Packed};

/// Columns of a key at most.
pub(super) const KEYS_MAX: usize = 4;
/// The longest text whose view holds all of it.
const INLINE_MAX: u32 = 12;
/// What stands for a text of NULL: a view of 13 bytes would have more than zeros.
const NULL_TEXT: u128 = 13;
/// With a number above the low 64 bits, what stands for a text that a view does not hold.
const LONG_TEXT: u128 = 14;
/// What stands for a number of NULL.
const NULL_NUMBER: u128 = 1 << 64;
/// No word of any column.
const NOTHING: u128 = u128::MAX;
/// Combinations that were there last, by a hash of theirs.
const RECENT: usize = 1 << 8;

/// A combination of values, one word each: a text's view, or a number.
type Words = [u128; KEYS_MAX];

/// Codes of combinations, from 0 on in the order in which they came.
pub(super) struct Codes {
    types: Vec<DataType>,
    codes: HashMap<Words, usize>,
    combinations: Vec<Words>,
    recent: Vec<(Words, usize)>,
    /// The same for combinations that one word of 64 bits holds.
    packed: Packed,
    texts: HashMap<Arc<str>, usize>,
    texts_in_order: Vec<Arc<str>>,
    text_bytes: usize,
    words: [Vec<u128>; KEYS_MAX],
}

impl Codes {
    /// For columns of these types.
    pub(super) fn new(types: Vec<DataType>) -> Self {
        Self {
            types,
            codes: HashMap::new(),
            combinations: Vec::new(),
            recent: vec![([NOTHING; KEYS_MAX], 0); RECENT],
            packed: Packed::default(),
            texts: HashMap::new(),
            texts_in_order: Vec::new(),
            text_bytes: 0,
            words: Default::default(),
        }
    }

    /// Whether the last batch was packed.
    #[cfg(test)]
    pub(super) fn packs(&self) -> bool {
        !self.packed.keys.is_empty()
    }

    /// Combinations so far.
    pub(super) fn len(&self) -> usize {
        self.combinations.len()
    }

    /// Bytes that they take, about.
    pub(super) fn bytes(&self) -> usize {
        let words = self.words.iter().map(Vec::capacity).sum::<usize>() * size_of::<u128>();
        let each = 3 * size_of::<Words>();
        let words = words + self.packed.bytes();
        self.combinations.len() * each + self.texts.len() * 8 * size_of::<usize>() + 2 * self.text_bytes + words
    }

    /// The code of each row, in `codes`.
    pub(super) fn of(&mut self, columns: &[ArrayRef], codes: &mut Vec<usize>) -> Result<()> {
        for (place, column) in columns.iter().enumerate() {
            let mut words = std::mem::take(&mut self.words[place]);
            words.clear();
            self.add_words(column, &mut words)?;
            self.words[place] = words;
        }
        codes.clear();
        if self.packed.pack(columns, &self.words) {
            self.find_packed(columns.len(), codes);
            return Ok(());
        }
        match columns.len() {
            1 => self.find::<1>(codes),
            2 => self.find::<2>(codes),
            3 => self.find::<3>(codes),
            KEYS_MAX => self.find::<KEYS_MAX>(codes),
            count => return internal_err!("{count} keys have no codes"),
        }
        Ok(())
    }

    /// As [`Codes::find`], by the packed words: a row costs one multiplication and one comparison of 64 bits.
    fn find_packed(&mut self, columns: usize, found: &mut Vec<usize>) {
        let keys = std::mem::take(&mut self.packed.keys);
        found.extend(keys.iter().enumerate().map(|(row, key)| match self.packed.recent(*key) {
            Some(code) => code,
            None => {
                let code = self.look_up_row(row, columns);
                self.packed.keep(*key, code);
                code
            }
        }));
        self.packed.keys = keys;
    }

    #[cold]
    fn look_up_row(&mut self, row: usize, columns: usize) -> usize {
        let mut key = [0; KEYS_MAX];
        key.iter_mut().zip(&self.words[..columns]).for_each(|(word, words)| *word = words[row]);
        self.look_up(&key[..columns], slot(&key[..columns]))
    }

    fn find<const N: usize>(&mut self, found: &mut Vec<usize>) {
        let words = std::mem::take(&mut self.words);
        let rows = words[0].len();
        let columns: [&[u128]; N] = std::array::from_fn(|place| &words[place][..rows]);
        found.extend((0..rows).map(|row| {
            let key: [u128; N] = std::array::from_fn(|place| columns[place][row]);
            let slot = slot(&key);
            let (known, code) = &self.recent[slot];
            if known[..N] == key { *code } else { self.look_up(&key, slot) }
        }));
        self.words = words;
    }

    #[cold]
    fn look_up(&mut self, key: &[u128], slot: usize) -> usize {
        let mut words = [0; KEYS_MAX];
        words[..key.len()].copy_from_slice(key);
        let next = self.combinations.len();
        let code = *self.codes.entry(words).or_insert(next);
        if code == next {
            self.combinations.push(words);
        }
        self.recent[slot] = (words, code);
        code
    }

    fn add_words(&mut self, column: &ArrayRef, words: &mut Vec<u128>) -> Result<()> {
        macro_rules! numbers {
            ($array:expr) => {
                match $array.null_count() {
                    0 => words.extend($array.values().iter().map(|number| number_word(*number as i64))),
                    _ => words
                        .extend($array.iter().map(|number| number.map_or(NULL_NUMBER, |number| number_word(number as i64)))),
                }
            };
        }
        downcast_integer_array!(
            column => numbers!(column),
            DataType::Date32 => numbers!(column.as_primitive::<Date32Type>()),
            DataType::Utf8View => self.add_texts(column.as_string_view(), words),
            other => return internal_err!("values of type {other} have no codes"),
        );
        Ok(())
    }

    fn add_texts(&mut self, texts: &StringViewArray, words: &mut Vec<u128>) {
        let longest = texts.views().iter().map(|view| *view as u32).max().unwrap_or(0);
        if texts.null_count() == 0 && longest <= INLINE_MAX {
            return words.extend_from_slice(texts.views());
        }
        for (row, view) in texts.views().iter().enumerate() {
            words.push(match (texts.is_null(row), *view as u32 <= INLINE_MAX) {
                (true, _) => NULL_TEXT,
                (false, true) => *view,
                (false, false) => LONG_TEXT | (self.long_text(texts.value(row)) as u128) << 64,
            });
        }
    }

    fn long_text(&mut self, text: &str) -> usize {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let (text, number): (Arc<str>, usize) = (text.into(), self.texts_in_order.len());
        self.text_bytes += text.len();
        self.texts.insert(Arc::clone(&text), number);
        self.texts_in_order.push(text);
        number
    }

    /// The values of each combination, in the order of codes.
    pub(super) fn values(&self) -> Result<Vec<ArrayRef>> {
        self.types.iter().enumerate().map(|(place, data_type)| self.column(place, data_type)).collect()
    }

    fn column(&self, place: usize, data_type: &DataType) -> Result<ArrayRef> {
        let words = self.combinations.iter().map(|words| words[place]);
        match data_type {
            DataType::Utf8View => Ok(Arc::new(words.map(|word| self.text(word)).collect::<Result<StringViewArray>>()?)),
            number => whole_numbers(number, words.map(|word| (word != NULL_NUMBER).then_some(word as u64 as i64))),
        }
    }

    fn text(&self, word: u128) -> Result<Option<String>> {
        let length = word as u32;
        if word == NULL_TEXT {
            return Ok(None);
        }
        if length <= INLINE_MAX {
            let bytes = (word >> 32).to_le_bytes();
            let text = std::str::from_utf8(&bytes[..length as usize]).map_err(|error| exec_datafusion_err!("{error}"))?;
            return Ok(Some(text.to_owned()));
        }
        match self.texts_in_order.get((word >> 64) as usize) {
            Some(text) => Ok(Some(text.to_string())),
            None => internal_err!("a text has no number"),
        }
    }
}

fn number_word(number: i64) -> u128 {
    u128::from(number as u64)
}

/// Where a combination is kept among the recent ones.
fn slot(key: &[u128]) -> usize {
    let hash =
        key.iter().fold(0_u64, |hash, word| (hash.rotate_left(29) ^ *word as u64 ^ (*word >> 64) as u64).wrapping_mul(ODD));
    (hash >> (u64::BITS - RECENT.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use arrow::datatypes::Int32Type;
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Option<String>> {
        prop_oneof![
            Just(None),
            Just(Some(String::new())),
            "[ab]{1,2}".prop_map(Some),
            "[ab\0]{11,14}".prop_map(Some),
            Just(Some("\0".to_owned())),
        ]
    }

    proptest! {
        #[test]
        fn equal_rows_and_no_others_have_one_code(
            batches in prop::collection::vec(prop::collection::vec((text(), prop::option::of(-2_i32..3), text()), 0..40), 1..4),
        ) {
            let types = vec![DataType::Utf8View, DataType::Int32, DataType::Utf8View];
            let mut codes = Codes::new(types);
            let mut seen: Vec<(Option<String>, Option<i32>, Option<String>)> = Vec::new();
            for rows in batches {
                let first: ArrayRef = Arc::new(StringViewArray::from_iter(rows.iter().map(|row| row.0.clone())));
                let second: ArrayRef = Arc::new(Int32Array::from_iter(rows.iter().map(|row| row.1)));
                let third: ArrayRef = Arc::new(StringViewArray::from_iter(rows.iter().map(|row| row.2.clone())));
                let mut found = Vec::new();
                codes.of(&[first, second, third], &mut found).unwrap();
                for (row, code) in rows.into_iter().zip(found) {
                    let expected = seen.iter().position(|known| *known == row).unwrap_or(seen.len());
                    prop_assert_eq!(code, expected);
                    if expected == seen.len() {
                        seen.push(row);
                    }
                }
            }
            let values = codes.values().unwrap();
            prop_assert_eq!(codes.len(), seen.len());
            for (code, row) in seen.iter().enumerate() {
                let text = |column: &ArrayRef| {
                    let column = column.as_string_view();
                    column.is_valid(code).then(|| column.value(code).to_owned())
                };
                prop_assert_eq!((&text(&values[0]), &text(&values[2])), (&row.0, &row.2));
                let number = values[1].as_primitive::<Int32Type>();
                prop_assert_eq!(number.is_valid(code).then(|| number.value(code)), row.1);
            }
        }
    }

    proptest! {
        /// Some batches are packed, and some are not: a combination has one code in all of them.
        #[test]
        fn codes_are_the_same_packed_or_not(
            batches in prop::collection::vec(prop::collection::vec(("[ab\u{e9}]{0,4}", prop::num::i32::ANY), 0..40), 1..6),
            takes_numbers in any::<bool>(),
        ) {
            let types = [DataType::Utf8View, DataType::Int32];
            let count = 1 + usize::from(takes_numbers);
            let mut codes = Codes::new(types[..count].to_vec());
            let mut seen: Vec<(String, Option<i32>)> = Vec::new();
            for rows in batches {
                let first: ArrayRef = Arc::new(StringViewArray::from_iter_values(rows.iter().map(|row| &row.0)));
                let second: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1 / (1 << 29))));
                let mut found = Vec::new();
                codes.of(&[first, second][..count], &mut found).unwrap();
                for ((text, number), code) in rows.into_iter().zip(found) {
                    let row = (text, takes_numbers.then_some(number / (1 << 29)));
                    let expected = seen.iter().position(|known| *known == row).unwrap_or(seen.len());
                    prop_assert_eq!(code, expected);
                    if expected == seen.len() {
                        seen.push(row);
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_keep_their_bits() {
        let column: ArrayRef = Arc::new(arrow::array::UInt64Array::from(vec![Some(u64::MAX), None, Some(0), Some(u64::MAX)]));
        let mut codes = Codes::new(vec![DataType::UInt64]);
        let mut found = Vec::new();
        codes.of(std::slice::from_ref(&column), &mut found).unwrap();
        assert_eq!(found, [0, 1, 2, 0]);
        assert_eq!(&codes.values().unwrap()[0], &column.slice(0, 3));
    }
}
