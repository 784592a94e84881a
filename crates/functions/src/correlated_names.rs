//! Names of their own for the columns by which a subquery is correlated.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Projection, Subquery};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::balanced::conjunction;

/// Renames columns of a subquery that are compared with columns of the query around it, where another column of the subquery has the
/// same name.
///
/// DataFusion turns the subquery into one side of a join under a name of its own, and keeps of its columns only the last part of their
/// names: over `t a JOIN t b`, both `a.k` and `b.k` become `__correlated_sq_1.k`, and both comparisons read the first of them.
#[derive(Debug)]
pub(crate) struct CorrelatedNames;

impl OptimizerRule for CorrelatedNames {
    fn name(&self) -> &'static str {
        "pithead_correlated_names"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Subquery(subquery) = plan {
            return Ok(named(subquery, config)?.update_data(LogicalPlan::Subquery));
        }
        plan.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::ScalarSubquery(subquery) => Ok(named(subquery, config)?.update_data(Expr::ScalarSubquery)),
                Expr::Exists(exists) => {
                    Ok(named(exists.subquery, config)?.update_data(|subquery| Expr::Exists(Exists { subquery, ..exists })))
                }
                Expr::InSubquery(query) => {
                    Ok(named(query.subquery, config)?
                        .update_data(|subquery| Expr::InSubquery(InSubquery { subquery, ..query })))
                }
                Expr::SetComparison(comparison) => Ok(named(comparison.subquery, config)?
                    .update_data(|subquery| Expr::SetComparison(SetComparison { subquery, ..comparison }))),
                expr => Ok(Transformed::no(expr)),
            })
        })
    }
}

fn named(subquery: Subquery, config: &dyn OptimizerConfig) -> Result<Transformed<Subquery>> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(Transformed::no(subquery));
    }
    let plan = (*subquery.subquery).clone().transform_up(above_joins)?;
    if !has_namesakes(&plan.data, &mut Vec::new())? {
        return Ok(plan.update_data(|plan| Subquery { subquery: plan.into(), ..subquery }));
    }
    let renamed = renamed(plan.data, false, config)?;
    Ok(Transformed::yes(Subquery { subquery: renamed.plan.into(), ..subquery }))
}

/// Correlated conditions of an inner join in a filter above it, where alone DataFusion looks for them.
fn above_joins(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Join(Join { filter: Some(filter), join_type: JoinType::Inner, .. }) = &plan else {
        return Ok(Transformed::no(plan));
    };
    let (above, kept): (Vec<Expr>, Vec<Expr>) = split_conjunction_owned(filter.clone()).into_iter().partition(is_movable);
    let Some(above) = conjunction(above) else { return Ok(Transformed::no(plan)) };
    let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
    let join = LogicalPlan::Join(Join { filter: conjunction(kept), ..join });
    Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(above, Arc::new(join))?)))
}

/// A plan in which correlated conditions read columns of names that are nowhere else.
struct Renamed {
    plan: LogicalPlan,
    /// Such columns that the plan has beyond those that it had.
    added: Vec<Column>,
}

/// `below_join`: the columns of the new names have to come up to a join, whose schema DataFusion takes as it is when it adds columns
/// that correlate a subquery to what is above.
fn renamed(plan: LogicalPlan, below_join: bool, config: &dyn OptimizerConfig) -> Result<Renamed> {
    let is_passed_on = match &plan {
        LogicalPlan::Join(_) => true,
        LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_) => below_join,
        _ => false,
    };
    let (mut added, mut changed) = (Vec::new(), false);
    let plan = plan.map_children(|child| {
        let columns = child.schema().fields().len();
        let child = renamed(child, is_passed_on, config)?;
        changed |= child.plan.schema().fields().len() != columns;
        added.extend(child.added);
        Ok(Transformed::yes(child.plan))
    })?;
    let plan = if changed { plan.data.recompute_schema()? } else { plan.data };
    match plan {
        LogicalPlan::Filter(filter) => apart(filter, added, below_join, config),
        LogicalPlan::Projection(projection) if !added.is_empty() => {
            let columns = projection.expr.into_iter().chain(added.iter().cloned().map(Expr::Column)).collect();
            let plan = LogicalPlan::Projection(Projection::try_new(columns, projection.input)?);
            Ok(Renamed { plan, added })
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let added = added.into_iter().map(|column| Column::new(Some(alias.alias.clone()), column.name)).collect();
            Ok(Renamed { plan: LogicalPlan::SubqueryAlias(alias), added })
        }
        plan => {
            added.retain(|column| plan.schema().has_column(column));
            Ok(Renamed { plan, added: if below_join { added } else { Vec::new() } })
        }
    }
}

