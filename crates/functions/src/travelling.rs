//! What makes a physical plan fit to travel to another machine's engine.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_plan::ExecutionPlan;

use crate::any_order::AnyOrderExec;
use crate::average::average_udf;
use crate::checked;
use crate::give_way_exec::GiveWayExec;
use crate::one_value::one_value_udf;
use crate::or_zero::or_zero_udf;
use crate::whole_field::whole_field_udf;

/// The functions that SQL cannot spell and that plans about to run call: checked arithmetic, one value for all that are equal,
/// fields of structs, and what merges parts. A plan that travels names its functions, so an engine that runs plans of others registers these.
pub fn unnamed_functions() -> Vec<ScalarUDF> {
    let mut functions = checked::functions();
    functions.extend([one_value_udf(), average_udf(), or_zero_udf(), whole_field_udf()]);
    functions
}

/// The plan without the operators that let other tasks run in between.
pub fn bare(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let bare = plan.transform_up(|node| {
        let input = node.children().first().map(|input| Arc::clone(input)).filter(|_| node.is::<GiveWayExec>());
        Ok(input.map_or_else(|| Transformed::no(node), Transformed::yes))
    })?;
    Ok(bare.data)
}

/// Hides what a plan claims of the order and the values of its rows, as the plans of sessions do where such a claim can be wrong. Sorts
/// look at claims while they run, so this has to be in a plan that travels, too.
pub fn any_order(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Arc::new(AnyOrderExec::new(plan))
}

/// Whether a plan begins with the operator of [`any_order`].
pub fn is_any_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<AnyOrderExec>()
}
