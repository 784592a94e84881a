//! `list_aggregate(list, 'name')`: an aggregate of the values of each list, and `list_unique`, how many different ones they are.
//!
//! `list_median(list)` and its like are planned as `list_aggregate(list, 'median')`, so that there is one function that drives know.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, UInt64Array, new_empty_array, new_null_array};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::functions_aggregate::any_value::any_value_udaf;
use datafusion::functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_or_udaf, bit_xor_udaf};
use datafusion::functions_aggregate::bool_and_or::{bool_and_udaf, bool_or_udaf};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, EmitTo, Expr, GroupsAccumulator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use crate::in_steps::{Kept, finished_udafs};
use crate::product::product_udaf;
use crate::ranked::mad_udaf;
use crate::shapes::Shape;
use crate::signed_counts::signed_udafs;
use crate::spread::spread_udafs;
use crate::value_counts::{Counts, Of};
use crate::wall_time::as_given;
use crate::{avg_udaf, max_udaf, min_udaf, sum_udaf};

/// The function that drives know.
const LIST_AGGREGATE: &str = "list_aggregate";
/// What stands before an aggregate's name in that of the function of a list.
const OF_LIST: &str = "list_";
/// Aggregates of lists that the engine has under their own names.
const KNOWN: [&str; 5] = ["avg", "max", "min", "product", "sum"];

/// Aggregates of one argument, which do not hang on the order of values.
static AGGREGATES: LazyLock<BTreeMap<String, Arc<AggregateUDF>>> = LazyLock::new(|| {
    let in_steps = finished_udafs::<Of>().chain(finished_udafs::<Shape>());
    let ours = in_steps.chain([product_udaf(), mad_udaf()]).chain(spread_udafs()).map(Arc::new);
    let bits = [bit_and_udaf(), bit_or_udaf(), bit_xor_udaf(), bool_and_udaf(), bool_or_udaf()];
    let others = [any_value_udaf(), avg_udaf(), count_udaf(), max_udaf(), median_udaf(), min_udaf(), sum_udaf()];
    let named = ours.chain(bits).chain(others).map(|aggregate| (aggregate.name().to_owned(), aggregate));
    let mut all: BTreeMap<String, Arc<AggregateUDF>> = named.collect();
    let [approx_distinct, _] = signed_udafs();
    all.insert("approx_count_distinct".to_owned(), Arc::new(approx_distinct));
    for (name, alias) in [("var", "var_samp"), ("stddev", "stddev_samp")] {
        if let Some(aggregate) = all.get(name).cloned() {
            all.insert(alias.to_owned(), aggregate);
        }
    }
    all
});

/// The aggregate of a name.
fn aggregate(name: &str) -> Result<&'static Arc<AggregateUDF>> {
    match AGGREGATES.get(&name.to_lowercase()) {
        Some(aggregate) => Ok(aggregate),
        None => {
            let known: Vec<&str> = AGGREGATES.keys().map(String::as_str).collect();
            plan_err!("no aggregate {name} of a list; those are {}", known.join(", "))
        }
    }
}

/// What drives know.
pub(crate) fn list_aggregates_udfs() -> [ScalarUDF; 2] {
    let signature = Signature::user_defined(Volatility::Immutable);
    let aliases = ["aggregate", "array_aggr", "array_aggregate", "list_aggr"].map(str::to_owned).to_vec();
    let unique = Unique { aliases: vec!["array_unique".to_owned()], signature: signature.clone() };
    [ScalarUDF::new_from_impl(ListAggregate { aliases, signature }), ScalarUDF::new_from_impl(unique)]
}

/// Each aggregate as a function of a list, which is planned as what drives know.
pub(crate) fn planned_udfs() -> impl Iterator<Item = ScalarUDF> {
    let others = AGGREGATES.keys().filter(|name| !KNOWN.contains(&name.as_str()));
    others.map(|aggregate| {
        let signature = Signature::any(1, Volatility::Immutable);
        ScalarUDF::new_from_impl(Planned { name: format!("{OF_LIST}{aggregate}"), aggregate: aggregate.clone(), signature })
    })
}

/// Whether an expression is a call of a function that is planned as another.
pub(crate) fn is_planned(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<Planned>())
}

