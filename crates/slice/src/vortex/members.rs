//! Lists of whole numbers, which are looked up in one pass over a page however long they are. Filters from joins are
//! such lists.
//!
//! Vortex compares a page with each value of a list in turn.

use std::hash::{BuildHasher, Hasher, RandomState};

use ::vortex::array::arrays::PrimitiveArray;
use ::vortex::array::{ArrayRef, ExecutionCtx, match_each_integer_ptype};
use ::vortex::buffer::BitBuffer;
use ::vortex::error::VortexResult;
use ::vortex::mask::Mask;
use pithead_model::Value;

use crate::keys::has_bit;
use crate::{Compare, KeySet, Predicate};

/// Shorter lists are compared value by value, which can be done on packed values.
const VALUES_MIN: usize = 3;
/// Up to this range between the first and the last number there is a bit for each number in any case. So many bits fit into a core's
/// cache, and are asked without a branch.
const BITS_MIN: u64 = 1 << 20;
/// Bits for each number of the list up to which there is one for each number of the range: a slice's scan makes them anew.
const BITS_EACH: u64 = 512;
/// Slots of a table for each number: most numbers of a page are not among them, and find an empty slot at once.
const SLOTS_EACH: usize = 8;

/// Whole numbers, as the low 64 bits of each. A column's type has no more bits, so no two numbers are confused.
#[derive(Debug)]
pub(super) enum Members {
    /// One bit for each number from the first on.
    Bits(i64, Vec<u64>),
    /// The numbers are far apart.
    Table(Table),
}

/// A hash table of numbers with linear probing.
#[derive(Debug)]
pub(super) struct Table {
    /// Each number, and `empty` where there is none. A power of two.
    slots: Vec<i64>,
    /// Bits of a hash that are not of a slot's place.
    shift: u32,
    /// Each table has another one, so that nobody can choose numbers that are all hashed to one place.
    multiplier: u64,
    /// A number that is not among them.
    empty: i64,
}

impl Table {
    /// Of different numbers, in order.
    fn new(sorted: &[i64]) -> Self {
        let mut empty = i64::MIN;
        for number in sorted {
            if *number != empty {
                break;
            }
            empty = empty.wrapping_add(1);
        }
        let slots = vec![empty; (sorted.len() * SLOTS_EACH).next_power_of_two()];
        let multiplier = RandomState::new().build_hasher().finish() | 1;
        let mut table = Self { shift: u64::BITS - slots.len().trailing_zeros(), multiplier, slots, empty };
        for number in sorted {
            let mut place = table.place(*number);
            while table.slots[place] != empty {
                place = (place + 1) & (table.slots.len() - 1);
            }
            table.slots[place] = *number;
        }
        table
    }

    /// Where a number is, or comes after: multiply-shift (Dietzfelbinger et al. 1997; see `docs/bibliography.md`).
    fn place(&self, number: i64) -> usize {
        ((number as u64).wrapping_mul(self.multiplier) >> self.shift) as usize
    }

    #[inline]
    fn has(&self, number: i64) -> bool {
        let mut place = self.place(number);
        loop {
            let there = self.slots[place];
            if there == self.empty {
                return false;
            }
            if there == number {
                return true;
            }
            place = (place + 1) & (self.slots.len() - 1);
        }
    }
}

impl Members {
    /// The numbers that satisfy all of `predicates`, if those are lists, and comparisons of one column with whole
    /// numbers, and at least one is a list.
    pub(super) fn of(predicates: &[&Predicate]) -> Option<Self> {
        let mut numbers: Option<Vec<i128>> = None;
        for predicate in predicates {
            if let Predicate::In { values, .. } = predicate {
                let mut listed: Vec<i128> = values.iter().map(whole).collect::<Option<_>>()?;
                listed.sort_unstable();
                match &mut numbers {
                    Some(numbers) => numbers.retain(|number| listed.binary_search(number).is_ok()),
                    None => numbers = Some(listed),
                }
            }
        }
        let mut numbers = numbers.filter(|numbers| numbers.len() >= VALUES_MIN)?;
        for predicate in predicates {
            match predicate {
                Predicate::In { .. } => {}
                Predicate::Compare { op, value, .. } => {
                    let value = whole(value)?;
                    numbers.retain(|number| satisfies(*number, *op, value));
                }
                _ => return None,
            }
        }
        Some(Self::new(numbers))
    }

    fn new(numbers: Vec<i128>) -> Self {
        let mut sorted: Vec<i64> = numbers.into_iter().map(|number| number as i64).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let (first, last) = (sorted.first().copied().unwrap_or(0), sorted.last().copied().unwrap_or(0));
        let span = last.abs_diff(first);
        if span >= BITS_MIN.max(BITS_EACH * sorted.len() as u64) {
            return Self::Table(Table::new(&sorted));
        }
        let mut bits = vec![0_u64; span as usize / 64 + 1];
        for number in &sorted {
            let place = number.abs_diff(first) as usize;
            bits[place / 64] |= 1 << (place % 64);
        }
        // Without a number there is no bit that is set.
        Self::Bits(first, bits)
    }

