//! The interface between the code that stores slices and the code that encodes them.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::stream::BoxStream;
use pithead_model::{Blame, Fault, PAGE_ROWS, PageSample, PageSet, Value};

use crate::KeySet;
use crate::stored::SliceParts;

/// Batches of a slice, in row order.
pub type SliceStream = BoxStream<'static, Result<RecordBatch, SliceError>>;

/// What each of the ranges of rows of a [`Search`] gave: none where no row is wanted.
pub type SearchStream = BoxStream<'static, Result<Option<RecordBatch>, SliceError>>;

/// One way to encode a slice. Every encoding passes the same conformance suite (`tests/conformance`).
pub trait Encoding: Send + Sync + Debug {
    /// Its name in manifests: `vortex`, `arrow`, `nsm`.
    fn name(&self) -> &'static str;

    /// Its number and version in slice headers. A reader refuses a version that it does not know.
    fn id(&self) -> (u16, u16);

    /// Whether the encoding can hold these columns; the error names the first column that it cannot hold, and why.
    fn supports(&self, schema: &SchemaRef) -> Result<(), SliceError>;

    /// Encodes whole rows (at least one) as the body of a slice. Blocks for as long as compression takes.
    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, SliceError>;

    /// Opens a body. Nothing is decoded yet. `schema` is the dataset's, and the body must have the same.
    fn open(&self, schema: &SchemaRef, body: Bytes) -> Result<Arc<dyn SliceReader>, SliceError>;

    /// Opens parts of a body, as [`SliceReader::parts`] cut them. Rows of pages that are not in the bitmap `pages` are as
    /// if they were not there. What was not sent is an error where it is asked for.
    fn open_parts(&self, schema: &SchemaRef, parts: SliceParts, pages: &[u8]) -> Result<Arc<dyn SliceReader>, SliceError>;
}

/// An open slice.
pub trait SliceReader: Send + Sync + Debug {
    /// Rows in the slice.
    fn rows(&self) -> u64;

    /// Reads columns, and skips what it can. The output has all rows that satisfy all predicates. It may have other
    /// rows, too, except that every row satisfies the predicates in the returned [`Scan::applied`].
    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError>;

    /// The pages that may have a row that satisfies all predicates, by their bounds. Decodes nothing. Of a slice that was
    /// opened from parts, pages that were sent.
    fn may_match(&self, predicates: &[Predicate]) -> Result<PageSet, SliceError>;

    /// The rows in these pages.
    fn rows_of(&self, pages: &PageSet) -> u64;

    /// Reads as [`SliceReader::scan`] does, and tells of each range of rows what it gave.
    fn search(&self, request: ScanRequest) -> Result<Search, SliceError>;

    /// What of the slice somebody needs who is to read these columns in these pages. The parts may hold more than that,
    /// as far as an encoding stores it together. Copies nothing.
    fn parts(&self, columns: &[usize], pages: &PageSet) -> Result<SliceParts, SliceError>;

    /// Whether [`SliceReader::parts`] may wait for a server, so that it has to be called where that harms nobody.
    fn is_far(&self) -> bool {
        false
    }
}

/// What to read from a slice.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// Columns by index in the dataset's schema, in the order of the output.
    pub columns: Vec<usize>,
    /// The predicates. A row is wanted if all of them hold.
    pub predicates: Vec<Predicate>,
    /// Columns of whole numbers, each with a set: rows whose number is not in it, or NULL, are not wanted. An encoding may leave
    /// them in.
    pub keys: Vec<(usize, Arc<KeySet>)>,
    /// Whether pages may be skipped by their bounds.
    pub zone_maps: bool,
    /// The pages, of those that may match, that are read; none: all of them. Then the output lacks rows of the others.
    pub sample: Option<PageSample>,
    /// The most rows of a batch.
    pub batch_rows: usize,
    /// Counters of what is read.
    pub stats: Arc<ReadStats>,
}

impl ScanRequest {
    /// These columns of all rows, a page at a time, counted nowhere.
    pub fn all_rows(columns: Vec<usize>) -> Self {
        Self {
            columns,
            predicates: Vec::new(),
            keys: Vec::new(),
            zone_maps: false,
            sample: None,
            batch_rows: PAGE_ROWS,
            stats: Arc::default(),
        }
    }
}

/// A scan of a slice.
pub struct Scan {
    /// The rows, with exactly the requested columns.
    pub stream: SliceStream,
    /// Indices into [`ScanRequest::predicates`] of those that every row of the output satisfies.
    pub applied: Vec<usize>,
}

