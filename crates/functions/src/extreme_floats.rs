//! The smallest and the largest float, of all rows and of each group.

use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use arrow::array::types::Float16Type;
use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use crate::groups::{GroupValidity, valid_rows};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Min,
    Max,
}

impl Side {
    fn pick<T: Real>(self, a: T::Native, b: T::Native) -> T::Native {
        better::<T>(self, T::one_nan(a), b)
    }
}

/// A type of floats.
pub(crate) trait Real: ArrowPrimitiveType<Native: ArrowNativeTypeOp> + std::fmt::Debug {
    /// The value, or the one NaN, which is larger than all other floats in the total order.
    fn one_nan(value: Self::Native) -> Self::Native;
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            #[inline]
            fn one_nan(value: Self::Native) -> Self::Native {
                if value.is_nan() { Self::Native::NAN } else { value }
            }
        }
    };
}

real!(Float16Type);
real!(Float32Type);
real!(Float64Type);

/// Of all rows.
#[derive(Debug)]
pub(crate) struct FloatExtreme<T: Real> {
    side: Side,
    found: Option<T::Native>,
}

impl<T: Real> FloatExtreme<T> {
    pub(crate) fn new(side: Side) -> Self {
        Self { side, found: None }
    }
}

impl<T: Real> Accumulator for FloatExtreme<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        let side = self.side;
        let found = match values.nulls() {
            None => values.values().iter().copied().reduce(|a, b| side.pick::<T>(a, b)),
            Some(_) => values.iter().flatten().reduce(|a, b| side.pick::<T>(a, b)),
        };
        self.found = self.found.into_iter().chain(found).reduce(|a, b| side.pick::<T>(a, b));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::new_primitive::<T>(self.found.map(T::one_nan), &T::DATA_TYPE)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// By group.
pub(crate) struct FloatExtremes<T: Real> {
    side: Side,
    found: Vec<T::Native>,
    seen: GroupValidity,
}

impl<T: Real> FloatExtremes<T> {
    pub(crate) fn new(side: Side) -> Self {
        Self { side, found: Vec::new(), seen: GroupValidity::All(0) }
    }

    /// The start value, which every float replaces.
    fn start(&self) -> T::Native {
        match self.side {
            Side::Min => T::one_nan(T::Native::MAX_TOTAL_ORDER),
            Side::Max => T::Native::MIN_TOTAL_ORDER,
        }
    }
}

impl<T: Real> GroupsAccumulator for FloatExtremes<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        let (side, start) = (self.side, self.start());
        self.found.resize(total_num_groups, start);
        let found = self.found.as_mut_slice();
        let mut add = |group: usize, value: T::Native| found[group] = better::<T>(side, found[group], value);
        let Some(valid) = valid_rows(values, filter) else {
            self.seen.all(group_indices, total_num_groups);
            group_indices.iter().zip(values.values()).for_each(|(group, value)| add(*group, *value));
            return Ok(());
        };
        let mut seen = self.seen.take_some(total_num_groups);
        for row in valid.valid_indices() {
            seen.set_bit(group_indices[row], true);
            add(group_indices[row], values.value(row));
        }
        self.seen = GroupValidity::Some(seen);
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.update_batch(values, group_indices, None, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let found = emit_to.take_needed(&mut self.found);
        Ok(Arc::new(PrimitiveArray::<T>::new(found.into(), self.seen.emit(emit_to))))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        Ok(vec![Arc::new(PrimitiveArray::<T>::new(values.values().clone(), valid_rows(values, filter)))])
    }

    fn size(&self) -> usize {
        self.found.capacity() * size_of::<T::Native>() + self.seen.size()
    }
}

/// DataFusion's extreme over a window that slides, which orders NaNs by their sign, over values with one NaN.
#[derive(Debug)]
pub(crate) struct SlidingExtreme(Box<dyn Accumulator>);

