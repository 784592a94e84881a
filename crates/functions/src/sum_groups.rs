//! Totals of many groups: exact during the computation, and checked when they are handed on.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use crate::groups::{GroupValidity, valid_rows};
use crate::sum_scalar::{Carrying, FEW, SMALL_ROWS_MAX, check_digits, overflow};

/// Rows from which on looking at the values first pays.
const DENSE_ROWS_MIN: usize = 256;

/// The sums of groups. Those of wide numbers are short, of 64 bits each, until one does not fit: nearly all do, and most of the time of
/// many groups is the way to memory.
struct Sums<N> {
    is_short: bool,
    /// One of them is empty.
    short: Vec<i64>,
    whole: Vec<N>,
}

impl<N: Carrying> Sums<N> {
    fn new() -> Self {
        Self { is_short: N::IS_WIDE, short: Vec::new(), whole: Vec::new() }
    }

    fn len(&self) -> usize {
        self.short.len() + self.whole.len()
    }

    fn resize(&mut self, groups: usize) {
        match self.is_short {
            true => self.short.resize(groups, 0),
            false => self.whole.resize(groups, N::usize_as(0)),
        }
    }

    /// Adds what fits to short sums; some: a row that does not.
    fn add_short(&mut self, rows: &mut impl Iterator<Item = (usize, N)>) -> Option<(usize, N)> {
        let sums = self.short.as_mut_slice();
        rows.find(|(group, value)| match value.short().and_then(|value| sums[*group].checked_add(value)) {
            Some(sum) => {
                sums[*group] = sum;
                false
            }
            None => true,
        })
    }

    fn make_whole(&mut self) -> &mut Vec<N> {
        if std::mem::take(&mut self.is_short) {
            self.whole = std::mem::take(&mut self.short).into_iter().map(N::of_short).collect();
        }
        &mut self.whole
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<N> {
        match self.is_short {
            true => emit_to.take_needed(&mut self.short).into_iter().map(N::of_short).collect(),
            false => emit_to.take_needed(&mut self.whole),
        }
    }

    fn bytes(&self) -> usize {
        self.short.capacity() * size_of::<i64>() + self.whole.capacity() * size_of::<N>()
    }
}

/// One sum for each group.
pub(crate) struct CheckedGroups<T: ArrowPrimitiveType> {
    data_type: DataType,
    sums: Sums<T::Native>,
    /// How often each sum wrapped; empty until one does.
    carries: Vec<i64>,
    seen: GroupValidity,
}

impl<T: ArrowPrimitiveType<Native: Carrying>> CheckedGroups<T> {
    pub(crate) fn new(data_type: DataType) -> Self {
        Self { data_type, sums: Sums::new(), carries: Vec::new(), seen: GroupValidity::All(0) }
    }

    /// Adds a row's value to each row's group.
    fn add_all(&mut self, values: &[T::Native], groups: &[usize]) {
        let is_dense = self.sums.len() <= FEW && (DENSE_ROWS_MIN..=SMALL_ROWS_MAX).contains(&values.len());
        // The values are looked at only where that may pay.
        match is_dense.then(|| T::Native::few_sums(values, groups)).flatten() {
            Some(sums) => self.add(sums.into_iter().take(self.sums.len()).enumerate()),
            None => self.add(groups.iter().copied().zip(values.iter().copied())),
        }
    }

    fn add(&mut self, mut rows: impl Iterator<Item = (usize, T::Native)>) {
        if self.sums.is_short {
            let Some(wide) = self.sums.add_short(&mut rows) else { return };
            return self.add_whole(std::iter::once(wide).chain(rows));
        }
        self.add_whole(rows);
    }

