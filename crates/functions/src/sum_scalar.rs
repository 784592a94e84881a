//! One total: exact during the computation, and checked at the end.

use std::fmt;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, ListArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, i256,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;

use crate::delegated::as_inner;
use crate::fault;

/// Groups that are few: all sums of a batch by them fit into the first cache.
pub(crate) const FEW: usize = 16;
/// Rows of small numbers that can be added up in 64 bits.
pub(crate) const SMALL_ROWS_MAX: usize = 1 << 20;
/// Numbers below this one are small: so many of them fit into 63 bits.
const SMALL_MAX: i64 = i64::MAX / SMALL_ROWS_MAX as i64 + 1;
/// Sums of a group that are made side by side.
const LANES: usize = 4;

/// Addition that counts how often it wrapped: the exact total is `value + carry * 2^bits`.
pub(crate) trait Carrying: ArrowNativeTypeOp + ArrowNativeType {
    /// The wrapped sum, and +1 or -1 where it wrapped, for `self + other`.
    fn carrying_add(self, other: Self) -> (Self, i64);

    /// The wrapped difference, and +1 or -1 where it wrapped, for `self - other`.
    fn borrowing_sub(self, other: Self) -> (Self, i64);

    /// Whether sums of many groups take 64 bits each until one does not fit.
    const IS_WIDE: bool = false;

    /// The number in 64 bits, if it fits.
    fn short(self) -> Option<i64> {
        None
    }

    /// The number of 64 bits.
    fn of_short(short: i64) -> Self;

    /// The sums of at most [`SMALL_ROWS_MAX`] values by at most [`FEW`] groups, in 64 bits; none: a value does not fit, or the type
    /// gains nothing by it.
    fn few_sums(_values: &[Self], _groups: &[usize]) -> Option<[Self; FEW]> {
        None
    }

    /// The sum of a block.
    fn total(values: &[Self]) -> (Self, i64) {
        values.iter().fold((Self::usize_as(0), 0), |(sum, carry), value| {
            let (sum, carried) = sum.carrying_add(*value);
            (sum, carry + carried)
        })
    }
}

macro_rules! carrying {
    ($native:ty, $negative:expr $(, is_wide: $wide:literal)? $(, total: $total:ident)? $(, few_sums: $few:ident)?) => {
        impl Carrying for $native {
            #[inline]
            fn carrying_add(self, other: Self) -> (Self, i64) {
                let (sum, wrapped) = self.overflowing_add(other);
                (sum, if !wrapped { 0 } else if $negative(other) { -1 } else { 1 })
            }

            #[inline]
            fn borrowing_sub(self, other: Self) -> (Self, i64) {
                let (sum, wrapped) = self.overflowing_sub(other);
                (sum, if !wrapped { 0 } else if $negative(other) { 1 } else { -1 })
            }

            #[inline]
            fn of_short(short: i64) -> Self {
                short as Self
            }

            $(
                const IS_WIDE: bool = $wide;

                #[inline]
                fn short(self) -> Option<i64> {
                    i64::try_from(self).ok()
                }
            )?

            $(fn total(values: &[Self]) -> (Self, i64) { $total(values) })?

            $(fn few_sums(values: &[Self], groups: &[usize]) -> Option<[Self; FEW]> { $few(values, groups) })?
        }
    };
}

carrying!(i32, |value: i32| value < 0);
carrying!(i64, |value: i64| value < 0, total: total_i64);
carrying!(i128, |value: i128| value < 0, is_wide: true, few_sums: few_sums_i128);
carrying!(u64, |_| false, total: total_u64);

impl Carrying for i256 {
    fn of_short(short: i64) -> Self {
        i256::from_i128(i128::from(short))
    }

    fn carrying_add(self, other: Self) -> (Self, i64) {
        match self.checked_add(other) {
            Some(sum) => (sum, 0),
            None => (self.wrapping_add(other), if other.is_negative() { -1 } else { 1 }),
        }
    }

    fn borrowing_sub(self, other: Self) -> (Self, i64) {
        match self.checked_sub(other) {
            Some(sum) => (sum, 0),
            None => (self.wrapping_sub(other), if other.is_negative() { 1 } else { -1 }),
        }
    }
}

