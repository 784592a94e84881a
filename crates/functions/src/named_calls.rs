//! [`NamedCalls`]: calls of table functions in FROM, told apart by their arguments.
//!
//! DataFusion 55.2 names what `range(3)` gives, and what `range(10)` gives, `range()`. Plans are equal where their names and columns are,
//! so that one of the two would be taken for the other, in our rules as in its own.

use datafusion::common::{DFSchema, Result, TableReference, plan_err};
use datafusion::logical_expr::LogicalPlanBuilder;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::sql::sqlparser::ast::{FunctionArg, FunctionArgExpr, ObjectNamePart, TableFactor, TableFunctionArgs};

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
        let source = context.context_provider().get_table_function_source(&function, args)?;
        let named = TableReference::bare(called(&function, call));
        let plan = LogicalPlanBuilder::scan(named, source, None)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
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
        ] {
            let found = context.sql(sql).await.unwrap().collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            let values: Vec<i64> =
                found[0].columns().iter().map(|column| column.as_primitive::<Int64Type>().value(0)).collect();
            assert_eq!(values, expected, "{sql}");
        }
    }
}
