//! `list_aggregate(list, 'name')`: an aggregate of the values of each list, and `list_unique`, how many different ones they are.
//!
//! `list_median(list)` and its like are planned as `list_aggregate(list, 'median')`, so that there is one function that drives know.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, ListArray, new_empty_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::functions_aggregate::any_value::any_value_udaf;
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_or_udaf, bit_xor_udaf};
use datafusion::functions_aggregate::bool_and_or::{bool_and_udaf, bool_or_udaf};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    lit,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use crate::product::product_udaf;
use crate::ranked::mad_udaf;
use crate::shapes::shape_udaf;
use crate::spread::spread_udafs;
use crate::value_counts::{Counts, counted_udaf};
use crate::wall_time::as_given;
use crate::{avg_udaf, max_udaf, min_udaf, shapes, sum_udaf, value_counts};

/// The function that drives know.
const LIST_AGGREGATE: &str = "list_aggregate";
/// What stands before an aggregate's name in that of the function of a list.
const OF_LIST: &str = "list_";
/// Aggregates of lists that the engine has under their own names.
const KNOWN: [&str; 5] = ["avg", "max", "min", "product", "sum"];

/// Aggregates of one argument, which do not hang on the order of values.
static AGGREGATES: LazyLock<BTreeMap<String, Arc<AggregateUDF>>> = LazyLock::new(|| {
    let counted = value_counts::FINISHED.map(|(name, _, of)| counted_udaf(name, of));
    let shaped = shapes::FINISHED.map(|(name, _, shape)| shape_udaf(name, shape));
    let ours = counted.into_iter().chain(shaped).chain([product_udaf(), mad_udaf()]).chain(spread_udafs()).map(Arc::new);
    let bits = [bit_and_udaf(), bit_or_udaf(), bit_xor_udaf(), bool_and_udaf(), bool_or_udaf()];
    let others = [any_value_udaf(), avg_udaf(), count_udaf(), max_udaf(), median_udaf(), min_udaf(), sum_udaf()];
    let named = ours.chain(bits).chain(others).map(|aggregate| (aggregate.name().to_owned(), aggregate));
    let renamed = [("approx_count_distinct", approx_distinct_udaf())].map(|(name, of)| (name.to_owned(), of));
    let mut all: BTreeMap<String, Arc<AggregateUDF>> = named.chain(renamed).collect();
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
        let result = |list: Option<ArrayRef>| {
            let Some(list) = list else { return Ok(arrow::array::new_null_array(self.result.data_type(), 1)) };
            let mut accumulator = self.aggregate.accumulator(AccumulatorArgs {
                return_field: Arc::clone(&self.result),
                schema: &schema,
                ignore_nulls: false,
                order_bys: &[],
                is_reversed: false,
                name: self.aggregate.name(),
                is_distinct: false,
                exprs: &values,
                expr_fields: &fields,
            })?;
            accumulator.update_batch(&[cast(&list, self.argument.data_type())?])?;
            accumulator.evaluate()?.to_array()
        };
        let results = lists.iter().map(result).collect::<Result<Vec<_>>>()?;
        match results.is_empty() {
            true => Ok(new_empty_array(self.result.data_type())),
            false => Ok(concat(&results.iter().map(|result| result.as_ref()).collect::<Vec<&dyn Array>>())?),
        }
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
}
