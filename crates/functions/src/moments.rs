//! `pithead_merge_mean(count, mean)` and `pithead_merge_var_pop(count, mean, var_pop)`: the mean and the population
//! variance of all rows from those of their parts.
//!
//! The formula is that of Chan et al. 1979, "Updating formulae and a pairwise algorithm for computing sample variances"
//! (see `docs/bibliography.md`). It subtracts means, never sums of squares, so that no digits are lost.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};

use crate::moments_groups::MomentsGroups;

/// `pithead_merge_mean(count Int64, mean Float64) -> Float64`. Rows without a count or a mean do not count.
pub fn merge_mean_udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(MergeMoments::new("pithead_merge_mean", Moment::Mean)))
}

/// `pithead_merge_var_pop(count Int64, mean Float64, var_pop Float64) -> Float64`. Rows without a count, a mean or a
/// variance do not count.
pub fn merge_var_pop_udaf() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(MergeMoments::new("pithead_merge_var_pop", Moment::VarPop)))
}

/// The result that the function computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Moment {
    Mean,
    VarPop,
    VarSamp,
    StddevPop,
    StddevSamp,
}

impl Moment {
    /// Columns of the state: count and mean, and for a variance the sum of squared distances from the mean.
    pub(crate) fn state_columns(self) -> usize {
        match self {
            Moment::Mean => 2,
            Moment::VarPop | Moment::VarSamp | Moment::StddevPop | Moment::StddevSamp => 3,
        }
    }

    /// The columns of the state of an aggregate of this name.
    pub(crate) fn state_fields(self, name: &str) -> Vec<FieldRef> {
        let columns = [("count", DataType::Int64), ("mean", DataType::Float64), ("squares", DataType::Float64)];
        let field = |(column, data_type)| Arc::new(Field::new(format_state_name(name, column), data_type, true));
        columns.into_iter().take(self.state_columns()).map(field).collect()
    }
}

/// Count, mean and sum of squared distances from the mean of some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) count: i64,
    pub(crate) mean: f64,
    pub(crate) squares: f64,
}

impl Moments {
    /// With one more row (Welford 1962).
    fn with(self, value: f64) -> Moments {
        let count = self.count.saturating_add(1);
        let distance = value - self.mean;
        if !distance.is_finite() {
            // What is infinite or NaN is at no distance from anything.
            let squares = if value.is_finite() { 0.0 } else { f64::NAN };
            return self.merge(Moments { count: 1, mean: value, squares });
        }
        let mean = self.mean + distance / count as f64;
        Moments { count, mean, squares: self.squares + distance * (value - mean) }
    }

    /// The moments of both sets of rows together.
    pub(crate) fn merge(self, other: Moments) -> Moments {
        if self.count <= 0 {
            return other;
        }
        if other.count <= 0 {
            return self;
        }
        let (own, others) = (self.count as f64, other.count as f64);
        let all = own + others;
        let distance = other.mean - self.mean;
        // For infinite means, or for means so far apart that their distance is infinite, only the weighted sum is
        // right.
        let mean = if distance.is_finite() {
            self.mean + distance * (others / all)
        } else {
            (own / all) * self.mean + (others / all) * other.mean
        };
        Moments {
            count: self.count.saturating_add(other.count),
            mean,
            squares: self.squares + other.squares + distance * distance * (own * others / all),
        }
    }

    pub(crate) fn result(self, moment: Moment) -> Option<f64> {
        let of_all = || (self.count > 0).then(|| self.squares / self.count as f64);
        let of_sample = || (self.count > 1).then(|| self.squares / (self.count - 1) as f64);
        match moment {
            Moment::Mean => (self.count > 0).then_some(self.mean),
            Moment::VarPop => of_all(),
            Moment::VarSamp => of_sample(),
            Moment::StddevPop => of_all().map(f64::sqrt),
            Moment::StddevSamp => of_sample().map(f64::sqrt),
        }
    }
}

/// What an aggregate of moments is called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// One column of values.
    Values,
    /// Columns of what parts have: counts, means and, for a variance, variances.
    Parts,
}

impl Arguments {
    pub(crate) fn rows(self, columns: &[ArrayRef]) -> MomentRows<'_> {
        match self {
            Arguments::Values => MomentRows::Values(columns[0].as_primitive()),
            Arguments::Parts => MomentRows::parts(columns, |variance, count| variance * count as f64),
        }
    }
}

/// Rows of arguments or of states.
pub(crate) enum MomentRows<'a> {
    Values(&'a Float64Array),
    Parts {
        counts: &'a Int64Array,
        means: &'a Float64Array,
        thirds: Option<&'a Float64Array>,
        /// Makes the sum of squared distances of a third column's value and the count.
        squares: fn(f64, i64) -> f64,
    },
}

impl<'a> MomentRows<'a> {
    fn parts(columns: &'a [ArrayRef], squares: fn(f64, i64) -> f64) -> Self {
        MomentRows::Parts {
            counts: columns[0].as_primitive::<Int64Type>(),
            means: columns[1].as_primitive::<Float64Type>(),
            thirds: columns.get(2).map(|column| column.as_primitive::<Float64Type>()),
            squares,
        }
    }

