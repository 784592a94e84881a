//! Tests of the whole, from statement to drive and back (`ARCHITECTURE.md`, "Invariants"): the answer is the same in
//! every mode and equal to that of an independent engine; and what happens when a part fails.

mod adaptive;
mod annotated;
mod appends;
mod arrays;
mod aside;
mod checking;
mod copies;
mod copying;
mod faults;
mod files;
mod flight_sql;
mod front;
mod functions;
mod hogs;
mod hosts;
mod kills;
mod kinetic;
mod limits;
mod observing;
mod parameters;
mod program;
mod programs;
mod random;
mod replanning;
mod restarts;
mod sampling;
mod secure;
mod sequences;
mod services;
mod shared;
mod statements;
mod suites;
mod tpch;
mod writing;
mod views;
