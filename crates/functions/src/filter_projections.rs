//! [`FilterProjections`]: no filter drops columns while projections are pushed down.
//!
//! DataFusion 55.2 pushes projections down twice. The first time, a filter may take a projection into itself. The second
//! time, DataFusion looks for the columns of that filter's condition, which count from the filter's input, among those of
//! a projection above, which count from its output: it finds a wrong column or none, and the plan fails. The rule comes
//! before each of the two, and gives the filter's columns back to a projection of their own.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;

/// The rule.
#[derive(Debug)]
pub(crate) struct FilterProjections;

impl FilterProjections {
    /// Puts the rule before each of DataFusion's that pushes projections down.
    pub(crate) fn before_each(rules: &mut Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>) {
        let pushes = |rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>| rule.name() == ProjectionPushdown::new().name();
        let places: Vec<usize> = (0..rules.len()).rev().filter(|place| pushes(&rules[*place])).collect();
        for place in places {
            rules.insert(place, Arc::new(FilterProjections));
        }
    }
}

impl PhysicalOptimizerRule for FilterProjections {
    fn name(&self) -> &str {
        "pithead_filter_projections"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let apart = plan.transform_up(|node| match node.downcast_ref::<FilterExec>().and_then(apart) {
            Some(apart) => Ok(Transformed::yes(apart?)),
            None => Ok(Transformed::no(node)),
        })?;
        Ok(apart.data)
    }
}

/// The filter that keeps all columns, below a projection; none: it does keep them.
fn apart(filter: &FilterExec) -> Option<Result<Arc<dyn ExecutionPlan>>> {
    let kept = filter.projection().as_ref()?;
    let schema = filter.input().schema();
    let column = |index: &usize| {
        let name = schema.field(*index).name();
        ProjectionExpr::new(Arc::new(Column::new(name, *index)), name.clone())
    };
    let columns: Vec<ProjectionExpr> = kept.iter().map(column).collect();
    let whole = FilterExecBuilder::from(filter).apply_projection(None).and_then(FilterExecBuilder::build);
    Some(whole.and_then(|whole| Ok(Arc::new(ProjectionExec::try_new(columns, Arc::new(whole))?) as _)))
}
