//! [`RollUp`]: partial aggregates that serve a coarser grouping, too.
//!
//! Partial results by `(a, b)` are also partial results by `a`, and by nothing: they only come in more rows. So the
//! partial results of one query, where host or drive still has them, may answer another query without a look at the
//! data (Montana et al. 2023, Skytether, section 7; see `docs/bibliography.md`). Whether they do is decided by the
//! structure of both queries.

use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::canonical::{Bag, Relation, hash_of};
use crate::combine::core;
use crate::{Shape, shape};

/// A partial aggregate, apart from what it groups and computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollUp {
    /// The rows that it reads, whatever their columns are called.
    base: Bag,
    /// What it groups by, in the order of its columns.
    groups: Vec<Expr>,
    /// What it computes, in the order of its columns, which follow those of the groups.
    functions: Vec<Expr>,
}

impl RollUp {
    /// None: the sub-plan's rows are no partial aggregates.
    pub fn of(plan: &LogicalPlan) -> Option<RollUp> {
        let LogicalPlan::Aggregate(aggregate) = core(plan) else { return None };
        if shape(plan) != Shape::Partials {
            return None;
        }
        let input = Relation::of(&aggregate.input).ok()?;
        let resolved = |exprs: &[Expr]| input.resolved(exprs, aggregate.input.schema()).ok();
        let (groups, functions) = (resolved(&aggregate.group_expr)?, resolved(&aggregate.aggr_expr)?);
        Some(RollUp { base: input.rows, groups, functions })
    }

    /// A number that is equal for roll-ups over the same rows. Others may share it: [`Self::columns_of`] tells.
    pub fn base_hash(&self) -> u64 {
        hash_of(&self.base)
    }

    /// How many columns it groups by.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The columns of `finer`'s partial results that are partial results of this one, in the order of its columns: rows of the same
    /// group come several times then, and are merged as those of several rounds are. None: they do not serve.
    pub fn columns_of(&self, finer: &RollUp) -> Option<Vec<usize>> {
        if self.base != finer.base {
            return None;
        }
        let group = |group: &Expr| finer.groups.iter().position(|other| other == group);
        let function = |function: &Expr| finer.functions.iter().position(|other| other == function);
        let groups = self.groups.iter().map(group);
        let functions = self.functions.iter().map(|expr| function(expr).map(|place| finer.groups.len() + place));
        groups.chain(functions).collect()
    }
}
