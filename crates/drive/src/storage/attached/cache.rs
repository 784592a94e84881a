//! [`BlockCache`]: blocks of objects at servers, kept on the drive's medium as far as there is room.

use std::collections::HashSet;
use std::fmt::Debug;
use std::fs::File;
use std::hash::Hash;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use pithead_model::{Blame, Fault};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block; the last one of an object has fewer.
pub(crate) const BLOCK_BYTES: u64 = 128 << 10;

/// What tells an object from all others, and from one that takes its place.
pub(crate) trait Identity: Eq + Hash + Clone + Debug {}

impl<K: Eq + Hash + Clone + Debug> Identity for K {}

/// Blocks in a file without a name, so that nothing is left of it when the process ends, however it ends. Every read checks the
/// block's hash, and a damaged block counts as missing. The least recently used blocks go first.
#[derive(Debug)]
pub(crate) struct BlockCache<K: Identity> {
    file: File,
    slots_max: u64,
    state: Mutex<BlockTable<K>>,
    /// Blocks were fetched, or could not be.
    fetched: Condvar,
}

/// The blocks of the cache, and the places of its file.
#[derive(Debug)]
struct BlockTable<K: Identity> {
    /// Blocks that somebody fetches.
    under_way: HashSet<(K, u64)>,
    /// By object, and which of its blocks.
    blocks: LruCache<(K, u64), Block>,
    /// Places that were in use and are not.
    free: Vec<u64>,
    /// Places that were ever in use.
    used: u64,
    /// Whether it was told that the medium takes no more.
    is_told: bool,
}

/// Where a block is, and the hash of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    slot: u64,
    bytes: usize,
    hash: u64,
}

impl<K: Identity> BlockCache<K> {
    /// In a file of this directory, with at most so many bytes. Blocks. [`Blame::Device`] where the medium takes no file.
    pub(crate) fn open(directory: &Path, bytes_max: u64) -> Result<BlockCache<K>, Fault> {
        let place = directory.display();
        let file = tempfile::tempfile_in(directory)
            .map_err(|error| Fault::new(Blame::Device, format!("cannot keep blocks of objects in {place}: {error}")))?;
        let blocks = LruCache::unbounded();
        let state = BlockTable { under_way: HashSet::new(), blocks, free: vec![], used: 0, is_told: false };
        Ok(BlockCache { file, slots_max: bytes_max / BLOCK_BYTES, state: Mutex::new(state), fetched: Condvar::new() })
    }

    /// Takes it on to fetch these blocks. None: the first of them is there, or somebody else fetches it.
    pub(crate) fn begin(&self, object: &K, blocks: Range<u64>) -> Option<Fetching<'_, K>> {
        let mut state = self.state.lock();
        let first = (object.clone(), blocks.start);
        if state.under_way.contains(&first) || state.blocks.contains(&first) {
            return None;
        }
        let own = blocks.filter(|block| state.under_way.insert((object.clone(), *block))).collect();
        Some(Fetching { cache: self, object: object.clone(), own })
    }

    /// Waits until nobody fetches this block. Blocks.
    pub(crate) fn wait(&self, object: &K, block: u64) {
        let key = (object.clone(), block);
        self.fetched.wait_while(&mut self.state.lock(), |state| state.under_way.contains(&key));
    }

    /// Blocks that are kept at most.
    pub(crate) fn blocks_max(&self) -> u64 {
        self.slots_max
    }

    /// Whether a block seems to be there, or will be soon.
    pub(crate) fn has(&self, object: &K, block: u64) -> bool {
        let (state, key) = (self.state.lock(), (object.clone(), block));
        state.blocks.contains(&key) || state.under_way.contains(&key)
    }

    /// A block as it was kept; none: it is not there, or not as it was. Blocks.
    pub(crate) fn get(&self, object: &K, block: u64) -> Option<Vec<u8>> {
        let key = (object.clone(), block);
        let known = *self.state.lock().blocks.get(&key)?;
        let mut bytes = vec![0; known.bytes];
        let read = self.file.read_exact_at(&mut bytes, known.slot * BLOCK_BYTES);
        if read.is_ok() && xxh3_64(&bytes) == known.hash {
            return Some(bytes);
        }
        // Its place may have become another block's meanwhile.
        let mut state = self.state.lock();
        if state.blocks.peek(&key) == Some(&known) {
            tracing::warn!(?object, block, "a cached block was damaged, and is fetched again");
            state.blocks.pop(&key);
            state.free.push(known.slot);
        }
        None
    }

    /// Keeps a block, if the medium takes it. Blocks.
    pub(crate) fn put(&self, object: &K, block: u64, bytes: &[u8]) {
        let key = (object.clone(), block);
        let Some(slot) = self.state.lock().take_slot(&key, self.slots_max) else { return };
        let written = self.file.write_all_at(bytes, slot * BLOCK_BYTES);
        let mut state = self.state.lock();
        if let Err(error) = written {
            state.free.push(slot);
            if !std::mem::replace(&mut state.is_told, true) {
                tracing::warn!(%error, "blocks of objects cannot be kept on the medium");
            }
            return;
        }
        let before = state.blocks.put(key, Block { slot, bytes: bytes.len(), hash: xxh3_64(bytes) });
        // Somebody else has fetched it, too.
        state.free.extend(before.map(|before| before.slot));
    }
}

