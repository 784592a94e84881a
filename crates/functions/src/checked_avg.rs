//! `avg` of decimals whose sum may not fit: DataFusion's function, with an error where the sum has more than 38 digits.
//!
//! An `avg` that is computed in parts travels as a sum and a count, and that sum is an error if it does not fit (see `sum`).
//! DataFusion's `avg` adds such decimals up in 256 bits, and would give an answer where the parts give an error. So that both give
//! the same, the sum is checked before it is divided, wherever that happens.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, ListArray};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type, UInt64Type, i256};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator};

use crate::average::divide;
use crate::delegated::{as_inner, as_standard};
use crate::sliding::SlidingFloats;
use crate::sum_scalar::overflow;

/// Decimals of at most so many digits are left to DataFusion: 10^13 of them have a sum of 38 digits.
const SAFE_DIGITS: u8 = 25;

/// `avg`.
pub fn avg_udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(CheckedAvg { standard: Avg::new() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedAvg {
    standard: Avg,
}

/// The types of a sum and of the mean that is made of it.
#[derive(Clone, Copy, Debug)]
struct Types {
    scale: i8,
    mean_digits: u8,
    mean_scale: i8,
}

impl Types {
    /// None: the sum of such values always fits.
    fn of(args: &AccumulatorArgs) -> Option<Types> {
        match (args.expr_fields.first()?.data_type(), args.return_field.data_type()) {
            (DataType::Decimal128(digits, scale), DataType::Decimal128(mean_digits, mean_scale)) if *digits > SAFE_DIGITS => {
                Some(Types { scale: *scale, mean_digits: *mean_digits, mean_scale: *mean_scale })
            }
            _ => None,
        }
    }

    /// Means of a state's counts and sums.
    fn means(self, state: &[ArrayRef]) -> Result<Decimal128Array> {
        let [counts, sums] = state else { return internal_err!("avg keeps a count and a sum") };
        let (Some(counts), Some(sums)) = (counts.as_primitive_opt::<UInt64Type>(), sums.as_primitive_opt::<Decimal256Type>())
        else {
            return internal_err!("avg keeps a count and a sum of 256 bits");
        };
        let mean = |(sum, count): (Option<i256>, Option<u64>)| match (sum, count) {
            (Some(sum), Some(count)) if count > 0 => self.mean(sum, count).map(Some),
            _ => Ok(None),
        };
        self.typed(sums.iter().zip(counts).map(mean).collect::<Result<_>>()?)
    }

    fn mean(self, sum: i256, count: u64) -> Result<i128> {
        match sum.to_i128().filter(|sum| sum.unsigned_abs() < 10_u128.pow(DECIMAL128_MAX_PRECISION.into())) {
            Some(sum) => divide(sum, i128::from(count), self.mean_scale - self.scale, self.mean_digits),
            None => overflow(&DataType::Decimal128(DECIMAL128_MAX_PRECISION, self.scale)),
        }
    }

    fn typed(self, means: Decimal128Array) -> Result<Decimal128Array> {
        Ok(means.with_precision_and_scale(self.mean_digits, self.mean_scale)?)
    }
}

impl AggregateUDFImpl for CheckedAvg {
    as_standard!(name aliases signature return_type state_fields groups_accumulator_supported reverse_expr documentation);

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let Some(types) = Types::of(&args) else { return self.standard.accumulator(args) };
        Ok(match args.is_distinct {
            true => Box::new(DistinctMean { types, values: self.standard.accumulator(args)? }),
            false => Box::new(Mean { types, inner: self.standard.accumulator(args)? }),
        })
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let is_float = args.return_field.data_type() == &DataType::Float64;
        match is_float && !args.is_distinct {
            true => Ok(Box::new(SlidingFloats::new(true))),
            false => self.accumulator(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let types = Types::of(&args);
        let inner = self.standard.create_groups_accumulator(args)?;
        Ok(match types {
            Some(types) => Box::new(Means { types, inner }),
            None => inner,
        })
    }
}

/// One mean, also over a window that slides.
#[derive(Debug)]
struct Mean {
    types: Types,
    inner: Box<dyn Accumulator>,
}

impl Accumulator for Mean {
    as_inner!(inner: update_batch merge_batch retract_batch state size);

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state: Vec<ArrayRef> = self.inner.state()?.iter().map(ScalarValue::to_array).collect::<Result<_>>()?;
        ScalarValue::try_from_array(&self.types.means(&state)?, 0)
    }
}

/// `avg(DISTINCT x)`: DataFusion collects the values.
#[derive(Debug)]
struct DistinctMean {
    types: Types,
    values: Box<dyn Accumulator>,
}

impl Accumulator for DistinctMean {
    as_inner!(values: update_batch merge_batch state size);

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.values.state()?;
        let [ScalarValue::List(lists)] = state.as_slice() else { return internal_err!("avg(DISTINCT) keeps a list") };
        let lists: &ListArray = lists;
        let values = lists.value(0);
        let Some(values) = values.as_primitive_opt::<Decimal128Type>() else {
            return internal_err!("avg(DISTINCT) keeps a list of decimals");
        };
        let count = (values.len() - values.null_count()) as u64;
        let sum = values.iter().flatten().fold(i256::ZERO, |sum, value| sum.wrapping_add(i256::from_i128(value)));
        let mean = (count > 0).then(|| self.types.mean(sum, count)).transpose()?;
        ScalarValue::try_from_array(&self.types.typed(Decimal128Array::from_iter([mean]))?, 0)
    }
}

/// One mean for each group.
struct Means {
    types: Types,
    inner: Box<dyn GroupsAccumulator>,
}

impl GroupsAccumulator for Means {
    as_inner!(inner: update_groups merge_groups state_of_groups size);

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(self.types.means(&self.inner.state(emit_to)?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: Types = Types { scale: 2, mean_digits: 38, mean_scale: 6 };

    #[test]
    fn a_sum_ends_at_its_digits_and_a_mean_at_its_own() {
        let largest = i256::from_i128(10_i128.pow(38) - 1);
        assert_eq!(TYPES.mean(largest, 100_000).unwrap(), (10_i128.pow(38) - 1) / 10);
        assert!(TYPES.mean(largest.wrapping_add(i256::ONE), 100_000).unwrap_err().to_string().contains("overflow in sum"));
        assert!(TYPES.mean(largest, 100).unwrap_err().to_string().contains("overflow in avg"));
        assert_eq!(TYPES.mean(i256::from_i128(-200), 3).unwrap(), -666_666);
    }

    #[test]
    fn groups_without_rows_have_no_mean() {
        let counts: ArrayRef = Arc::new(arrow::array::UInt64Array::from(vec![Some(0), Some(2), None]));
        let sums: ArrayRef = Arc::new(arrow::array::Decimal256Array::from_iter([None, Some(i256::from_i128(7)), None]));
        let means = TYPES.means(&[counts, sums]).unwrap();
        assert_eq!(means.iter().collect::<Vec<_>>(), [None, Some(35_000), None]);
    }
}
