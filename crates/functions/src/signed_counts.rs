//! Counts and places with results of type BIGINT, as in DuckDB and PostgreSQL: `array_length`, `array_ndims`, `array_dims`,
//! `array_position`, `array_positions`, `cardinality`, and the aggregates `approx_distinct` and `regr_count`. The engine's are unsigned,
//! and what is computed with an unsigned and a signed number is a decimal, which is no place in a list, or fails below zero.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::functions_aggregate::regr::regr_count_udaf;
use datafusion::functions_nested::cardinality::cardinality_udf;
use datafusion::functions_nested::dimension::{array_dims_udf, array_ndims_udf};
use datafusion::functions_nested::length::array_length_udf;
use datafusion::functions_nested::position::{array_position_udf, array_positions_udf};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, Expr, GroupsAccumulator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl,
};

use crate::delegated::{as_inner, as_standard};

const NAMES: [&str; 6] = ["array_dims", "array_length", "array_ndims", "array_position", "array_positions", "cardinality"];

/// Functions of one row, under the engine's names.
pub(crate) fn signed_udfs() -> impl Iterator<Item = ScalarUDF> {
    let positions = [array_position_udf(), array_positions_udf()];
    let counts = [array_length_udf(), array_ndims_udf(), array_dims_udf(), cardinality_udf()];
    positions.into_iter().chain(counts).map(signed)
}

/// Aggregates, under the engine's names.
pub(crate) fn signed_udafs() -> [AggregateUDF; 2] {
    [approx_distinct_udaf(), regr_count_udaf()].map(|standard| AggregateUDF::new_from_impl(SignedAggregate { standard }))
}

/// How many elements a list has.
pub(crate) fn list_length(list: Expr) -> Expr {
    signed(array_length_udf()).call(vec![list])
}

/// Whether an expression calls a function of the engine that has one of ours in its place: the engine's planner makes such calls.
pub(crate) fn is_unsigned(expr: &Expr) -> bool {
    let Expr::ScalarFunction(ScalarFunction { func, .. }) = expr else { return false };
    !func.inner().is::<Signed>() && NAMES.contains(&func.name())
}

/// The call with our function; none: it is no such call.
pub(crate) fn with_sign(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if is_unsigned(expr) => {
            Some(signed(Arc::clone(func)).call(args.clone()))
        }
        _ => None,
    }
}

fn signed(standard: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::new_from_impl(Signed { standard })
}

/// The type with a sign.
fn signed_type(of: &DataType) -> DataType {
    match of {
        DataType::UInt64 => DataType::Int64,
        DataType::List(values) => {
            DataType::List(Arc::new(values.as_ref().clone().with_data_type(signed_type(values.data_type()))))
        }
        other => other.clone(),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Signed {
    standard: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Signed {
    as_standard!(name aliases signature documentation);

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(signed_type(&self.standard.return_type(types)?))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let counts = self.standard.invoke_with_args(args)?;
        counts.cast_to(&signed_type(&counts.data_type()), None)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SignedAggregate {
    standard: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for SignedAggregate {
    as_standard!(name aliases signature state_fields groups_accumulator_supported documentation);

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn default_value(&self, _data_type: &DataType) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(0)))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counting(self.standard.accumulator(args)?)))
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(CountingGroups(self.standard.create_groups_accumulator(args)?)))
    }
}

/// The engine's accumulator, whose count is made signed: no group has so many rows that it is out of range.
#[derive(Debug)]
struct Counting(Box<dyn Accumulator>);

impl Accumulator for Counting {
    as_inner!(0: update_batch merge_batch state retract_batch);

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()?.cast_to(&DataType::Int64)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

/// The same for many groups.
struct CountingGroups(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for CountingGroups {
    as_inner!(0: update_groups state_of_groups merge_groups);

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(cast(&self.0.evaluate(emit_to)?, &DataType::Int64)?)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn counts_and_places_have_a_sign() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let rows = "(VALUES ([4, 5, 6], 1), ([7], 2), (NULL, 1)) AS t(l, k)";
        for (call, value, of) in [
            ("cardinality(l) - 4", "-1", "Int64"),
            ("l[cardinality(l) - 1]", "5", "Int64"),
            ("l[array_length(l)]", "6", "Int64"),
            ("array_length(l, 1) + 1", "4", "Int64"),
            ("len(l) - 5", "-2", "Int64"),
            ("array_position(l, 5) - 3", "-1", "Int64"),
            ("l[list_position(l, 5) + 1]", "6", "Int64"),
            ("array_positions(l, 5)", "[2]", "List(Int64)"),
            ("array_dims(l)", "[3]", "List(Int64)"),
            ("array_ndims(l) - 2", "-1", "Int64"),
            ("cardinality(map(['a'], [1])) + 1", "2", "Int64"),
            ("4 = ANY (l)", "true", "Boolean"),
            ("5 <> ALL (l)", "false", "Boolean"),
        ] {
            let sql = format!("SELECT {call} AS v, arrow_typeof({call}) AS of FROM {rows} WHERE k = 1 AND l IS NOT NULL");
            let found = context.sql(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await.unwrap();
            let text = |column: usize| array_value_to_string(found[0].column(column), 0).unwrap();
            assert_eq!((&*text(0), &*text(1)), (value, of), "{sql}");
        }
    }

    #[tokio::test]
    async fn aggregates_that_count_have_a_sign() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let rows = "(VALUES (1, 1, 2.0), (1, 2, NULL), (2, NULL, NULL)) AS t(k, x, y)";
        for sql in [
            format!("SELECT approx_distinct(x) - 3, regr_count(y, x) - 2 FROM {rows} WHERE k = 1"),
            format!("SELECT approx_distinct(x) - 3, regr_count(y, x) - 2 FROM {rows} GROUP BY k HAVING k = 1"),
            format!("SELECT approx_distinct(x) OVER () - 3, regr_count(y, x) OVER () - 2 FROM {rows}"),
        ] {
            let found = context.sql(&sql).await.unwrap().collect().await.unwrap();
            for column in 0..2 {
                assert_eq!(array_value_to_string(found[0].column(column), 0).unwrap(), "-1", "{sql}");
                assert_eq!(found[0].column(column).data_type().to_string(), "Int64", "{sql}");
            }
        }
        let none =
            context.sql("SELECT approx_distinct(1), regr_count(1, 1) WHERE false").await.unwrap().collect().await.unwrap();
        assert_eq!(array_value_to_string(none[0].column(0), 0).unwrap(), "0");
    }
}