    pub(crate) fn states(columns: &'a [ArrayRef]) -> Self {
        Self::parts(columns, |squares, _| squares)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            MomentRows::Values(values) => values.len(),
            MomentRows::Parts { counts, .. } => counts.len(),
        }
    }

    /// The moments with those of a row.
    pub(crate) fn add_to(&self, moments: Moments, row: usize) -> Moments {
        match self {
            MomentRows::Values(values) if values.is_null(row) => moments,
            MomentRows::Values(values) => moments.with(values.value(row)),
            MomentRows::Parts { counts, means, thirds, squares } => {
                let null = counts.is_null(row) || means.is_null(row) || thirds.is_some_and(|thirds| thirds.is_null(row));
                if null || counts.value(row) <= 0 {
                    return moments;
                }
                let count = counts.value(row);
                let squares = thirds.map_or(0.0, |thirds| squares(thirds.value(row), count));
                moments.merge(Moments { count, mean: means.value(row), squares })
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MergeMoments {
    name: &'static str,
    moment: Moment,
    signature: Signature,
}

impl MergeMoments {
    fn new(name: &'static str, moment: Moment) -> Self {
        let arguments = [DataType::Int64, DataType::Float64, DataType::Float64][..moment.state_columns()].to_vec();
        Self { name, moment, signature: Signature::exact(arguments, Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for MergeMoments {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(self.moment.state_fields(args.name))
    }

    fn accumulator(&self, _args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(MomentsAccumulator::of_parts(self.moment)))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, _args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(MomentsGroups::of_parts(self.moment)))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

#[derive(Debug)]
pub(crate) struct MomentsAccumulator {
    moment: Moment,
    arguments: Arguments,
    moments: Moments,
}

impl MomentsAccumulator {
    fn of_parts(moment: Moment) -> Self {
        Self { moment, arguments: Arguments::Parts, moments: Moments::default() }
    }

    pub(crate) fn of_values(moment: Moment) -> Self {
        Self { moment, arguments: Arguments::Values, moments: Moments::default() }
    }

    fn add(&mut self, rows: &MomentRows) {
        self.moments = (0..rows.len()).fold(self.moments, |moments, row| rows.add_to(moments, row));
    }
}

impl Accumulator for MomentsAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(&self.arguments.rows(values));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add(&MomentRows::states(states));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.moments.result(self.moment)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Moments { count, mean, squares } = self.moments;
        let columns = [ScalarValue::Int64(Some(count)), ScalarValue::Float64(Some(mean)), ScalarValue::Float64(Some(squares))];
        Ok(columns.into_iter().take(self.moment.state_columns()).collect())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Mean and population variance, by definition.
    pub(crate) fn brute(values: &[f64]) -> Option<(f64, f64)> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        (!values.is_empty()).then(|| (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count))
    }

    /// One row of arguments for each part.
    pub(crate) fn rows(parts: &[Vec<f64>]) -> Vec<ArrayRef> {
        let moments: Vec<_> = parts.iter().map(|part| brute(part)).collect();
        vec![
            Arc::new(Int64Array::from_iter(parts.iter().map(|part| Some(part.len() as i64)))),
            Arc::new(Float64Array::from_iter(moments.iter().map(|moments| moments.map(|(mean, _)| mean)))),
            Arc::new(Float64Array::from_iter(moments.iter().map(|moments| moments.map(|(_, variance)| variance)))),
        ]
    }

    pub(crate) fn near(a: Option<f64>, b: Option<f64>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs())),
            (a, b) => a == b,
        }
    }

    proptest! {
        #[test]
        fn merging_parts_gives_the_whole(
            left in prop::collection::vec(prop::collection::vec(-1e3f64..1e3, 0..6), 0..5),
            right in prop::collection::vec(prop::collection::vec(-1e3f64..1e3, 0..6), 0..5),
        ) {
            let whole: Vec<f64> = left.iter().chain(&right).flatten().copied().collect();
            for moment in [Moment::Mean, Moment::VarPop] {
                let mut sides = [&left, &right].map(|parts| {
                    let mut side = MomentsAccumulator::of_parts(moment);
                    side.update_batch(&rows(parts)[..moment.state_columns()]).unwrap();
                    side
                });
                let state: Vec<ArrayRef> = sides[1].state().unwrap().iter().map(|value| value.to_array().unwrap()).collect();
                sides[0].merge_batch(&state).unwrap();
                let ScalarValue::Float64(merged) = sides[0].evaluate().unwrap() else { panic!("Float64") };
                let wanted = brute(&whole).map(|(mean, variance)| if moment == Moment::Mean { mean } else { variance });
                prop_assert!(near(merged, wanted), "{moment:?}: {merged:?} for {wanted:?}");
            }
        }
    }

    #[test]
    fn rows_without_a_count_do_not_count() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(0), None, Some(-3), Some(2)])),
            Arc::new(Float64Array::from(vec![Some(9.0), Some(9.0), Some(9.0), None])),
        ];
        let mut mean = MomentsAccumulator::of_parts(Moment::Mean);
        mean.update_batch(&columns).unwrap();
        assert_eq!(mean.evaluate().unwrap(), ScalarValue::Float64(None));
    }

    #[test]
    fn infinite_means_stay_infinite() {
        let one = |mean| Moments { count: 1, mean, squares: 0.0 };
        assert_eq!(one(1.0).merge(one(f64::INFINITY)).mean, f64::INFINITY);
        assert!(one(f64::NEG_INFINITY).merge(one(f64::INFINITY)).mean.is_nan());
    }

    #[test]
    fn what_is_not_finite_has_no_variance() {
        for values in [&[f64::INFINITY][..], &[1.0, f64::NAN], &[f64::NEG_INFINITY, 1.0, 2.0]] {
            let moments = values.iter().fold(Moments::default(), |moments, value| moments.with(*value));
            assert!(moments.result(Moment::VarPop).unwrap().is_nan(), "{values:?}");
        }
        let far = [f64::MIN, f64::MAX].iter().fold(Moments::default(), |moments, value| moments.with(*value));
        assert_eq!((far.mean, far.squares), (0.0, f64::INFINITY));
    }
}
