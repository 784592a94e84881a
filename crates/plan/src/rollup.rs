//! [`RollUp`]: partial aggregates that also serve a coarser grouping.
//!
//! Partial results by `(a, b)` are also partial results by `a`, and by nothing: they only come in more rows. So the
//! partial results of one query, where host or drive still has them, may answer another query without a look at the
//! data (Montana et al. 2023, Skytether, section 7; see `docs/bibliography.md`). Whether they do is decided by the
//! structure of both queries.

use datafusion::logical_expr::{Expr, LogicalPlan};
use pithead_functions::Registry;

use crate::canonical::{Bag, Relation, hash_of};
use crate::combine::core;
use crate::{ResultShape, shape};

/// A partial aggregate, in a form in which two of them can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollUp {
    /// The rows that it reads, whatever the names of their columns are.
    base: Bag,
    /// The groups, in the order of its columns.
    groups: Vec<Expr>,
    /// The functions, in the order of its columns, which follow those of the groups.
    functions: Vec<Expr>,
}

impl RollUp {
    /// The roll-up of a sub-plan. None if the sub-plan's rows are not partial aggregates.
    pub fn of(plan: &LogicalPlan, functions: &Registry) -> Option<RollUp> {
        let LogicalPlan::Aggregate(aggregate) = core(plan) else { return None };
        if shape(plan, functions) != ResultShape::Partials {
            return None;
        }
        let input = Relation::of(&aggregate.input).ok()?;
        let resolved = |exprs: &[Expr]| input.resolved(exprs, aggregate.input.schema()).ok();
        let (groups, functions) = (resolved(&aggregate.group_expr)?, resolved(&aggregate.aggr_expr)?);
        Some(RollUp { base: input.rows, groups, functions })
    }

    /// A number that is equal for roll-ups over the same rows. Different ones may share a number: [`Self::columns_of`]
    /// decides.
    pub fn base_hash(&self) -> u64 {
        hash_of(&self.base)
    }

    /// The number of columns that it groups by.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The columns of `finer`'s partial results that are partial results of this roll-up, in the order of its columns.
    /// A group then has several rows, which are merged like those of several rounds. None if `finer` does not serve.
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
