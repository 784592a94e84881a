//! A fuzzer for decoders of foreign bytes: what drives and hosts read off a medium, a link or a user's file.
//!
//! A [`Target`] is a function of bytes. It brings valid encodings to start from, and says which parts they are made of, so
//! that mutants get past lengths and checksums to what lies behind. [`run`] mutates them from a seed; each case is judged:
//! it must not panic, nor blame us, nor take more memory than its [`Bound`], nor hang. What fails is made smaller
//! ([`shrink`]) and written down. The targets are in `tests/fuzz`; `docs/internals/fuzzing.md` says how to run them.

mod judge;
mod memory;
mod mutate;
mod run;
mod shrink;
mod target;
mod watch;

pub use judge::{Failure, Judge, Judged};
pub use memory::CountingAllocator;
pub use mutate::mutant;
pub use run::{Budget, Totals, replay, run};
pub use shrink::shrink;
pub use target::{Bound, Outcome, Parts, Run, Seed, Target};
pub use watch::Watch;
