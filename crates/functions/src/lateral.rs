//! [`LateralRows`]: what a FROM computes of the row beside it, `FROM t, unnest(t.list) AS u(x)` or `FROM t, LATERAL (SELECT t.a + 1)`,
//! as columns of that row, and rows of its lists.
//!
//! The engine's planner makes joins of them whose right side reads columns of the left, and none of its rules knows the ones that read
//! no table.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, NullHandling, Result, ScalarValue, UnnestOptions};
use datafusion::logical_expr::{
    EmptyRelation, Expr, Filter, Join, JoinType, LogicalPlan, Projection, Subquery, SubqueryAlias, Unnest, builder,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use pithead_model::RESERVED;

/// What the names of columns begin with that the planner computes for UNNEST, which knows them by these names.
const OF_UNNEST: &str = "__unnest_placeholder";

/// The rule.
#[derive(Debug)]
pub(crate) struct LateralRows;

impl OptimizerRule for LateralRows {
    fn name(&self) -> &'static str {
        "pithead_lateral_rows"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = &plan else { return Ok(Transformed::no(plan)) };
        Ok(match rows_beside(join)? {
            Some(rows) => Transformed::yes(rows),
            None => Transformed::no(plan),
        })
    }
}

/// The rows of such a join; none: it is another one.
fn rows_beside(join: &Join) -> Result<Option<LogicalPlan>> {
    let keeps_all = match join.join_type {
        JoinType::Inner => false,
        // What has no row beside it has NULLs there, which is what is computed of NULL only where nothing is computed.
        JoinType::Left if is_true(join.filter.as_ref()) && only_lists(&join.right) => true,
        _ => return Ok(None),
    };
    // Others are joins that drives may do.
    if !join.on.is_empty() || !reads_its_left(&join.right)? {
        return Ok(None);
    }
    let Some(beside) = (Beside { left: &join.left, keeps_all }).rows(&join.right)? else { return Ok(None) };
    let left = join.left.schema().columns().into_iter().map(Expr::Column);
    let right = join.right.schema().iter().zip(beside.columns);
    let right = right.map(|((relation, field), column)| Expr::Column(column).alias_qualified(relation.cloned(), field.name()));
    let rows = LogicalPlan::Projection(Projection::try_new(left.chain(right).collect(), Arc::new(beside.plan))?);
    Ok(Some(match &join.filter {
        Some(filter) if !keeps_all => LogicalPlan::Filter(Filter::try_new(filter.clone(), Arc::new(rows))?),
        _ => rows,
    }))
}

fn reads_its_left(right: &LogicalPlan) -> Result<bool> {
    let is_outer = |part: &Expr| Ok(matches!(part, Expr::OuterReferenceColumn(..)));
    let reads = |node: &LogicalPlan| node.expressions().iter().any(|expr| expr.exists(is_outer).unwrap_or(true));
    right.exists(|node| Ok(reads(node)))
}

fn is_true(condition: Option<&Expr>) -> bool {
    condition.is_none_or(|condition| matches!(condition, Expr::Literal(ScalarValue::Boolean(Some(true)), _)))
}

/// Whether nothing is computed of the rows of lists.
fn only_lists(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => only_lists(input),
        LogicalPlan::Subquery(Subquery { subquery, .. }) => only_lists(subquery),
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            expr.iter().all(|expr| matches!(expr.clone().unalias(), Expr::Column(_))) && only_lists(input)
        }
        LogicalPlan::Unnest(_) => true,
        _ => false,
    }
}

/// The left side with what is computed of its rows.
struct Rows {
    /// It has the left side's columns first.
    plan: LogicalPlan,
    /// Where the columns of what was computed are in it, in their order.
    columns: Vec<Column>,
}

struct Beside<'a> {
    left: &'a Arc<LogicalPlan>,
    /// Whether a row stays that has an empty list, or none.
    keeps_all: bool,
}