/// Neighbours are added up apart: where both are of one group, each addition would wait for the one before it.
fn few_sums_i128(values: &[i128], groups: &[usize]) -> Option<[i128; FEW]> {
    let mut sums = FewSums { lanes: [[0; FEW]; LANES], high: 0, low: 0 };
    let rows = values.len().min(groups.len());
    let (values, last_values) = values[..rows].as_chunks::<LANES>();
    let (groups, last_groups) = groups[..rows].as_chunks::<LANES>();
    for (values, groups) in values.iter().zip(groups) {
        for lane in 0..LANES {
            sums.add(lane, values[lane], groups[lane]);
        }
    }
    for (value, group) in last_values.iter().zip(last_groups) {
        sums.add(0, *value, *group);
    }
    let FewSums { lanes, high, low } = sums;
    let are_small = high == 0 && low < SMALL_MAX;
    are_small.then(|| std::array::from_fn(|group| lanes.iter().map(|lane| i128::from(lane[group])).sum()))
}

struct FewSums {
    lanes: [[i64; FEW]; LANES],
    /// The bits of all values above the lowest 64, and those below. Of a negative number they are turned over: then it is as small as
    /// the positive one beside it.
    high: i64,
    low: i64,
}

impl FewSums {
    #[inline(always)]
    fn add(&mut self, lane: usize, value: i128, group: usize) {
        let (low, high) = (value as i64, (value >> 64) as i64);
        let sign = low >> 63;
        self.low |= low ^ sign;
        self.high |= high ^ sign;
        let sum = &mut self.lanes[lane][group % FEW];
        *sum = sum.wrapping_add(low);
    }
}

/// Sums the upper and the lower halves separately: neither sum wraps within 2^31 values, and both are vectorised.
fn total_i64(values: &[i64]) -> (i64, i64) {
    let total: i128 = values
        .chunks(1 << 20)
        .map(|chunk| {
            let (high, low) =
                chunk.iter().fold((0i64, 0u64), |(high, low), value| (high + (value >> 32), low + u64::from(*value as u32)));
            (i128::from(high) << 32) + i128::from(low)
        })
        .sum();
    (total as i64, ((total - i128::from(total as i64)) >> 64) as i64)
}

fn total_u64(values: &[u64]) -> (u64, i64) {
    let total: u128 = values
        .chunks(1 << 20)
        .map(|chunk| {
            let (high, low) =
                chunk.iter().fold((0u64, 0u64), |(high, low), value| (high + (value >> 32), low + (value & 0xffff_ffff)));
            (u128::from(high) << 32) + u128::from(low)
        })
        .sum();
    (total as u64, (total >> 64) as i64)
}

/// The message of every overflow that Pithead reports.
pub(crate) fn overflow<T>(data_type: &DataType) -> Result<T> {
    Err(fault::overflow(format!("overflow in sum: the total does not fit in {data_type}")))
}

/// An error if a decimal has more digits than its type.
pub(crate) fn check_digits(totals: &dyn Array) -> Result<()> {
    let fits = match totals.data_type() {
        DataType::Decimal32(digits, _) => totals.as_primitive::<Decimal32Type>().validate_decimal_precision(*digits),
        DataType::Decimal64(digits, _) => totals.as_primitive::<Decimal64Type>().validate_decimal_precision(*digits),
        DataType::Decimal128(digits, _) => totals.as_primitive::<Decimal128Type>().validate_decimal_precision(*digits),
        DataType::Decimal256(digits, _) => totals.as_primitive::<Decimal256Type>().validate_decimal_precision(*digits),
        _ => Ok(()),
    };
    if fits.is_err() { overflow(totals.data_type()) } else { Ok(()) }
}

/// Accumulates one total, also over a window that slides.
pub(crate) struct CheckedTotal<T: ArrowPrimitiveType> {
    data_type: DataType,
    sum: T::Native,
    carry: i64,
    /// The number of values in it; the total of no values is NULL.
    count: u64,
}

impl<T: ArrowPrimitiveType<Native: Carrying>> CheckedTotal<T> {
    pub(crate) fn new(data_type: DataType) -> Self {
        Self { data_type, sum: T::Native::usize_as(0), carry: 0, count: 0 }
    }
}

impl<T: ArrowPrimitiveType> fmt::Debug for CheckedTotal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckedTotal({})", self.data_type)
    }
}

/// The sum of the values that are not null.
fn total<T: ArrowPrimitiveType<Native: Carrying>>(values: &PrimitiveArray<T>) -> (T::Native, i64) {
    let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return T::Native::total(values.values());
    };
    nulls.valid_slices().fold((T::Native::usize_as(0), 0), |(sum, carry), (start, end)| {
        let (block, block_carry) = T::Native::total(&values.values()[start..end]);
        let (sum, carried) = sum.carrying_add(block);
        (sum, carry + block_carry + carried)
    })
}

