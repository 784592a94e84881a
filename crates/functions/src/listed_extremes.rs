//! `min(x, n)` and `max(x, n)`: the n least and the n most values of a group, as a list in their order, as in DuckDB.
//!
//! They are planned as aggregates of their own, `pithead_least(x, y, n)` and `pithead_most(x, y, n)`, which give x of the rows with the
//! least and the most y; of several with the same y, those with the least x. NULLs do not count. Drives compute them in parts, each of
//! which is a list of such rows; the host puts the parts together, and takes x from them.

use std::collections::BTreeMap;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, RecordBatch, StructArray, new_empty_array};
use arrow::buffer::NullBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type, Schema};
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::extreme_floats::Side;
use crate::one_value::canonical;
use crate::ranked::list_of;
use crate::wall_time::as_given;

/// The most values that are asked for.
const COUNT_MAX: i64 = 999_999;

/// What makes a result of parts that were put together.
pub(crate) const FINISH: &str = "pithead_listed_of";

/// Which of the steps an aggregate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The list of values.
    Whole,
    /// The rows that it is made of.
    Part,
    /// What puts parts together.
    Merge,
}

/// Its name on a side.
pub(crate) fn name(side: Side, step: Step) -> &'static str {
    match (side, step) {
        (Side::Min, Step::Whole) => "pithead_least",
        (Side::Min, Step::Part) => "pithead_least_part",
        (Side::Min, Step::Merge) => "pithead_merge_least",
        (Side::Max, Step::Whole) => "pithead_most",
        (Side::Max, Step::Part) => "pithead_most_part",
        (Side::Max, Step::Merge) => "pithead_merge_most",
    }
}

pub(crate) fn listed_udaf(side: Side, step: Step) -> AggregateUDF {
    AggregateUDF::new_from_impl(Listed { side, step, signature: Signature::user_defined(Volatility::Immutable) })
}

pub(crate) fn listed_of_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(ListedOf { signature: Signature::any(1, Volatility::Immutable) })
}

/// Whether an expression is `min(x, n)` or `max(x, n)`.
pub(crate) fn is_listed(expr: &Expr) -> bool {
    side_of(expr).is_some()
}

/// What such an expression is planned as; none: it is no such expression.
pub(crate) fn listed(expr: &Expr) -> Option<Expr> {
    let (side, Expr::AggregateFunction(AggregateFunction { params, .. })) = (side_of(expr)?, expr) else { return None };
    let [value, count] = params.args.as_slice() else { return None };
    let mut params = params.clone();
    params.args = vec![value.clone(), value.clone(), count.clone()];
    Some(Expr::AggregateFunction(AggregateFunction { func: Arc::new(listed_udaf(side, Step::Whole)), params }))
}

fn side_of(expr: &Expr) -> Option<Side> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else { return None };
    match func.name() {
        "min" if params.args.len() == 2 => Some(Side::Min),
        "max" if params.args.len() == 2 => Some(Side::Max),
        _ => None,
    }
}

/// The types of values and their count.
pub(crate) fn coerced(name: &str, types: &[DataType]) -> Result<Vec<DataType>> {
    let [values @ .., count] = types else { return plan_err!("{name} expects values") };
    if !(count.is_integer() || count.is_null()) {
        return plan_err!("{name} expects a whole number that says how many values are wanted, and {count} was given");
    }
    let plain = values.iter().map(|of| match of {
        DataType::Dictionary(_, of) => of.as_ref().clone(),
        of => of.clone(),
    });
    Ok(plain.chain([DataType::Int64]).collect())
}

/// The fields of a row of a part, which also says how many are wanted.
fn fields([value, key]: [&DataType; 2]) -> Fields {
    let field = |name: &str, of: &DataType| Field::new(name, of.clone(), true);
    Fields::from(vec![field("value", value), field("key", key), field("count", &DataType::Int64)])
}

fn part_of(types: [&DataType; 2]) -> DataType {
    list_of(&DataType::Struct(fields(types)))
}

