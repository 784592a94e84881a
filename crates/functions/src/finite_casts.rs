//! [`FiniteCasts`]: casts to REAL and DOUBLE of numbers that are too large for them, which are errors. The engine makes infinity
//! of them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::compute::{CastOptions, cast_with_options, nullif};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, FieldRef, Float32Type, Float64Type};
use arrow::util::display::array_value_to_string;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::fault::overflow;
use crate::kept_names::{map_named, node_has};
use crate::wall_time::as_given;

/// The rule, for after types are made equal.
#[derive(Debug)]
pub(crate) struct FiniteCasts;

impl AnalyzerRule for FiniteCasts {
    fn name(&self) -> &'static str {
        "pithead_finite_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|node| {
            if !node_has(&node, |part| cast_to_float(part).is_some())? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| {
                expr.transform_up(|part| match cast_to_float(&part) {
                    Some((number, cast)) if may_be_too_large(&number.get_type(&schema)?, cast.is_double) => {
                        Ok(Transformed::yes(cast.of(number)?))
                    }
                    _ => Ok(Transformed::no(part)),
                })
            })
        })?;
        Ok(changed.data)
    }
}

/// Whether a type has numbers that a float has not: the largest of other whole numbers and decimals fit in a REAL.
fn may_be_too_large(of: &DataType, is_double: bool) -> bool {
    of.is_string() || !is_double && matches!(of, DataType::Float64 | DataType::Decimal256(..))
}

/// What is cast to a float, and the cast.
fn cast_to_float(expr: &Expr) -> Option<(&Expr, ToFloat)> {
    let (number, field, has_null) = match expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, true),
        _ => return None,
    };
    match field.data_type() {
        DataType::Float32 => Some((number.as_ref(), ToFloat { is_double: false, has_null })),
        DataType::Float64 => Some((number.as_ref(), ToFloat { is_double: true, has_null })),
        _ => None,
    }
}

/// A cast to a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ToFloat {
    is_double: bool,
    /// Whether what does not fit is NULL, and no error.
    has_null: bool,
}

impl ToFloat {
    fn udf(self) -> ScalarUDF {
        ScalarUDF::new_from_impl(FiniteCast { cast: self, signature: Signature::any(1, Volatility::Immutable) })
    }

    /// The number as a float. A literal is cast at once, unless that is an error, which the run reports.
    fn of(self, number: &Expr) -> Result<Expr> {
        if let Expr::Literal(value, _) = number
            && let Ok(float) = self.floats(&value.to_array()?)
        {
            return Ok(lit(ScalarValue::try_from_array(&float, 0)?));
        }
        Ok(self.udf().call(vec![number.clone()]))
    }

    fn data_type(self) -> DataType {
        if self.is_double { DataType::Float64 } else { DataType::Float32 }
    }

    fn floats(self, numbers: &ArrayRef) -> Result<ArrayRef> {
        let options = CastOptions { safe: self.has_null, ..CastOptions::default() };
        let floats = cast_with_options(numbers, &self.data_type(), &options)?;
        let infinite = match self.is_double {
            true => infinite(floats.as_primitive::<Float64Type>(), f64::is_infinite),
            false => infinite(floats.as_primitive::<Float32Type>(), f32::is_infinite),
        };
        let Some(infinite) = infinite else { return Ok(floats) };
        let mut too_large = Vec::with_capacity(floats.len());
        for (row, is_infinite) in infinite.into_iter().enumerate() {
            let is_too_large = is_infinite && is_finite(numbers, row)?;
            if is_too_large && !self.has_null {
                let (number, name) = (array_value_to_string(numbers, row)?, if self.is_double { "DOUBLE" } else { "REAL" });
                return Err(overflow(format!("overflow in a cast: {number} does not fit in {name}")));
            }
            too_large.push(is_too_large);
        }
        Ok(nullif(&floats, &BooleanArray::from(too_large))?)
    }
}

/// Which of some floats are infinite; none: none of them is.
fn infinite<T: ArrowPrimitiveType>(floats: &PrimitiveArray<T>, is_infinite: fn(T::Native) -> bool) -> Option<Vec<bool>> {
    let is_one = |float: Option<T::Native>| float.is_some_and(is_infinite);
    floats.iter().any(is_one).then(|| floats.iter().map(is_one).collect())
}

/// Whether a number is no infinity before it is cast. A text that says infinity has no digit.
fn is_finite(numbers: &ArrayRef, row: usize) -> Result<bool> {
    Ok(match numbers.data_type() {
        DataType::Float64 => numbers.as_primitive::<Float64Type>().value(row).is_finite(),
        of if of.is_string() => array_value_to_string(numbers, row)?.contains(|letter: char| letter.is_ascii_digit()),
        _ => true,
    })
}