/// Blocks that are being fetched. When this goes, they are there, or others may try.
#[derive(Debug)]
pub(crate) struct Fetching<'a, K: Identity> {
    cache: &'a BlockCache<K>,
    object: K,
    own: Vec<u64>,
}

impl<K: Identity> Drop for Fetching<'_, K> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        for block in &self.own {
            state.under_way.remove(&(self.object.clone(), *block));
        }
        self.cache.fetched.notify_all();
    }
}

impl<K: Identity> BlockTable<K> {
    /// A place for a block, for which another one may have to go; none: it is there, or nothing is kept.
    fn take_slot(&mut self, key: &(K, u64), slots_max: u64) -> Option<u64> {
        if self.blocks.contains(key) {
            return None;
        }
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        if self.used < slots_max {
            self.used += 1;
            return Some(self.used - 1);
        }
        self.blocks.pop_lru().map(|(_, block)| block.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<K: Identity> BlockCache<K> {
        /// Changes a byte of each block on the medium.
        fn damage(&self) {
            for slot in 0..self.state.lock().used {
                let mut byte = [0];
                self.file.read_exact_at(&mut byte, slot * BLOCK_BYTES).unwrap();
                self.file.write_all_at(&[byte[0] ^ 1], slot * BLOCK_BYTES).unwrap();
            }
        }

        /// Blocks that are there.
        fn len(&self) -> usize {
            self.state.lock().blocks.len()
        }
    }

    #[test]
    fn what_one_fetches_others_wait_for() {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(directory.path(), 8 * BLOCK_BYTES).unwrap();
        let object = "s3://b/1";
        let fetching = cache.begin(&object, 0..3).unwrap();
        assert!(cache.begin(&object, 1..2).is_none() && cache.has(&object, 2) && !cache.has(&object, 3));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                cache.wait(&object, 1);
                cache.get(&object, 1)
            });
            cache.put(&object, 0, b"first");
            cache.put(&object, 1, b"second");
            drop(fetching);
            assert_eq!(waiting.join().unwrap().unwrap(), b"second");
        });
        assert!(cache.begin(&object, 1..2).is_none(), "it is there");
        assert!(cache.begin(&object, 2..3).is_some() && !cache.has(&object, 2), "which could not be fetched");
    }

    #[test]
    fn blocks_are_kept_within_bounds_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        let cache = BlockCache::open(directory.path(), 2 * BLOCK_BYTES).unwrap();
        let (one, other) = ("s3://b/1", "s3://b/2");
        cache.put(&one, 0, b"first");
        cache.put(&one, 1, b"second");
        cache.put(&one, 1, b"second");
        assert_eq!(cache.get(&one, 0).unwrap(), b"first");
        assert_eq!(cache.get(&other, 0), None);
        cache.put(&other, 0, b"third");
        assert_eq!((cache.get(&one, 1), cache.len()), (None, 2), "the one that was used least recently goes");
        assert_eq!((cache.get(&one, 0).unwrap(), cache.get(&other, 0).unwrap()), (b"first".to_vec(), b"third".to_vec()));
        cache.damage();
        assert_eq!((cache.get(&one, 0), cache.get(&other, 0), cache.len()), (None, None, 0));
        cache.put(&one, 0, b"first");
        assert_eq!(cache.get(&one, 0).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the file has no name");
        let none = BlockCache::open(directory.path(), 0).unwrap();
        none.put(&one, 0, b"first");
        assert_eq!(none.get(&one, 0), None);
    }
}
