//! [`Forgetful`]: a file that only seems to change, so that redb can recover an index that may only be read.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::MediumFile;

const BLOCK: u64 = 4_096;

/// A file whose changes are only in memory, and are lost when it is dropped.
#[derive(Debug)]
pub(super) struct Forgetful {
    file: Arc<dyn MediumFile>,
    changed: Mutex<Changed>,
}

#[derive(Debug)]
struct Changed {
    bytes: u64,
    /// After this offset the file itself has no bytes that count.
    file_bytes: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK as usize]>>,
}

impl Forgetful {
    pub fn new(file: Arc<dyn MediumFile>) -> io::Result<Self> {
        let bytes = file.len()?;
        Ok(Self { file, changed: Mutex::new(Changed { bytes, file_bytes: bytes, blocks: BTreeMap::new() }) })
    }

    fn block(&self, changed: &Changed, block: u64) -> io::Result<Box<[u8; BLOCK as usize]>> {
        let mut bytes = Box::new([0; BLOCK as usize]);
        let there = changed.file_bytes.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        self.file.read(block * BLOCK, &mut bytes[..there])?;
        Ok(bytes)
    }
}

/// The part of a block that is in `offset..offset + bytes`, and its position there.
fn within(block: u64, offset: u64, bytes: usize) -> (Range<usize>, Range<usize>) {
    let start = offset.max(block * BLOCK);
    let end = (offset + bytes as u64).min((block + 1) * BLOCK);
    let in_block = (start - block * BLOCK) as usize..(end - block * BLOCK) as usize;
    (in_block, (start - offset) as usize..(end - offset) as usize)
}

impl MediumFile for Forgetful {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changed.lock().bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut changed = self.changed.lock();
        changed.file_bytes = changed.file_bytes.min(bytes);
        changed.bytes = bytes;
        drop(changed.blocks.split_off(&bytes.div_ceil(BLOCK)));
        if let Some(block) = changed.blocks.get_mut(&(bytes / BLOCK)) {
            block[(bytes % BLOCK) as usize..].fill(0);
        }
        Ok(())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changed = self.changed.lock();
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= changed.bytes);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let there = changed.file_bytes.saturating_sub(offset).min(out.len() as u64) as usize;
        let (read, grown) = out.split_at_mut(there);
        self.file.read(offset, read)?;
        grown.fill(0);
        for (block, bytes) in changed.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let (from, to) = within(*block, offset, out.len());
            out[to].copy_from_slice(&bytes[from]);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let mut changed = self.changed.lock();
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            let mut bytes = match changed.blocks.remove(&block) {
                Some(bytes) => bytes,
                None => self.block(&changed, block)?,
            };
            let (to, from) = within(block, offset, data.len());
            bytes[to].copy_from_slice(&data[from]);
            changed.blocks.insert(block, bytes);
        }
        changed.bytes = changed.bytes.max(end);
        Ok(())
    }

    fn read_large_with(&self, range: Range<u64>, on: &mut dyn FnMut(&[u8])) -> io::Result<Bytes> {
        self.file.read_large_with(range, on)
    }

    fn write_large(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn reserve(&self, _range: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn punch(&self, _range: Range<u64>) -> io::Result<bool> {
        Ok(false)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