impl Beside<'_> {
    /// The rows of a plan that reads no table, beside each row of the left side; none: it does read one, or columns of a query further out.
    fn rows(&self, plan: &LogicalPlan) -> Result<Option<Rows>> {
        match plan {
            LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: true, .. }) => {
                Ok(Some(Rows { plan: self.left.as_ref().clone(), columns: Vec::new() }))
            }
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => self.rows(input),
            LogicalPlan::Subquery(Subquery { subquery, .. }) => self.rows(subquery),
            LogicalPlan::Projection(projection) => self.computed(projection),
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let Some(rows) = self.rows(input)? else { return Ok(None) };
                let Some(predicate) = self.here(predicate.clone(), input, &rows.columns)? else { return Ok(None) };
                let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(rows.plan))?);
                Ok(Some(Rows { plan, columns: rows.columns }))
            }
            LogicalPlan::Unnest(unnest) => self.unnested(unnest),
            _ => Ok(None),
        }
    }

    fn computed(&self, projection: &Projection) -> Result<Option<Rows>> {
        let Some(rows) = self.rows(&projection.input)? else { return Ok(None) };
        let mut exprs: Vec<Expr> = self.left.schema().columns().into_iter().map(Expr::Column).collect();
        let mut columns = Vec::new();
        for (number, (expr, (_, field))) in projection.expr.iter().zip(projection.schema.iter()).enumerate() {
            let Some(expr) = self.here(expr.clone(), &projection.input, &rows.columns)? else { return Ok(None) };
            // A name of its own: the left side may have a column of its name.
            let name = match field.name().starts_with(OF_UNNEST) {
                true => field.name().clone(),
                false => format!("{RESERVED}beside_{number}"),
            };
            exprs.push(expr.unalias().alias(&name));
            columns.push(Column::from_name(name));
        }
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(rows.plan))?);
        Ok(Some(Rows { plan, columns }))
    }

    fn unnested(&self, unnest: &Unnest) -> Result<Option<Rows>> {
        let Some(rows) = self.rows(&unnest.input)? else { return Ok(None) };
        if !unnest.exec_columns.iter().all(|column| rows.columns.contains(column)) {
            return Ok(None);
        }
        let null_handling = if self.keeps_all { NullHandling::PreserveAndExpandEmpty } else { unnest.options.null_handling };
        let options = UnnestOptions { null_handling, ..unnest.options.clone() };
        let plan = builder::unnest_with_options(rows.plan, unnest.exec_columns.clone(), options)?;
        let columns = unnest.schema.columns().into_iter().zip(&unnest.dependency_indices);
        let columns = columns.map(|(column, of)| match &rows.columns[*of] {
            list if unnest.exec_columns.contains(list) => column,
            other => other.clone(),
        });
        Ok(Some(Rows { plan, columns: columns.collect() }))
    }

    /// An expression over the rows in place of one over `input`, which are `columns` here; none: it reads a column of a query further out.
    fn here(&self, expr: Expr, input: &LogicalPlan, columns: &[Column]) -> Result<Option<Expr>> {
        let mut is_known = true;
        let expr = expr.transform(|part| {
            Ok(match part {
                Expr::OuterReferenceColumn(_, column) => {
                    is_known &= self.left.schema().has_column(&column);
                    Transformed::yes(Expr::Column(column))
                }
                Expr::Column(column) => match input.schema().maybe_index_of_column(&column).and_then(|at| columns.get(at)) {
                    Some(here) => Transformed::yes(Expr::Column(here.clone())),
                    None => {
                        is_known = false;
                        Transformed::no(Expr::Column(column))
                    }
                },
                // What it reads is not looked at.
                Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => {
                    is_known = false;
                    Transformed::no(part)
                }
                part => Transformed::no(part),
            })
        })?;
        Ok(is_known.then_some(expr.data))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn rows(sql: &str) -> Result<Vec<String>, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let table = "CREATE TABLE t AS VALUES (1, [10, 11]), (2, []), (3, NULL), (4, [40, NULL])";
        context.sql(table).await.unwrap().collect().await.unwrap();
        let batches = match context.sql(sql).await {
            Ok(frame) => frame.collect().await,
            Err(error) => Err(error),
        };
        let mut rows = Vec::new();
        for batch in batches.map_err(|error| error.to_string())? {
            for row in 0..batch.num_rows() {
                let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
                rows.push(values.collect::<Vec<_>>().join(" "));
            }
        }
        rows.sort();
        Ok(rows)
    }

    #[tokio::test]
    async fn lists_beside_a_row_are_its_rows() {
        let t = "(SELECT column1 AS k, column2 AS l FROM t) AS t";
        for (sql, expected) in [
            (format!("SELECT k, x FROM {t}, unnest(l) AS u(x)"), vec!["1 10", "1 11", "4 ", "4 40"]),
            (
                format!("SELECT k, x FROM {t} LEFT JOIN unnest(t.l) AS u(x) ON true"),
                vec!["1 10", "1 11", "2 ", "3 ", "4 ", "4 40"],
            ),
            (format!("SELECT k, x FROM {t} JOIN unnest(l) AS u(x) ON x > k + 9"), vec!["1 11", "4 40"]),
            (
                format!("SELECT k, x, y FROM {t}, unnest(l) AS u(x), unnest(range(x - 9)) AS v(y) WHERE k = 1"),
                vec!["1 10 0", "1 11 0", "1 11 1"],
            ),
            (
                format!("SELECT * FROM {t}, LATERAL (SELECT k + 1 AS k, -k AS z) AS u WHERE t.k < 3"),
                vec!["1 [10, 11] 2 -1", "2 [] 3 -2"],
            ),
            ("SELECT x FROM unnest([1, 2]) AS u(x)".to_owned(), vec!["1", "2"]),
        ] {
            assert_eq!(
                rows(&sql).await.as_deref(),
                Ok(expected.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>().as_slice()),
                "{sql}"
            );
        }
    }

    /// A list that is the same for all rows is a table that is joined.
    #[tokio::test]
    async fn lists_of_no_row_are_tables() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let sql = "SELECT k FROM (SELECT value AS k FROM range(9)) AS t JOIN unnest([2, 3]) AS u(x) ON t.k = u.x";
        let plan = context.sql(sql).await.unwrap().into_optimized_plan().unwrap().to_string();
        assert!(plan.contains("Inner Join: "), "{plan}");
    }

    /// Where something is computed of a row that is not there, the engine refuses the statement.
    #[tokio::test]
    async fn what_is_computed_of_no_row_is_not_guessed() {
        let sql = "SELECT * FROM t LEFT JOIN LATERAL (SELECT coalesce(x, 7) FROM (SELECT unnest(column2) AS x)) AS u ON true";
        assert!(rows(sql).await.is_err());
    }
}