    /// The rows whose numbers are among them. NULL is not.
    #[expect(clippy::unnecessary_cast, reason = "one of the types is i64")]
    pub(super) fn among(&self, numbers: ArrayRef, context: &mut ExecutionCtx) -> VortexResult<Mask> {
        let numbers = numbers.execute::<PrimitiveArray>(context)?;
        let rows = numbers.len();
        let found = match_each_integer_ptype!(numbers.ptype(), |T| {
            let numbers = numbers.as_slice::<T>();
            match self {
                Self::Bits(first, bits) => {
                    BitBuffer::collect_bool(rows, |row| has_bit(bits, (numbers[row] as i64).wrapping_sub(*first)))
                }
                Self::Table(table) => BitBuffer::collect_bool(rows, |row| table.has(numbers[row] as i64)),
            }
        });
        let valid = numbers.validity()?.execute_mask(rows, context)?;
        Ok(&Mask::from_buffer(found) & &valid)
    }
}

/// The rows whose numbers are in the set. NULL is not.
#[expect(clippy::unnecessary_cast, reason = "one of the types is i64")]
pub(super) fn in_set(keys: &KeySet, numbers: ArrayRef, context: &mut ExecutionCtx) -> VortexResult<Mask> {
    let numbers = numbers.execute::<PrimitiveArray>(context)?;
    let rows = numbers.len();
    let found = match_each_integer_ptype!(numbers.ptype(), |T| {
        let numbers = numbers.as_slice::<T>();
        match keys.exact() {
            Some((first, bits)) => {
                BitBuffer::collect_bool(rows, |row| has_bit(bits, (numbers[row] as i64).wrapping_sub(first)))
            }
            None => BitBuffer::collect_bool(rows, |row| keys.has(numbers[row] as i64)),
        }
    });
    let valid = numbers.validity()?.execute_mask(rows, context)?;
    Ok(&Mask::from_buffer(found) & &valid)
}

fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Int(value) => Some(*value),
        _ => None,
    }
}

fn satisfies(number: i128, op: Compare, value: i128) -> bool {
    match op {
        Compare::Eq => number == value,
        Compare::Ne => number != value,
        Compare::Lt => number < value,
        Compare::Le => number <= value,
        Compare::Gt => number > value,
        Compare::Ge => number >= value,
    }
}

#[cfg(test)]
mod tests {
    use ::vortex::array::{IntoArray, VortexSessionExecute};
    use proptest::prelude::*;

    use super::*;
    use crate::vortex::SESSION;

    fn list(values: impl IntoIterator<Item = i128>) -> Predicate {
        Predicate::In { column: 0, values: values.into_iter().map(Value::Int).collect() }
    }

    proptest! {
        #[test]
        fn each_row_is_asked(
            rows in prop::collection::vec(
                prop::option::of(prop_oneof![-40_i64..40, any::<i64>(), i64::MIN..i64::MIN + 3]), 0..200,
            ),
            values in prop_oneof![
                prop::collection::vec(-40_i64..40, 3..60),
                prop::collection::vec(prop_oneof![-40_i64..40, any::<i64>(), i64::MIN..i64::MIN + 3], 3..60),
            ],
            low in -30_i64..30,
        ) {
            let numbers: Vec<i128> = values.iter().map(|value| i128::from(*value)).collect();
            let least = Predicate::Compare { column: 0, op: Compare::Ge, value: Value::Int(i128::from(low)) };
            let members = Members::of(&[&list(numbers), &least]).expect("a list of numbers");
            let mut context = SESSION.create_execution_ctx();
            let found = members.among(PrimitiveArray::from_option_iter(rows.iter().copied()).into_array(), &mut context).unwrap();
            let expected = rows.iter().map(|row| row.is_some_and(|row| row >= low && values.contains(&row)));
            prop_assert_eq!(found.to_bit_buffer().iter().collect::<Vec<bool>>(), expected.collect::<Vec<bool>>());
        }
    }

    #[test]
    fn unsigned_numbers_above_the_signed_ones_are_found() {
        let members = Members::of(&[&list([3, i128::from(u64::MAX), i128::from(u64::MAX) - 7])]).unwrap();
        let rows = PrimitiveArray::from_iter([u64::MAX, 3, 4, u64::MAX - 7, u64::MAX - 8]).into_array();
        let found = members.among(rows, &mut SESSION.create_execution_ctx()).unwrap();
        assert_eq!(found.to_bit_buffer().iter().collect::<Vec<bool>>(), [true, true, false, true, false]);
    }

    #[test]
    fn what_is_no_list_of_numbers_is_left_to_others() {
        let text = Predicate::In { column: 0, values: vec![Value::Text("a".into()); 9] };
        assert!(Members::of(&[&text]).is_none());
        assert!(Members::of(&[&list([1, 2])]).is_none());
        assert!(Members::of(&[&list([1, 2, 3, 4]), &Predicate::IsNotNull(0)]).is_none());
    }
}
