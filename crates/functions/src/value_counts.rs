//! `mode`, `entropy` and `histogram`: what follows from how often each value was met.
//!
//! Drives compute such an aggregate in parts, each of which is a list of values and how often each was met; the host puts them together,
//! and a function of one row makes the result of them.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MapArray, StructArray, UInt64Array, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, UInt64Type};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_err, internal_datafusion_err, plan_err};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, Signature, Volatility};

use crate::in_steps::{Accumulating, Kept, Made};
use crate::one_value::canonical;

/// The aggregate that gives parts: each value of a group, and how often it was met.
pub const COUNTED: &str = "pithead_counted";
/// The aggregate that puts them together.
const MERGE_COUNTED: &str = "pithead_merge_counted";

/// What is made of how often each value was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    /// The value that most rows have, of several the least; NULL if no row has one.
    Mode,
    /// The bits that it takes to tell a row's value, on average (Shannon 1948); 0 if no row has one.
    Entropy,
    /// The values in their order, and how many rows have each; NULL if no row has one.
    Histogram,
    /// The same as a list, which is empty if no row has one.
    List,
}

/// Each aggregate, and the function of one row that makes its result of the parts put together.
const FINISHED: [(&str, &str, Of); 3] = [
    ("mode", "pithead_mode_of", Of::Mode),
    ("entropy", "pithead_entropy_of", Of::Entropy),
    ("histogram", "pithead_histogram_of", Of::Histogram),
];

/// The fields of a value, and of how often it was met.
fn fields(values: &DataType) -> Fields {
    Fields::from(vec![Field::new("value", values.clone(), true), Field::new("count", DataType::UInt64, true)])
}

/// The fields of an entry of a map.
fn entry_fields(values: &DataType) -> Fields {
    Fields::from(vec![Field::new("key", values.clone(), false), Field::new("value", DataType::UInt64, true)])
}

impl Of {
    /// The type of the values of which the result has this type; none: the type of a result does not say.
    fn values(result: &DataType) -> Option<&DataType> {
        let DataType::List(items) = result else { return None };
        match items.data_type() {
            DataType::Struct(fields) => fields.first().map(|field| field.data_type()),
            _ => None,
        }
    }
}

impl Made for Of {
    type Kept = Counts;

    const PART: &'static str = COUNTED;
    const MERGE: &'static str = MERGE_COUNTED;
    const PARTS: Self = Of::List;
    const FINISHED: &'static [(&'static str, &'static str, Self)] = &FINISHED;

    fn signature(_is_of_parts: bool) -> Signature {
        Signature::any(1, Volatility::Immutable)
    }

    fn of_column(column: &DataType, is_of_parts: bool) -> Result<&DataType> {
        match column {
            parts if is_of_parts => match Of::values(parts) {
                Some(values) => Ok(values),
                None => plan_err!("{MERGE_COUNTED} expects values and their counts, and {parts} was given"),
            },
            DataType::Dictionary(_, values) => Ok(values),
            values => Ok(values),
        }
    }

    fn result(self, values: &DataType) -> DataType {
        match self {
            Of::Mode => values.clone(),
            Of::Entropy => DataType::Float64,
            Of::Histogram => {
                let entries = Field::new("entries", DataType::Struct(entry_fields(values)), false);
                DataType::Map(Arc::new(entries), false)
            }
            Of::List => DataType::List(Arc::new(Field::new_list_field(DataType::Struct(fields(values)), true))),
        }
    }

    fn of_nothing(self, data_type: &DataType) -> Result<ScalarValue> {
        match self {
            Of::Entropy => Ok(ScalarValue::from(0.0)),
            _ => ScalarValue::try_from(data_type),
        }
    }

    fn of_parts(self, parts: &ArrayRef) -> Result<ArrayRef> {
        let values = Of::of_column(parts.data_type(), true)?;
        let results = (0..parts.len()).map(|row| {
            let mut counts = Counts::new(values, false)?;
            counts.merge_parts(&parts.slice(row, 1))?;
            counts.row(self)
        });
        let results = results.collect::<Result<Vec<_>>>()?;
        let results: Vec<&dyn Array> = results.iter().map(|result| result.as_ref()).collect();
        match results.is_empty() {
            true => Ok(new_empty_array(&self.result(values))),
            false => Ok(concat(&results)?),
        }
    }

    fn state_fields(name: &str, values: &DataType, _is_distinct: bool) -> Result<Vec<FieldRef>> {
        state_fields(name, values)
    }

    fn accumulator(self, values: &DataType, is_of_parts: bool, is_distinct: bool) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Accumulating { kept: Counts::new(values, is_distinct)?, made: self, is_of_parts }))
    }
}

