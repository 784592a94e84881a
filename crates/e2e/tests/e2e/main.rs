//! The whole, from statement to drive and back, as DESIGN's first rule asks: the same answer in every mode, equal to an
//! independent engine's; and what happens when a part fails.

mod adaptive;
mod appends;
mod arrays;
mod checking;
mod copies;
mod faults;
mod files;
mod hogs;
mod hosts;
mod kills;
mod limits;
mod observing;
mod parameters;
mod program;
mod random;
mod restarts;
mod secure;
mod sequences;
mod shared;
mod statements;
mod suites;
mod tpch;