/// The types of values and keys in a part.
fn types_of(part: &DataType) -> Result<[&DataType; 2]> {
    if let DataType::List(rows) = part
        && let DataType::Struct(fields) = rows.data_type()
        && let [value, key, _] = fields.as_ref()
    {
        return Ok([value.data_type(), key.data_type()]);
    }
    plan_err!("expected parts of listed extremes, and {part} was given")
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Listed {
    side: Side,
    step: Step,
    signature: Signature,
}

impl Listed {
    /// The types of values and keys.
    fn types<'a>(&self, given: &[&'a DataType]) -> Result<[&'a DataType; 2]> {
        match (self.step, given) {
            (Step::Merge, [part]) => types_of(part),
            (Step::Whole | Step::Part, [value, key, _]) => Ok([value, key]),
            _ => plan_err!("{} expects values, what they are ordered by, and how many are wanted", self.name()),
        }
    }
}

impl AggregateUDFImpl for Listed {
    fn name(&self) -> &'static str {
        name(self.side, self.step)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.types(&types.iter().collect::<Vec<_>>())?;
        if self.step == Step::Merge { Ok(types.to_vec()) } else { coerced(self.name(), types) }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let types = self.types(&types.iter().collect::<Vec<_>>())?;
        Ok(if self.step == Step::Whole { list_of(types[0]) } else { part_of(types) })
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let given: Vec<&DataType> = args.input_fields.iter().map(|field| field.data_type()).collect();
        let part = part_of(self.types(&given)?);
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "rows"), part, true))])
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let given: Vec<&DataType> = args.expr_fields.iter().map(|field| field.data_type()).collect();
        let count = if self.step == Step::Merge { None } else { Some(count(&args)?) };
        Ok(Box::new(First { step: self.step, count, ..First::new(self.side, self.types(&given)?, args.is_distinct)? }))
    }
}

/// How many values are wanted.
fn count(args: &AccumulatorArgs) -> Result<usize> {
    let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
    match args.exprs.last().map(|count| count.evaluate(&nothing)) {
        Some(Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(count @ 1..=COUNT_MAX))))) => Ok(count as usize),
        _ => plan_err!("expected a count from 1 to {COUNT_MAX} that is the same for all rows, as in min(x, 3)"),
    }
}

/// The accumulator of `min(x, n)` in a window.
pub(crate) fn in_window(side: Side, args: &AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
    let [value, _] = args.expr_fields else { return internal_err!("expected two arguments") };
    let types = [value.data_type(); 2];
    Ok(Box::new(First { count: Some(count(args)?), ..First::new(side, types, args.is_distinct)? }))
}

/// The first rows of a group, in the order of their keys.
#[derive(Debug)]
struct First {
    step: Step,
    types: [DataType; 2],
    /// Of keys and values. Rows are compared as their bytes.
    converter: RowConverter,
    /// Each, and how often it was met.
    rows: BTreeMap<OwnedRow, usize>,
    /// How many rows there are, and how many are wanted; none: no part has said it yet.
    total: usize,
    count: Option<usize>,
    is_distinct: bool,
    bytes: usize,
}

impl First {
    fn new(side: Side, [value, key]: [&DataType; 2], is_distinct: bool) -> Result<Self> {
        let options = SortOptions { descending: side == Side::Max, nulls_first: false };
        let fields = vec![SortField::new_with_options(key.clone(), options), SortField::new(value.clone())];
        if !RowConverter::supports_fields(&fields) {
            return exec_err!("values of {key} and {value} have no order here");
        }
        let (converter, types) = (RowConverter::new(fields)?, [value.clone(), key.clone()]);
        let (step, rows) = (Step::Whole, BTreeMap::new());
        Ok(Self { step, types, converter, rows, total: 0, count: None, is_distinct, bytes: 0 })
    }

