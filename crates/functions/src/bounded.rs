//! Functions whose results may be far larger than their arguments, within a session's memory.
//!
//! An operator reserves what it holds; what an expression makes, nobody reserves: `repeat(text, 50000)` over one batch makes
//! gigabytes. So where such a function is about to run, [`Bounded`] stands in its place, as functions stand for operators in
//! [`crate::checked`]: while the optimiser folds constants, and in the plan that runs. It works out how much the result takes at
//! most, reserves that of the session's memory, and the result holds the reservation until its last buffer is freed. And operators
//! with such an expression get their rows in pieces ([`rows_at_once`]), so that a query whose result is small needs little.

mod function;
mod growth;
mod held;
mod pieces;

pub(crate) use function::{Bounded, bounded, may_fold, plain};
pub(crate) use held::SessionMemory;
pub use pieces::rows_at_once;
