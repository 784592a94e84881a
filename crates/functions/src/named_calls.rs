//! [`NamedCalls`]: calls of table functions in FROM, told apart by their arguments.
//!
//! DataFusion 55.2 names what `range(3)` gives, and what `range(10)` gives, `range()`. Plans are equal where their names and columns are,
//! so that one of the two would be taken for the other, in our rules as in its own.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, NullHandling, Result, TableReference, UnnestOptions, plan_err};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlanBuilder, cast};
use datafusion::sql::sqlparser::ast::{FunctionArg, FunctionArgExpr, ObjectNamePart, TableFactor, TableFunctionArgs};

/// The column of a series.
const VALUE: &str = "value";
/// Functions that give series.
const SERIES: [&str; 2] = ["range", "generate_series"];

/// Plans such calls.
#[derive(Debug)]
pub(crate) struct NamedCalls;

impl RelationPlanner for NamedCalls {
    fn plan_relation(&self, relation: TableFactor, context: &mut dyn RelationPlannerContext) -> Result<RelationPlanning> {
        let TableFactor::Table { name, alias, args: Some(call), .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(ObjectNamePart::Identifier(function)) = name.0.first() else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let function = function.to_string();
        let args = call.args.iter().map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => {
                context.sql_expr_to_logical_expr(expr.clone(), &DFSchema::empty())
            }
            other => plan_err!("expected an expression as an argument of {function}, got {other}"),
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        let named = TableReference::bare(called(&function, call));
        let is_series = SERIES.iter().any(|name| function.eq_ignore_ascii_case(name));
        let list = match is_series && are_moments(&args) {
            true => context.context_provider().get_function_meta(&function.to_lowercase()),
            false => None,
        };
        let plan = match list {
            Some(list) => {
                let values = list.call(args.into_iter().map(moment).collect()).alias(VALUE);
                let options = UnnestOptions::new().with_null_handling(NullHandling::Drop);
                LogicalPlanBuilder::empty(true).project([values])?.unnest_column_with_options(VALUE, options)?.alias(named)?
            }
            None => {
                let source = context.context_provider().get_table_function_source(&function, args)?;
                LogicalPlanBuilder::scan(named, source, None)?
            }
        };
        let plan = plan.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

/// Whether a call is about moments: the engine's tables of these count them in nanoseconds, and lists of ours do not.
fn are_moments(args: &[Expr]) -> bool {
    let first = args.first().and_then(|arg| arg.get_type(&DFSchema::empty()).ok());
    matches!(first, Some(DataType::Timestamp(..) | DataType::Date32))
}

/// A day as its first moment: steps may be shorter than a day.
fn moment(arg: Expr) -> Expr {
    match arg.get_type(&DFSchema::empty()) {
        Ok(DataType::Date32) => cast(arg, DataType::Timestamp(TimeUnit::Microsecond, None)),
        _ => arg,
    }
}

/// A call as it is written.
fn called(function: &str, call: &TableFunctionArgs) -> String {
    let args: Vec<String> = call.args.iter().map(ToString::to_string).collect();
    format!("{function}({})", args.join(", "))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn calls_with_other_arguments_are_others() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        for (sql, expected) in [
            ("SELECT (SELECT max(value) FROM range(3)) AS a, (SELECT max(value) FROM range(10)) AS b", vec![2, 9]),
            (
                "SELECT count(*) FROM (VALUES (1), (7), (20)) AS t(x) \
                 WHERE x IN (SELECT value FROM range(3)) OR x IN (SELECT value FROM range(10))",
                vec![2],
            ),
            ("SELECT count(*), max(b.value) FROM range(3), range(10) AS b", vec![30, 9]),
            (
                "SELECT count(*) FROM (SELECT 1) AS t(x) WHERE x IN (SELECT value FROM range(1)) OR x IN (SELECT value FROM range(2))",
                vec![1],
            ),
            (
                "SELECT count(*), count(DISTINCT m), min(extract(day FROM m))::bigint \
                 FROM generate_series(TIMESTAMP '2024-01-31', '2024-05-31'::timestamp, INTERVAL '1 month') AS g(m)",
                vec![5, 5, 29],
            ),
            (
                "SELECT count(*), count(DISTINCT a.value) \
                 FROM range(DATE '1500-01-01', DATE '1500-01-04', INTERVAL '1 day') AS a, \
                 range(DATE '1500-01-01', DATE '1500-01-03', INTERVAL '1 day') AS b WHERE a.value >= b.value",
                vec![5, 3],
            ),
            ("SELECT count(*) FROM generate_series(DATE '2024-01-01', DATE '2024-01-02', INTERVAL '6 hours')", vec![5]),
            ("SELECT count(*) FROM generate_series(NULL::timestamp, TIMESTAMP '2024-01-02', INTERVAL '1 day')", vec![0]),
        ] {
            let found = context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            let values: Vec<i64> =
                found[0].columns().iter().map(|column| column.as_primitive::<Int64Type>().value(0)).collect();
            assert_eq!(values, expected, "{sql}");
        }
    }
}
