//! Many conditions as one that nests a few levels deep.
//!
//! DataFusion nests `a AND b AND c …` as deep as it is long. It names and types the parts of an expression anew at each level, so that
//! planning a thousand conditions would take seconds; in halves, it takes milliseconds.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::{self, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan, Operator, and, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Shorter chains stay as they are.
const CHAIN_MIN: usize = 16;

/// All of some conditions, in their order; none if there are none.
pub fn conjunction(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    let conditions: Vec<Expr> = conditions.into_iter().collect();
    if conditions.len() > CHAIN_MIN { in_halves(conditions) } else { utils::conjunction(conditions) }
}

fn in_halves(mut conditions: Vec<Expr>) -> Option<Expr> {
    if conditions.len() < 2 {
        return conditions.pop();
    }
    let right = conditions.split_off(conditions.len() / 2);
    in_halves(conditions).zip(in_halves(right)).map(|(left, right)| and(left, right))
}

/// Puts the conditions of filters together in halves, which other rules have put together one by one.
#[derive(Debug)]
pub(crate) struct BalancedFilters;

impl OptimizerRule for BalancedFilters {
    fn name(&self) -> &'static str {
        "pithead_balanced_filters"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) if depth(&filter.predicate) > CHAIN_MIN => {
                let Filter { predicate, input, .. } = filter;
                let predicate = conjunction(split_conjunction_owned(predicate)).unwrap_or_else(|| lit(true));
                Ok(Transformed::yes(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// How deep the left side of a chain of AND nests.
fn depth(mut expr: &Expr) -> usize {
    let mut depth = 0;
    while let Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, .. }) = expr {
        (expr, depth) = (left, depth + 1);
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::col;

    #[test]
    fn many_conditions_keep_their_order_and_nest_little() {
        let conditions: Vec<Expr> = (0..100).map(|number| col(format!("c{number}"))).collect();
        let all = conjunction(conditions.clone()).unwrap();
        assert_eq!(depth(&all), 6);
        assert_eq!(split_conjunction_owned(all), conditions);
        assert_eq!(conjunction(vec![]), None);
        assert_eq!(conjunction(vec![col("a")]), Some(col("a")));
    }
}
