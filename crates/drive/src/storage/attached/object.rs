//! [`ObjectBytes`]: the bytes of an object at a server, for as long as it is that object.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use pithead_files::{RemoteObject, Servers};
use pithead_model::{Blame, Fault};
use pithead_slice::{ReadAt, SliceError};

use crate::storage::attached::cache::{BLOCK_BYTES, BlockCache};

/// Blocks between two that are wanted which are fetched with them: a trip over the network takes longer.
const GAP_BLOCKS: u64 = 2;
/// Blocks of one request, where several are under way.
const REQUEST_BLOCKS: u64 = 32;
/// Requests that are under way at one time for one reader.
const REQUESTS: usize = 4;
/// Not more than this part of the cache is fetched ahead: it must be there until it is read.
const AHEAD_SHARE: u64 = 4;

/// The bytes of an object as it was when it was listed. Each read says which version it is of, so none gives a mix.
#[derive(Debug)]
pub(crate) struct ObjectBytes {
    object: Arc<RemoteObject>,
    servers: Servers,
    cache: Arc<BlockCache<Arc<RemoteObject>>>,
}

impl ObjectBytes {
    pub(crate) fn new(object: Arc<RemoteObject>, servers: Servers, cache: Arc<BlockCache<Arc<RemoteObject>>>) -> ObjectBytes {
        ObjectBytes { object, servers, cache }
    }

    fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, SliceError> {
        self.servers.read(&self.object, range).map_err(told)
    }

    /// Whole blocks, which are kept. None: the first of them is there, or on its way.
    fn fetch_blocks(&self, blocks: &Range<u64>) -> Result<Option<Vec<u8>>, SliceError> {
        let Some(_fetching) = self.cache.begin(&self.object, blocks.clone()) else { return Ok(None) };
        let bytes = self.fetch(blocks.start * BLOCK_BYTES..self.object.bytes().min(blocks.end * BLOCK_BYTES))?;
        for (block, bytes) in blocks.clone().zip(bytes.chunks(BLOCK_BYTES as usize)) {
            self.cache.put(&self.object, block, bytes);
        }
        Ok(Some(bytes))
    }

    /// Runs of blocks to fetch for these ranges.
    fn missing(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let within = ranges.iter().map(|range| range.start..range.end.min(self.object.bytes()));
        let mut blocks: Vec<u64> = within.filter(|range| !range.is_empty()).flat_map(|range| blocks_of(&range)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|block| !self.cache.has(&self.object, *block));
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            match runs.last_mut() {
                Some(run) if block <= run.end + GAP_BLOCKS && block < run.start + REQUEST_BLOCKS => run.end = block + 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }
}

fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

fn told(fault: Fault) -> SliceError {
    match fault.blame {
        Blame::Conflict => SliceError::Gone(format!("the attached object {}", fault.message)),
        _ => SliceError::Medium(format!("the attached object {}", fault.message)),
    }
}

impl ReadAt for ObjectBytes {
    fn bytes(&self) -> u64 {
        self.object.bytes()
    }

    fn is_far(&self) -> bool {
        true
    }

    fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        if range.start > range.end || range.end > self.object.bytes() {
            let (start, end, name) = (range.start, range.end, self.object.name());
            return Err(SliceError::Corrupt(format!("bytes {start} to {end} lie beyond {name}")));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if self.cache.blocks_max() == 0 {
            return Ok(self.fetch(range)?.into());
        }
        let blocks = blocks_of(&range);
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        // Of bytes of whole blocks from this one on, those that are wanted.
        let mut add = |first: u64, some: &[u8]| {
            let start = first * BLOCK_BYTES;
            let from = range.start.saturating_sub(start).min(some.len() as u64) as usize;
            let to = (range.end - start).min(some.len() as u64) as usize;
            bytes.extend_from_slice(&some[from..to]);
        };
        let mut block = blocks.start;
        while block < blocks.end {
            if let Some(kept) = self.cache.get(&self.object, block) {
                add(block, &kept);
                block += 1;
                continue;
            }
            let more = (block + 1..blocks.end).take_while(|block| !self.cache.has(&self.object, *block)).count() as u64;
            let run = block..block + 1 + more;
            match self.fetch_blocks(&run)? {
                Some(fetched) => {
                    add(block, &fetched);
                    block = run.end;
                }
                // Then it is looked for again: who fetched it may have failed.
                None => self.cache.wait(&self.object, block),
            }
        }
        Ok(bytes.into())
    }

    fn prepare(&self, ranges: &[Range<u64>]) -> Result<(), SliceError> {
        let runs = self.missing(ranges);
        let blocks: u64 = runs.iter().map(|run| run.end - run.start).sum();
        // One alone is fetched when it is read.
        if runs.len() < 2 || blocks > self.cache.blocks_max() / AHEAD_SHARE {
            return Ok(());
        }
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let fetch = || {
            while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.fetch_blocks(run) {
                    next.store(runs.len(), Ordering::Relaxed);
                    failed.lock().get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            // Where the system gives no more threads, this one does it all.
            for _ in 1..REQUESTS.min(runs.len()) {
                let _ = std::thread::Builder::new().name("pithead-object".to_owned()).spawn_scoped(scope, fetch);
            }
            fetch();
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}
