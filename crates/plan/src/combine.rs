//! How an engine puts together the outputs of several rounds of a sub-plan that it ran.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::COUNT_STAR_EXPANSION;
use datafusion::logical_expr::{
    Aggregate, Cast, Expr, ExprSchemable, FetchType, LogicalPlan, Projection, Sort, TableScanBuilder, TableSource, lit,
};
use pithead_functions::Registry;

use crate::PlanError;
use crate::aggregate::function;
use crate::names::{own, own_column};

/// What it takes to put rounds together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultShape {
    /// Nothing: the rows of all rounds are the result.
    Rows,
    /// Nothing, but no more than this many rows are needed.
    Limit(usize),
    /// The first rows are selected from all rounds' first rows.
    TopK,
    /// Partial aggregates are merged.
    Partials,
}

/// The shape of a sub-plan.
pub fn shape(plan: &LogicalPlan, functions: &Registry) -> ResultShape {
    match core(plan) {
        LogicalPlan::Aggregate(aggregate) if Parts::of(aggregate, functions).is_some() => ResultShape::Partials,
        LogicalPlan::Sort(sort) if sort.fetch.is_some() => ResultShape::TopK,
        LogicalPlan::Limit(limit) => match (limit.get_skip_type(), limit.get_fetch_type()) {
            (Ok(datafusion::logical_expr::SkipType::Literal(0)), Ok(FetchType::Literal(Some(fetch)))) => {
                match core(&limit.input) {
                    LogicalPlan::Sort(_) => ResultShape::TopK,
                    // An order below a projection that computes: only all rounds have the first rows.
                    input if has_sort(input) => ResultShape::Rows,
                    _ => ResultShape::Limit(fetch),
                }
            }
            _ => ResultShape::Rows,
        },
        _ => ResultShape::Rows,
    }
}

fn has_sort(plan: &LogicalPlan) -> bool {
    use datafusion::common::tree_node::TreeNode;
    // The closure gives no error.
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Sort(_)))).unwrap_or(true)
}

/// A plan that merges rows of several rounds into rows of the same columns and the same meaning, for
/// [`ResultShape::Partials`] and [`ResultShape::TopK`]; none for other shapes. It reads `rounds`, a table with the sub-plan's
/// output columns.
pub fn combine(
    plan: &LogicalPlan,
    rounds: Arc<dyn TableSource>,
    state: &SessionState,
) -> Result<Option<LogicalPlan>, PlanError> {
    let scan = LogicalPlan::TableScan(TableScanBuilder::new("rounds", rounds).build()?);
    let columns: Vec<Expr> = scan.schema().columns().into_iter().map(Expr::Column).collect();
    match core(plan) {
        LogicalPlan::Aggregate(aggregate) => match Parts::of(aggregate, &Registry::of(state)) {
            Some(parts) => Ok(Some(parts.merge(scan, columns, state)?)),
            None => Ok(None),
        },
        LogicalPlan::Sort(sort) => Ok(sort.fetch.map(|_| again(sort, sort.fetch, scan, &columns)).transpose()?),
        LogicalPlan::Limit(limit) => match (core(&limit.input), limit.get_fetch_type()?) {
            (LogicalPlan::Sort(sort), FetchType::Literal(fetch)) => Ok(Some(again(sort, fetch, scan, &columns)?)),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// The plan below projections that only rename.
pub(crate) fn core(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Projection(projection) => {
            let input = projection.input.schema();
            let renames = projection.expr.len() == input.fields().len()
                && projection.expr.iter().enumerate().all(|(i, expr)| crate::piece::column_index(expr, input) == Some(i));
            if renames { core(&projection.input) } else { plan }
        }
        LogicalPlan::SubqueryAlias(alias) => core(&alias.input),
        plan => plan,
    }
}

/// The same order and number of rows, over another table with the same columns.
fn again(sort: &Sort, fetch: Option<usize>, scan: LogicalPlan, columns: &[Expr]) -> Result<LogicalPlan> {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let schema = sort.input.schema();
    let moved = |expr: &Expr| -> Result<Expr> {
        let moved = expr.clone().transform_up(|expr| match &expr {
            Expr::Column(column) => Ok(Transformed::yes(columns[schema.index_of_column(column)?].clone())),
            _ => Ok(Transformed::no(expr)),
        })?;
        Ok(moved.data)
    };
    let keys = sort.expr.iter().map(|key| Ok(key.with_expr(moved(&key.expr)?))).collect::<Result<_>>()?;
    Ok(LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(scan), fetch }))
}

/// What computes and merges means.
const MEAN: &str = "pithead_merge_mean";

/// The argument of a mean of rows, each of which is a part of one.
fn mean_argument(function: &AggregateFunction) -> Option<&[Expr]> {
    let (one, argument) = function.params.args.split_first()?;
    (function.func.name() == MEAN && *one == lit(1_i64)).then_some(argument)
}

/// A partial aggregate of which each function can be merged with itself.
struct Parts {
    groups: usize,
    functions: Vec<(AggregateFunction, Rule)>,
}

