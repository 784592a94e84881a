//! [`ToldApart`]: pushes filters down a physical plan only where names identify columns.
//!
//! DataFusion's `FilterPushdown` moves a filter from an operator to its input by the names of columns. Above a join,
//! two columns may have the same name, and the filter on one becomes a filter on the other, which loses rows. It also
//! moves a filter on a key of a semi join to the other side, where a column with the key's name need not be the key.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

/// Applies a rule to the parts of a plan where no operator has two columns with the same name. Filters of other
/// operators stay where they are.
#[derive(Debug)]
pub(crate) struct ToldApart(FilterPushdown);

impl ToldApart {
    /// DataFusion's rules, with those replaced that push filters down.
    pub(crate) fn in_place(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
        for make in [FilterPushdown::new, FilterPushdown::new_post_optimization] {
            for rule in rules.iter_mut().filter(|rule| rule.name() == make().name()) {
                *rule = Arc::new(ToldApart(make()));
            }
        }
    }

    fn pushed(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if is_told_apart(&plan) {
            return self.0.optimize(plan, config);
        }
        let children: Vec<_> = plan.children().into_iter().cloned().collect();
        let pushed = children.iter().map(|child| self.pushed(Arc::clone(child), config)).collect::<Result<Vec<_>>>()?;
        replace_children_if_necessary(plan, pushed)
    }
}

impl PhysicalOptimizerRule for ToldApart {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        self.pushed(plan, config)
    }
}

/// Whether each name means one column in the whole plan.
fn is_told_apart(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = plan.schema();
    let mut names = HashSet::new();
    schema.fields().iter().all(|field| names.insert(field.name()))
        && plan.downcast_ref::<HashJoinExec>().is_none_or(|join| has_keys_of_one_name(join) && !has_nested_keys(join))
        && plan.children().into_iter().all(is_told_apart)
}

/// Whether a join's keys are lists or structs. The range of the build side's keys reaches the other side's scan, where
/// a NULL inside has another order, which loses rows.
fn has_nested_keys(join: &HashJoinExec) -> bool {
    let schema = join.left().schema();
    join.on().iter().any(|(key, _)| key.data_type(&schema).is_ok_and(|data_type| data_type.is_nested()))
}

/// Whether the other side of a semi join has that key, or nothing, under the name of a key.
fn has_keys_of_one_name(join: &HashJoinExec) -> bool {
    join.on().iter().all(|(left, right)| {
        let (own, other, others) = match join.join_type() {
            JoinType::LeftSemi => (left, right, join.right().schema()),
            JoinType::RightSemi => (right, left, join.left().schema()),
            _ => return true,
        };
        let Some(own) = own.downcast_ref::<Column>() else { return true };
        let named_alike = others.index_of(own.name()).ok();
        named_alike.is_none_or(|index| other.downcast_ref::<Column>().is_some_and(|other| other.index() == index))
    })
}
