//! A slice as bytes and back to Arrow: encodings, pages, bounds.
//!
//! An [`Encoding`] turns batches into the body of a slice and opens a body for reading. [`seal`] and [`unseal`] add and
//! check the header around it. [`encode_slice`] and [`open_slice`] do both. This crate does not know where the bytes
//! are stored, or what a query is.

mod api;
mod arrow_file;
mod arrow_ipc;
mod arrow_parts;
mod arrow_sizes;
mod attached;
mod bounds;
mod conditions;
mod describe;
mod encodings;
mod filter;
mod fit;
mod fitted;
mod guard;
mod header;
mod keys;
mod marking;
mod marks;
mod matcher;
mod nans;
mod nested;
mod normalise;
mod nsm;
mod page_entries;
mod page_sizes;
mod paged;
mod pages;
mod parquet;
mod pax;
mod prune;
mod request;
mod scalars;
mod sketch;
mod stored;
mod summary;
mod vortex;

pub use api::{
    Compare, Encoding, Pages, Predicate, ReadStats, Scan, ScanRequest, Search, SearchStream, SliceError, SliceReader,
    SliceStream,
};
pub use arrow_file::ArrowFile;
pub use arrow_sizes::{BatchSizes, FirstBytes, check_batch};
pub use attached::{AttachedFile, AttachedSlice};
pub use bounds::value_at;
pub use describe::{SliceFacts, describe};
pub use encodings::{
    EncodedSlice, encode_slice, encoding, encoding_by_id, encoding_names, open_parts, open_slice, open_verified,
};
pub use filter::ValueFilter;
pub use fit::Fit;
pub use fitted::fitted;
pub use header::{HEADER_BYTES, Header, seal, unseal, verify};
pub use keys::KeySet;
pub use marking::{MarkedSlice, mark, open_rows};
pub use normalise::{normalise, normalise_batch};
pub use page_sizes::check_pages;
pub use parquet::{Origin, ParquetFile};
pub use prune::may_match;
pub use scalars::one_row;
pub use sketch::{ColumnSketches, Sketch};
pub use stored::{ReadAt, SliceParts};
pub use summary::{bounds_of, summarise};
