//! [`ready_to_run`]: the last step of a logical plan, at host and drives alike.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

use crate::checked::with_checks;
use crate::group_keys::by_group_keys;
use crate::one_value::with_one_value;
use crate::open_lists::without_open_lists;
use crate::sliding::over_any_frame;
use crate::subqueries::refuse_subqueries;

/// The plan as the engine is to run it: joins with groups are by their groups, arithmetic is checked, and values that are equal are
/// one. Whoever makes a physical plan of an optimised plan calls this function first; the planner of [`crate::session_state`]
/// does so.
///
/// It is the last step, so that all steps before it read plain operators and columns: the check of what travels, the
/// pruning by bounds, and the cost of a piece.
pub fn ready_to_run(plan: LogicalPlan) -> Result<LogicalPlan> {
    refuse_subqueries(&plan)?;
    with_one_value(with_checks(without_open_lists(by_group_keys(over_any_frame(plan)?)?)?)?)
}

/// A planner that calls [`ready_to_run`] first.
#[derive(Debug)]
pub(crate) struct ReadyPlanner;

#[async_trait]
impl QueryPlanner for ReadyPlanner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = ready_to_run(plan.clone())?;
        DefaultPhysicalPlanner::default().create_physical_plan(&plan, session).await
    }
}
