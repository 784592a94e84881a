//! Equalities and IS NOT DISTINCT FROM in one join.
//!
//! A join has one rule for NULLs in all of its keys: either NULL equals nothing, as for `=`, or NULL equals NULL, as
//! for IS NOT DISTINCT FROM. Two rules of DataFusion 55.2 violate this. One takes every `=` of a join's filter as a
//! key, even if NULL equals NULL in the keys that the join has. Another puts the keys of nested inner joins together
//! under the rule of the outermost join. The rules here replace both, so that no key changes its meaning.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, Operator, binary_expr};
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Turns those keys of inner joins in which NULL equals NULL into conditions. It runs before all rules that flatten
/// inner joins; [`EqualKeys`] turns the conditions back into keys.
#[derive(Debug)]
pub(crate) struct NullKeysApart;

impl OptimizerRule for NullKeysApart {
    fn name(&self) -> &'static str {
        "pithead_null_keys_apart"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner && has_null_keys(&join) => {
                Ok(Transformed::yes(LogicalPlan::Join(apart(join))))
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// Replaces DataFusion's rule that finds a join's keys in its filter, and finds keys of one kind only: where the filter
/// has an `=`, conditions in which NULL equals NULL stay conditions.
#[derive(Debug, Default)]
pub(crate) struct EqualKeys(ExtractEquijoinPredicate);

impl OptimizerRule for EqualKeys {
    fn name(&self) -> &'static str {
        "pithead_equal_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = &plan else { return Ok(Transformed::no(plan)) };
        if !has_null_keys(join) {
            return self.0.rewrite(plan, config);
        }
        if join.filter.is_none() || join.null_aware {
            return Ok(Transformed::no(plan));
        }
        let keyed = self.0.rewrite(LogicalPlan::Join(apart(join.clone())), config)?.data;
        match &keyed {
            LogicalPlan::Join(other) if has_null_keys(other) && other.on.len() == join.on.len() => Ok(Transformed::no(plan)),
            _ => Ok(Transformed::yes(keyed)),
        }
    }
}

/// Whether NULL equals NULL in the keys that the join has.
fn has_null_keys(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty()
}

/// The join with its keys as conditions.
fn apart(join: Join) -> Join {
    let conditions = join.on.into_iter().map(|(left, right)| binary_expr(left, Operator::IsNotDistinctFrom, right));
    let filter = conditions.chain(join.filter).reduce(Expr::and);
    Join { on: vec![], filter, null_equality: NullEquality::NullEqualsNothing, ..join }
}
