//! [`ArrowFile`]: Arrow IPC files that lie where they are, of which some batches, or a part of a large one, are a slice.
//!
//! Such a file tells where its batches lie, and each batch how many rows it has; nothing tells the bounds of values, so no slice
//! or page of it is skipped but by the values that folders name. Of a batch, only the buffers of the wanted columns are read.

mod file;
mod read;
mod segments;
mod slices;

pub use file::ArrowFile;
