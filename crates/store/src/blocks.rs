//! [`CheckedFile`]: the index's file with a checksum for each 4 KiB block, verified on every read.
//!
//! redb checksums its pages, but looks at the checksums only after an unclean end. Here each group of 512 blocks is
//! preceded by one block of their checksums (xxh3, 8 bytes each, little-endian; 0: the block was never written, and is
//! all zeros):
//!
//! ```text
//! | sums of 0..512 | 0 | 1 | … | 511 | sums of 512..1024 | 512 | …
//! ```
//!
//! A read that meets a damaged block returns zeros for all bytes that were requested, which is never a page of redb's.
//! The operation that needed the page fails, and no other does. Block 0 is not checked: redb changes it in place, and
//! its parts have checksums of redb's own.
//!
//! Checksums and blocks are written separately. A commit in two phases flushes both before the header names the new
//! pages, so pages that the header names always have their checksums. After an unclean end of a commit in one phase,
//! checksums may be old. redb then verifies the whole tree by its own checksums before it trusts the tree. Until it has
//! ([`CheckedFile::recovered`]), nothing is replaced by zeros, and afterwards the checksums of blocks that differ are
//! computed anew.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use xxhash_rust::xxh3::xxh3_64;

use crate::medium::MediumFile;

/// Bytes of a block.
const BLOCK: u64 = 4_096;
/// The number of blocks whose checksums fill one block.
const GROUP_BLOCKS: u64 = BLOCK / 8;
/// Bytes of a group on the medium, including its checksums.
const GROUP_BYTES: u64 = (GROUP_BLOCKS + 1) * BLOCK;
/// Where redb's header says, with one bit each, that the file was not closed, and that its last commit had two phases.
/// (This is redb's documented format, version 3.)
const STATE_AT: u64 = 9;
const STATE_UNCLEAN: u8 = 2;
const STATE_TWO_PHASE: u8 = 4;

/// redb's file, checked. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CheckedFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Arc<dyn MediumFile>,
    groups: RwLock<HashMap<u64, Group>>,
    /// Blocks that were found damaged.
    damaged: Mutex<BTreeSet<u64>>,
    /// While redb verifies the tree itself: blocks that are damaged or whose checksums are old.
    differing: Mutex<BTreeSet<u64>>,
    recovering: AtomicBool,
}

#[derive(Debug)]
struct Group {
    sums: Box<[u64]>,
    dirty: bool,
}

impl CheckedFile {
    /// Opens a file that is empty, or that was written by this type.
    pub fn open(file: Arc<dyn MediumFile>) -> io::Result<Self> {
        let inner = Inner {
            file,
            groups: RwLock::default(),
            damaged: Mutex::default(),
            differing: Mutex::default(),
            recovering: AtomicBool::new(false),
        };
        if inner.bytes()? > STATE_AT {
            let mut state = [0];
            inner.file.read(BLOCK + STATE_AT, &mut state)?;
            inner.recovering.store(state[0] & (STATE_UNCLEAN | STATE_TWO_PHASE) == STATE_UNCLEAN, Ordering::Release);
        }
        Ok(Self(Arc::new(inner)))
    }

    /// Notes that redb has opened the file: from now on each read is checked.
    pub fn recovered(&self) -> io::Result<()> {
        if !self.0.recovering.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        for block in std::mem::take(&mut *self.0.differing.lock()) {
            let mut bytes = [0; BLOCK as usize];
            self.0.file.read(place(block * BLOCK), &mut bytes)?;
            self.0.set_sums(block, &bytes)?;
        }
        Ok(())
    }

    /// The blocks that reads have found damaged so far.
    pub fn damaged_blocks(&self) -> Vec<u64> {
        self.0.damaged.lock().iter().copied().collect()
    }

