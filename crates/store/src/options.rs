//! [`StoreOptions`]: how a store uses its memory and its medium.

/// How a store uses its memory and its medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Bytes of large values kept in memory after they were read.
    pub cache_bytes: u64,
    /// Bytes of the index kept in memory.
    pub index_cache_bytes: usize,
    /// A segment file that has so many bytes takes no more values. Segment files that are there keep their size.
    pub segment_bytes: u64,
    /// Bytes that puts leave free on the medium, so that deletes and compaction can go on when it is full. A medium with
    /// little room keeps a fiftieth of what is free when the store is opened, and 4 MiB at least.
    pub reserve_bytes: u64,
    /// Flush what was written back after a second, and give back dead room, on a thread of the store. Without it that is
    /// done when it is asked for, or must be.
    pub background: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            index_cache_bytes: 64 << 20,
            segment_bytes: 256 << 20,
            reserve_bytes: 64 << 20,
            background: true,
        }
    }
}
