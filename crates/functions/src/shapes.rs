//! `skewness`, `kurtosis` and `kurtosis_pop`: how lopsided and how heavy at its ends the distribution of values is.
//!
//! Drives compute the powers of the values' distances from their mean, which merge by the formulas of Pébay 2008, "Formulas for robust,
//! one-pass parallel computation of covariances and arbitrary-order statistical moments". Equal values are at no distance from their
//! mean, wherever they were read, so that they never have a shape; sums of the values' own powers, as DuckDB has them, lose their digits.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, Signature, Volatility};

use crate::distinct::OfDistinct;
use crate::in_steps::{Accumulating, Kept, Made};
use crate::value_counts::state_fields;

/// What is made of the powers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// Of a sample of more than two values.
    Skewness,
    /// Of a sample of more than three values.
    Kurtosis,
    /// Of all values there are, more than one.
    KurtosisPop,
    /// The powers themselves, as a list.
    Powers,
}

/// Each aggregate, and the function of one row that makes its result of the parts put together.
const FINISHED: [(&str, &str, Shape); 3] = [
    ("skewness", "pithead_skewness_of", Shape::Skewness),
    ("kurtosis", "pithead_kurtosis_of", Shape::Kurtosis),
    ("kurtosis_pop", "pithead_kurtosis_pop_of", Shape::KurtosisPop),
];

/// The type of a part.
fn parts() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Float64, true)))
}

/// Count and mean of some values, and sums of powers of their distances from the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Powers {
    count: f64,
    mean: f64,
    second: f64,
    third: f64,
    fourth: f64,
}

impl Powers {
    fn one(value: f64) -> Powers {
        // What is infinite or NaN is at no distance from anything.
        let power = if value.is_finite() { 0.0 } else { f64::NAN };
        Powers { count: 1.0, mean: value, second: power, third: power, fourth: power }
    }

    /// The powers of both sets of values together.
    fn and(self, other: Powers) -> Powers {
        if self.count == 0.0 || other.count == 0.0 {
            return if self.count == 0.0 { other } else { self };
        }
        let (a, b) = (self.count, other.count);
        let n = a + b;
        let distance = other.mean - self.mean;
        // By their shares of all values, so that no power is larger than it has to be.
        let (p, q, square) = (a / n, b / n, distance * distance);
        Powers {
            count: n,
            mean: self.mean + distance * q,
            second: self.second + other.second + square * a * q,
            third: self.third
                + other.third
                + square * distance * a * q * (p - q)
                + 3.0 * distance * (p * other.second - q * self.second),
            fourth: self.fourth
                + other.fourth
                + square * square * a * q * (p * p - p * q + q * q)
                + 6.0 * square * (p * p * other.second + q * q * self.second)
                + 4.0 * distance * (p * other.third - q * self.third),
        }
    }

    fn list(self) -> ScalarValue {
        let powers = match self.count {
            0.0 => vec![],
            count => vec![count, self.mean, self.second, self.third, self.fourth],
        };
        SingleRowListArrayBuilder::new(Arc::new(Float64Array::from(powers))).build_list_scalar()
    }

    /// The powers of each row's part; NULLs and empty lists have none.
    fn of_parts(parts: &ArrayRef) -> Result<Vec<Powers>> {
        let powers = parts.as_list::<i32>().iter().map(|part| {
            let Some(part) = part.filter(|part| !part.is_empty()) else { return Ok(Powers::default()) };
            match part.as_primitive::<Float64Type>().values()[..] {
                [count, mean, second, third, fourth] => Ok(Powers { count, mean, second, third, fourth }),
                _ => internal_err!("expected a count, a mean and three powers"),
            }
        });
        powers.collect()
    }

    fn shape(self, shape: Shape) -> ScalarValue {
        let n = self.count;
        let (variance, third, fourth) = (self.second / n, self.third / n, self.fourth / n);
        let values_min = match shape {
            Shape::Skewness => 3.0,
            Shape::Kurtosis => 4.0,
            Shape::KurtosisPop => 2.0,
            Shape::Powers => return self.list(),
        };
        // Values that are all equal have no shape.
        ScalarValue::Float64((n >= values_min && variance != 0.0).then(|| match shape {
            Shape::Skewness => (n * (n - 1.0)).sqrt() / (n - 2.0) * third / variance.powf(1.5),
            Shape::Kurtosis => {
                let ratio = fourth / (variance * variance);
                (n - 1.0) * ((n + 1.0) * ratio - 3.0 * (n - 1.0)) / ((n - 2.0) * (n - 3.0))
            }
            Shape::KurtosisPop | Shape::Powers => fourth / (variance * variance) - 3.0,
        }))
    }
}

impl Made for Shape {
    type Kept = Powers;

    const PART: &'static str = "pithead_powers";
    const MERGE: &'static str = "pithead_merge_powers";
    const PARTS: Self = Shape::Powers;
    const FINISHED: &'static [(&'static str, &'static str, Self)] = &FINISHED;

    fn signature(is_of_parts: bool) -> Signature {
        Signature::exact(vec![if is_of_parts { parts() } else { DataType::Float64 }], Volatility::Immutable)
    }

    fn of_column(column: &DataType, _is_of_parts: bool) -> Result<&DataType> {
        Ok(column)
    }

    fn result(self, _values: &DataType) -> DataType {
        if self == Shape::Powers { parts() } else { DataType::Float64 }
    }

