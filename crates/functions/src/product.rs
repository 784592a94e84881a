//! `product`: all values, multiplied as floats, as in DuckDB. It is the product of its parts.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use crate::distinct::OfDistinct;
use crate::value_counts::state_fields;

pub(crate) const PRODUCT: &str = "product";

/// `product(Float64) -> Float64`: NULL if no row has a value.
pub(crate) fn product_udaf() -> AggregateUDF {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    AggregateUDF::new_from_impl(Products { signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Products {
    signature: Signature,
}

impl AggregateUDFImpl for Products {
    fn name(&self) -> &str {
        PRODUCT
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match args.is_distinct {
            true => state_fields(args.name, &DataType::Float64),
            false => Ok(vec![Arc::new(Field::new(format_state_name(args.name, PRODUCT), DataType::Float64, true))]),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match args.is_distinct {
            true => Ok(Box::new(OfDistinct::new(&DataType::Float64, Product::default())?)),
            false => Ok(Box::new(Product::default())),
        }
    }
}

/// What the values so far multiply to; none: there was none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Product {
    value: Option<f64>,
}

impl Accumulator for Product {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Float64Type>();
        self.value = values.iter().flatten().fold(self.value, |product, value| Some(product.map_or(value, |it| it * value)));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.value))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Float64(self.value)])
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Float64Array;

    use super::*;

    #[test]
    fn values_in_several_parts_are_taken_once() {
        let none = || OfDistinct::new(&DataType::Float64, Product::default()).unwrap();
        let mut whole = none();
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::Float64(None));
        for values in [vec![Some(2.0), Some(3.0), None], vec![], vec![Some(3.0), Some(5.0)]] {
            let mut part = none();
            part.update_batch(&[Arc::new(Float64Array::from(values))]).unwrap();
            let state: Vec<ArrayRef> = part.state().unwrap().iter().map(|of| of.to_array().unwrap()).collect();
            whole.merge_batch(&state).unwrap();
        }
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::from(30.0));
    }

    #[test]
    fn a_product_is_that_of_its_parts() {
        let of = |values: Vec<Option<f64>>| {
            let mut product = Product::default();
            product.update_batch(&[Arc::new(Float64Array::from(values))]).unwrap();
            product
        };
        let mut whole = of(vec![None, Some(2.0), Some(-1.5)]);
        for part in [of(vec![None]), of(vec![]), of(vec![Some(4.0)])] {
            let state: Vec<ArrayRef> = part.clone().state().unwrap().iter().map(|of| of.to_array().unwrap()).collect();
            whole.merge_batch(&state).unwrap();
        }
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::from(-12.0));
        assert_eq!(of(vec![None]).evaluate().unwrap(), ScalarValue::Float64(None));
        let ScalarValue::Float64(Some(none)) = of(vec![Some(0.0), Some(f64::NAN)]).evaluate().unwrap() else {
            panic!("a float")
        };
        assert!(none.is_nan());
    }
}
