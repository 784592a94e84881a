//! Every call of a door through a real socket: what comes out at the far end is what went in.

mod calls;
mod certificates;
mod crowds;
mod exchanges;
mod faults;
mod memory;
mod rows;
mod runs;
mod secure;
mod streams;
mod throughput;