    fn add_whole(&mut self, rows: impl Iterator<Item = (usize, T::Native)>) {
        let sums = self.sums.make_whole().as_mut_slice();
        for (group, value) in rows {
            let (sum, carried) = sums[group].carrying_add(value);
            sums[group] = sum;
            if carried != 0 {
                carry(&mut self.carries, sums.len(), group, carried);
            }
        }
    }
}

#[cold]
fn carry(carries: &mut Vec<i64>, groups: usize, group: usize, carried: i64) {
    carries.resize(groups, 0);
    carries[group] += carried;
}

impl<T: ArrowPrimitiveType<Native: Carrying>> GroupsAccumulator for CheckedGroups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        self.sums.resize(total_num_groups);
        let Some(valid) = valid_rows(values, filter) else {
            self.seen.all(group_indices, total_num_groups);
            self.add_all(values.values(), group_indices);
            return Ok(());
        };
        let mut seen = self.seen.take_some(total_num_groups);
        self.add(valid.valid_indices().map(|row| {
            seen.set_bit(group_indices[row], true);
            (group_indices[row], values.value(row))
        }));
        self.seen = GroupValidity::Some(seen);
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        if !self.carries.is_empty() {
            self.carries.resize(self.sums.len(), 0);
            if emit_to.take_needed(&mut self.carries).iter().any(|carry| *carry != 0) {
                return overflow(&self.data_type);
            }
        }
        let sums = self.sums.take(emit_to);
        let nulls = self.seen.emit(emit_to);
        let totals = PrimitiveArray::<T>::new(sums.into(), nulls).with_data_type(self.data_type.clone());
        check_digits(&totals)?;
        Ok(Arc::new(totals))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        let state = PrimitiveArray::<T>::new(values.values().clone(), valid_rows(values, filter));
        Ok(vec![Arc::new(state.with_data_type(self.data_type.clone()))])
    }

    fn size(&self) -> usize {
        self.sums.bytes() + self.carries.capacity() * size_of::<i64>() + self.seen.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Decimal128Array, Int64Array};
    use arrow::datatypes::{Decimal128Type, Int64Type};
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    struct Batch {
        rows: Vec<(usize, Option<i64>, Option<bool>)>,
        filtered: bool,
    }

    fn batches() -> impl Strategy<Value = Vec<Batch>> {
        let value = prop_oneof![3 => (-50i64..50).prop_map(Some), 1 => Just(None), 1 => Just(Some(i64::MAX)), 1 => Just(Some(-i64::MAX))];
        let row = (0usize..4, value, prop_oneof![2 => Just(Some(true)), 1 => Just(Some(false)), 1 => Just(None)]);
        let batch = (prop::collection::vec(row, 0..12), any::<bool>()).prop_map(|(rows, filtered)| Batch { rows, filtered });
        prop::collection::vec(batch, 0..5)
    }

    /// Feeds batches as DataFusion does: group numbers are dense, and a new group comes with its first row.
    fn feed(groups: &mut CheckedGroups<Int64Type>, batches: &[Batch]) -> Vec<(i128, bool)> {
        let mut names: Vec<usize> = Vec::new();
        let mut exact: Vec<(i128, bool)> = Vec::new();
        for batch in batches {
            let mut indices = Vec::new();
            for (name, value, keep) in &batch.rows {
                let group = names.iter().position(|known| known == name).unwrap_or(names.len());
                if group == names.len() {
                    names.push(*name);
                    exact.push((0, false));
                }
                indices.push(group);
                if let (Some(value), true) = (value, !batch.filtered || *keep == Some(true)) {
                    exact[group] = (exact[group].0 + i128::from(*value), true);
                }
            }
            let values = Arc::new(Int64Array::from_iter(batch.rows.iter().map(|row| row.1))) as ArrayRef;
            let filter = batch.filtered.then(|| BooleanArray::from_iter(batch.rows.iter().map(|row| row.2)));
            groups.update_batch(&[values], &indices, filter.as_ref(), names.len()).unwrap();
        }
        exact
    }

    proptest! {
        #[test]
        fn few_groups_of_small_and_large_numbers_are_exact(
            values in prop::collection::vec(prop_oneof![
                9 => -(1_i128 << 43)..(1_i128 << 43),
                1 => prop_oneof![Just(1_i128 << 43), Just(-(1_i128 << 43) - 1), Just(i128::from(i64::MAX) * 5)],
            ], 0..2_000),
            large in any::<bool>(),
            groups in 1_usize..20,
        ) {
            let small = |value: &i128| (-(1_i128 << 43)..(1_i128 << 43)).contains(value);
            let values: Vec<i128> = values.into_iter().filter(|value| large || small(value)).collect();
            let indices: Vec<usize> = (0..values.len()).map(|row| row * 7 % groups).collect();
            let mut expected = vec![0_i128; groups];
            indices.iter().zip(&values).for_each(|(group, value)| expected[*group] += 2 * value);
            let data_type = DataType::Decimal128(38, 2);
            let mut sums = CheckedGroups::<Decimal128Type>::new(data_type.clone());
            let column = Arc::new(Decimal128Array::from(values).with_data_type(data_type)) as ArrayRef;
            for _ in 0..2 {
                sums.update_batch(&[Arc::clone(&column)], &indices, None, groups).unwrap();
            }
            let found = sums.evaluate(EmitTo::All).unwrap();
            prop_assert_eq!(found.as_primitive::<Decimal128Type>().values().to_vec(), expected);
        }

        #[test]
        fn short_sums_become_whole_ones(
            batches in prop::collection::vec(
                prop::collection::vec(
                    (0_usize..40, prop_oneof![8 => -99_i128..99, 1 => Just(i128::from(i64::MAX)), 1 => Just(i128::from(i64::MIN) * 3)]),
                    1..300,
                ),
                1..5,
            ),
            first in 0_usize..40,
        ) {
            let mut sums = CheckedGroups::<Decimal128Type>::new(DataType::Decimal128(38, 0));
            let mut expected = vec![0_i128; 40];
            for rows in &batches {
                rows.iter().for_each(|(group, value)| expected[*group] += value);
                let values = Decimal128Array::from_iter_values(rows.iter().map(|row| row.1)).with_data_type(DataType::Decimal128(38, 0));
                let groups: Vec<usize> = rows.iter().map(|row| row.0).collect();
                sums.update_batch(&[Arc::new(values)], &groups, None, 40).unwrap();
            }
            for (emit_to, wanted) in [(EmitTo::First(first), &expected[..first]), (EmitTo::All, &expected[first..])] {
                let found = sums.evaluate(emit_to).unwrap();
                prop_assert_eq!(found.as_primitive::<Decimal128Type>().values().to_vec(), wanted);
            }
        }

        #[test]
        fn groups_are_exact_or_an_error(batches in batches(), first in 0usize..4) {
            let mut groups = CheckedGroups::<Int64Type>::new(DataType::Int64);
            let exact = feed(&mut groups, &batches);
            let first = first.min(exact.len());
            for (emit_to, wanted) in [(EmitTo::First(first), &exact[..first]), (EmitTo::All, &exact[first..])] {
                let fits = wanted.iter().all(|(sum, _)| i64::try_from(*sum).is_ok());
                match groups.evaluate(emit_to) {
                    Ok(sums) => {
                        let wanted: Vec<Option<i64>> = wanted.iter().map(|(sum, seen)| seen.then_some(*sum as i64)).collect();
                        prop_assert!(fits);
                        prop_assert_eq!(sums.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), wanted);
                    }
                    Err(_) => {
                        prop_assert!(!fits);
                        return Ok(());
                    }
                }
            }
        }
    }
}
