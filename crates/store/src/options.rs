//! [`StoreOptions`]: how a store uses its memory and its medium.

/// How a store uses its memory and its medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Bytes of large values that stay in memory after they were read.
    pub cache_bytes: u64,
    /// Bytes of the index kept in memory.
    pub index_cache_bytes: usize,
    /// A segment file with this many bytes takes no more values. Existing segment files keep their size.
    pub segment_bytes: u64,
    /// Bytes that puts leave free on the medium, so that deletes and compaction can go on when it is full. On a small
    /// medium it is a fiftieth of its size, and at least 4 MiB.
    pub reserve_bytes: u64,
    /// Whether a thread of the store flushes written-back data after a second, and gives back dead room. Without it,
    /// that happens only when it is asked for or necessary.
    pub background: bool,
    /// Whether that thread gives back dead room. Where it does not, whoever has the store takes [`crate::Store::compact_step`]s.
    pub compacts: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            index_cache_bytes: 64 << 20,
            segment_bytes: 256 << 20,
            reserve_bytes: 64 << 20,
            background: true,
            compacts: true,
        }
    }
}
