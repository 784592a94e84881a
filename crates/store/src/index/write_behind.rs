//! [`WriteBehind`]: the index's file, which can be told to hold back what is written to it.
//!
//! redb lets nobody else commit while it waits for the medium. So a durable commit of the index runs inside
//! [`WriteBehind::hold`], where writes and flushes only line up in memory. Then commits go on, while
//! [`WriteBehind::catch_up`] makes the same writes and flushes in the same order. A crash therefore meets the states of
//! the file that it could meet before, and no others. Until then whoever reads the file finds what was written to it,
//! and whatever is written meanwhile waits for its turn.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::medium::MediumFile;

/// Bytes of a block. All writes are whole blocks.
const BLOCK: usize = 4_096;
/// The most bytes of one write to the medium.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct WriteBehind {
    file: Arc<dyn MediumFile>,
    lined_up: RwLock<LinedUp>,
    /// Held by the one that writes what is lined up, or flushes. Once that has failed, all later attempts fail: what the medium
    /// has is not known, and it tells that only once.
    failed: Mutex<Option<(io::ErrorKind, String)>>,
}

#[derive(Debug, Default)]
struct LinedUp {
    holds: bool,
    /// The oldest first. Only the last one takes more blocks.
    batches: VecDeque<Batch>,
}

/// Blocks by their offset, each as it was written last.
type Blocks = BTreeMap<u64, Arc<[u8]>>;

/// Writes between two flushes.
#[derive(Debug, Default)]
struct Batch {
    /// Whoever writes them to the medium shares them, and not the lock. Then the batch is closed, so that nothing is copied.
    blocks: Arc<Blocks>,
    /// It takes no more blocks.
    is_closed: bool,
    /// A flush follows.
    is_flushed: bool,
}

impl WriteBehind {
    pub fn new(file: Arc<dyn MediumFile>) -> Self {
        Self { file, lined_up: RwLock::default(), failed: Mutex::default() }
    }

    /// Runs `work`, whose writes and flushes line up.
    pub fn hold<T>(&self, work: impl FnOnce() -> T) -> T {
        let held = Held::begin(self);
        let done = work();
        drop(held);
        done
    }

    /// Makes all writes and flushes that are lined up, in order.
    pub fn catch_up(&self) -> io::Result<()> {
        self.unless_failed(|| self.write_lined_up())
    }

    fn unless_failed(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut failed = self.failed.lock();
        if let Some((kind, what)) = &*failed {
            return Err(io::Error::new(*kind, what.clone()));
        }
        work().inspect_err(|error| *failed = Some((error.kind(), error.to_string())))
    }

    fn write_lined_up(&self) -> io::Result<()> {
        while let Some((blocks, is_flushed)) = self.oldest() {
            self.write_all(&blocks)?;
            if is_flushed {
                self.file.flush()?;
            }
            self.lined_up.write().batches.pop_front();
        }
        Ok(())
    }

    /// The blocks to be written next, and whether a flush follows.
    fn oldest(&self) -> Option<(Arc<Blocks>, bool)> {
        let mut lined_up = self.lined_up.write();
        let oldest = lined_up.batches.front_mut()?;
        oldest.is_closed = true;
        Some((oldest.blocks.clone(), oldest.is_flushed))
    }

    /// Writes blocks, those that follow one another at once.
    fn write_all(&self, blocks: &Blocks) -> io::Result<()> {
        let mut run = Vec::new();
        let mut from = 0;
        for (offset, block) in blocks {
            if from + run.len() as u64 != *offset || run.len() >= WRITE_BYTES_MAX {
                self.write_run(from, &run)?;
                (from, run) = (*offset, Vec::new());
            }
            run.extend_from_slice(block);
        }
        self.write_run(from, &run)
    }

    fn write_run(&self, from: u64, run: &[u8]) -> io::Result<()> {
        if run.is_empty() { Ok(()) } else { self.file.write(from, run) }
    }
}

/// Writes line up until this is dropped.
struct Held<'a>(&'a WriteBehind);

impl<'a> Held<'a> {
    fn begin(file: &'a WriteBehind) -> Self {
        file.lined_up.write().holds = true;
        Self(file)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.lined_up.write().holds = false;
    }
}

impl LinedUp {
    /// Takes a write, unless it is to be made at once.
    fn take(&mut self, offset: u64, data: &[u8]) -> bool {
        if !self.holds && self.batches.is_empty() {
            return false;
        }
        let blocks = Arc::make_mut(&mut self.open_batch().blocks);
        blocks.extend((offset..).step_by(BLOCK).zip(data.chunks(BLOCK).map(Arc::from)));
        true
    }

    fn open_batch(&mut self) -> &mut Batch {
        if self.batches.back().is_none_or(|last| last.is_closed) {
            self.batches.push_back(Batch::default());
        }
        let last = self.batches.len() - 1;
        &mut self.batches[last]
    }

    /// Copies what is lined up for a part of the file over what the file has there.
    fn lay_over(&self, offset: u64, out: &mut [u8]) {
        for Batch { blocks, .. } in &self.batches {
            let first = offset - offset % BLOCK as u64;
            for at in (first..offset + out.len() as u64).step_by(BLOCK) {
                let Some(block) = blocks.get(&at) else { continue };
                let from = at.max(offset);
                let to = (at + block.len() as u64).min(offset + out.len() as u64);
                out[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&block[(from - at) as usize..(to - at) as usize]);
            }
        }
    }
}

impl MediumFile for WriteBehind {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        // A write behind the new end would bring it back.
        if bytes < self.file.len()? {
            self.catch_up()?;
        }
        self.file.set_len(bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        // Held over both: what is written to the file meanwhile is still lined up.
        let lined_up = self.lined_up.read();
        self.file.read(offset, out)?;
        lined_up.lay_over(offset, out);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.lined_up.write().take(offset, data) { Ok(()) } else { self.file.write(offset, data) }
    }

    fn read_large_with(&self, range: Range<u64>, on: &mut dyn FnMut(&[u8])) -> io::Result<Bytes> {
        self.catch_up()?;
        self.file.read_large_with(range, on)
    }

    fn write_large(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data)
    }

    fn reserve(&self, range: Range<u64>) -> io::Result<()> {
        self.file.reserve(range)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        self.catch_up()?;
        self.file.punch(range)
    }

    fn flush(&self) -> io::Result<()> {
        {
            let mut lined_up = self.lined_up.write();
            if lined_up.holds {
                let last = lined_up.open_batch();
                (last.is_closed, last.is_flushed) = (true, true);
                return Ok(());
            }
        }
        self.unless_failed(|| {
            self.write_lined_up()?;
            self.file.flush()
        })
    }
}

#[cfg(test)]
mod tests;
