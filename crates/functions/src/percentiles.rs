//! `percentile_cont`, with all digits of the place between two values. DataFusion's keeps six of them.
//!
//! DataFusion's accumulators hold the values, and have its states; what is between two values is computed here.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Schema};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf as standard_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use crate::delegated::{as_inner, as_standard};
use crate::ranked::{Values, list, list_of, of_share, shares, state_field};

pub(crate) fn percentile_cont_udaf() -> Arc<AggregateUDF> {
    let names = Some(vec!["expr".into(), "percentile".into()]);
    let signature = Signature { parameter_names: names, ..Signature::user_defined(Volatility::Immutable) };
    Arc::new(AggregateUDF::new_from_impl(Percentiles { standard: standard_udaf().as_ref().clone(), signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Percentiles {
    standard: AggregateUDF,
    signature: Signature,
}

impl AggregateUDFImpl for Percentiles {
    as_standard!(name aliases documentation);

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The engine's, also where a list of shares stands for one.
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let shares = types.get(1).and_then(of_share).filter(is_list);
        let one = types.iter().enumerate().map(|(place, of)| match (place, &shares) {
            (1, Some(_)) => DataType::Float64,
            _ => of.clone(),
        });
        let one: Vec<FieldRef> = one.map(|of| Arc::new(Field::new("", of, true))).collect();
        let mut asked: Vec<DataType> =
            fields_with_udf(&one, &self.standard)?.iter().map(|field| field.data_type().clone()).collect();
        if let (Some(shares), Some(place)) = (shares, asked.get_mut(1)) {
            *place = shares;
        }
        Ok(asked)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let one = self.standard.return_type(types)?;
        Ok(if types.get(1).is_some_and(is_list) { list_of(&one) } else { one })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match args.input_fields.get(1).is_some_and(|shares| is_list(shares.data_type())) {
            true => Ok(vec![state_field(args.name, args.input_fields[0].data_type())]),
            false => self.standard.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if is_of_list(&args) {
            return Ok(Box::new(Places::of(&args)?));
        }
        // It also checks the place.
        let values = self.standard.accumulator(args.clone())?;
        if !is_computed(&args) {
            return Ok(values);
        }
        let is_distinct = args.is_distinct;
        Ok(Box::new(OfAll { values, place: Place::of(&args)?, is_distinct }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !is_of_list(&args) && self.standard.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let values = self.standard.create_groups_accumulator(args.clone())?;
        if !is_computed(&args) {
            return Ok(values);
        }
        Ok(Box::new(OfGroups { values, place: Place::of(&args)? }))
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.standard.simplify()
    }

    fn supports_within_group_clause(&self) -> bool {
        self.standard.supports_within_group_clause()
    }
}

fn is_list(of: &DataType) -> bool {
    matches!(of, DataType::List(_))
}

/// Whether a list of shares is asked for.
fn is_of_list(args: &AccumulatorArgs) -> bool {
    args.expr_fields.get(1).is_some_and(|shares| is_list(shares.data_type()))
}

/// Whether we compute it: no column has half floats, and NULLs have nothing between them.
fn is_computed(args: &AccumulatorArgs) -> bool {
    matches!(args.return_field.data_type(), DataType::Float32 | DataType::Float64)
        && args.return_field.data_type() == args.expr_fields[0].data_type()
}

/// Where in their order the value lies that is asked for.
#[derive(Clone, Debug)]
struct Place {
    /// From 0, the first value, to 1, the last.
    share: f64,
    is_descending: bool,
    data_type: DataType,
}

impl Place {
    fn of(args: &AccumulatorArgs) -> Result<Self> {
        let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let share = match args.exprs[1].evaluate(&nothing)? {
            ColumnarValue::Scalar(ScalarValue::Float64(Some(share))) => share,
            ColumnarValue::Scalar(ScalarValue::Float32(Some(share))) => share.into(),
            _ => return internal_err!("the place of a percentile is no number"),
        };
        let is_descending = args.order_bys.first().is_some_and(|key| key.options.descending);
        Ok(Self { share, is_descending, data_type: args.return_field.data_type().clone() })
    }

    /// The value at this place among some, or between the two next to it; none if there are no values.
    fn among(&self, values: &ArrayRef) -> Result<Option<f64>> {
        let values = cast(values, &DataType::Float64)?;
        let mut values: Vec<f64> = values.as_primitive::<Float64Type>().iter().flatten().collect();
        let Some(last) = values.len().checked_sub(1) else { return Ok(None) };
        let is_descending = self.is_descending;
        let order = |one: &f64, other: &f64| if is_descending { other.total_cmp(one) } else { one.total_cmp(other) };
        let place = self.share * last as f64;
        let below = (place.floor() as usize).min(last);
        let (_, lower, above) = values.select_nth_unstable_by(below, order);
        let (lower, part) = (*lower, place.fract());
        let next = above.iter().copied().min_by(order).unwrap_or(lower);
        let is_one = part == 0.0 || lower.total_cmp(&next).is_eq();
        let width = next - lower;
        Ok(Some(match width.is_finite() {
            _ if is_one => lower,
            true => lower + width * part,
            false => lower * (1.0 - part) + next * part,
        }))
    }

    fn array(&self, values: Vec<Option<f64>>) -> ArrayRef {
        match self.data_type {
            DataType::Float32 => {
                Arc::new(values.into_iter().map(|value| value.map(|value| value as f32)).collect::<Float32Array>())
            }
            _ => Arc::new(Float64Array::from(values)),
        }
    }
}

/// The values of one group, or of a window's frame.
#[derive(Debug)]
struct OfAll {
    values: Box<dyn Accumulator>,
    place: Place,
    is_distinct: bool,
}

impl Accumulator for OfAll {
    as_inner!(values: update_batch size state retract_batch);

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.values.state()?;
        let [ScalarValue::List(list)] = state.as_slice() else { return internal_err!("expected one list") };
        let values = list.value(0);
        let result = self.place.among(&values)?;
        // Their state takes the values with it, and a window asks again; distinct values stay.
        if !self.is_distinct {
            self.values.update_batch(&[values])?;
        }
        ScalarValue::try_from_array(&self.place.array(vec![result]), 0)
    }

    /// DataFusion's merges the first of several states.
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [lists] = states else { return internal_err!("expected one column of states") };
        (0..lists.len()).try_for_each(|row| self.values.merge_batch(&[lists.slice(row, 1)]))
    }
}

/// The values of one group, of which several places are asked for.
#[derive(Debug)]
struct Places {
    values: Values,
    places: Vec<Place>,
    is_distinct: bool,
    result: DataType,
}

impl Places {
    fn of(args: &AccumulatorArgs) -> Result<Self> {
        let is_descending = args.order_bys.first().is_some_and(|key| key.options.descending);
        let data_type = args.expr_fields[0].data_type();
        let place = |share: f64| match (0.0..=1.0).contains(&share) {
            true => Ok(Place { share, is_descending, data_type: data_type.clone() }),
            false => plan_err!("percentile_cont expects shares from 0 to 1, and {share} was given"),
        };
        let places = shares(args)?.into_iter().map(place).collect::<Result<_>>()?;
        Ok(Self { values: Values::new(data_type)?, places, is_distinct: args.is_distinct, result: args.return_type().clone() })
    }
}

impl Accumulator for Places {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.add(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let values = self.values.array(self.is_distinct)?;
        if values.is_empty() {
            return ScalarValue::try_from(&self.result);
        }
        let found = self.places.iter().map(|place| {
            let found = place.among(&values)?;
            ScalarValue::try_from_array(&place.array(vec![found]), 0)
        });
        list(found.collect::<Result<_>>()?, values.data_type())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.size()
    }
}

/// The values of many groups.
struct OfGroups {
    values: Box<dyn GroupsAccumulator>,
    place: Place,
}

impl GroupsAccumulator for OfGroups {
    as_inner!(values: update_groups state_of_groups merge_groups size);

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let state = self.values.state(emit_to)?;
        let [lists] = state.as_slice() else { return internal_err!("expected one column of states") };
        let lists = lists.as_list::<i32>();
        let results: Result<Vec<Option<f64>>> = (0..lists.len()).map(|group| self.place.among(&lists.value(group))).collect();
        Ok(self.place.array(results?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_two_values_has_all_its_digits() {
        let place = |share, is_descending| Place { share, is_descending, data_type: DataType::Float64 };
        let values: ArrayRef = Arc::new((0..=1_000).rev().map(f64::from).map(Some).collect::<Float64Array>());
        for (share, is_descending, expected) in [
            (0.0, false, 0.0),
            (0.0, true, 1_000.0),
            (0.123_456_789, false, 123.456_789),
            (0.123_456_789, true, 1_000.0 - 123.456_789),
            (0.5, false, 500.0),
            (1.0, false, 1_000.0),
        ] {
            let found = place(share, is_descending).among(&values).unwrap().unwrap();
            assert!((found - expected).abs() < 1e-9, "{share}: {found}");
        }
        let none: ArrayRef = Arc::new(Float64Array::from(Vec::<f64>::new()));
        assert_eq!(place(0.5, false).among(&none).unwrap(), None);
        let ends: ArrayRef = Arc::new(Float64Array::from(vec![f64::INFINITY, f64::INFINITY]));
        assert_eq!(place(0.3, false).among(&ends).unwrap(), Some(f64::INFINITY));
        for (ends, share, expected) in [
            ([f64::NEG_INFINITY, 5.0], 0.5, f64::NEG_INFINITY),
            ([-1e308, 1e308], 0.25, -5e307),
            ([5.0, f64::INFINITY], 0.5, f64::INFINITY),
        ] {
            let ends: ArrayRef = Arc::new(Float64Array::from(ends.to_vec()));
            assert_eq!(place(share, false).among(&ends).unwrap(), Some(expected));
        }
    }
}
