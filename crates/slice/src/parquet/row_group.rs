//! [`OpenRowGroup`]: a row group and all that is known of it before anything is decoded.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::metadata::ParquetMetaData;
use pithead_model::PageSet;

use super::columns::Columns;
use crate::pages::PageIndex;
use crate::stored::Stored;

/// A row group, and what of it is the slice.
pub(super) struct OpenRowGroup {
    pub(super) columns: Columns,
    /// Of the one row group, with its places in `body`.
    pub(super) read: ArrowReaderMetadata,
    /// For each root column, its leaves.
    pub(super) leaves: Vec<Range<usize>>,
    /// The file of the one row group; of an attached one, as far as its column chunks reach.
    pub(super) body: Stored,
    /// Where the column chunks end in it.
    pub(super) chunks_end: u64,
    pub(super) index: PageIndex,
    /// The pages that are at hand; none: all.
    pub(super) sent: Option<PageSet>,
    /// The slice's first row in the row group.
    pub(super) first_row: u64,
    /// Of an attached row group: whether the slice has all of its rows.
    pub(super) attached: Option<bool>,
    /// The whole file, once its end was made.
    pub(super) complete: OnceLock<Stored>,
}

impl fmt::Debug for OpenRowGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRowGroup").field("columns", &self.columns).field("index", &self.index).finish_non_exhaustive()
    }
}

/// The leaves of each root column, which lie together.
pub(super) fn leaves(metadata: &ParquetMetaData) -> Vec<Range<usize>> {
    let schema = metadata.file_metadata().schema_descr();
    let mut leaves: Vec<Range<usize>> = Vec::new();
    for leaf in 0..schema.num_columns() {
        let root = schema.get_column_root_idx(leaf);
        leaves.resize(root + 1, leaf..leaf);
        leaves[root].end = leaf + 1;
    }
    leaves
}
