//! [`Loader`]: files or batches in, a dataset's new rows out on the drives, all of them or none. Rows find their partition
//! ([`Partitioner`]), partitions are written to all their copies, and the small runs of many appends are merged.

mod agree;
mod altering;
#[cfg(test)]
mod attended_tests;
mod file_rows;
#[cfg(test)]
mod homes_tests;
mod loader;
mod marking;
mod members;
mod merging;
mod partition;
mod pipeline;
mod replacement;
mod sample;
mod spec;
mod target;

pub use altering::{AlteredColumn, AlteredFrom};
pub use file_rows::FileRows;
pub use loader::Loader;
pub use marking::{ExchangeSpec, MarkSpec};
pub use partition::Partitioner;
pub use spec::{LoadMode, LoadProgress, LoadReport, LoadSpec, PartitionBy};
