//! Tests of the whole: the SQL suites of `crates/e2e/suites/slt`, TPC-H, and faults, on every arrangement of drives.
//!
//! Everything runs in one test binary, `tests/e2e`; what its modules share is here. The suites and their answers are
//! judged by DuckDB (`crates/e2e/suites/judge.py`).

mod attached;
mod bucket;
mod compare;
mod data;
mod drives;
pub mod front;
mod mode;
mod places;
pub mod random;
mod render;
mod setup;
mod suite;
pub mod tpch;

pub use bucket::{Answers, Bucket};
pub use compare::{Column, Table, bag_difference, letter, row_difference};
pub use data::{TestDataset, datasets, load_all};
pub use drives::{DriveProcess, damage};
pub use front::{FrontProcess, RawClient, Reply};
pub use mode::Mode;
pub use places::{pithead, repository, target};
pub use render::{cell, table};
pub use setup::{Setup, block_on, collect, divide, free_address, link_bytes, load, refusal, worker};
pub use suite::run_suites;
