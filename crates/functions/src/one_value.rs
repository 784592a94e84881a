//! Values that are equal in SQL are one value wherever the engine distinguishes values: floats and intervals.
//!
//! In SQL `-0.0 = 0.0`, and every NaN equals every other NaN and is larger than all numbers, as in DuckDB. The engine's
//! kernels follow the total order of IEEE 754 instead: they distinguish the two zeros, and they distinguish NaNs by
//! sign and payload (the result of `0.0 / 0.0` has its sign set on x86, and sorts below all numbers). The engine
//! corrects this for the zeros in some places but not in others, such as nested values. So keys of groups, joins,
//! windows and sorts, arguments of DISTINCT aggregates and operands of comparisons pass through [`one_value`] in the
//! plan that is about to run ([`with_one_value`]), and constants in the plan that is about to be optimised.
//!
//! Of intervals the engine compares months, then days, then nanoseconds, so that `INTERVAL '25 hours'` is less than `INTERVAL '1 day'`.
//! In SQL a month has 30 days and a day has 24 hours where intervals are compared.

mod canonical;
mod casts;
mod keys;
mod lists;

pub use canonical::before_one_value;
pub(crate) use canonical::{canonical, has_synonyms, one_value_udf, without_one_value};
pub(crate) use casts::{compares_cast, with_cast_kept};
pub(crate) use keys::{canonical_constant, compared, compares, compares_constants, is_constant, with_one_value};
pub(crate) use lists::with_lists_apart;