    /// Reads every block, and returns the numbers of those that differ from their checksums. After an unclean end these
    /// may be blocks that no table reaches any more. `on` is called with the number of blocks done and of all blocks.
    pub fn verify(&self, on: &mut dyn FnMut(u64, u64)) -> io::Result<Vec<u64>> {
        let blocks = self.0.bytes()? / BLOCK;
        let mut bad = Vec::new();
        let mut bytes = vec![0; (GROUP_BLOCKS * BLOCK) as usize];
        for first in (0..blocks).step_by(GROUP_BLOCKS as usize) {
            let count = GROUP_BLOCKS.min(blocks - first);
            let part = &mut bytes[..(count * BLOCK) as usize];
            self.0.file.read(place(first * BLOCK), part)?;
            bad.extend(self.0.differing(first, part)?);
            on(first + count, blocks);
        }
        Ok(bad)
    }
}

impl redb::StorageBackend for CheckedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = end(offset, out.len())?;
        if end > self.0.bytes()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let whole = offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
        let bad = if whole {
            self.0.read_blocks(offset / BLOCK, out)?
        } else {
            let first = offset / BLOCK;
            let mut bytes = vec![0; ((end.div_ceil(BLOCK) - first) * BLOCK) as usize];
            let bad = self.0.read_blocks(first, &mut bytes)?;
            let from = (offset - first * BLOCK) as usize;
            out.copy_from_slice(&bytes[from..from + out.len()]);
            bad
        };
        if bad {
            out.fill(0);
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_bytes(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        for (number, group) in self.0.groups.write().iter_mut().filter(|(_, group)| group.dirty) {
            let sums: Vec<u8> = group.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            self.0.file.write(number * GROUP_BYTES, &sums)?;
            group.dirty = false;
        }
        self.0.file.flush()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = end(offset, data.len())?;
        if offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK) {
            return self.0.write_blocks(offset / BLOCK, data);
        }
        let first = offset / BLOCK;
        let mut bytes = vec![0; ((end.div_ceil(BLOCK) - first) * BLOCK) as usize];
        self.0.read_blocks(first, &mut bytes)?;
        let from = (offset - first * BLOCK) as usize;
        bytes[from..from + data.len()].copy_from_slice(data);
        self.0.write_blocks(first, &bytes)
    }
}

impl Inner {
    /// Bytes of redb's file.
    fn bytes(&self) -> io::Result<u64> {
        let bytes = self.file.len()?;
        let groups = bytes / GROUP_BYTES;
        Ok(groups * GROUP_BLOCKS * BLOCK + (bytes % GROUP_BYTES).saturating_sub(BLOCK))
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let before = self.bytes()?;
        let groups = bytes / (GROUP_BLOCKS * BLOCK);
        let rest = bytes % (GROUP_BLOCKS * BLOCK);
        self.file.set_len(groups * GROUP_BYTES + if rest == 0 { 0 } else { BLOCK + rest })?;
        if bytes < before {
            let blocks = bytes.div_ceil(BLOCK);
            self.groups.write().retain(|group, _| group * GROUP_BLOCKS < blocks);
            // The part that may grow again later counts as never written.
            let stale = blocks..before.div_ceil(BLOCK).min(blocks.next_multiple_of(GROUP_BLOCKS));
            stale.into_iter().try_for_each(|block| self.set_sum(block, 0))?;
        }
        Ok(())
    }

    /// Reads blocks from `first` on, with zeros after the end of the file. Returns whether one is damaged.
    fn read_blocks(&self, first: u64, out: &mut [u8]) -> io::Result<bool> {
        let size = self.bytes()?;
        let mut bad = false;
        for (block, part) in runs(first, out.len()) {
            let part = &mut out[part];
            let there = size.saturating_sub(block * BLOCK).min(part.len() as u64) as usize;
            self.file.read(place(block * BLOCK), &mut part[..there])?;
            let differing = self.differing(block, part)?;
            if differing.is_empty() {
                continue;
            }
            if self.recovering.load(Ordering::Acquire) {
                self.differing.lock().extend(differing);
            } else {
                tracing::error!(blocks = ?differing, "damaged blocks in the index");
                self.damaged.lock().extend(differing);
                bad = true;
            }
        }
        Ok(bad)
    }

    fn write_blocks(&self, first: u64, data: &[u8]) -> io::Result<()> {
        for (block, part) in runs(first, data.len()) {
            self.set_sums(block, &data[part.clone()])?;
            self.file.write(place(block * BLOCK), &data[part])?;
        }
        Ok(())
    }