    fn add(&mut self, values: &ArrayRef, keys: &ArrayRef) -> Result<()> {
        let Some(count) = self.count else { return internal_err!("expected a count before rows") };
        let rows = self.converter.convert_columns(&[canonical(keys)?, canonical(values)?])?;
        let (no_value, no_key) = (values.logical_nulls(), keys.logical_nulls());
        let is_null = |row| [&no_value, &no_key].into_iter().flatten().any(|nulls| nulls.is_null(row));
        for row in (0..rows.num_rows()).filter(|row| !is_null(*row)) {
            let new = rows.row(row);
            let last = self.rows.last_key_value().map(|(last, _)| last.row());
            if self.total < count || last.is_some_and(|last| new < last) {
                self.put(new.owned(), count);
            }
        }
        Ok(())
    }

    /// Adds the rows of parts.
    fn merge(&mut self, parts: &ArrayRef) -> Result<()> {
        for part in parts.as_list::<i32>().iter().flatten().filter(|part| !part.is_empty()) {
            let [values, keys, counts] = part.as_struct().columns() else { return internal_err!("expected values and keys") };
            let count = counts.as_primitive::<Int64Type>().value(0);
            self.count = Some(usize::try_from(count).ok().filter(|count| *count > 0).unwrap_or(1));
            self.add(values, keys)?;
        }
        Ok(())
    }

    fn put(&mut self, row: OwnedRow, count: usize) {
        let bytes = bytes_of(&row);
        let met = self.rows.entry(row).or_insert(0);
        if self.is_distinct && *met > 0 {
            return;
        }
        *met += 1;
        self.total += 1;
        if *met == 1 {
            self.bytes += bytes;
        }
        if self.total > count
            && let Some(mut last) = self.rows.last_entry()
        {
            *last.get_mut() -= 1;
            self.total -= 1;
            if *last.get() == 0 {
                self.bytes -= bytes_of(&last.remove_entry().0);
            }
        }
    }

    /// Values and keys, in their order.
    fn columns(&self) -> Result<[ArrayRef; 2]> {
        let rows = self.rows.iter().flat_map(|(row, met)| std::iter::repeat_n(row.row(), *met));
        let columns: Vec<ArrayRef> = match self.rows.is_empty() {
            true => self.types.iter().rev().map(new_empty_array).collect(),
            false => self.converter.convert_rows(rows)?,
        };
        match <[ArrayRef; 2]>::try_from(columns) {
            Ok([keys, values]) => Ok([values, keys]),
            Err(_) => internal_err!("expected keys and values"),
        }
    }

    /// The rows, as drives send them.
    fn part(&self) -> Result<ScalarValue> {
        let [values, keys] = self.columns()?;
        let count = self.count.unwrap_or_default() as i64;
        let counts: ArrayRef = Arc::new(Int64Array::from_value(count, values.len()));
        let [value, key] = &self.types;
        let rows = StructArray::try_new(fields([value, key]), vec![values, keys, counts], None)?;
        Ok(SingleRowListArrayBuilder::new(Arc::new(rows)).build_list_scalar())
    }
}

fn bytes_of(row: &OwnedRow) -> usize {
    size_of::<(OwnedRow, usize)>() + row.row().data().len()
}

