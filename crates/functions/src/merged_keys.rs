//! [`with_merged_keys`]: the columns by which RIGHT and FULL JOIN … USING join.
//!
//! In SQL, such a column without the name of a table is the left one where the left side has a row, and the right one where it has
//! none. DataFusion's planner takes the left one, which is NULL there; and joins by it, where a further join uses the same column.
//! The host puts such a column into a function, which finds out here what the column is by the joins below.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, JoinConstraint, JoinType, Result, Spans, internal_err};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::expr::{Exists, InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Join, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility,
};

use crate::kept_names::map_named;

/// The function's name, which no SQL text can spell: its argument is the column.
pub const MERGED_KEY: &str = "\u{0}merged";

/// The function itself.
pub(crate) fn merged_key_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(MergedKey { signature: Signature::any(1, Volatility::Immutable) })
}

/// The plan with what each such column is in place of the function, and in place of the keys of the joins that use it again.
pub fn with_merged_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    resolved(plan, &[])
}

/// `around`: what the queries around this one read.
fn resolved(plan: LogicalPlan, around: &[LogicalPlan]) -> Result<LogicalPlan> {
    let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    let plan = map_named(plan, |expr| expr.transform_down(|part| resolved_part(part, &inputs, around)))?.data;
    let plan = match plan {
        LogicalPlan::Join(join) => LogicalPlan::Join(joined(join)?),
        plan => plan,
    };
    plan.map_children(|input| resolved(input, around).map(Transformed::yes))?.data.recompute_schema()
}

fn resolved_part(part: Expr, inputs: &[LogicalPlan], around: &[LogicalPlan]) -> Result<Transformed<Expr>> {
    if let Some(column) = merged_column(&part) {
        let key = match column {
            Expr::Column(column) => key_of(inputs, column)?,
            Expr::OuterReferenceColumn(_, column) => seen_from_within(key_of(around, column)?, around)?,
            other => other.clone(),
        };
        return Ok(Transformed::new(key, true, TreeNodeRecursion::Jump));
    }
    let within = |subquery: Subquery| {
        let plan = resolved(Arc::unwrap_or_clone(subquery.subquery), &[inputs, around].concat())?;
        let outer_ref_columns = plan.all_out_ref_exprs();
        Ok::<_, datafusion::error::DataFusionError>(Subquery {
            subquery: Arc::new(plan),
            outer_ref_columns,
            spans: Spans::new(),
        })
    };
    Ok(match part {
        Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(within(subquery)?)),
        Expr::Exists(Exists { subquery, negated }) => {
            Transformed::yes(Expr::Exists(Exists { subquery: within(subquery)?, negated }))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery: within(subquery)?, negated }))
        }
        Expr::SetComparison(comparison) => {
            let subquery = within(comparison.subquery)?;
            Transformed::yes(Expr::SetComparison(SetComparison { subquery, ..comparison }))
        }
        part => Transformed::no(part),
    })
}

/// The column within the function.
fn merged_column(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.inner().is::<MergedKey>() => {
            let of = args.first()?;
            // A name of the result stands for the call, and was put into one itself.
            Some(merged_column(of).unwrap_or(of))
        }
        _ => None,
    }
}

/// A join by what its sides' columns are, if they are merged ones themselves.
fn joined(join: Join) -> Result<Join> {
    if join.join_constraint != JoinConstraint::Using {
        return Ok(join);
    }
    let side = |plan: &LogicalPlan, key: &Expr| match key {
        Expr::Column(column) => merged(plan, column),
        other => Ok(other.clone()),
    };
    let on = join.on.iter().map(|(left, right)| Ok((side(&join.left, left)?, side(&join.right, right)?)));
    let on: Vec<(Expr, Expr)> = on.collect::<Result<_>>()?;
    if on == join.on {
        return Ok(join);
    }
    let Join { left, right, filter, join_type, null_equality, .. } = join;
    // USING is of columns only.
    Join::try_new(left, right, on, filter, join_type, JoinConstraint::On, null_equality, false)
}

/// What a column is that one of these plans has.
fn key_of(plans: &[LogicalPlan], column: &Column) -> Result<Expr> {
    match plans.iter().find(|plan| plan.schema().has_column(column)) {
        Some(plan) => merged(plan, column),
        None => Ok(Expr::Column(column.clone())),
    }
}

/// What a column of a plan is by the joins that use it.
fn merged(plan: &LogicalPlan, column: &Column) -> Result<Expr> {
    let join = match plan {
        LogicalPlan::Join(join) => join,
        // Below it, columns have other names.
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => {
            return Ok(Expr::Column(column.clone()));
        }
        other => match other.inputs()[..] {
            [input] if input.schema().has_column(column) => return merged(input, column),
            _ => return Ok(Expr::Column(column.clone())),
        },
    };
    let is_key = |key: &Expr| matches!(key, Expr::Column(key) if key == column);
    let keys = match join.join_constraint {
        JoinConstraint::Using => join.on.iter().find(|(left, right)| is_key(left) || is_key(right)),
        JoinConstraint::On => None,
    };
    match keys {
        Some((Expr::Column(left), Expr::Column(right))) => {
            // The builder puts them the other way round where only the right one can be hashed.
            let (left, right) = if join.left.schema().has_column(left) { (left, right) } else { (right, left) };
            Ok(match join.join_type {
                JoinType::Right => merged(&join.right, right)?,
                JoinType::Full => coalesce(vec![merged(&join.left, left)?, merged(&join.right, right)?]),
                _ => merged(&join.left, left)?,
            })
        }
        _ if join.left.schema().has_column(column) => merged(&join.left, column),
        _ if join.right.schema().has_column(column) => merged(&join.right, column),
        _ => Ok(Expr::Column(column.clone())),
    }
}

/// An expression of the query around a subquery in the form in which the subquery refers to it.
fn seen_from_within(expr: Expr, around: &[LogicalPlan]) -> Result<Expr> {
    let outer = expr.transform_up(|part| match part {
        Expr::Column(column) => match around.iter().find_map(|plan| plan.schema().field_from_column(&column).ok()) {
            Some(field) => Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column))),
            None => internal_err!("{column} is no column of the query around"),
        },
        part => Ok(Transformed::no(part)),
    })?;
    Ok(outer.data)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct MergedKey {
    signature: Signature,
}

impl ScalarUDFImpl for MergedKey {
    fn name(&self) -> &'static str {
        MERGED_KEY
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("expected one column"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("expected one column"),
        }
    }
}