    /// The blocks of one group that differ from their checksums.
    fn differing(&self, first: u64, bytes: &[u8]) -> io::Result<Vec<u64>> {
        self.with_group(first / GROUP_BLOCKS, |group| {
            let sums = group.sums.iter().skip((first % GROUP_BLOCKS) as usize);
            let blocks = (first..).zip(bytes.chunks(BLOCK as usize)).zip(sums);
            let differs = blocks.filter(|((block, bytes), sum)| *block != 0 && !holds(**sum, bytes));
            differs.map(|((block, _), _)| block).collect()
        })
    }

    /// Records the checksums of blocks of one group.
    fn set_sums(&self, first: u64, bytes: &[u8]) -> io::Result<()> {
        let sums = bytes.chunks(BLOCK as usize).map(sum_of);
        (first..).zip(sums).try_for_each(|(block, sum)| self.set_sum(block, sum))
    }

    fn set_sum(&self, block: u64, sum: u64) -> io::Result<()> {
        self.with_group(block / GROUP_BLOCKS, |_| ())?;
        let mut groups = self.groups.write();
        let group = groups.get_mut(&(block / GROUP_BLOCKS));
        if let Some(group) = group
            && let Some(there) = group.sums.get_mut((block % GROUP_BLOCKS) as usize)
            && *there != sum
        {
            *there = sum;
            group.dirty = true;
            // Damaged blocks that are written again are good again.
            self.damaged.lock().remove(&block);
        }
        Ok(())
    }

    /// Calls `look` with a group, which is read first if it was not read yet.
    fn with_group<T>(&self, number: u64, look: impl FnOnce(&Group) -> T) -> io::Result<T> {
        if let Some(group) = self.groups.read().get(&number) {
            return Ok(look(group));
        }
        let mut groups = self.groups.write();
        if let Some(group) = groups.get(&number) {
            return Ok(look(group));
        }
        let mut bytes = vec![0; BLOCK as usize];
        let at = number * GROUP_BYTES;
        if self.file.len()? >= at + BLOCK {
            self.file.read(at, &mut bytes)?;
        }
        let sums = bytes.chunks_exact(8).map(|sum| sum.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
        Ok(look(groups.entry(number).or_insert(Group { sums: sums.collect(), dirty: false })))
    }
}

/// Makes the checksums of all blocks of a file correct.
pub(crate) fn reseal(file: &mut [u8]) {
    for group in file.chunks_mut(GROUP_BYTES as usize) {
        let Some((sums, blocks)) = group.split_at_mut_checked(BLOCK as usize) else { continue };
        let sealed = blocks.chunks(BLOCK as usize).map(|block| if holds(0, block) { 0 } else { sum_of(block) });
        sums.chunks_exact_mut(8).zip(sealed).for_each(|(sum, sealed)| sum.copy_from_slice(&sealed.to_le_bytes()));
    }
}

/// The position on the medium of a byte of redb's file.
fn place(offset: u64) -> u64 {
    let block = offset / BLOCK;
    offset + (block / GROUP_BLOCKS + 1) * BLOCK
}

/// The blocks from `first` on, for `bytes` bytes, split at the ends of groups: the first block, and the range of bytes.
fn runs(first: u64, bytes: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let block = first + at as u64 / BLOCK;
        let in_group = (GROUP_BLOCKS - block % GROUP_BLOCKS) * BLOCK;
        let part = at..bytes.min(at + in_group as usize);
        at = part.end;
        (!part.is_empty()).then_some((block, part))
    })
}

fn end(offset: u64, bytes: usize) -> io::Result<u64> {
    offset.checked_add(bytes as u64).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The checksum of a block. 0 is reserved for blocks that were never written.
fn sum_of(block: &[u8]) -> u64 {
    xxh3_64(block).max(1)
}

fn holds(sum: u64, block: &[u8]) -> bool {
    if sum == 0 { block.iter().all(|byte| *byte == 0) } else { sum == sum_of(block) }
}

#[cfg(test)]
mod tests;