impl Accumulator for First {
    fn update_batch(&mut self, columns: &[ArrayRef]) -> Result<()> {
        match columns {
            [values, keys, _] => self.add(values, keys),
            [values, _] => self.add(values, values),
            [parts] => self.merge(parts),
            _ => internal_err!("expected values and a count"),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states.iter().try_for_each(|parts| self.merge(parts))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.step {
            Step::Part | Step::Merge => self.part(),
            Step::Whole if self.rows.is_empty() => ScalarValue::try_from(&list_of(&self.types[0])),
            Step::Whole => {
                let [values, _] = self.columns()?;
                Ok(SingleRowListArrayBuilder::new(values).build_list_scalar())
            }
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.part()?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.converter.size() + self.bytes
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListedOf {
    signature: Signature,
}

impl ScalarUDFImpl for ListedOf {
    fn name(&self) -> &'static str {
        FINISH
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [part] => Ok(list_of(types_of(part)?[0])),
            _ => plan_err!("{FINISH} takes one argument"),
        }
    }

    /// The values of each part; NULL of one that has none.
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [parts] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let is_scalar = matches!(parts, ColumnarValue::Scalar(_));
        let parts = parts.to_array(if is_scalar { 1 } else { args.number_rows })?;
        let parts = parts.as_list::<i32>();
        let values = parts.values().as_struct().column(0);
        let has_values = parts.offsets().lengths().map(|length| length > 0).collect::<Vec<bool>>();
        let nulls = NullBuffer::union(parts.nulls(), Some(&NullBuffer::from(has_values)));
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let lists = ListArray::try_new(field, parts.offsets().clone(), Arc::clone(values), nulls)?;
        as_given(Arc::new(lists), is_scalar)
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn answer(sql: &str) -> Result<Vec<String>, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let frame = context.sql(sql).await.map_err(|error| error.to_string())?;
        let found = frame.collect().await.map_err(|error| error.to_string())?;
        let rows = found.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
        let text = |(batch, row): (&arrow::array::RecordBatch, usize)| {
            let columns = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
            columns.collect::<Vec<_>>().join(" ")
        };
        Ok(rows.map(text).collect())
    }

    #[tokio::test]
    async fn the_first_values_are_in_their_order() {
        let rows =
            "(VALUES (3, 'c', 'NaN'::double), (NULL, 'b', 1.0), (1, NULL, -0.0), (2, 'a', 0.0), (1, 'd', NULL)) AS t(x, s, f)";
        for (calls, expected) in [
            ("min(x, 2), max(x, 2)", "[1, 1] [3, 2]"),
            ("min(x, 9), max(s, 2)", "[1, 1, 2, 3] [d, c]"),
            ("max(f, 2), min(f, 3)", "[NaN, 1.0] [0.0, 0.0, 1.0]"),
            ("min(DISTINCT x, 2), max(DISTINCT f, 9)", "[1, 2] [NaN, 1.0, 0.0]"),
            ("min(x, 2) FILTER (WHERE x > 1), min(x, 1), min(x)", "[2, 3] [1] 1"),
            ("min([x], 2), arrow_typeof(max(x, 1))", "[[1], [1]] List(Int64)"),
            ("pithead_least(s, x, 2), pithead_most(s, x, 2)", "[d, a] [c, a]"),
            ("pithead_least(s, f, 9), pithead_most(x, length(s), 3)", "[a, b, c] [1, 2, 3]"),
        ] {
            assert_eq!(answer(&format!("SELECT {calls} FROM {rows}")).await.unwrap(), [expected], "{calls}");
        }
        for (sql, expected) in [
            (format!("SELECT min(x, 2), max(s, 1) FROM {rows} WHERE false"), vec![" "]),
            (format!("SELECT x, max(s, 2) FROM {rows} GROUP BY x ORDER BY x"), vec!["1 [d]", "2 [a]", "3 [c]", " [b]"]),
            (format!("SELECT max(x, 1) OVER (ORDER BY f) FROM {rows} WHERE x > 1 ORDER BY f"), vec!["[2]", "[3]"]),
            (
                "SELECT min(x, 2) OVER (ORDER BY i ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) \
                 FROM (VALUES (1, 5), (2, NULL), (3, 7), (4, 6)) AS t(i, x) ORDER BY i"
                    .to_owned(),
                vec!["[5]", "[5]", "[5, 7]", "[6, 7]"],
            ),
        ] {
            assert_eq!(answer(&sql).await.unwrap(), expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn counts_are_whole_numbers_that_are_the_same_for_all_rows() {
        for (call, expected) in [
            ("min(x, 0)", "a count from 1 to 999999"),
            ("max(x, -1)", "a count from 1 to 999999"),
            ("max(x, NULL)", "a count from 1 to 999999"),
            ("min(x, 1000000)", "a count from 1 to 999999"),
            ("min(x, x)", "the same for all rows"),
            ("min(x, 1.5)", "a whole number"),
            ("min(x, 1, 2)", "min"),
        ] {
            let error = answer(&format!("SELECT {call} FROM (VALUES (1), (2)) AS t(x)")).await.unwrap_err();
            assert!(error.contains(expected), "{call}: {error}");
        }
    }
}
