//! [`AttachedFile`] and [`AttachedSlice`]: files that lie outside of the store, and parts of their rows as slices.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pithead_model::SliceEntry;

use crate::parquet::Origin;
use crate::{SliceError, SliceReader};

/// A file whose footer was read and checked.
pub trait AttachedFile: Send + Sync + Debug {
    /// The columns with the types that a dataset has them in, without the writer's notes about them.
    fn schema(&self) -> &SchemaRef;

    /// The encoding that is like it, by name.
    fn encoding(&self) -> &'static str;

    /// Its rows as slices of a dataset. `origins` says for each column of `schema` where it comes from. Blocks.
    fn attach(self: Arc<Self>, schema: &SchemaRef, origins: &[Origin]) -> Result<Vec<AttachedSlice>, SliceError>;
}

/// Some rows of a file.
pub(crate) trait AttachedRows: Send + Sync + Debug {
    fn entry(&self) -> &Arc<SliceEntry>;
    fn open(&self) -> Result<Arc<dyn SliceReader>, SliceError>;
    fn stored(&self) -> Result<Bytes, SliceError>;
    fn is_far(&self) -> bool;
}

/// A row group of a Parquet file, some batches of an Arrow file, or a part of one, as a slice of a dataset. A clone is cheap.
#[derive(Clone, Debug)]
pub struct AttachedSlice(Arc<dyn AttachedRows>);

impl AttachedSlice {
    pub(crate) fn new(rows: impl AttachedRows + 'static) -> AttachedSlice {
        AttachedSlice(Arc::new(rows))
    }

    /// What the directory says of the slice: its rows, and what the file tells of their bounds.
    pub fn entry(&self) -> &Arc<SliceEntry> {
        self.0.entry()
    }

    /// Whether its bytes are at a server: reading it waits for that.
    pub fn is_far(&self) -> bool {
        self.0.is_far()
    }

    /// Opens it for reading, with the bounds of its pages where the file has them. Blocks.
    pub fn open(&self) -> Result<Arc<dyn SliceReader>, SliceError> {
        self.0.open()
    }

    /// The slice as bytes that [`crate::open_slice`] opens at another machine: the row group's own bytes, or else its rows in
    /// the encoding `arrow`. Blocks.
    pub fn stored(&self) -> Result<Bytes, SliceError> {
        self.0.stored()
    }
}
