//! [`Numbers`]: codes of whole numbers, however many there are.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Int64Array, PrimitiveArray, downcast_integer_array};
use arrow::datatypes::{
    DataType, Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::{Result, exec_err, internal_err};
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

/// Codes of one column's numbers, from 0 on in the order in which they came.
///
/// A number takes its own 8 bytes, and 6 to 12 in the table. The engine's table takes 16 beside each number, for its place and its
/// hash: of a million groups it is the larger part.
pub(super) struct Numbers {
    data_type: DataType,
    /// The numbers by their codes. NULL has a place among them, and no entry in the table.
    numbers: Vec<i64>,
    null: Option<usize>,
    codes: HashTable<u32>,
    hashing: DefaultHashBuilder,
    /// The number that came last: neighbours are often equal.
    last: Option<(i64, usize)>,
}

impl Numbers {
    /// For a column of this type.
    pub(super) fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            numbers: Vec::new(),
            null: None,
            codes: HashTable::new(),
            hashing: DefaultHashBuilder::default(),
            last: None,
        }
    }

    /// Numbers so far.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.capacity() * size_of::<i64>() + self.codes.allocation_size()
    }

    /// The code of each row, in `codes`.
    pub(super) fn of(&mut self, column: &ArrayRef, codes: &mut Vec<usize>) -> Result<()> {
        codes.clear();
        if self.numbers.len().saturating_add(column.len()) > u32::MAX as usize {
            return exec_err!("more than {} groups are not kept in memory", u32::MAX);
        }
        macro_rules! coded {
            ($array:expr) => {
                match $array.null_count() {
                    0 => codes.extend($array.values().iter().map(|number| self.code(*number as i64))),
                    _ => codes.extend($array.iter().map(|number| match number {
                        Some(number) => self.code(number as i64),
                        None => self.code_of_null(),
                    })),
                }
            };
        }
        downcast_integer_array!(
            column => coded!(column),
            DataType::Date32 => coded!(column.as_primitive::<Date32Type>()),
            other => return internal_err!("values of type {other} have no codes"),
        );
        Ok(())
    }

    #[inline]
    fn code(&mut self, number: i64) -> usize {
        match self.last {
            Some((last, code)) if last == number => code,
            _ => {
                let code = self.look_up(number);
                self.last = Some((number, code));
                code
            }
        }
    }

    #[inline]
    fn look_up(&mut self, number: i64) -> usize {
        let Self { numbers, codes, hashing, .. } = self;
        let is_it = |code: &u32| numbers[*code as usize] == number;
        match codes.entry(hashing.hash_one(number), is_it, |code| hashing.hash_one(numbers[*code as usize])) {
            Entry::Occupied(known) => *known.get() as usize,
            Entry::Vacant(place) => {
                let code = numbers.len();
                // There are fewer than 2^32: `of` has seen to it.
                place.insert(code as u32);
                numbers.push(number);
                code
            }
        }
    }

    #[cold]
    fn code_of_null(&mut self) -> usize {
        let Self { numbers, null, .. } = self;
        *null.get_or_insert_with(|| {
            numbers.push(0);
            numbers.len() - 1
        })
    }

    /// The numbers, in the order of codes. The table goes first, and those of 64 bits stay where they are.
    pub(super) fn into_values(self) -> Result<ArrayRef> {
        let Self { data_type, numbers, null, codes, .. } = self;
        drop(codes);
        if data_type == DataType::Int64 && null.is_none() {
            return Ok(Arc::new(Int64Array::from(numbers)));
        }
        let numbers = numbers.iter().enumerate().map(|(code, number)| (null != Some(code)).then_some(*number));
        whole_numbers(&data_type, numbers)
    }
}

/// A column of whole numbers or days, whose bits come in 64.
pub(super) fn whole_numbers(data_type: &DataType, numbers: impl Iterator<Item = Option<i64>>) -> Result<ArrayRef> {
    macro_rules! column {
        ($type:ty) => {{
            let numbers = numbers.map(|number| number.map(|number| number as <$type as ArrowPrimitiveType>::Native));
            Arc::new(numbers.collect::<PrimitiveArray<$type>>()) as ArrayRef
        }};
    }
    Ok(match data_type {
        DataType::Int8 => column!(Int8Type),
        DataType::Int16 => column!(Int16Type),
        DataType::Int32 => column!(Int32Type),
        DataType::Int64 => column!(Int64Type),
        DataType::UInt8 => column!(UInt8Type),
        DataType::UInt16 => column!(UInt16Type),
        DataType::UInt32 => column!(UInt32Type),
        DataType::UInt64 => column!(UInt64Type),
        DataType::Date32 => column!(Date32Type),
        other => return internal_err!("values of type {other} have no codes"),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int8Array, UInt64Array};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equal_numbers_and_no_others_have_one_code(
            batches in prop::collection::vec(
                prop::collection::vec(prop_oneof![4 => prop::option::of(-3_i64..200), 1 => Just(Some(i64::MIN)), 1 => Just(Some(i64::MAX))], 0..300),
                1..5,
            ),
        ) {
            let mut codes = Numbers::new(DataType::Int64);
            let mut seen: Vec<Option<i64>> = Vec::new();
            for rows in batches {
                let mut found = Vec::new();
                codes.of(&(Arc::new(Int64Array::from(rows.clone())) as ArrayRef), &mut found).unwrap();
                prop_assert_eq!(found.len(), rows.len());
                for (number, code) in rows.into_iter().zip(found) {
                    let expected = seen.iter().position(|known| *known == number).unwrap_or(seen.len());
                    prop_assert_eq!(code, expected);
                    if expected == seen.len() {
                        seen.push(number);
                    }
                }
            }
            prop_assert_eq!(codes.len(), seen.len());
            let expected: ArrayRef = Arc::new(Int64Array::from(seen));
            prop_assert_eq!(&codes.into_values().unwrap(), &expected);
        }
    }

    #[test]
    fn numbers_keep_their_bits() {
        let wide: ArrayRef = Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(0), Some(u64::MAX), None]));
        let narrow: ArrayRef = Arc::new(Int8Array::from(vec![Some(-128), Some(127), Some(0), Some(-128), Some(0)]));
        for (column, expected) in [(wide, [0, 1, 2, 0, 1]), (narrow, [0, 1, 2, 0, 2])] {
            let mut codes = Numbers::new(column.data_type().clone());
            let mut found = Vec::new();
            codes.of(&column, &mut found).unwrap();
            assert_eq!(found, expected);
            assert_eq!(&codes.into_values().unwrap(), &column.slice(0, 3));
        }
    }

    #[test]
    fn many_numbers_take_little() {
        let mut codes = Numbers::new(DataType::Int64);
        let mut found = Vec::new();
        for start in (0..1_000_000_i64).step_by(8_192) {
            codes.of(&(Arc::new(Int64Array::from_iter_values(start..start + 8_192)) as ArrayRef), &mut found).unwrap();
        }
        assert_eq!(codes.len(), found.last().unwrap() + 1);
        assert!(codes.bytes() <= 20 * codes.len(), "{} bytes", codes.bytes());
    }
}