/// What such a call is; none: it is none.
pub(crate) fn planned(expr: &Expr) -> Option<Expr> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return None };
    let planned = func.inner().downcast_ref::<Planned>()?;
    let [function, _] = list_aggregates_udfs();
    Some(function.call(args.iter().cloned().chain([lit(planned.aggregate.as_str())]).collect()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Planned {
    name: String,
    aggregate: String,
    signature: Signature,
}

impl ScalarUDFImpl for Planned {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [list] => Ok(Applied::new(&self.aggregate, list)?.result.data_type().clone()),
            _ => plan_err!("{} expects one list", self.name),
        }
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} was not planned", self.name)
    }
}

/// An aggregate over the values of lists of a type.
struct Applied {
    aggregate: &'static Arc<AggregateUDF>,
    argument: FieldRef,
    result: FieldRef,
}

impl Applied {
    fn new(name: &str, list: &DataType) -> Result<Self> {
        let aggregate = aggregate(name)?;
        let values = Arc::new(Field::new("value", values_of(list)?.clone(), true));
        let argument = match &fields_with_udf(&[values], aggregate.as_ref())?[..] {
            [argument] => Arc::clone(argument),
            _ => return internal_err!("{name} takes one argument"),
        };
        let result = aggregate.return_field(&[Arc::clone(&argument)])?;
        Ok(Self { aggregate, argument, result })
    }

    /// The result of each list; NULL of one that is NULL.
    fn over(&self, lists: &ListArray) -> Result<ArrayRef> {
        let schema = Schema::new(vec![Arc::clone(&self.argument)]);
        let values: [Arc<dyn PhysicalExpr>; 1] = [Arc::new(Column::new(self.argument.name(), 0))];
        let fields = [Arc::clone(&self.argument)];
        let args = AccumulatorArgs {
            return_field: Arc::clone(&self.result),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: self.aggregate.name(),
            is_distinct: false,
            exprs: &values,
            expr_fields: &fields,
        };
        match self.aggregate.groups_accumulator_supported(args.clone()) {
            true => self.of_groups(lists, self.aggregate.create_groups_accumulator(args)?),
            false => self.of_each(lists, &args),
        }
    }

    /// With an accumulator for each list.
    fn of_each(&self, lists: &ListArray, args: &AccumulatorArgs) -> Result<ArrayRef> {
        let result = |list: Option<ArrayRef>| {
            let Some(list) = list else { return Ok(new_null_array(self.result.data_type(), 1)) };
            let mut accumulator = self.aggregate.accumulator(args.clone())?;
            accumulator.update_batch(&[cast(&list, self.argument.data_type())?])?;
            accumulator.evaluate()?.to_array()
        };
        let results = lists.iter().map(result).collect::<Result<Vec<_>>>()?;
        match results.is_empty() {
            true => Ok(new_empty_array(self.result.data_type())),
            false => Ok(concat(&results.iter().map(|result| result.as_ref()).collect::<Vec<&dyn Array>>())?),
        }
    }

    /// With one accumulator, to which each list with elements is a group.
    fn of_groups(&self, lists: &ListArray, mut groups: Box<dyn GroupsAccumulator>) -> Result<ArrayRef> {
        let ranges: Vec<Range<usize>> = lists.offsets().windows(2).map(|ends| ends[0] as usize..ends[1] as usize).collect();
        let is_group = |row: &usize| lists.is_valid(*row) && !ranges[*row].is_empty();
        let rows: Vec<usize> = (0..lists.len()).filter(is_group).collect();
        let group_indices: Vec<usize> =
            rows.iter().enumerate().flat_map(|(group, row)| repeat_n(group, ranges[*row].len())).collect();
        let found = match rows.is_empty() {
            true => new_empty_array(self.result.data_type()),
            false => {
                let places = rows.iter().flat_map(|row| ranges[*row].clone()).map(|place| place as u64);
                let values = take(lists.values(), &UInt64Array::from_iter_values(places), None)?;
                groups.update_batch(&[cast(&values, self.argument.data_type())?], &group_indices, None, rows.len())?;
                groups.evaluate(EmitTo::All)?
            }
        };
        // A group without rows has a result of its own.
        let nothing = self.aggregate.default_value(self.result.data_type())?.to_array()?;
        let mut places: Vec<Option<u64>> =
            (0..lists.len()).map(|row| lists.is_valid(row).then_some(rows.len() as u64)).collect();
        rows.iter().enumerate().for_each(|(group, row)| places[*row] = Some(group as u64));
        Ok(take(&concat(&[found.as_ref(), nothing.as_ref()])?, &UInt64Array::from(places), None)?)
    }
}