    fn of_parts(self, parts: &ArrayRef) -> Result<ArrayRef> {
        let shapes = Powers::of_parts(parts)?.into_iter().map(|powers| match powers.shape(self) {
            ScalarValue::Float64(shape) => shape,
            _ => None,
        });
        Ok(Arc::new(shapes.collect::<Float64Array>()))
    }

    fn state_fields(name: &str, values: &DataType, is_distinct: bool) -> Result<Vec<FieldRef>> {
        match is_distinct {
            true => state_fields(name, values),
            false => Ok(vec![Arc::new(Field::new(format_state_name(name, "powers"), parts(), true))]),
        }
    }

    fn accumulator(self, values: &DataType, is_of_parts: bool, is_distinct: bool) -> Result<Box<dyn Accumulator>> {
        let none = Accumulating { kept: Powers::default(), made: self, is_of_parts };
        match is_distinct {
            true => Ok(Box::new(OfDistinct::new(values, none)?)),
            false => Ok(Box::new(none)),
        }
    }
}

impl Kept<Shape> for Powers {
    fn update(&mut self, values: &ArrayRef) -> Result<()> {
        let values = values.as_primitive::<Float64Type>().iter().flatten();
        *self = values.fold(*self, |powers, value| powers.and(Powers::one(value)));
        Ok(())
    }

    fn merge_parts(&mut self, parts: &ArrayRef) -> Result<()> {
        *self = Powers::of_parts(parts)?.into_iter().fold(*self, Powers::and);
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.merge_parts(&states[0])
    }

    fn state(&self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.list()])
    }

    fn result(&self, shape: Shape) -> Result<ScalarValue> {
        Ok(self.shape(shape))
    }

    fn size(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::moments::tests::near;

    fn of(values: &[f64]) -> Powers {
        values.iter().fold(Powers::default(), |powers, value| powers.and(Powers::one(*value)))
    }

    fn shape(values: &[f64], shape: Shape) -> Option<f64> {
        match of(values).shape(shape) {
            ScalarValue::Float64(value) => value,
            other => panic!("expected a float, got {other}"),
        }
    }

    /// By definition.
    fn brute(values: &[f64]) -> Powers {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let power = |power| values.iter().map(|value| (value - mean).powi(power)).sum::<f64>();
        Powers { count, mean, second: power(2), third: power(3), fourth: power(4) }
    }

    #[test]
    fn shapes_are_those_of_duckdb() {
        let values = [1.0, 2.0, 3.0, 9.0];
        assert!(near(shape(&values, Shape::Skewness), Some(1.696_386_799_329_131_5)));
        assert!(near(shape(&values, Shape::Kurtosis), Some(3.014_360_041_623_308_3)));
        assert!(near(shape(&values, Shape::KurtosisPop), Some(-0.798_085_327_783_558_9)));
        let few = |values: &[f64]| FINISHED.map(|(_, _, of)| shape(values, of).is_some());
        assert_eq!(few(&[1.0, 2.0, 9.0]), [true, false, true]);
        assert_eq!(few(&[1.0, 2.0]), [false, false, true]);
        assert_eq!([few(&[1.0]), few(&[]), few(&[0.1; 9])], [[false; 3]; 3]);
        assert!(shape(&[1.0, f64::NAN, 2.0, 7.0], Shape::Skewness).unwrap().is_nan());
    }

    #[test]
    fn parts_travel_as_lists() {
        let parts = [of(&[1.0, 2.0]), of(&[]), of(&[9.0])].map(|powers| powers.list().to_array().unwrap());
        let mut whole = Accumulating { kept: Powers::default(), made: Shape::Powers, is_of_parts: true };
        for part in &parts {
            whole.update_batch(std::slice::from_ref(part)).unwrap();
        }
        let merged = Powers::of_parts(&whole.evaluate().unwrap().to_array().unwrap()).unwrap();
        assert_eq!(merged, [of(&[1.0, 2.0]).and(of(&[9.0]))]);
        let short: ArrayRef =
            Arc::new(SingleRowListArrayBuilder::new(Arc::new(Float64Array::from(vec![1.0]))).build_list_array());
        assert!(Powers::of_parts(&short).is_err());
    }

    proptest! {
        #[test]
        fn merging_parts_gives_the_whole(
            left in prop::collection::vec(-1e2f64..1e2, 0..9),
            right in prop::collection::vec(-1e2f64..1e2, 0..9),
        ) {
            let whole: Vec<f64> = left.iter().chain(&right).copied().collect();
            prop_assume!(!whole.is_empty());
            let (merged, wanted) = (of(&left).and(of(&right)), brute(&whole));
            // Powers of either sign may cancel each other: what is left is near, by the size of what was added.
            let is_near = |one: f64, other: f64, size: f64| (one - other).abs() <= 1e-9 * (1.0 + size);
            prop_assert!(is_near(merged.mean, wanted.mean, 1e2), "{merged:?} for {wanted:?}");
            prop_assert!(is_near(merged.second, wanted.second, wanted.second), "{merged:?} for {wanted:?}");
            prop_assert!(is_near(merged.third, wanted.third, 1e2 * wanted.second), "{merged:?} for {wanted:?}");
            prop_assert!(is_near(merged.fourth, wanted.fourth, 1e4 * wanted.second), "{merged:?} for {wanted:?}");
        }

        #[test]
        fn equal_values_have_no_shape(value in any::<f64>(), left in 1usize..9, right in 1usize..9) {
            prop_assume!(value.is_finite());
            let merged = of(&vec![value; left]).and(of(&vec![value; right]));
            prop_assert_eq!(merged, Powers { count: (left + right) as f64, mean: value, ..Powers::default() });
        }
    }
}
