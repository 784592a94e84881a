//! [`FilterProjections`]: projections are pushed down, and what they compute stays above filters.
//!
//! DataFusion 55.2 moves a projection below a filter whose columns it keeps, with all that it computes: `SELECT k, 1 / k FROM … WHERE
//! k <> 0` would divide by the zeros that the filter drops.
//!
//! It pushes projections down twice. The first time, a filter may take a projection into itself. The second time, DataFusion looks for
//! the columns of that filter's condition, which count from the filter's input, among those of a projection above, which count from its
//! output: it finds a wrong column or none, and the plan fails. So no filter drops columns while projections are pushed down.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::projection::{ProjectionExpr, update_expr};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::expressions::{Column, Literal};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr, replace_children_if_necessary};

use crate::give_way_exec::{GiveWayExec, Times};
use crate::travelling::bare;

type Plan = Arc<dyn ExecutionPlan>;

/// DataFusion's rule, in which no filter drops columns, and what is computed stays above filters.
#[derive(Debug)]
pub(crate) struct FilterProjections(ProjectionPushdown);

impl FilterProjections {
    /// Takes the place of DataFusion's rules.
    pub(crate) fn in_place(rules: &mut [Arc<dyn PhysicalOptimizerRule + Send + Sync>]) {
        for rule in rules.iter_mut().filter(|rule| rule.name() == ProjectionPushdown::new().name()) {
            *rule = Arc::new(FilterProjections(ProjectionPushdown::new()));
        }
    }
}

impl PhysicalOptimizerRule for FilterProjections {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(&self, plan: Plan, config: &ConfigOptions) -> Result<Plan> {
        let apart = plan.transform_up(|node| match node.downcast_ref::<FilterExec>().and_then(apart) {
            Some(apart) => Ok(Transformed::yes(apart?)),
            None => Ok(Transformed::no(node)),
        });
        let held = apart.data()?.transform_up(held).data()?;
        bare(self.0.optimize(held, config)?)
    }
}

/// The filter that keeps all columns, below a projection; none: it does keep them.
fn apart(filter: &FilterExec) -> Option<Result<Plan>> {
    let kept = filter.projection().as_ref()?;
    let columns = columns_of(filter.input(), kept.iter().copied());
    let whole = FilterExecBuilder::from(filter).apply_projection(None).and_then(FilterExecBuilder::build);
    Some(whole.and_then(|whole| Ok(Arc::new(ProjectionExec::try_new(columns, Arc::new(whole))?) as _)))
}

/// A projection that computes something, held above the filters below it.
fn held(node: Plan) -> Result<Transformed<Plan>> {
    let Some(projection) = node.downcast_ref::<ProjectionExec>().filter(|projection| computes(projection)) else {
        return Ok(Transformed::no(node));
    };
    if projection.input().is::<FilterExec>()
        && let Some(held) = above_columns(projection)?
    {
        return Ok(Transformed::yes(held));
    }
    let input = hold(projection.input())?;
    replace_children_if_necessary(node, vec![input]).map(Transformed::yes)
}

fn computes(projection: &ProjectionExec) -> bool {
    projection.expr().iter().any(|part| !part.expr.is::<Column>() && !part.expr.is::<Literal>())
}

/// The filters that a projection would reach, with something above them that lets none pass. No plan has that something yet when this
/// rule runs, so it can be taken away again.
fn hold(node: &Plan) -> Result<Plan> {
    if node.is::<FilterExec>() {
        return Ok(above(Arc::clone(node)));
    }
    let lets_pass = node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<OutputRequirementExec>()
        || node.is::<CooperativeExec>()
        || node.is::<UnionExec>();
    if !lets_pass {
        return Ok(Arc::clone(node));
    }
    let children = node.children().into_iter().map(hold).collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(Arc::clone(node), children)
}

fn above(node: Plan) -> Plan {
    let times = Times::of(&node);
    Arc::new(GiveWayExec::above(node, times))
}

