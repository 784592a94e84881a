//! Parquet: files that lie where they are, of which each row group is a slice, and an encoding of slices.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pithead_model::SliceEntry;

use crate::{ReadAt, SliceError, SliceReader};

/// Where a column of a dataset comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The root column of the file with this number, whose values are cast to the dataset's type where that loses nothing.
    Column(usize),
    /// The file lacks it: all rows are NULL.
    Null,
    /// All rows have this value, which the name of a folder gives as text; `__HIVE_DEFAULT_PARTITION__` is NULL.
    Text(String),
}

/// A Parquet file whose footer was read and checked.
#[derive(Debug)]
pub struct ParquetFile {
    schema: SchemaRef,
}

impl ParquetFile {
    /// Reads the footer. Blocks.
    pub fn open(_source: Arc<dyn ReadAt>) -> Result<ParquetFile, SliceError> {
        Err(SliceError::Schema("Parquet files cannot be attached yet".into()))
    }

    /// The columns with the types that a dataset has them in, without the writer's notes about them.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows of all row groups.
    pub fn rows(&self) -> u64 {
        0
    }

    /// The row groups as slices of a dataset. `origins` says for each column of `schema` where it comes from.
    pub fn slices(self: &Arc<Self>, _schema: &SchemaRef, _origins: &[Origin]) -> Result<Vec<AttachedSlice>, SliceError> {
        Ok(Vec::new())
    }
}

/// A row group, or a part of its rows, as a slice of a dataset. A clone is cheap.
#[derive(Clone, Debug)]
pub struct AttachedSlice {
    entry: Arc<SliceEntry>,
}

impl AttachedSlice {
    /// What the directory says of the slice, from the footer's statistics.
    pub fn entry(&self) -> &Arc<SliceEntry> {
        &self.entry
    }

    /// Opens it for reading. Blocks.
    pub fn open(&self) -> Result<Arc<dyn SliceReader>, SliceError> {
        Err(SliceError::Schema("Parquet files cannot be attached yet".into()))
    }

    /// The slice as bytes that [`crate::open_slice`] opens at another machine. Blocks.
    pub fn stored(&self) -> Result<Bytes, SliceError> {
        Err(SliceError::Schema("Parquet files cannot be attached yet".into()))
    }
}
