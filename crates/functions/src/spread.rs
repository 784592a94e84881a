//! `var`, `var_pop`, `stddev` and `stddev_pop`: DataFusion's functions, with moments that merge without losing digits.
//!
//! DataFusion merges two means as a weighted sum of both, which is rounded: of equal values that were read in parts, the variance is
//! not 0 but the square of what rounding left, and how much hangs on where the parts were cut. Here means are merged by their distance
//! (see [`crate::moments`]): that of equal values is 0, wherever they were read.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::Result;
use datafusion::functions_aggregate::stddev::{stddev_pop_udaf, stddev_udaf};
use datafusion::functions_aggregate::variance::{var_pop_udaf, var_samp_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator};

use crate::delegated::as_standard;
use crate::moments::{Moment, MomentsAccumulator};
use crate::moments_groups::MomentsGroups;

/// Each under DataFusion's name and aliases.
pub(crate) fn spread_udafs() -> [AggregateUDF; 4] {
    [
        (Moment::VarPop, var_pop_udaf()),
        (Moment::VarSamp, var_samp_udaf()),
        (Moment::StddevPop, stddev_pop_udaf()),
        (Moment::StddevSamp, stddev_udaf()),
    ]
    .map(|(moment, standard)| AggregateUDF::new_from_impl(Spread { moment, standard }))
}

/// How far values are spread. With DISTINCT it is DataFusion's, which keeps all values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Spread {
    moment: Moment,
    standard: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Spread {
    as_standard!(name aliases signature return_type default_value groups_accumulator_supported documentation);

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match args.is_distinct {
            true => self.standard.state_fields(args),
            false => Ok(self.moment.state_fields(args.name)),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => self.standard.accumulator(args),
            false => Ok(Box::new(MomentsAccumulator::of_values(self.moment))),
        }
    }

    fn create_groups_accumulator(&self, _args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(MomentsGroups::of_values(self.moment)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Float64Array};
    use arrow::datatypes::Float64Type;
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::EmitTo;
    use proptest::prelude::*;

    use super::*;
    use crate::moments::tests::{brute, near};

    const ALL: [Moment; 4] = [Moment::VarPop, Moment::VarSamp, Moment::StddevPop, Moment::StddevSamp];

    fn wanted(moment: Moment, values: &[f64]) -> Option<f64> {
        let (_, variance) = brute(values)?;
        let count = values.len() as f64;
        let sample = (values.len() > 1).then(|| variance * count / (count - 1.0));
        match moment {
            Moment::Mean => unreachable!("a mean is no spread"),
            Moment::VarPop => Some(variance),
            Moment::StddevPop => Some(variance.sqrt()),
            Moment::VarSamp => sample,
            Moment::StddevSamp => sample.map(f64::sqrt),
        }
    }

    fn column(values: &[f64]) -> ArrayRef {
        Arc::new(Float64Array::from(values.to_vec()))
    }

    /// By one accumulator that merges another's state, and by one of groups that does.
    fn in_parts(moment: Moment, left: &[f64], right: &[f64]) -> [Option<f64>; 2] {
        let mut sides = [left, right].map(|values| {
            let mut side = MomentsAccumulator::of_values(moment);
            side.update_batch(&[column(values)]).unwrap();
            side
        });
        let state: Vec<ArrayRef> = sides[1].state().unwrap().iter().map(|value| value.to_array().unwrap()).collect();
        sides[0].merge_batch(&state).unwrap();
        let ScalarValue::Float64(single) = sides[0].evaluate().unwrap() else { panic!("Float64") };

        let mut groups = MomentsGroups::of_values(moment);
        groups.update_batch(&[column(left)], &vec![0; left.len()], None, 1).unwrap();
        let state = groups.convert_to_state(&[column(right)], None).unwrap();
        groups.merge_batch(&state, &vec![0; right.len()], 1).unwrap();
        let values = groups.evaluate(EmitTo::All).unwrap();
        [single, values.as_primitive::<Float64Type>().iter().next().unwrap()]
    }

    proptest! {
        #[test]
        fn parts_have_the_spread_of_the_whole(
            left in prop::collection::vec(-1e3f64..1e3, 0..6),
            right in prop::collection::vec(-1e3f64..1e3, 0..6),
        ) {
            let whole: Vec<f64> = left.iter().chain(&right).copied().collect();
            for moment in ALL {
                for got in in_parts(moment, &left, &right) {
                    prop_assert!(near(got, wanted(moment, &whole)), "{moment:?}: {got:?} of {whole:?}");
                }
            }
        }

        #[test]
        fn equal_values_are_not_spread(value in any::<f64>(), left in 1usize..9, right in 1usize..9) {
            prop_assume!(value.is_finite());
            for moment in ALL {
                prop_assert_eq!(in_parts(moment, &vec![value; left], &vec![value; right]), [Some(0.0); 2]);
            }
        }
    }
}
