//! `+`, `-`, `*`, `<<` and `>>` of whole numbers, and `+`, `-`, `*` and `/` of decimals, that never give another number than the right one: a result that does not
//! fit in its type is an error.
//!
//! The engine's own operators wrap around silently, and a decimal may get more digits than its type has. The engine has no
//! switch for it that a query could reach. So the operators become functions of ours ([`Checked`]) wherever the engine may
//! compute one: while the optimiser folds constants ([`AsFunctions`] before its other rules, [`AsOperators`] after them, so that
//! nobody else meets a function where an operator is meant), and in the plan that is about to run ([`with_checks`]).

mod function;
mod kernels;
mod rules;
mod shifts;

pub use kernels::{check_decimals, name_overflow};
pub(crate) use rules::{AsFunctions, AsOperators, with_checks};
