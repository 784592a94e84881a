//! `date_part` without bounds of years that moments do not reach.
//!
//! DataFusion turns `date_part('year', t) < 3000` into a comparison of `t` with the moment at which that year begins. Where the unit of
//! `t` does not reach it, as nanoseconds do not reach 2263, or a zone's clocks left out that moment, it compares with NULL.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions::datetime::date_part;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

pub(crate) fn year_bounds_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(DatePart { standard: date_part() })
}

/// Plans `extract(… FROM …)` with it.
#[derive(Debug)]
pub(crate) struct Extracts;

impl ExprPlanner for Extracts {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(year_bounds_udf().call(args)))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DatePart {
    standard: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for DatePart {
    fn name(&self) -> &str {
        self.standard.name()
    }

    fn aliases(&self) -> &[String] {
        self.standard.aliases()
    }

    fn signature(&self) -> &Signature {
        self.standard.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.standard.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.standard.return_field_from_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.standard.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.standard.invoke_with_args(args)
    }

    fn preimage(&self, args: &[Expr], value: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        Ok(match self.standard.preimage(args, value, info)? {
            PreimageResult::Range { interval, .. } if interval.lower().is_null() || interval.upper().is_null() => {
                PreimageResult::None
            }
            found => found,
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use datafusion::execution::context::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn a_year_that_nanoseconds_do_not_reach_is_a_year() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let rows = "SELECT CAST(column1 AS TIMESTAMP(9)) AS t FROM (VALUES ('1900-01-01'), ('2020-06-01'), (NULL))";
        context.sql(&format!("CREATE TABLE moments AS {rows}")).await.unwrap().collect().await.unwrap();
        for (condition, expected) in [
            ("date_part('year', t) < 3000", 2),
            ("date_part('year', t) BETWEEN 1950 AND 2300", 1),
            ("extract(year FROM t) >= 1600", 2),
            ("date_part('year', t) <> 9999", 2),
            ("date_part('year', t) NOT IN (2020, 9999)", 1),
            ("date_part('year', t) = 2020", 1),
            ("date_part('year', t) > 2262", 0),
        ] {
            let frame = context.sql(&format!("SELECT count(*) FROM moments WHERE {condition}")).await.unwrap();
            let batches = frame.collect().await.unwrap();
            assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), expected, "{condition}");
        }
    }
}