/// The state of an aggregate that counts values.
pub(crate) fn state_fields(name: &str, values: &DataType) -> Result<Vec<FieldRef>> {
    let list = |column: &str, of: DataType| {
        let list = DataType::List(Arc::new(Field::new_list_field(of, true)));
        Arc::new(Field::new(format_state_name(name, column), list, true))
    };
    Ok(vec![list("values", values.clone()), list("counts", DataType::UInt64)])
}

/// How often each value was met. Values are bytes that compare as the values do.
#[derive(Debug)]
pub(crate) struct Counts {
    data_type: DataType,
    converter: RowConverter,
    counts: HashMap<OwnedRow, u64>,
    bytes: usize,
    /// Whether each value is met once, however often it is.
    is_distinct: bool,
}

impl Counts {
    pub(crate) fn new(data_type: &DataType, is_distinct: bool) -> Result<Self> {
        let fields = vec![SortField::new(data_type.clone())];
        if !RowConverter::supports_fields(&fields) {
            return exec_err!("values of {data_type} cannot be counted");
        }
        let converter = RowConverter::new(fields)?;
        Ok(Self { data_type: data_type.clone(), converter, counts: HashMap::new(), bytes: 0, is_distinct })
    }

    /// Adds values, each as often as `times` says.
    fn add(&mut self, values: &ArrayRef, times: impl Fn(usize) -> u64) -> Result<()> {
        let rows = self.converter.convert_columns(&[canonical(values)?])?;
        for row in (0..rows.num_rows()).filter(|row| values.is_valid(*row)) {
            let (value, times) = (rows.row(row).owned(), times(row));
            let length = value.row().data().len();
            let mut is_new = false;
            let met = self.counts.entry(value).or_insert_with(|| {
                is_new = true;
                0
            });
            *met = if self.is_distinct { 1 } else { met.saturating_add(times) };
            if is_new {
                self.bytes += size_of::<(OwnedRow, u64)>() + length;
            }
        }
        Ok(())
    }

    fn add_counted(&mut self, values: &ArrayRef, counts: &ArrayRef) -> Result<()> {
        let counts = counts.as_primitive::<UInt64Type>();
        if counts.len() != values.len() {
            return Err(internal_datafusion_err!("expected as many counts as values"));
        }
        self.add(values, |row| counts.value(row))
    }

    /// Values as they are given.
    fn array<'a>(&self, values: impl Iterator<Item = &'a OwnedRow>) -> Result<ArrayRef> {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(new_empty_array(&self.data_type));
        }
        let columns = self.converter.convert_rows(values.map(OwnedRow::row))?;
        columns.into_iter().next().ok_or_else(|| internal_datafusion_err!("expected one column"))
    }

    /// How many different values there are.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// All values, in no order.
    pub(crate) fn values(&self) -> Result<ArrayRef> {
        self.array(self.counts.keys())
    }

    /// The one row of a result.
    fn row(&self, of: Of) -> Result<ArrayRef> {
        match of {
            Of::Mode => match self.counts.iter().max_by(|one, other| one.1.cmp(other.1).then_with(|| other.0.cmp(one.0))) {
                Some((value, _)) => self.array([value].into_iter()),
                None => ScalarValue::try_from(&self.data_type)?.to_array(),
            },
            Of::Entropy => ScalarValue::from(self.entropy()).to_array(),
            Of::Histogram if self.counts.is_empty() => ScalarValue::try_from(&of.result(&self.data_type))?.to_array(),
            Of::Histogram => {
                let DataType::Map(field, _) = of.result(&self.data_type) else {
                    return Err(internal_datafusion_err!("expected a map"));
                };
                let entries = StructArray::try_new(entry_fields(&self.data_type), self.in_order()?.into(), None)?;
                let offsets = OffsetBuffer::from_lengths([entries.len()]);
                Ok(Arc::new(MapArray::try_new(field, offsets, entries, None, false)?))
            }
            Of::List => {
                let values = StructArray::try_new(fields(&self.data_type), self.in_order()?.into(), None)?;
                Ok(Arc::new(SingleRowListArrayBuilder::new(Arc::new(values)).build_list_array()))
            }
        }
    }

    /// The values in their order, and the counts of each.
    fn in_order(&self) -> Result<[ArrayRef; 2]> {
        let mut counts: Vec<(&OwnedRow, &u64)> = self.counts.iter().collect();
        counts.sort_unstable();
        let values = self.array(counts.iter().map(|(value, _)| *value))?;
        Ok([values, Arc::new(UInt64Array::from_iter_values(counts.iter().map(|(_, count)| **count)))])
    }

    fn entropy(&self) -> f64 {
        // In an order of their own, so that the sum does not hang on where values lie in memory.
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        counts.sort_unstable();
        let all: f64 = counts.iter().map(|count| *count as f64).sum();
        let bits = |count: &u64| *count as f64 / all * (all / *count as f64).log2();
        counts.iter().map(bits).sum::<f64>() + 0.0
    }
}