/// Whether a correlated column meets one of the same name and another relation on the way to the subquery's result. `above`: the
/// columns of the nodes above, but for those that are columns of the plan under another name for its rows.
fn has_namesakes(plan: &LogicalPlan, above: &mut Vec<Column>) -> Result<bool> {
    let known = above.len();
    above.extend(plan.schema().columns());
    if let LogicalPlan::Filter(filter) = plan {
        let found = correlated(&filter.predicate)?
            .iter()
            .any(|column| above.iter().any(|other| other.name == column.name && other.relation != column.relation));
        if found {
            return Ok(true);
        }
    }
    for input in plan.inputs() {
        let mut met = above.clone();
        if let LogicalPlan::SubqueryAlias(alias) = plan {
            met.retain(|column| column.relation.as_ref() != Some(&alias.alias));
        }
        if has_namesakes(input, &mut met)? {
            return Ok(true);
        }
    }
    above.truncate(known);
    Ok(false)
}

/// The filter, whose correlated conditions read columns of names that are nowhere else; above it, all columns have their old names.
/// `added`: the new names that its input has.
fn apart(filter: Filter, mut added: Vec<Column>, below_join: bool, config: &dyn OptimizerConfig) -> Result<Renamed> {
    let (correlated_parts, others): (Vec<Expr>, Vec<Expr>) =
        split_conjunction_owned(filter.predicate.clone()).into_iter().partition(is_movable);
    let mut columns: Vec<Column> = Vec::new();
    for part in &correlated_parts {
        columns.extend(correlated(part)?.into_iter().filter(|column| !columns.contains(column)).collect::<Vec<_>>());
    }
    if columns.is_empty() {
        return Ok(Renamed { plan: LogicalPlan::Filter(filter), added });
    }
    let names: Vec<Column> = columns.iter().map(|_| Column::from_name(config.alias_generator().next("__correlated"))).collect();
    let new = |column: &Column| columns.iter().position(|known| known == column).map(|place| names[place].clone());
    let old_columns = filter.input.schema().columns();
    // Below, where they know the old names.
    let input = match conjunction(others) {
        Some(others) => Arc::new(LogicalPlan::Filter(Filter::try_new(others, filter.input)?)),
        None => filter.input,
    };
    let below = old_columns.iter().map(|column| match new(column) {
        Some(name) => Expr::Column(column.clone()).alias(name.name),
        None => Expr::Column(column.clone()),
    });
    let below = LogicalPlan::Projection(Projection::try_new(below.collect(), input)?);
    let renamed = correlated_parts.into_iter().map(|part| {
        part.transform(|expr| match &expr {
            Expr::Column(column) => {
                Ok(new(column).map_or_else(|| Transformed::no(expr.clone()), |name| Transformed::yes(name.into())))
            }
            _ => Ok(Transformed::no(expr)),
        })
    });
    let renamed = renamed.map(|part| Ok(part?.data)).collect::<Result<Vec<Expr>>>()?;
    let above = old_columns.iter().map(|column| match new(column) {
        Some(name) => Expr::Column(name).alias_qualified(column.relation.clone(), column.name.clone()),
        None => Expr::Column(column.clone()),
    });
    let mut above: Vec<Expr> = above.collect();
    if below_join {
        above.extend(names.iter().cloned().map(Expr::Column));
        added.extend(names.iter().cloned());
    }
    let mut plan = LogicalPlanBuilder::from(below);
    if let Some(condition) = conjunction(renamed) {
        plan = plan.filter(condition)?;
    }
    Ok(Renamed { plan: plan.project(above)?.build()?, added })
}

/// Whether a condition is correlated and holds no subquery, whose own outer columns would need the new names.
fn is_movable(condition: &Expr) -> bool {
    let has = |is: fn(&Expr) -> bool| condition.exists(|part| Ok(is(part))).unwrap_or(false);
    has(|part| matches!(part, Expr::OuterReferenceColumn(..))) && !has(crate::subqueries::is_subquery)
}

/// The subquery's own columns in the correlated parts of a condition.
fn correlated(condition: &Expr) -> Result<Vec<Column>> {
    let parts = split_conjunction_owned(condition.clone()).into_iter().filter(is_movable);
    Ok(parts.flat_map(|part| part.column_refs().into_iter().cloned().collect::<Vec<_>>()).collect())
}
