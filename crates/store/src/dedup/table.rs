//! [`Table`]: the chunks that are known, in memory that is bounded. What is forgotten costs savings, and nothing else.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh3::Xxh3;

use super::chunks::Chunk;
use crate::Key;
use crate::index::{Raw, Was};

/// The memory of a chunk that is known, at most: 16 bytes in a hash table that is a third to seven eighths full.
const CHUNK_BYTES: u64 = 40;
/// The memory of a value that has known chunks, besides its key; and of one that was looked at.
const SOURCE_BYTES: u64 = 80;
const SEEN_BYTES: u64 = 20;

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub source: u32,
    pub offset: u32,
}

/// A value that has chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A key's value, as long as its mark is this.
    Plain {
        key: Key,
        mark: u64,
    },
    Pack(u64),
}

/// Chunks by what they are known by. Of more chunks than fit, every second is kept, then every fourth, and so on: runs of equal bytes
/// are followed from one chunk in both directions.
#[derive(Debug)]
pub(super) struct Table {
    chunks: HashMap<u64, At>,
    sources: Vec<Source>,
    /// Marks of what was looked at.
    seen: HashSet<u64>,
    key_bytes: u64,
    bytes_max: u64,
    /// As many of a print's last bits are 0 in each chunk that is kept.
    skipped_bits: u32,
}

impl Table {
    pub fn new(bytes_max: u64) -> Self {
        let (chunks, sources, seen) = (HashMap::new(), Vec::new(), HashSet::new());
        Self { chunks, sources, seen, key_bytes: 0, bytes_max, skipped_bits: 0 }
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> u64 {
        let sources = self.sources.len() as u64 * SOURCE_BYTES + self.key_bytes;
        self.chunks.len() as u64 * CHUNK_BYTES + sources + self.seen.len() as u64 * SEEN_BYTES
    }

    pub fn find(&self, scope: u64, print: u64) -> Option<At> {
        self.chunks.get(&scoped(scope, print)).copied()
    }

    pub fn source(&self, at: u32) -> Option<&Source> {
        self.sources.get(at as usize)
    }

    /// The chunks of a source are in a pack from now on, where they were.
    pub fn is_pack(&mut self, source: u32, pack: u64) {
        if let Some(source) = self.sources.get_mut(source as usize) {
            *source = Source::Pack(pack);
        }
    }

    /// Adds chunks of a source, each with its offset there. Those that are known stay where they are.
    pub fn add(&mut self, scope: u64, source: Source, chunks: impl Iterator<Item = (Chunk, usize)>) {
        let at = self.sources.len() as u32;
        let mut has_any = false;
        for (chunk, offset) in chunks {
            let print = scoped(scope, chunk.print);
            if is_kept(print, self.skipped_bits) && !self.chunks.contains_key(&print) {
                self.chunks.insert(print, At { source: at, offset: offset as u32 });
                has_any = true;
            }
        }
        if has_any {
            self.key_bytes += if let Source::Plain { key, .. } = &source { key.len() as u64 } else { 0 };
            self.sources.push(source);
        }
        while self.bytes() > self.bytes_max && !(self.chunks.is_empty() && self.seen.is_empty()) {
            self.shrink();
        }
    }

    pub fn is_seen(&self, mark: u64) -> bool {
        self.seen.contains(&mark)
    }

    pub fn see(&mut self, mark: u64) {
        self.seen.insert(mark);
    }

    /// Forgets every second chunk, and values without any. What was looked at is looked at again when there is no room to remember it.
    fn shrink(&mut self) {
        self.skipped_bits += 1;
        let bits = self.skipped_bits;
        self.chunks.retain(|print, _| is_kept(*print, bits));
        self.chunks.shrink_to_fit();
        let mut places: HashMap<u32, u32> = HashMap::new();
        let mut sources = Vec::new();
        for at in self.chunks.values_mut() {
            let Some(source) = self.sources.get(at.source as usize) else { continue };
            at.source = *places.entry(at.source).or_insert_with(|| {
                sources.push(source.clone());
                sources.len() as u32 - 1
            });
        }
        let key_bytes = |source: &Source| if let Source::Plain { key, .. } = source { key.len() as u64 } else { 0 };
        self.key_bytes = sources.iter().map(key_bytes).sum();
        self.sources = sources;
        if self.seen.len() as u64 * SEEN_BYTES > self.bytes_max / 4 {
            self.seen = HashSet::new();
        }
    }
}

fn is_kept(print: u64, bits: u32) -> bool {
    print.trailing_zeros() >= bits
}

/// A print that no other scope finds.
fn scoped(scope: u64, print: u64) -> u64 {
    print ^ scope
}

/// What tells how a key's value is stored from all other values that it has had or will have.
pub(super) fn mark_of(key: &[u8], raw: &Raw) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&(key.len() as u64).to_le_bytes());
    sum.update(key);
    sum.update(&raw.checksum.to_le_bytes());
    sum.update(&raw.bytes.to_le_bytes());
    if let Was::Segment(place) = &raw.was {
        sum.update(&place.file.to_le_bytes());
        sum.update(&place.offset.to_le_bytes());
    }
    sum.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_some_chunks_of_all_values_stay() {
        let mut table = Table::new(100_000);
        for value in 0..100_u64 {
            let chunks = (0..200_usize).map(|chunk| {
                let print = (value * 200 + chunk as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (Chunk { at: 0, bytes: 1, print: print.swap_bytes() }, chunk)
            });
            table.add(3, Source::Plain { key: Key::from(vec![7; 30]), mark: value }, chunks);
            table.see(value);
            assert!(table.bytes() <= 100_000);
        }
        assert!(table.chunks.len() > 500, "{}", table.chunks.len());
        let sources: HashSet<u32> = table.chunks.values().map(|at| at.source).collect();
        assert!(sources.len() > 90 && sources.iter().all(|source| table.source(*source).is_some()), "{}", sources.len());
        let (print, at) = table.chunks.iter().next().map(|(print, at)| (*print, *at)).unwrap();
        assert_eq!(table.find(3, print ^ 3), Some(at));
        assert_eq!(table.find(4, print ^ 3), None);
    }
}
