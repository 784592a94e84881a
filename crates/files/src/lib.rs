//! Readers and writers of Parquet, CSV, JSON lines and Arrow IPC files, and readers of such files at servers. Each file that is read is opened far enough to know its
//! columns, and read in parts that several threads may take; one that is written takes its name when it is whole. Files come from strangers, so a damaged one is an error that names it, whatever its decoder does.

mod any_floats;
mod batches;
mod csv;
mod exact;
mod guessed_moments;
mod guessed_numbers;
mod input;
mod ipc;
mod json;
mod moments;
mod numbers;
mod open;
mod options;
mod parquet;
mod quoted;
mod quoted_nulls;
mod quotes;
mod remote;
mod seconds;
mod source;
mod spool;
mod text;
mod write;

pub use open::open_all;
pub use options::{CsvOptions, Format};
pub use remote::{RemoteObject, RemotePlace, Servers};
pub use source::{Chunk, Chunks, Source, damaged, guarded};
pub use write::{Compression, NewFile, RowWriter, WriteError, WriteOptions, be_as, file_writer, stream_writer, uuids_as_texts};
