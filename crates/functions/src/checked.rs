//! `+`, `-`, `*`, `<<` and `>>` of whole numbers, and `+`, `-`, `*` and `/` of decimals, that never give a wrong
//! number: a result that does not fit its type is an error.
//!
//! The engine's own operators wrap around silently, and a decimal may get more digits than its type has. The engine has
//! no switch for this that a query could reach. So functions of ours ([`Checked`]) replace the operators wherever the
//! engine may compute one: while the optimiser folds constants ([`AsFunctions`] runs before its other rules and
//! [`AsOperators`] after them, so that no other rule meets a function where an operator is meant), and in the plan that
//! is about to run ([`with_checks`]).

mod decimals;
mod function;
mod kernels;
mod rules;
mod shifts;

/// The functions that take the place of operators.
pub(crate) fn functions() -> Vec<datafusion::logical_expr::ScalarUDF> {
    function::Checked::all()
}

pub use kernels::{check_decimals, name_overflow};
pub(crate) use rules::{AsFunctions, AsOperators, with_checks};