impl SlidingExtreme {
    pub(crate) fn new(standard: Box<dyn Accumulator>) -> Self {
        Self(standard)
    }
}

fn with_one_nan(values: &[ArrayRef]) -> Vec<ArrayRef> {
    fn of<T: Real>(values: &ArrayRef) -> ArrayRef {
        let one: PrimitiveArray<T> = values.as_primitive::<T>().unary(T::one_nan);
        Arc::new(one)
    }
    let one = |values: &ArrayRef| match values.data_type() {
        DataType::Float16 => of::<Float16Type>(values),
        DataType::Float32 => of::<Float32Type>(values),
        DataType::Float64 => of::<Float64Type>(values),
        _ => Arc::clone(values),
    };
    values.iter().map(one).collect()
}

impl Accumulator for SlidingExtreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&with_one_nan(values))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(&with_one_nan(values))
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
}

/// The start value of a group is beyond all floats, so it needs no test of its own. `value` may be any NaN.
#[inline]
fn better<T: Real>(side: Side, held: T::Native, value: T::Native) -> T::Native {
    let value = T::one_nan(value);
    match side {
        Side::Min if value.is_lt(held) => value,
        Side::Max if value.is_gt(held) => value,
        _ => held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Float64Array;
    use proptest::prelude::*;

    fn float() -> impl Strategy<Value = Option<f64>> {
        prop_oneof![
            Just(None),
            Just(Some(f64::NAN)),
            Just(Some(-f64::NAN)),
            Just(Some(f64::NEG_INFINITY)),
            Just(Some(f64::INFINITY)),
            (-3i8..3).prop_map(|value| Some(f64::from(value) + 0.5)),
        ]
    }

    /// NaN above all, by definition.
    fn brute(side: Side, values: &[f64]) -> Option<f64> {
        let numbers = || values.iter().copied().filter(|value| !value.is_nan());
        let nan = values.iter().any(|value| value.is_nan()).then_some(f64::NAN);
        match side {
            Side::Min => numbers().reduce(f64::min).or(nan),
            Side::Max => nan.or_else(|| numbers().reduce(f64::max)),
        }
    }

    fn same(a: Option<f64>, b: Option<f64>) -> bool {
        a.map(f64::to_bits) == b.map(f64::to_bits)
    }

    proptest! {
        #[test]
        fn order_does_not_matter(rows in prop::collection::vec((0usize..3, float()), 1..40), cut in 0usize..40) {
            let cut = cut.min(rows.len());
            for side in [Side::Min, Side::Max] {
                let mut all = FloatExtreme::<Float64Type>::new(side);
                let mut groups = FloatExtremes::<Float64Type>::new(side);
                // All three groups are there from the start, one row each, NULL.
                let nulls: ArrayRef = Arc::new(Float64Array::new_null(3));
                groups.update_batch(&[nulls], &[0, 1, 2], None, 3).unwrap();
                for part in [&rows[..cut], &rows[cut..]] {
                    let values: ArrayRef = Arc::new(Float64Array::from_iter(part.iter().map(|row| row.1)));
                    all.update_batch(&[Arc::clone(&values)]).unwrap();
                    let indices: Vec<usize> = part.iter().map(|row| row.0).collect();
                    groups.update_batch(&[values], &indices, None, 3).unwrap();
                }
                let of = |group: Option<usize>| -> Vec<f64> {
                    rows.iter().filter(|row| group.is_none_or(|group| row.0 == group)).filter_map(|row| row.1).collect()
                };
                let ScalarValue::Float64(found) = all.evaluate().unwrap() else { panic!("Float64") };
                prop_assert!(same(found, brute(side, &of(None))), "{found:?}");
                let found = groups.evaluate(EmitTo::All).unwrap();
                for (group, found) in found.as_primitive::<Float64Type>().iter().enumerate() {
                    prop_assert!(same(found, brute(side, &of(Some(group)))), "{side:?} {found:?}");
                }
            }
        }
    }
}
