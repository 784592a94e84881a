//! The seam between those who store slices and those who know how they are encoded.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::stream::BoxStream;
use pithead_model::{Blame, Fault, Value};

/// Batches of a slice, in row order.
pub type SliceStream = BoxStream<'static, Result<RecordBatch, SliceError>>;

/// One way to lay a slice out. Every encoding passes the same conformance suite (`tests/conformance`).
pub trait Encoding: Send + Sync + Debug {
    /// Its name in manifests: `vortex`, `arrow`.
    fn name(&self) -> &'static str;

    /// Its number and version in slice headers. A reader refuses a version that it does not know.
    fn id(&self) -> (u16, u16);

    /// Whether it can hold these columns; otherwise the first that it cannot, and why.
    fn supports(&self, schema: &SchemaRef) -> Result<(), SliceError>;

    /// Encodes whole rows (at least one) as the body of a slice. Blocks for as long as compressing takes.
    fn encode(&self, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, SliceError>;

    /// Opens a body. Nothing is decoded yet; `schema` is the dataset's, and the body must hold the same.
    fn open(&self, schema: &SchemaRef, body: Bytes) -> Result<Arc<dyn SliceReader>, SliceError>;
}

/// An open slice.
pub trait SliceReader: Send + Sync + Debug {
    /// Rows in it.
    fn rows(&self) -> u64;

    /// Reads columns, ruling out what it can. Rows that satisfy all predicates are always in the output; rows that do
    /// not may be, unless the predicate is in the returned [`Scan::applied`].
    fn scan(&self, request: ScanRequest) -> Result<Scan, SliceError>;
}

/// What to read.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// Columns by index in the dataset's schema, in the order of the output.
    pub columns: Vec<usize>,
    /// All must hold.
    pub predicates: Vec<Predicate>,
    /// Whether page bounds may rule pages out.
    pub zone_maps: bool,
    /// Rows of a batch at most.
    pub batch_rows: usize,
    /// Counts what is read.
    pub stats: Arc<ReadStats>,
}

/// A scan of a slice.
pub struct Scan {
    /// The rows, with exactly the requested columns.
    pub stream: SliceStream,
    /// Indices into [`ScanRequest::predicates`] of those that every row of the output satisfies.
    pub applied: Vec<usize>,
}

/// What a scan read, added up by all readers that share it.
#[derive(Debug, Default)]
pub struct ReadStats {
    /// Bytes taken from the slice's value.
    pub bytes: AtomicU64,
    /// Pages decoded at least in part.
    pub pages_read: AtomicU64,
    /// Pages ruled out by their bounds.
    pub pages_skipped: AtomicU64,
}

/// A condition on one column, in which NULL never satisfies (but [`Predicate::IsNull`]). Values are read together with
/// the column's type.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// `column <op> value`.
    Compare {
        /// Index in the dataset's schema.
        column: usize,
        /// How.
        op: Compare,
        /// With what.
        value: Value,
    },
    /// `column` equals one of these.
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
        /// NOT LIKE.
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

/// What can go wrong with a slice.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    /// The bytes are not what they should be.
    #[error("damaged slice: {0}")]
    Corrupt(String),
    /// The slice was written by a release that this one cannot read.
    #[error("slice of encoding {encoding}, version {version}; this release reads {known}")]
    Version {
        /// Encoding id.
        encoding: u16,
        /// Its version.
        version: u16,
        /// What is known.
        known: String,
    },
    /// The columns cannot make a dataset, or a batch does not have the dataset's.
    #[error("{0}")]
    Schema(String),
    /// The encoding has no way to hold a type.
    #[error("column {column:?} of type {data_type} cannot be stored as {encoding}")]
    Unsupported {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
        /// The encoding.
        encoding: &'static str,
    },
    /// The rows make a slice over the bound.
    #[error("a slice of {bytes} bytes is over the bound of {max}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// What was written is not what is read back.
    #[error("read-back verification failed: {0}")]
    ReadBack(String),
    /// The encoder failed.
    #[error("{encoding} failed: {what}")]
    Codec {
        /// The encoding.
        encoding: &'static str,
        /// What it said.
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
            SliceError::ReadBack(_) | SliceError::Codec { .. } => Blame::Bug,
        };
        Fault::new(blame, error.to_string())
    }
}
