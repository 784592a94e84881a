//! One zero and one NaN: floats that are equal in SQL are one value wherever the engine tells values apart.
//!
//! In SQL `-0.0 = 0.0`, and every NaN equals every other and is larger than all numbers, as in DuckDB. The engine's kernels go by
//! IEEE 754's total order instead: they tell the zeros apart, and NaNs by their sign and payload (what `0.0 / 0.0` gives has its
//! sign set on x86, and sorts below all numbers). The engine mends that for the zeros in some places and not in others, nested
//! values among them. So keys of groups, joins, windows and sorts, arguments of DISTINCT aggregates and operands of comparisons
//! go through [`one_float`] in the plan that is about to run ([`with_one_float`]).

mod canonical;
mod keys;

pub use canonical::before_one_float;
pub(crate) use canonical::{canonical, holds_float};
pub(crate) use keys::with_one_float;