/// How one value is made of a function's values in several rounds.
enum Rule {
    /// By the same function.
    Again,
    /// By the aggregate of this name, as an extension says.
    By(String),
    /// Counts add up.
    Count,
    /// A mean, weighted by the count in the column at this position.
    Mean(usize),
    /// A variance of the population, with the count and the mean in the columns at these positions.
    Variance(usize, usize),
}

impl Parts {
    fn of(aggregate: &Aggregate, extensions: &Registry) -> Option<Parts> {
        if aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_))) {
            return None;
        }
        let functions: Vec<AggregateFunction> = aggregate.aggr_expr.iter().map(function).collect::<Option<_>>()?;
        let place = |like: &AggregateFunction, name: &str| {
            let of = mean_argument(like).unwrap_or(&like.params.args);
            let is_of = |other: &AggregateFunction, of: &[Expr]| {
                let arguments = mean_argument(other).unwrap_or(&other.params.args);
                other.func.name() == name && other.params.filter == like.params.filter && arguments == of
            };
            let same = functions.iter().position(|other| is_of(other, of));
            // What cannot be NULL is counted by its rows.
            let is_always_there = || of.iter().all(|value| value.nullable(aggregate.input.schema()).is_ok_and(|may| !may));
            same.or_else(|| {
                let rows = [Expr::Literal(COUNT_STAR_EXPANSION, None)];
                functions.iter().position(|other| name == "count" && is_of(other, &rows)).filter(|_| is_always_there())
            })
        };
        let rule = |function: &AggregateFunction| {
            let name = function.func.name();
            if !function.params.order_by.is_empty() || (function.params.distinct && !matches!(name, "min" | "max")) {
                return None;
            }
            match name {
                "sum" | "min" | "max" | "bool_and" | "bool_or" | "bit_and" | "bit_or" | "bit_xor" => Some(Rule::Again),
                "count" => Some(Rule::Count),
                MEAN if mean_argument(function).is_some() => Some(Rule::Mean(place(function, "count")?)),
                "var_pop" => Some(Rule::Variance(place(function, "count")?, place(function, MEAN)?)),
                name => Some(Rule::By(extensions.merging(name)?.to_owned())),
            }
        };
        let rules = functions.iter().map(rule).collect::<Option<Vec<_>>>()?;
        Some(Parts { groups: aggregate.group_expr.len(), functions: functions.into_iter().zip(rules).collect() })
    }

    fn merge(&self, scan: LogicalPlan, columns: Vec<Expr>, state: &SessionState) -> Result<LogicalPlan> {
        let (groups, values) = columns.split_at(self.groups);
        let call = |name: &str, args: Vec<Expr>| -> Result<Expr> {
            let func = state.udaf(name)?;
            Ok(Expr::AggregateFunction(AggregateFunction::new_udf(func, args, false, None, vec![], None)))
        };
        let mut merged = Vec::new();
        for (i, (function, rule)) in self.functions.iter().enumerate() {
            let value = values[i].clone();
            let expr = match rule {
                Rule::Again => call(function.func.name(), vec![value])?,
                Rule::By(name) => call(name, vec![value])?,
                Rule::Count => call("sum", vec![value])?,
                Rule::Mean(count) => call(MEAN, vec![values[*count].clone(), value])?,
                Rule::Variance(count, mean) => {
                    call("pithead_merge_var_pop", vec![values[*count].clone(), values[*mean].clone(), value])?
                }
            };
            merged.push(expr.alias(own("merged", i)));
        }
        let types: Vec<_> = values.iter().map(|value| value.get_type(scan.schema())).collect::<Result<_>>()?;
        let step = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(scan), groups.to_vec(), merged)?);
        let mut exprs = groups.to_vec();
        for (i, ((_, rule), data_type)) in self.functions.iter().zip(types).enumerate() {
            let mut value = own_column("merged", i);
            if matches!(rule, Rule::Count) {
                value = pithead_functions::or_zero(value);
            }
            if value.get_type(step.schema())? != data_type {
                value = Expr::Cast(Cast::new(Box::new(value), data_type));
            }
            exprs.push(value.alias(own("value", i)));
        }
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(step))?))
    }
}

#[cfg(test)]
mod tests {
    use pithead_functions::{EngineOptions, session_state};

    use super::*;

    /// A regression: what computes between the limit and the order hid the order, and any first rows were taken for the first.
    #[tokio::test]
    async fn a_limit_is_one_where_nothing_is_in_order_below() {
        let state = session_state(&EngineOptions::default());
        for (sql, expected) in [
            ("SELECT a + 1 FROM (VALUES (1), (2)) AS t(a) LIMIT 3", ResultShape::Limit(3)),
            ("SELECT a FROM (SELECT a FROM (VALUES (1), (2)) AS t(a) ORDER BY a) LIMIT 3", ResultShape::TopK),
            ("SELECT a + 1 FROM (SELECT a FROM (VALUES (1), (2)) AS t(a) ORDER BY a) LIMIT 3", ResultShape::Rows),
            ("SELECT a + 1 FROM (SELECT a FROM (VALUES (1), (2)) AS t(a) ORDER BY a LIMIT 4) LIMIT 3", ResultShape::Rows),
        ] {
            let plan = state.create_logical_plan(sql).await.unwrap();
            assert_eq!(shape(&plan, &Registry::of(&state)), expected, "{sql}");
        }
    }
}
