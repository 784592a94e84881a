//! Long computations of the planner, beside what else the runtime has to do.

use std::ops::ControlFlow;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as Syntax;
use pithead_syntax::expressions;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Columns and parts of expressions that a plan may have to be planned where it is: that takes some milliseconds.
const SMALL_MAX: usize = 1_000;

/// Whether planning takes so long that other queries, and the pings of connections, should not wait for it.
pub(crate) fn is_large(plan: &LogicalPlan) -> bool {
    let mut size = 0;
    let counted = plan.apply_with_subqueries(|node| {
        size += node.schema().fields().len();
        node.apply_expressions(|expr| {
            expr.apply(|_| {
                size += 1;
                Ok(if size > SMALL_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        Ok(if size > SMALL_MAX { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    counted.is_err() || size > SMALL_MAX
}

/// The same of a statement that is not planned yet.
pub(crate) fn is_long(statement: &Syntax) -> bool {
    let Syntax::Statement(statement) = statement else { return false };
    let mut left = SMALL_MAX;
    let look = |_: &_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    expressions(statement.as_ref(), look).is_break()
}

/// Runs what computes for long. Another thread takes over what this one had to do, where the runtime has several.
pub(crate) fn aside<T>(is_long: bool, work: impl FnOnce() -> T) -> T {
    if is_long && has_threads() { block_in_place(work) } else { work() }
}

/// [`aside`] for work that waits now and then.
pub(crate) async fn aside_waiting<T>(is_long: bool, work: impl Future<Output = T>) -> T {
    match is_long && has_threads() {
        true => block_in_place(|| Handle::current().block_on(work)),
        false => work.await,
    }
}

fn has_threads() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}