fn values_of(list: &DataType) -> Result<&DataType> {
    match list {
        DataType::List(values) | DataType::LargeList(values) | DataType::FixedSizeList(values, _) => Ok(values.data_type()),
        DataType::Null => Ok(&DataType::Int64),
        other => plan_err!("expected a list, and {other} was given"),
    }
}

/// The list type that the functions here are given.
fn list_of(list: &DataType) -> Result<DataType> {
    Ok(DataType::List(Arc::new(Field::new_list_field(values_of(list)?.clone(), true))))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListAggregate {
    aliases: Vec<String>,
    signature: Signature,
}

impl ScalarUDFImpl for ListAggregate {
    fn name(&self) -> &'static str {
        LIST_AGGREGATE
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [list, name] if name.is_string() => Ok(vec![list_of(list)?, name.clone()]),
            _ => plan_err!("{LIST_AGGREGATE} expects a list and the name of an aggregate, such as 'median'"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of {LIST_AGGREGATE} hangs on the aggregate")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let name = args.scalar_arguments.get(1).and_then(|name| name.and_then(|name| name.try_as_str().flatten()));
        let (Some(name), [list, _]) = (name, args.arg_fields) else {
            return plan_err!("{LIST_AGGREGATE} expects the name of an aggregate, written out");
        };
        let result = Applied::new(name, list.data_type())?.result;
        Ok(Arc::new(Field::new(LIST_AGGREGATE, result.data_type().clone(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists, ColumnarValue::Scalar(name)] = args.args.as_slice() else {
            return plan_err!("{LIST_AGGREGATE} expects the name of an aggregate, written out");
        };
        let Some(name) = name.try_as_str().flatten() else { return internal_err!("an aggregate has a name") };
        let is_scalar = matches!(lists, ColumnarValue::Scalar(_));
        let lists = lists.to_array(if is_scalar { 1 } else { args.number_rows })?;
        as_given(Applied::new(name, lists.data_type())?.over(lists.as_list())?, is_scalar)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Unique {
    aliases: Vec<String>,
    signature: Signature,
}

impl ScalarUDFImpl for Unique {
    fn name(&self) -> &'static str {
        "list_unique"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [list] => Ok(vec![list_of(list)?]),
            _ => plan_err!("list_unique expects one list"),
        }
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [lists] = args.args.as_slice() else { return internal_err!("expected one argument") };
        let is_scalar = matches!(lists, ColumnarValue::Scalar(_));
        let lists = lists.to_array(if is_scalar { 1 } else { args.number_rows })?;
        as_given(Arc::new(unique(lists.as_list())?), is_scalar)
    }
}

/// How many different values each list has, NULL not among them.
fn unique(lists: &ListArray) -> Result<Int64Array> {
    let count = |list: Option<ArrayRef>| {
        let Some(list) = list else { return Ok(None) };
        let mut values = Counts::new(list.data_type(), true)?;
        values.update(&list)?;
        Ok(Some(values.len() as i64))
    };
    Ok(lists.iter().map(count).collect::<Result<Vec<_>>>()?.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, ListBuilder};
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::datatypes::Int64Type;
    use datafusion::common::ScalarValue;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::{EngineOptions, session_state};

    /// The values of the one row that a query has.
    async fn row(sql: &str) -> Vec<String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = context.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await.unwrap();
        let text = |column: &ArrayRef| ScalarValue::try_from_array(column, 0).unwrap().to_string();
        batches[0].columns().iter().map(text).collect()
    }

    #[tokio::test]
    async fn aggregates_are_of_the_values_of_a_list() {
        for (calls, expected) in [
            ("list_aggregate(l, 'sum'), list_aggr(l, 'COUNT'), aggregate(l, 'avg')", vec!["5", "3", "1.6666666666666667"]),
            ("list_count(l), list_median(l), list_mode(l), list_mad(l)", vec!["3", "2", "2", "0"]),
            (
                "list_var_pop(l), list_stddev_samp(l), list_entropy(l)",
                vec!["0.2222222222222222", "0.5773502691896257", "0.9182958340544896"],
            ),
            ("list_bit_xor(l), list_any_value(l), list_histogram(l)", vec!["1", "2", "{1:1,2:2}"]),
            ("list_approx_count_distinct(l), list_skewness(l)", vec!["2", "-1.7320508075688759"]),
            ("list_bool_and([true, NULL, false]), list_bool_or([false, NULL, true])", vec!["false", "true"]),
            ("list_count([NULL]), list_median([1.5, 2.5]), list_aggregate(['a', 'c', 'b'], 'max')", vec!["0", "2", "c"]),
        ] {
            let found = row(&format!("SELECT {calls} FROM (VALUES ([2, NULL, 1, 2])) AS t(l)")).await;
            let is_near = |one: &String, other: &&str| match (one.parse::<f64>(), other.parse::<f64>()) {
                (Ok(one), Ok(other)) => (one - other).abs() < 1e-12,
                _ => one.trim_matches(['[', ']']) == *other,
            };
            assert!(found.iter().zip(&expected).all(|(one, other)| is_near(one, other)), "{calls}: {found:?}");
        }
    }

    #[tokio::test]
    async fn lists_without_values_are_aggregated_as_groups_without_rows() {
        let none = "list_count(l), list_entropy(l), list_mode(l), list_median(l), list_unique(l), list_aggregate(l, 'max')";
        let empty = row(&format!("SELECT {none} FROM (SELECT array_remove([1], 1) AS l)")).await;
        assert_eq!(empty, ["0", "0", "NULL", "NULL", "0", "NULL"]);
        let null = row(&format!("SELECT {none} FROM (SELECT CAST(NULL AS BIGINT[]) AS l)")).await;
        assert_eq!(null, ["NULL"; 6]);
    }

    #[tokio::test]
    async fn names_that_are_none_are_refused() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        for (sql, expected) in [
            ("SELECT list_aggregate([1], 'nothing')", "no aggregate nothing of a list; those are any_value, approx"),
            ("SELECT list_aggregate(1, 'max')", "expected a list"),
            ("SELECT list_aggregate([1], x) FROM (VALUES ('max')) AS t(x)", "written out"),
            ("SELECT list_median(1)", "expected a list"),
        ] {
            let error = match context.sql(sql).await {
                Ok(frame) => frame.collect().await.unwrap_err(),
                Err(error) => error,
            };
            assert!(error.to_string().contains(expected), "{sql}: {error}");
        }
    }

    #[test]
    fn different_values_are_counted() {
        let mut lists = ListBuilder::new(Float64Array::builder(0));
        lists.append_value([Some(0.0), Some(-0.0), Some(f64::NAN), Some(-f64::NAN), None]);
        lists.append_value([]);
        lists.append_null();
        assert_eq!(unique(&lists.finish()).unwrap().iter().collect::<Vec<_>>(), [Some(2), Some(0), None]);
    }
    /// Values of lists that are NULL count nowhere, and a slice of lists begins in the middle of their values.
    #[test]
    fn lists_are_groups_of_one_accumulator() {
        let values = Int64Array::from(vec![Some(9), Some(9), Some(4), None, Some(-7), None, Some(2), Some(3)]);
        let field = Arc::new(Field::new_list_field(DataType::Int64, true));
        let offsets = OffsetBuffer::new(vec![0, 2, 5, 5, 6, 6, 8].into());
        let nulls = NullBuffer::from(vec![true, false, true, true, false, true]);
        let lists = ListArray::new(field, offsets, Arc::new(values), Some(nulls));
        for (name, expected) in [
            ("sum", ["18", "NULL", "NULL", "NULL", "NULL", "5"]),
            ("min", ["9", "NULL", "NULL", "NULL", "NULL", "2"]),
            ("max", ["9", "NULL", "NULL", "NULL", "NULL", "3"]),
            ("avg", ["9", "NULL", "NULL", "NULL", "NULL", "2.5"]),
            ("count", ["2", "NULL", "0", "0", "NULL", "2"]),
            ("var_pop", ["0", "NULL", "NULL", "NULL", "NULL", "0.25"]),
            ("entropy", ["0", "NULL", "0", "0", "NULL", "1"]),
        ] {
            let applied = Applied::new(name, lists.data_type()).unwrap();
            for first in 0..lists.len() {
                let found = applied.over(&lists.slice(first, lists.len() - first)).unwrap();
                let text = |row| ScalarValue::try_from_array(&found, row).unwrap().to_string();
                assert_eq!((0..found.len()).map(text).collect::<Vec<_>>(), expected[first..], "{name} from {first}");
            }
            assert_eq!(applied.over(&lists.slice(0, 0)).unwrap().len(), 0, "{name}");
        }
        let applied = Applied::new("sum", lists.data_type()).unwrap();
        let large = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(i64::MAX), Some(1)])]);
        assert!(applied.over(&large).unwrap_err().to_string().contains("overflow in sum"));
    }
}
