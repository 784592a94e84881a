//! More than one host machine: a query's super-plan, divided among workers by `datafusion-distributed`.
//!
//! A worker ([`serve`]) is a host of its own that takes tasks of others' super-plans. It reaches the drives over its own connections, with
//! its own credentials, so that a task names drives and no addresses of them. Other workers a task names by address, and they are called
//! with the token of who gave the task. Who gives a worker tasks can read what its credentials read, so it asks callers who they are, as
//! drives do.
//!
//! A coordinator ([`Workers`]) divides the plans of a host's queries: each partition of a remote scan is in exactly one task, and
//! [`Session`](pithead_remote) makes its rows exactly once there, as on one host. An error of the query itself ends it, as it would on
//! one host. A task that fails otherwise is not repeated alone: before the first row the coordinator's host runs the whole query by
//! itself, and after it the query fails.

mod codec;
pub mod fuzz;
mod gather;
mod leaves;
mod links;
mod may;
mod place;
mod reached;
mod serve;
mod stand_in;
mod task_faults;

pub use links::Links;
pub use place::Workers;
pub use serve::serve;
