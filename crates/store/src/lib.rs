//! Durable, ordered, versioned key-values on one medium.
//!
//! Large values are in segment files, which are flushed before the commit that names the values. A durable commit is a
//! flush of the journal's log; the index follows within about a second. Nothing here knows plans.

mod api;
mod background;
mod blocks;
mod bounds;
mod cache;
mod check;
mod commit;
mod compact;
#[cfg(test)]
mod conformance;
mod core;
mod dedup;
mod disk;
#[cfg(test)]
mod faults;
mod format;
pub mod fuzz;
mod index;
mod inspect;
mod journal;
mod listing;
pub mod medium;
mod memory;
mod options;
mod recipe;
mod record;
mod recover;
mod scrub;
mod segments;
mod sum;
mod upgrade;

pub use api::{
    Durability, Entry, Expected, Key, KeyRange, Put, Splice, Staged, Store, StoreError, StoreUse, Tag, Value, Version, Write,
    show_key,
};
pub use bounds::{KEY_BYTES_MAX, TAG_BYTES_MAX, VALUE_BYTES_MAX, VERSION_BYTES_MAX};
pub use cache::CacheUse;
pub use check::{CheckOptions, CheckProgress, CheckReport, CheckStep, Finding, FindingKind, check, check_on};
pub use compact::Compacted;
pub use dedup::{Chunking, Dedup, DedupOptions};
pub use disk::DiskStore;
pub use inspect::{Extent, SegmentFacts, SegmentSummary, StoreFacts, segment_facts, store_facts};
pub use listing::{each_entry, each_readable_entry};
pub use medium::{FolderMedium, Medium, MediumFile};
pub use memory::MemoryStore;
pub use options::StoreOptions;
pub use scrub::{Checking, DamagedKey, Scrub};
