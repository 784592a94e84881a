//! `ceil` and `floor` of decimals, whose result may have a digit more: of 9.5 as DECIMAL(2, 1) the first is 10. DataFusion's functions
//! keep the type, and fail for it.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::delegated::as_standard;

pub(crate) fn whole_decimals_udfs() -> [ScalarUDF; 2] {
    [math::ceil(), math::floor()].map(|standard| ScalarUDF::new_from_impl(Whole { standard }))
}

/// DataFusion's function, of a decimal with room for the result.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    standard: Arc<ScalarUDF>,
}

/// The type of a decimal's whole number, where it is another.
fn wider(of: &DataType) -> Option<DataType> {
    Some(match *of {
        DataType::Decimal32(digits @ ..9, scale @ 1..) => DataType::Decimal32(digits + 1, scale),
        DataType::Decimal64(digits @ ..18, scale @ 1..) => DataType::Decimal64(digits + 1, scale),
        DataType::Decimal128(digits @ ..38, scale @ 1..) => DataType::Decimal128(digits + 1, scale),
        DataType::Decimal256(digits @ ..76, scale @ 1..) => DataType::Decimal256(digits + 1, scale),
        _ => return None,
    })
}

impl ScalarUDFImpl for Whole {
    as_standard!(name aliases signature output_ordering documentation);

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first().and_then(wider) {
            Some(wider) => Ok(wider),
            None => self.standard.return_type(types),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(wider) = args.args.first().and_then(|value| wider(&value.data_type())) else {
            return self.standard.invoke_with_args(args);
        };
        let values = args.args.iter().map(|value| value.cast_to(&wider, None)).collect::<Result<_>>()?;
        let arg_fields = args.arg_fields.iter().map(|field| Arc::new(field.as_ref().clone().with_data_type(wider.clone())));
        self.standard.invoke_with_args(ScalarFunctionArgs { args: values, arg_fields: arg_fields.collect(), ..args.clone() })
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        let Some(input) = inputs.first() else { return plan_err!("{} has one argument", self.name()) };
        match wider(&input.data_type()) {
            Some(wider) => Interval::make_unbounded(&wider),
            None => self.standard.inner().evaluate_bounds(inputs),
        }
    }

    /// The bounds are of the argument's type, where they fit it.
    fn preimage(&self, args: &[Expr], value: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        let found = self.standard.preimage(args, value, info)?;
        let PreimageResult::Range { expr, interval } = &found else { return Ok(found) };
        let of = info.get_data_type(expr)?;
        if wider(&of).is_none() {
            return Ok(found);
        }
        Ok(match (interval.lower().cast_to(&of), interval.upper().cast_to(&of)) {
            (Ok(lower), Ok(upper)) => {
                PreimageResult::Range { expr: expr.clone(), interval: Box::new(Interval::try_new(lower, upper)?) }
            }
            _ => PreimageResult::None,
        })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn whole_numbers_may_have_a_digit_more() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let rows = "(VALUES (99.99), (-99.99), (1.5), (NULL)) AS t(v)";
        for (sql, expected) in [
            ("SELECT ceil(9.5::DECIMAL(2,1))".to_owned(), "10.0"),
            ("SELECT floor((-99.99)::DECIMAL(4,2))".to_owned(), "-100.00"),
            ("SELECT ceil(7::DECIMAL(4,0))".to_owned(), "7"),
            ("SELECT ceil('99999999999999999999999999999999999.001'::DECIMAL(38,3))".to_owned(), "error"),
            (format!("SELECT max(ceil(v::DECIMAL(4,2))) FROM {rows}"), "100.00"),
            (format!("SELECT min(floor(v::DECIMAL(4,2))) FROM {rows}"), "-100.00"),
            (format!("SELECT count(*) FROM {rows} WHERE floor(v::DECIMAL(4,2)) = -100"), "1"),
            (format!("SELECT count(*) FROM {rows} WHERE floor(v::DECIMAL(4,2)) = 99"), "1"),
            (format!("SELECT count(*) FROM {rows} WHERE ceil(v::DECIMAL(4,2)) > 1"), "2"),
        ] {
            let answer = match context.sql(&sql).await.unwrap().collect().await {
                Ok(batches) => arrow::util::display::array_value_to_string(batches[0].column(0), 0).unwrap(),
                Err(_) => "error".to_owned(),
            };
            assert_eq!(answer, expected, "{sql}");
        }
    }
}
