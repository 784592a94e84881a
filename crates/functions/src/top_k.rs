//! [`TopKByGroup`]: the engine's top-k aggregation, where it can be trusted.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::topk_aggregation::TopKAggregation;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use crate::one_value::has_synonyms;

/// DataFusion's `TopKAggregation`, for plans that aggregate no floats.
///
/// For `GROUP BY k ORDER BY max(v) LIMIT n` it keeps n groups in a heap and a hash table, which compare floats by `==`
/// and `<`. A NaN is then never found again among the groups, which leads to a panic; and in the heap it is neither
/// smaller nor larger than any value.
#[derive(Debug, Default)]
pub(crate) struct TopKByGroup {
    standard: TopKAggregation,
}

impl TopKByGroup {
    /// Puts the rule in place of DataFusion's.
    pub(crate) fn in_place(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
        let standard = TopKAggregation::new();
        for rule in rules.iter_mut().filter(|rule| rule.name() == standard.name()) {
            *rule = Arc::new(Self::default());
        }
    }
}

impl PhysicalOptimizerRule for TopKByGroup {
    fn name(&self) -> &str {
        self.standard.name()
    }

    fn schema_check(&self) -> bool {
        self.standard.schema_check()
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if aggregates_floats(&plan)? { Ok(plan) } else { self.standard.optimize(plan, config) }
    }
}

fn aggregates_floats(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        let aggregate = node.downcast_ref::<AggregateExec>();
        found = found
            || aggregate
                .is_some_and(|aggregate| aggregate.schema().fields().iter().any(|field| has_synonyms(field.data_type())));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
