//! `mode`, `entropy` and `histogram`: what follows from how often each value was met.
//!
//! Drives compute such an aggregate in parts, each of which is a list of values and how often each was met; the host puts them together,
//! and a function of one row makes the result of them.

use std::collections::HashMap;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MapArray, StructArray, UInt64Array, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, UInt64Type};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_err, internal_datafusion_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::one_value::canonical;
use crate::wall_time::as_given;

/// The aggregate that gives parts: each value of a group, and how often it was met.
pub const COUNTED: &str = "pithead_counted";
/// The aggregate that puts them together.
pub(crate) const MERGE_COUNTED: &str = "pithead_merge_counted";

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
pub(crate) const FINISHED: [(&str, &str, Of); 3] = [
    ("mode", "pithead_mode_of", Of::Mode),
    ("entropy", "pithead_entropy_of", Of::Entropy),
    ("histogram", "pithead_histogram_of", Of::Histogram),
];

/// Such an aggregate of a column's values. NULLs do not count.
pub(crate) fn counted_udaf(name: &'static str, of: Of) -> AggregateUDF {
    AggregateUDF::new_from_impl(Counted { name, of, is_of_parts: false, signature: Signature::any(1, Volatility::Immutable) })
}

/// What puts parts together.
pub(crate) fn merge_counted_udaf() -> AggregateUDF {
    let signature = Signature::any(1, Volatility::Immutable);
    AggregateUDF::new_from_impl(Counted { name: MERGE_COUNTED, of: Of::List, is_of_parts: true, signature })
}

/// What makes a result of parts that were put together.
pub(crate) fn finish_udf(name: &'static str, of: Of) -> ScalarUDF {
    ScalarUDF::new_from_impl(Finish { name, of, signature: Signature::any(1, Volatility::Immutable) })
}

/// The fields of a value, and of how often it was met.
fn fields(values: &DataType) -> Fields {
    Fields::from(vec![Field::new("value", values.clone(), true), Field::new("count", DataType::UInt64, true)])
}

/// The fields of an entry of a map.
fn entry_fields(values: &DataType) -> Fields {
    Fields::from(vec![Field::new("key", values.clone(), false), Field::new("value", DataType::UInt64, true)])
}

impl Of {
    /// The type of the result for values of a type.
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

    /// The type of the values of which the result has this type; none: the type of a result does not say.
    fn values(result: &DataType) -> Option<&DataType> {
        let DataType::List(items) = result else { return None };
        match items.data_type() {
            DataType::Struct(fields) => fields.first().map(|field| field.data_type()),
            _ => None,
        }
    }
}

/// The type of the values that are counted in a column.
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

#[derive(Debug, PartialEq, Eq, Hash)]
struct Counted {
    name: &'static str,
    of: Of,
    /// Whether it is given parts rather than values.
    is_of_parts: bool,
    signature: Signature,
}

impl AggregateUDFImpl for Counted {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [column] => Ok(self.of.result(of_column(column, self.is_of_parts)?)),
            _ => exec_err!("{} takes one argument, not {}", self.name, types.len()),
        }
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        match self.of {
            Of::Entropy => Ok(ScalarValue::from(0.0)),
            _ => ScalarValue::try_from(data_type),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        state_fields(args.name, of_column(args.input_fields[0].data_type(), self.is_of_parts)?)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let values = of_column(args.expr_fields[0].data_type(), self.is_of_parts)?;
        let counts = Counts::new(values, args.is_distinct)?;
        Ok(Box::new(Counting { counts, of: self.of, is_of_parts: self.is_of_parts }))
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

#[derive(Debug)]
struct Counting {
    counts: Counts,
    of: Of,
    is_of_parts: bool,
}

impl Accumulator for Counting {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match self.is_of_parts {
            true => self.counts.merge_parts(&values[0]),
            false => self.counts.update(&values[0]),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.counts.merge(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.counts.result(self.of)?, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.counts.state()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.counts.size()
    }
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

    /// Adds a column's values.
    pub(crate) fn update(&mut self, values: &ArrayRef) -> Result<()> {
        match values.data_type() == &self.data_type {
            true => self.add(values, |_| 1),
            false => self.add(&cast(values, &self.data_type)?, |_| 1),
        }
    }

    /// Adds what states have.
    pub(crate) fn merge(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else { return Err(internal_datafusion_err!("expected values and counts")) };
        let lists = values.as_list::<i32>().iter().zip(counts.as_list::<i32>().iter());
        for (values, counts) in lists {
            let (Some(values), Some(counts)) = (values, counts) else { continue };
            self.add_counted(&values, &counts)?;
        }
        Ok(())
    }

    /// Adds what parts have.
    fn merge_parts(&mut self, parts: &ArrayRef) -> Result<()> {
        for part in parts.as_list::<i32>().iter().flatten() {
            let part = part.as_struct();
            self.add_counted(part.column(0), part.column(1))?;
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

    pub(crate) fn state(&self) -> Result<Vec<ScalarValue>> {
        let counts: ArrayRef = Arc::new(UInt64Array::from_iter_values(self.counts.values().copied()));
        Ok([self.values()?, counts].map(|list| SingleRowListArrayBuilder::new(list).build_list_scalar()).into())
    }

    pub(crate) fn size(&self) -> usize {
        self.converter.size() + self.bytes
    }

    /// The one row of a result.
    fn result(&self, of: Of) -> Result<ArrayRef> {
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

#[derive(Debug, PartialEq, Eq, Hash)]
struct Finish {
    name: &'static str,
    of: Of,
    signature: Signature,
}

impl ScalarUDFImpl for Finish {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [parts] => Ok(self.of.result(of_column(parts, true)?)),
            _ => plan_err!("{} takes one argument", self.name),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [parts] = args.args.as_slice() else { return Err(internal_datafusion_err!("expected one argument")) };
        let is_scalar = matches!(parts, ColumnarValue::Scalar(_));
        let parts = parts.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let values = of_column(parts.data_type(), true)?;
        let results = (0..parts.len()).map(|row| {
            let mut counts = Counts::new(values, false)?;
            counts.merge_parts(&parts.slice(row, 1))?;
            counts.result(self.of)
        });
        let results = results.collect::<Result<Vec<_>>>()?;
        let results: Vec<&dyn Array> = results.iter().map(|result| result.as_ref()).collect();
        match results.is_empty() {
            true => Ok(ColumnarValue::Array(new_empty_array(&self.of.result(values)))),
            false => as_given(arrow::compute::concat(&results)?, is_scalar),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    fn strings(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    fn counting(of: Of, is_of_parts: bool) -> Counting {
        Counting { counts: Counts::new(&DataType::Utf8, false).unwrap(), of, is_of_parts }
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
        assert_eq!(ScalarValue::try_from_array(&counts.result(Of::Mode).unwrap(), 0).unwrap(), ScalarValue::from(0.0));
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
