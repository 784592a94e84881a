//! [`NamedGroups`]: DataFusion's rule for groups that others decide, used only where all groups have names of their own.

use std::collections::HashSet;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_group_by_constant::EliminateGroupByConstant;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// DataFusion 55.2's `EliminateGroupByConstant`, for aggregates of which a projection can have all expressions.
///
/// The rule computes a group that hangs on other groups alone above the aggregate, `CAST(a AS text)` of the groups `a` and `CAST(a AS
/// text)`. A cast is named like what it casts, and the projection of both would be refused.
#[derive(Debug, Default)]
pub(crate) struct NamedGroups(EliminateGroupByConstant);

impl OptimizerRule for NamedGroups {
    fn name(&self) -> &'static str {
        "pithead_named_groups"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = &plan else { return Ok(Transformed::no(plan)) };
        let mut names = HashSet::new();
        let are_told =
            aggregate.group_expr.iter().chain(&aggregate.aggr_expr).all(|expr| names.insert(expr.schema_name().to_string()));
        if are_told { self.0.rewrite(plan, config) } else { Ok(Transformed::no(plan)) }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn a_column_and_its_cast_are_groups() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let sql = "SELECT a AS x, CAST(a AS VARCHAR) AS y, count(*) AS n FROM (VALUES (1), (2), (2)) AS t(a) GROUP BY a, CAST(a AS \
                   VARCHAR) ORDER BY n";
        let found = context.sql(sql).await.unwrap().collect().await.unwrap();
        let row = |row| [0, 1, 2].map(|column| array_value_to_string(found[0].column(column), row).unwrap()).join(" ");
        assert_eq!([row(0), row(1)], ["1 1 1", "2 2 2"]);
    }
}
