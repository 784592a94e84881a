//! `mode`: the value that most rows have.

use std::collections::HashMap;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_err, internal_datafusion_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use crate::one_value::canonical;

/// `mode(x)`: the value of `x` that most rows have; of several such values the least; NULL if no row has one. NULLs do not count.
pub(crate) fn mode_udaf() -> AggregateUDF {
    AggregateUDF::new_from_impl(Mode { signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Mode {
    signature: Signature,
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &'static str {
        "mode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Dictionary(_, of)] => Ok(of.as_ref().clone()),
            [of] => Ok(of.clone()),
            _ => exec_err!("mode takes one argument, not {}", types.len()),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |name: &str, of: DataType| {
            let list = DataType::List(Arc::new(Field::new_list_field(of, true)));
            Arc::new(Field::new(format_state_name(args.name, name), list, true))
        };
        Ok(vec![list("values", args.return_type().clone()), list("counts", DataType::UInt64)])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counts::new(args.return_type())?))
    }
}

/// How often each value was met. Values are bytes that compare as the values do.
#[derive(Debug)]
struct Counts {
    data_type: DataType,
    converter: RowConverter,
    counts: HashMap<OwnedRow, u64>,
    bytes: usize,
}

impl Counts {
    fn new(data_type: &DataType) -> Result<Self> {
        let fields = vec![SortField::new(data_type.clone())];
        if !RowConverter::supports_fields(&fields) {
            return exec_err!("mode of {data_type} is not supported");
        }
        let converter = RowConverter::new(fields)?;
        Ok(Self { data_type: data_type.clone(), converter, counts: HashMap::new(), bytes: 0 })
    }

    /// Adds values, each as often as `times` says.
    fn add(&mut self, values: &ArrayRef, times: impl Fn(usize) -> u64) -> Result<()> {
        let rows = self.converter.convert_columns(&[canonical(values)?])?;
        for row in (0..rows.num_rows()).filter(|row| values.is_valid(*row)) {
            let (value, times) = (rows.row(row).owned(), times(row));
            let length = value.row().data().len();
            let mut is_new = false;
            *self.counts.entry(value).or_insert_with(|| {
                is_new = true;
                0
            }) += times;
            if is_new {
                self.bytes += size_of::<(OwnedRow, u64)>() + length;
            }
        }
        Ok(())
    }

    fn array<'a>(&self, values: impl Iterator<Item = &'a OwnedRow>) -> Result<ArrayRef> {
        let columns = self.converter.convert_rows(values.map(OwnedRow::row))?;
        columns.into_iter().next().ok_or_else(|| internal_datafusion_err!("expected one column"))
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return Err(internal_datafusion_err!("expected one column")) };
        match values.data_type() == &self.data_type {
            true => self.add(values, |_| 1),
            false => self.add(&cast(values, &self.data_type)?, |_| 1),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else { return Err(internal_datafusion_err!("mode keeps values and counts")) };
        let lists = values.as_list::<i32>().iter().zip(counts.as_list::<i32>().iter());
        for (values, counts) in lists {
            let (Some(values), Some(counts)) = (values, counts) else { continue };
            let counts = counts.as_primitive::<UInt64Type>();
            if counts.len() != values.len() {
                return Err(internal_datafusion_err!("mode keeps as many counts as values"));
            }
            self.add(&values, |row| counts.value(row))?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let most = self.counts.iter().max_by(|one, other| one.1.cmp(other.1).then_with(|| other.0.cmp(one.0)));
        match most {
            Some((value, _)) => ScalarValue::try_from_array(self.array([value].into_iter())?.as_ref(), 0),
            None => ScalarValue::try_from(&self.data_type),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = match self.counts.is_empty() {
            true => arrow::array::new_empty_array(&self.data_type),
            false => self.array(self.counts.keys())?,
        };
        let counts: ArrayRef = Arc::new(arrow::array::UInt64Array::from_iter_values(self.counts.values().copied()));
        Ok([values, counts].map(|list| SingleRowListArrayBuilder::new(list).build_list_scalar()).into())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.converter.size() + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, StringArray};

    use super::*;

    #[test]
    fn parts_together_are_the_whole() {
        let strings = |values: &[Option<&str>]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
        let mut whole = Counts::new(&DataType::Utf8).unwrap();
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::Utf8(None));
        for part in [strings(&[Some("b"), Some("a"), None, None, None]), strings(&[]), strings(&[Some("b"), Some("c")])] {
            let mut counts = Counts::new(&DataType::Utf8).unwrap();
            counts.update_batch(&[part]).unwrap();
            let state: Vec<ArrayRef> = counts.state().unwrap().iter().map(|of| of.to_array().unwrap()).collect();
            whole.merge_batch(&state).unwrap();
        }
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::from("b"));
    }

    #[test]
    fn of_several_it_is_the_least_and_zeros_are_one() {
        let mut counts = Counts::new(&DataType::Float64).unwrap();
        let values: ArrayRef = Arc::new(Float64Array::from(vec![7.0, 0.0, 7.0, -0.0, f64::NAN, 9.0]));
        counts.update_batch(&[values]).unwrap();
        assert_eq!(counts.evaluate().unwrap(), ScalarValue::from(0.0));
    }
}
