//! Functions whose results may be far larger than their arguments, kept within a session's memory.
//!
//! An operator reserves the memory that it uses, but nobody reserves the memory of an expression's result:
//! `repeat(text, 50000)` over one batch makes gigabytes. Therefore [`Bounded`] takes the place of such a function where
//! it is about to run, both while the optimiser folds constants and in the plan that runs, just as functions take the
//! place of operators in [`crate::checked`]. It computes the most that the result can take, reserves that much of the
//! session's memory, and the result holds the reservation until its last buffer is freed. Large constants are left to the
//! run, since nothing holds memory for what is in a plan. Operators with such an
//! expression also receive their rows in pieces ([`rows_at_once`]), so that a query whose result is small needs little
//! memory.

mod function;
mod growth;
mod parts;
mod pieces;
mod session_memory;

pub(crate) use function::{Bounded, bounded, may_fold, plain};
pub use pieces::rows_at_once;
pub use session_memory::{Holder, SessionMemory};