impl Kept<Of> for Counts {
    fn update(&mut self, values: &ArrayRef) -> Result<()> {
        match values.data_type() == &self.data_type {
            true => self.add(values, |_| 1),
            false => self.add(&cast(values, &self.data_type)?, |_| 1),
        }
    }

    fn merge_parts(&mut self, parts: &ArrayRef) -> Result<()> {
        for part in parts.as_list::<i32>().iter().flatten() {
            let part = part.as_struct();
            self.add_counted(part.column(0), part.column(1))?;
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else { return Err(internal_datafusion_err!("expected values and counts")) };
        let lists = values.as_list::<i32>().iter().zip(counts.as_list::<i32>().iter());
        for (values, counts) in lists {
            let (Some(values), Some(counts)) = (values, counts) else { continue };
            self.add_counted(&values, &counts)?;
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<ScalarValue>> {
        let counts: ArrayRef = Arc::new(UInt64Array::from_iter_values(self.counts.values().copied()));
        Ok([self.values()?, counts].map(|list| SingleRowListArrayBuilder::new(list).build_list_scalar()).into())
    }

    fn result(&self, of: Of) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.row(of)?, 0)
    }

    fn size(&self) -> usize {
        self.converter.size() + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringArray};
    use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

    use super::*;
    use crate::in_steps::finish_udf;

    fn strings(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    fn counting(of: Of, is_of_parts: bool) -> Accumulating<Of> {
        Accumulating { kept: Counts::new(&DataType::Utf8, false).unwrap(), made: of, is_of_parts }
    }

    fn finished(of: Of, parts: ArrayRef) -> ScalarValue {
        let return_type = of.result(&DataType::Utf8);
        let args = ScalarFunctionArgs {
            arg_fields: vec![Arc::new(Field::new("parts", parts.data_type().clone(), true))],
            number_rows: parts.len(),
            args: vec![ColumnarValue::Array(parts)],
            return_field: Arc::new(Field::new("result", return_type, true)),
            config_options: Default::default(),
        };
        let finish = finish_udf("finish", of);
        ScalarValue::try_from_array(&finish.invoke_with_args(args).unwrap().to_array(1).unwrap(), 0).unwrap()
    }

    #[test]
    fn parts_together_are_the_whole() {
        let parts = [strings(&[Some("b"), Some("a"), None, None, None]), strings(&[]), strings(&[Some("b"), Some("c")])];
        for (name, _, of) in FINISHED {
            let (mut whole, mut states, mut merged) = (counting(of, false), counting(of, false), counting(Of::List, true));
            let nothing = whole.evaluate().unwrap();
            assert_eq!(nothing.is_null(), of != Of::Entropy, "{name}");
            assert_eq!(finished(of, merged.evaluate().unwrap().to_array().unwrap()), nothing, "{name}");
            for part in &parts {
                whole.update_batch(std::slice::from_ref(part)).unwrap();
                let mut counts = counting(Of::List, false);
                counts.update_batch(std::slice::from_ref(part)).unwrap();
                let state: Vec<ArrayRef> = counts.state().unwrap().iter().map(|of| of.to_array().unwrap()).collect();
                states.merge_batch(&state).unwrap();
                merged.update_batch(&[counts.evaluate().unwrap().to_array().unwrap()]).unwrap();
            }
            let found = whole.evaluate().unwrap();
            assert_eq!(states.evaluate().unwrap(), found, "{name}");
            assert_eq!(finished(of, merged.evaluate().unwrap().to_array().unwrap()), found, "{name}");
            match of {
                Of::Mode => assert_eq!(found, ScalarValue::from("b")),
                Of::Entropy => assert_eq!(found, ScalarValue::from(1.5)),
                _ => assert_eq!(found.to_string(), "[{a:1,b:2,c:1}]"),
            }
        }
    }

    #[test]
    fn of_several_it_is_the_least_and_zeros_are_one() {
        let mut counts = Counts::new(&DataType::Float64, false).unwrap();
        let values: ArrayRef = Arc::new(Float64Array::from(vec![7.0, 0.0, 7.0, -0.0, f64::NAN, 9.0]));
        counts.update(&values).unwrap();
        assert_eq!(counts.result(Of::Mode).unwrap(), ScalarValue::from(0.0));
        assert_eq!(counts.len(), 4);
    }

    #[test]
    fn distinct_values_count_once() {
        let mut counts = Counts::new(&DataType::Int64, true).unwrap();
        counts.update(&(Arc::new(Int64Array::from(vec![7, 7, 7, 3])) as ArrayRef)).unwrap();
        assert_eq!(counts.entropy(), 1.0);
        let one = Counts::new(&DataType::Int64, false).unwrap();
        assert_eq!(one.entropy().to_string(), "0", "not -0");
    }
}