impl<T: ArrowPrimitiveType<Native: Carrying>> Accumulator for CheckedTotal<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        let (block, block_carry) = total(values);
        let (sum, carried) = self.sum.carrying_add(block);
        self.sum = sum;
        self.carry += block_carry + carried;
        self.count += (values.len() - values.null_count()) as u64;
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        let (block, block_carry) = total(values);
        let (sum, carried) = self.sum.borrowing_sub(block);
        self.sum = sum;
        self.carry += carried - block_carry;
        self.count -= (values.len() - values.null_count()) as u64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.carry != 0 {
            return overflow(&self.data_type);
        }
        let total = (self.count > 0).then_some(self.sum);
        let array = PrimitiveArray::<T>::from_iter([total]).with_data_type(self.data_type.clone());
        check_digits(&array)?;
        ScalarValue::try_from_array(&array, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// `sum(DISTINCT x)`: DataFusion collects the values, and this accumulator adds them up with a check.
#[derive(Debug)]
pub(crate) struct CheckedDistinct {
    data_type: DataType,
    values: Box<dyn Accumulator>,
    total: fn(&DataType) -> Option<Box<dyn Accumulator>>,
}

impl CheckedDistinct {
    pub(crate) fn new(
        data_type: DataType,
        values: Box<dyn Accumulator>,
        total: fn(&DataType) -> Option<Box<dyn Accumulator>>,
    ) -> Self {
        Self { data_type, values, total }
    }
}

impl Accumulator for CheckedDistinct {
    as_inner!(values: update_batch merge_batch state size);

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.values.state()?;
        let ([ScalarValue::List(values)], Some(mut total)) = (state.as_slice(), (self.total)(&self.data_type)) else {
            return internal_err!("sum(DISTINCT) keeps a list of {}", self.data_type);
        };
        let values: &ListArray = values;
        total.update_batch(&[values.value(0)])?;
        total.evaluate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Int64Array, UInt64Array};
    use arrow::datatypes::{Int64Type, UInt64Type};
    use proptest::prelude::*;

    fn edgy() -> impl Strategy<Value = Option<i64>> {
        prop_oneof![
            Just(None),
            Just(Some(i64::MAX)),
            Just(Some(i64::MIN)),
            any::<i64>().prop_map(Some),
            (-9i64..9).prop_map(Some)
        ]
    }

    proptest! {
        #[test]
        fn totals_are_exact_or_an_error(batches in prop::collection::vec(prop::collection::vec(edgy(), 0..20), 0..5)) {
            let mut total = CheckedTotal::<Int64Type>::new(DataType::Int64);
            for batch in &batches {
                total.update_batch(&[Arc::new(Int64Array::from(batch.clone())) as ArrayRef]).unwrap();
            }
            let values: Vec<i128> = batches.iter().flatten().flatten().map(|value| i128::from(*value)).collect();
            let exact: i128 = values.iter().sum();
            match (total.evaluate(), i64::try_from(exact)) {
                (Ok(ScalarValue::Int64(Some(sum))), Ok(exact)) => prop_assert_eq!(sum, exact),
                (Ok(ScalarValue::Int64(None)), _) => prop_assert!(values.is_empty()),
                (Err(error), Err(_)) => prop_assert!(error.to_string().contains("overflow in sum")),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn blocks_agree_with_value_by_value(values in prop::collection::vec(any::<u64>(), 0..50)) {
            let exact: u128 = values.iter().map(|value| u128::from(*value)).sum();
            prop_assert_eq!(u64::total(&values), (exact as u64, (exact >> 64) as i64));
        }
    }

    #[test]
    fn a_window_that_slides_back_into_range_is_right() {
        let batch = |value| vec![Arc::new(UInt64Array::from(vec![value])) as ArrayRef];
        let mut total = CheckedTotal::<UInt64Type>::new(DataType::UInt64);
        total.update_batch(&batch(u64::MAX)).unwrap();
        total.update_batch(&batch(2)).unwrap();
        assert!(total.evaluate().is_err());
        total.retract_batch(&batch(u64::MAX)).unwrap();
        assert_eq!(total.evaluate().unwrap(), ScalarValue::UInt64(Some(2)));
        total.retract_batch(&batch(2)).unwrap();
        assert_eq!(total.evaluate().unwrap(), ScalarValue::UInt64(None));
    }

    #[test]
    fn decimals_end_at_their_digits() {
        let mut total = CheckedTotal::<Decimal128Type>::new(DataType::Decimal128(38, 0));
        let largest = 10i128.pow(38) - 1;
        total.update_batch(&[Arc::new(Decimal128Array::from(vec![largest])) as ArrayRef]).unwrap();
        assert_eq!(total.evaluate().unwrap(), ScalarValue::Decimal128(Some(largest), 38, 0));
        total.update_batch(&[Arc::new(Decimal128Array::from(vec![1])) as ArrayRef]).unwrap();
        assert!(total.evaluate().unwrap_err().to_string().contains("overflow in sum"));
    }
}