/// A projection of a filter as one of the columns that it reads, which the filter may take into itself; none: it reads all or no columns,
/// or says more of its columns than what they are computed from.
fn above_columns(projection: &ProjectionExec) -> Result<Option<Plan>> {
    let filter = projection.input();
    let mut read: Vec<usize> =
        projection.expr().iter().flat_map(|part| collect_columns(&part.expr)).map(|column| column.index()).collect();
    read.sort_unstable();
    read.dedup();
    if read.is_empty() || read.len() == filter.schema().fields().len() {
        return Ok(None);
    }
    let columns = columns_of(filter, read.into_iter());
    let moved = |part: &ProjectionExpr| {
        let expr: Option<Arc<dyn PhysicalExpr>> = update_expr(&part.expr, &columns, false)?;
        let expr = expr.ok_or_else(|| internal_datafusion_err!("a column that a projection reads is not there"))?;
        Ok(ProjectionExpr::new(expr, part.alias.clone()))
    };
    let computed = projection.expr().iter().map(moved).collect::<Result<Vec<_>>>()?;
    let narrow = above(Arc::new(ProjectionExec::try_new(columns.clone(), Arc::clone(filter))?));
    let held = ProjectionExec::try_new(computed, narrow)?;
    Ok((held.schema() == projection.schema()).then(|| Arc::new(held) as _))
}

fn columns_of(input: &Plan, indexes: impl Iterator<Item = usize>) -> Vec<ProjectionExpr> {
    let schema = input.schema();
    let column = |index| {
        let name = schema.field(index).name();
        ProjectionExpr::new(Arc::new(Column::new(name, index)), name.clone())
    };
    indexes.map(column).collect()
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::displayable;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    fn context(partitions: usize) -> SessionContext {
        SessionContext::new_with_state(session_state(&EngineOptions {
            target_partitions: partitions,
            ..EngineOptions::default()
        }))
    }

    const TABLE: &str =
        "CREATE TABLE t AS SELECT * FROM (VALUES (1, 4, 8, '7'), (2, 0, 9, 'x'), (3, 2, 6, '5')) AS v(id, k, b, s)";

    /// A regression: what was computed was computed of rows, too, that the filter below drops.
    #[tokio::test]
    async fn what_a_filter_drops_is_not_computed_with() {
        for partitions in [1, 4] {
            let context = context(partitions);
            context.sql(TABLE).await.unwrap().collect().await.unwrap();
            for sql in [
                "SELECT k, b / k + 1 FROM (SELECT * FROM t LIMIT 100) AS r WHERE k <> 0",
                "SELECT k, b / k + id FROM (SELECT * FROM t LIMIT 100) AS r WHERE k <> 0 ORDER BY id",
                "SELECT rn, b / k FROM (SELECT b, k, row_number() OVER (ORDER BY id) AS rn FROM t) AS r WHERE rn <> 2",
                "SELECT rn, CAST(s AS int) + k FROM (SELECT s, k, rank() OVER (ORDER BY id) AS rn FROM t) AS r WHERE rn <> 2",
                "SELECT u, b / k FROM (SELECT unnest([id, id]) AS u, b, k FROM t) AS r WHERE u <> 2",
                "SELECT k, 7 / k FROM (SELECT * FROM t LIMIT 9) AS r WHERE k > 0 UNION ALL \
                 SELECT k, 6 / k FROM (SELECT * FROM t LIMIT 9) AS r WHERE k > 0",
                "WITH RECURSIVE r(n, m, z) AS (SELECT 3, 1, 2 UNION ALL SELECT n - 1, m + 1, z FROM r WHERE n > 0) \
                 SELECT n, m / n + z FROM r WHERE n <> 0",
            ] {
                let answer = context.sql(sql).await.unwrap().collect().await;
                let rows: usize =
                    answer.unwrap_or_else(|error| panic!("{sql}: {error}")).iter().map(|batch| batch.num_rows()).sum();
                assert!(rows >= 2, "{sql}: {rows} rows");
            }
        }
    }

    #[tokio::test]
    async fn a_filter_drops_columns_that_nobody_reads() {
        let context = context(1);
        context.sql(TABLE).await.unwrap().collect().await.unwrap();
        let sql = "SELECT b + 1 FROM (SELECT * FROM t LIMIT 9) AS r WHERE k > 1 AND id > 0";
        let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        assert!(shown.contains("projection=[b@"), "{shown}");
    }
}
