//! What a load is asked to do, and what it says of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use pithead_files::{CsvOptions, Format};
use pithead_model::{Dataset, DatasetName, SortKey};

/// A load.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The dataset.
    pub name: DatasetName,
    /// Files or globs.
    pub sources: Vec<String>,
    /// The files' format; none: each by its name's ending.
    pub format: Option<Format>,
    /// What to do with the rows that are there.
    pub mode: LoadMode,
    /// The dataset as it was read. With [`LoadMode::Replace`], the new rows are laid out as its rows are, and take their place only if
    /// nobody has changed it meanwhile; with [`LoadMode::Append`], they are added only if it has the columns that it had.
    pub over: Option<Arc<Dataset>>,
    /// Beside `over`: the dataset that the new rows are laid out as instead, under other names of columns.
    pub shape: Option<Arc<Dataset>>,
    /// How rows find their partition; none: as the dataset that is appended to, or by hash of the first column where that is of
    /// integers or texts and a sample has no frequent value (512 rows or more), else round-robin.
    pub partitioning: Option<PartitionBy>,
    /// Order within each partition; none: as they come.
    pub sort: Vec<SortKey>,
    /// Name of the encoding; none: `vortex`, or `arrow` where Vortex cannot hold a column.
    pub encoding: Option<String>,
    /// Partitions; none: one a drive of the domain, or as the dataset that is appended to.
    pub partitions: Option<usize>,
    /// Drives that each partition is to be on; none: one, or as the dataset that is appended to.
    pub copies: Option<usize>,
    /// Rows of a slice at most; none: [`pithead_model::SLICE_ROWS_DEFAULT`].
    pub slice_rows: Option<usize>,
    /// Bytes of rows after which a slice ends however few they are; none: only the largest value bounds it, or as the dataset that is
    /// appended to.
    pub slice_bytes: Option<usize>,
    /// Application metadata. Appending adds to what is there.
    pub metadata: BTreeMap<String, String>,
    /// How CSV files are read.
    pub csv: CsvOptions,
}

impl LoadSpec {
    /// A new dataset with the default of everything.
    pub fn new(name: DatasetName, sources: Vec<String>) -> Self {
        Self {
            name,
            sources,
            format: None,
            mode: LoadMode::Create,
            over: None,
            shape: None,
            partitioning: None,
            sort: Vec::new(),
            encoding: None,
            partitions: None,
            copies: None,
            slice_rows: None,
            slice_bytes: None,
            metadata: BTreeMap::new(),
            csv: CsvOptions::default(),
        }
    }
}

/// What a load does with the dataset of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LoadMode {
    /// There must be none.
    #[default]
    Create,
    /// Its rows stay.
    Append,
    /// Its rows go when the new ones become visible.
    Replace,
}

/// How rows are to find their partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionBy {
    /// In turn.
    RoundRobin,
    /// By a hash of these columns.
    Hash(Vec<String>),
    /// By ranges of this column, chosen from a sample of the first load.
    Range(String),
}

/// How far a load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of the sources that were read.
    pub bytes_done: u64,
    /// Bytes of the sources.
    pub bytes_total: u64,
    /// Rows that were read.
    pub rows: u64,
}

/// What a load did.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReport {
    /// Rows.
    pub rows: u64,
    /// Bytes of the files, or of the batches in memory.
    pub source_bytes: u64,
    /// Bytes on the drives' media, of one copy.
    pub stored_bytes: u64,
    /// Slices.
    pub slices: u64,
    /// From start to visible.
    pub seconds: f64,
    /// Name of the encoding.
    pub encoding: String,
    /// Why the encoding is not the default one.
    pub note: Option<String>,
}
