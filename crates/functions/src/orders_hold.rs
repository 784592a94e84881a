//! [`OrdersHold`]: sorts again where an operator's input is no longer known to be in the order that it needs.
//!
//! A column that has one value is in any order. DataFusion 55.2 therefore leaves a sort by it out; rules that come later
//! can move the projection that told so, and then DataFusion refuses its own plan. The rule comes just before that check.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary};

type Rules = Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>;

/// The rule.
#[derive(Debug)]
pub(crate) struct OrdersHold;

impl OrdersHold {
    /// Puts the rule before DataFusion's check.
    pub(crate) fn before_check(rules: &mut Rules) {
        let is_check = |rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>| rule.name() == SanityCheckPlan::new().name();
        let place = rules.iter().position(is_check).unwrap_or(rules.len());
        rules.insert(place, Arc::new(OrdersHold));
    }
}

impl PhysicalOptimizerRule for OrdersHold {
    fn name(&self) -> &str {
        "pithead_orders_hold"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(with_orders)?.data)
    }
}

fn with_orders(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let mut children = Vec::new();
    let mut is_sorted = false;
    for (child, needed) in node.children().into_iter().zip(node.required_input_ordering()) {
        let missing = match needed.map(|needed| needed.into_single()) {
            Some(needed) if !child.equivalence_properties().ordering_satisfy_requirement(needed.clone())? => Some(needed),
            _ => None,
        };
        is_sorted |= missing.is_some();
        children.push(match missing {
            Some(needed) => {
                Arc::new(SortExec::new(LexOrdering::from(needed), Arc::clone(child)).with_preserve_partitioning(true)) as _
            }
            None => Arc::clone(child),
        });
    }
    match is_sorted {
        true => Ok(Transformed::yes(replace_children_if_necessary(node, children)?)),
        false => Ok(Transformed::no(node)),
    }
}
