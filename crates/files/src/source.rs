//! [`Source`]: a file that was opened, to be read in parts.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pithead_model::{Blame, Fault};

/// A file that was opened far enough to know its columns.
pub trait Source: Send + Sync {
    /// The file: its path, or its URL without what may be secret.
    fn path(&self) -> &Path;

    /// Its size; 0 if nobody knows.
    fn bytes(&self) -> u64;

    /// Its columns, in its own order and types.
    fn schema(&self) -> &SchemaRef;

    /// Whether the file says its columns' types. Otherwise they were guessed, and [`Source::retype`] can change them.
    fn is_typed(&self) -> bool {
        true
    }

    /// Reads the columns as these types, in the file's order: guessed ones of several files, or those of a dataset.
    fn retype(&mut self, _schema: SchemaRef, _is_guessed: bool) {}

    /// Number of parts that can be read at the same time.
    fn parts(&self) -> usize;

    /// Reads one part: all columns, or only one.
    fn read(&self, part: usize, batch_rows: usize, only: Option<usize>) -> Result<Chunks, Fault>;
}

/// Some rows, and the bytes of the file that were read for them.
pub struct Chunk {
    /// The rows.
    pub batch: RecordBatch,
    /// The bytes.
    pub bytes: u64,
}

/// The rows of one part.
pub type Chunks = Box<dyn Iterator<Item = Result<Chunk, Fault>>>;

/// Runs a decoder on a file that may be anything. A panic inside becomes a fault that names the file.
pub fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(damaged(path, format_args!("its decoder gave up: {}", said.unwrap_or("no reason given"))))
    })
}

/// A file whose bytes are not what its format says.
pub fn damaged(path: &Path, what: impl std::fmt::Display) -> Fault {
    Fault::invalid(format!("{}: {what}", path.display()))
}

/// A file that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Fault {
    use std::io::ErrorKind::{IsADirectory, NotFound, PermissionDenied, UnexpectedEof};
    if let Some(fault) = fault_within(error) {
        return fault;
    }
    let blame = match error.kind() {
        NotFound | PermissionDenied | IsADirectory | UnexpectedEof => Blame::User,
        _ => Blame::Device,
    };
    Fault::new(blame, format!("{}: {error}", path.display()))
}

/// What a server's file had to say, where that is what a reader met.
pub(crate) fn fault_within(error: &std::io::Error) -> Option<Fault> {
    error.get_ref()?.downcast_ref().cloned()
}

pub(crate) fn open_file(path: &Path) -> Result<File, Fault> {
    File::open(path).map_err(|error| unreadable(path, &error))
}
