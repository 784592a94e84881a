//! One zero and one NaN: floats that are equal in SQL are one value wherever the engine distinguishes values.
//!
//! In SQL `-0.0 = 0.0`, and every NaN equals every other NaN and is larger than all numbers, as in DuckDB. The engine's
//! kernels follow the total order of IEEE 754 instead: they distinguish the two zeros, and they distinguish NaNs by
//! sign and payload (the result of `0.0 / 0.0` has its sign set on x86, and sorts below all numbers). The engine
//! corrects this for the zeros in some places but not in others, such as nested values. So keys of groups, joins,
//! windows and sorts, arguments of DISTINCT aggregates and operands of comparisons pass through [`one_float`] in the
//! plan that is about to run ([`with_one_float`]).

mod canonical;
mod keys;

pub use canonical::before_one_float;
pub(crate) use canonical::{canonical, holds_float, one_float_udf};
pub(crate) use keys::{canonical_constant, compares, with_one_float};