/// A scan of a slice, range by range.
pub struct Search {
    /// The ranges of rows that are read, each within one page, in order.
    pub windows: Pages,
    /// One item for each of them.
    pub stream: SearchStream,
    /// As in [`Scan::applied`].
    pub applied: Vec<usize>,
}

/// What scans read, added up over all readers that share the counters.
#[derive(Debug, Default)]
pub struct ReadStats {
    /// Bytes taken from the slice's value.
    pub bytes: AtomicU64,
    /// Pages decoded at least in part.
    pub pages_read: AtomicU64,
    /// Pages skipped by their bounds.
    pub pages_skipped: AtomicU64,
    /// Rows whose texts the byte-pattern matcher searched.
    pub searched: AtomicU64,
    /// Of these, the rows that it let through.
    pub matched: AtomicU64,
}

impl ReadStats {
    /// Records what the matcher searched and let through.
    pub(crate) fn matched(&self, searched: usize, matched: usize) {
        self.searched.fetch_add(searched as u64, Ordering::Relaxed);
        self.matched.fetch_add(matched as u64, Ordering::Relaxed);
    }
}

/// A condition on one column. NULL never satisfies it, except [`Predicate::IsNull`]. Its values are read together with
/// the column's type.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// `column <op> value`.
    Compare {
        /// Index in the dataset's schema.
        column: usize,
        /// The comparison.
        op: Compare,
        /// The value to compare with.
        value: Value,
    },
    /// `column` equals one of these values.
    In {
        /// Index in the dataset's schema.
        column: usize,
        /// The values.
        values: Vec<Value>,
    },
    /// `column LIKE pattern`, with `%` and `_` and no escapes, case-sensitive.
    Like {
        /// Index in the dataset's schema.
        column: usize,
        /// The pattern.
        pattern: String,
        /// Whether this is NOT LIKE.
        negated: bool,
    },
    /// `column IS NULL`.
    IsNull(usize),
    /// `column IS NOT NULL`.
    IsNotNull(usize),
    /// At least one of these holds; not empty.
    Any(Vec<Predicate>),
    /// All of these hold (inside [`Predicate::Any`]).
    All(Vec<Predicate>),
}

/// A comparison. NaN is larger than all other floats and equal to itself, -0.0 below 0.0 (Arrow's total order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// Row ranges of a slice.
pub type Pages = Vec<Range<u64>>;

/// Errors of a slice.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    /// The bytes are damaged.
    #[error("damaged slice: {0}")]
    Corrupt(String),
    /// The slice was written by a release that this one cannot read.
    #[error("slice of encoding {encoding}, version {version}; this release reads {known}")]
    Version {
        /// The encoding's id.
        encoding: u16,
        /// Its version.
        version: u16,
        /// The versions that this release reads.
        known: String,
    },
    /// The columns cannot make a dataset, or a batch does not have the dataset's columns.
    #[error("{0}")]
    Schema(String),
    /// The encoding cannot hold a type.
    #[error("column {column:?} of type {data_type} cannot be stored as {encoding}")]
    Unsupported {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
        /// The encoding.
        encoding: &'static str,
    },
    /// The rows make a slice that exceeds the bound on its size.
    #[error("a slice of {bytes} bytes is over the bound of {max}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The rows that were read back differ from those that were written.
    #[error("read-back verification failed: {0}")]
    ReadBack(String),
    /// What was read lies outside of the store, and changed meanwhile.
    #[error("{0}")]
    Gone(String),
    /// The medium failed.
    #[error("{0}")]
    Medium(String),
    /// The encoder failed.
    #[error("{encoding} failed: {what}")]
    Codec {
        /// The encoding.
        encoding: &'static str,
        /// The encoder's message.
        what: String,
    },
}

impl From<SliceError> for Fault {
    fn from(error: SliceError) -> Fault {
        let blame = match &error {
            SliceError::Schema(_) => Blame::User,
            SliceError::Corrupt(_) | SliceError::Version { .. } => Blame::Corrupt,
            SliceError::Unsupported { .. } => Blame::Unsupported,
            SliceError::TooLarge { .. } => Blame::Limit,
            SliceError::Gone(_) => Blame::Conflict,
            SliceError::Medium(_) => Blame::Device,
            SliceError::ReadBack(_) | SliceError::Codec { .. } => Blame::Bug,
        };
        Fault::new(blame, error.to_string())
    }
}
