//! Decomposing queries: which parts of a logical plan run at the drives, as sub-plans, and what is left for the host.
//!
//! [`Decomposer`] walks an optimised logical plan and returns the super-plan, in which every [`RemoteScan`] represents
//! a [`SubPlan`]: a complete logical plan that any Substrait engine could run. [`consume`], [`shape`] and [`combine`]
//! are the other end: how a CSE reads a sub-plan and puts the outputs of its rounds together. Nothing here opens a
//! socket or a file.

mod aggregate;
mod annotated;
mod canonical;
mod combine;
mod cutter;
mod decompose;
mod eager;
mod early;
mod error;
mod estimate;
mod expression;
mod facts;
mod join;
mod join_keys;
mod key_sources;
mod known_rows;
mod literal;
mod names;
mod never_fails;
mod operator;
mod options;
mod order;
mod picked;
mod piece;
mod recursion;
mod reduce;
mod remote;
mod replan;
mod rollup;
mod sampling;
mod shared_part;
mod side;
mod subquery;
mod travel;
mod unnest_rel;
mod unshipped;
mod width;

pub use annotated::{Executed, Progress, Round, Rounds, RunOfSlices, Span, annotate, annotation_of, take_annotation};
pub use combine::{ResultShape, combine, shape};
pub use decompose::{Decomposer, Decomposition, HostCost};
pub use error::PlanError;
pub use estimate::{ColumnEstimate, Estimate};
pub use facts::{Catalogue, DatasetFacts, Rest};
pub use literal::{shown, shown_merge};
pub use operator::Operator;
pub use options::{BeforeJoins, Computed, CutOptions};
pub use order::order_joins;
pub use reduce::{First, Reduced, reduce_by_joins};
pub use remote::{Input, RemoteScan, SubPlan, Travelling};
pub use replan::{ReplanPoint, replannable, with_replan_point};
pub use rollup::RollUp;
pub use sampling::{SampleKey, SampleQuestion, Sampled, Samples, counted_by, sample_questions};
pub use shared_part::{PartTable, SharedPart};
pub use subquery::{ScalarQuery, columns_around, is_volatile, replace_scalar_queries, scalar_queries};
pub use travel::{INPUT_SCHEMA, changes_something, consume, references, substrait_version};
pub use width::narrowed;

#[cfg(test)]
mod tests;
