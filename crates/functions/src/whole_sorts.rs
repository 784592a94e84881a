//! [`WholeSorts`]: the first rows by lists or structs come from a sort of all rows.
//!
//! DataFusion 55.2's top-k leaves out rows that come after its last one by a comparison of its own, in which a NULL within a struct is
//! the least value, where the sort takes it for the largest.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::sorts::sort::SortExec;

/// The rule.
#[derive(Debug)]
pub(crate) struct WholeSorts;

impl PhysicalOptimizerRule for WholeSorts {
    fn name(&self) -> &'static str {
        "pithead_whole_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let whole = plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
            let schema = sort.input().schema();
            let is_nested = |key: &PhysicalExprRef| key.data_type(&schema).is_ok_and(|data_type| data_type.is_nested());
            let Some(fetch) = sort.fetch().filter(|_| sort.expr().iter().any(|key| is_nested(&key.expr))) else {
                return Ok(Transformed::no(node));
            };
            let is_parted = sort.preserve_partitioning();
            let all = SortExec::new(sort.expr().clone(), Arc::clone(sort.input())).with_preserve_partitioning(is_parted);
            let first: Arc<dyn ExecutionPlan> = match is_parted {
                true => Arc::new(LocalLimitExec::new(Arc::new(all), fetch)),
                false => Arc::new(GlobalLimitExec::new(Arc::new(all), 0, Some(fetch))),
            };
            Ok(Transformed::yes(first))
        })?;
        Ok(whole.data)
    }
}