/// The functions behind such casts.
pub(crate) fn finite_casts_udfs() -> impl Iterator<Item = ScalarUDF> {
    let casts = [(false, false), (false, true), (true, false), (true, true)];
    casts.into_iter().map(|(is_double, has_null)| ToFloat { is_double, has_null }.udf())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FiniteCast {
    cast: ToFloat,
    signature: Signature,
}

impl ScalarUDFImpl for FiniteCast {
    fn name(&self) -> &str {
        match (self.cast.is_double, self.cast.has_null) {
            (false, false) => "pithead_real",
            (false, true) => "pithead_try_real",
            (true, false) => "pithead_double",
            (true, true) => "pithead_try_double",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.cast.data_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = self.cast.has_null || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.cast.data_type(), nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [numbers] = args.args.as_slice() else { return internal_err!("{} has one argument", self.name()) };
        let is_scalar = matches!(numbers, ColumnarValue::Scalar(_));
        let numbers = numbers.to_array(if is_scalar { 1 } else { args.number_rows })?;
        as_given(self.cast.floats(&numbers)?, is_scalar)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn run(sql: &str) -> Result<String, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = async { context.sql(sql).await?.collect().await }.await.map_err(|error| error.to_string())?;
        let column = batches[0].column(0);
        arrow::util::display::array_value_to_string(column, 0).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn numbers_that_are_too_large_are_errors() {
        for (sql, expected) in [
            ("SELECT CAST(1e40 AS REAL)", "1e40 does not fit in REAL"),
            ("SELECT '1e39'::real", "1e39 does not fit in REAL"),
            ("SELECT '-1e400'::double", "-1e400 does not fit in DOUBLE"),
            ("SELECT CAST(x AS REAL) FROM (VALUES (1.5), (-1e39)) AS v(x)", "-1e39 does not fit in REAL"),
            ("SELECT max(CAST(x AS DOUBLE)) FROM (VALUES ('1'), ('1e309')) AS v(x)", "1e309 does not fit in DOUBLE"),
            ("SELECT CAST('x' AS DOUBLE)", "Cannot cast string 'x' to value of Float64 type"),
        ] {
            let error = run(sql).await.unwrap_err();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }

    #[tokio::test]
    async fn values_that_are_stored_fit_their_columns() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let run = async |sql: &str| context.sql(sql).await?.collect().await;
        run("CREATE TABLE floats (r REAL, d DOUBLE)").await.unwrap();
        for sql in [
            "INSERT INTO floats VALUES (1e39, 1)",
            "INSERT INTO floats SELECT x, 1 FROM (SELECT 1e39 AS x) AS v",
            "INSERT INTO floats VALUES (1, '1e400')",
        ] {
            let error = run(sql).await.unwrap_err().to_string();
            assert!(error.contains("does not fit in"), "{sql}: {error}");
        }
        run("INSERT INTO floats VALUES (1.5, '1e300'), ('inf', 'inf'::real)").await.unwrap();
        let rows = run("SELECT count(*) FROM floats WHERE r = 1.5 AND d = 1e300 OR r = d").await.unwrap();
        assert_eq!(arrow::util::display::array_value_to_string(rows[0].column(0), 0).unwrap(), "2");
    }

    #[tokio::test]
    async fn others_are_cast() {
        for (sql, expected) in [
            ("SELECT TRY_CAST(1e40 AS REAL) IS NULL", "true"),
            ("SELECT TRY_CAST('1e400' AS DOUBLE) IS NULL", "true"),
            ("SELECT TRY_CAST('x' AS REAL) IS NULL", "true"),
            ("SELECT TRY_CAST(x AS REAL) IS NULL FROM (VALUES (1e39), (1.5)) AS v(x)", "true"),
            ("SELECT sum(TRY_CAST(x AS REAL)) FROM (VALUES (1e39), (1.5)) AS v(x)", "1.5"),
            ("SELECT 'inf'::real", "inf"),
            ("SELECT CAST('-Infinity'::double AS REAL)", "-inf"),
            ("SELECT CAST(x AS REAL) FROM (VALUES ('inf'), ('2')) AS v(x)", "inf"),
            ("SELECT CAST('NaN'::double AS REAL)", "NaN"),
            ("SELECT CAST('1e-50' AS REAL)", "0.0"),
            ("SELECT 3.4e38::real", "3.4e38"),
            ("SELECT CAST(NULL::text AS REAL) IS NULL", "true"),
        ] {
            assert_eq!(run(sql).await.as_deref(), Ok(expected), "{sql}");
        }
    }
}
