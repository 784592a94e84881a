//! [`ready_to_run`]: the last thing that happens to a logical plan at host and drives alike.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

use crate::checked::with_checks;
use crate::floats::with_one_float;
use crate::subqueries::refuse_subqueries;

/// A plan as the engine is to run it: arithmetic is checked, and floats that are equal are one value. Whoever makes a physical
/// plan of an optimised one calls it first; the planner of [`crate::session_state`] does.
///
/// It comes last, so that all before it reads plain operators and columns: what travels, what bounds rule out, what a piece
/// costs.
pub fn ready_to_run(plan: LogicalPlan) -> Result<LogicalPlan> {
    refuse_subqueries(&plan)?;
    with_one_float(with_checks(plan)?)
}

/// Plans what is [`ready_to_run`].
#[derive(Debug)]
pub(crate) struct ReadyPlanner;

#[async_trait]
impl QueryPlanner for ReadyPlanner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = ready_to_run(plan.clone())?;
        DefaultPhysicalPlanner::default().create_physical_plan(&plan, session).await
    }
}
