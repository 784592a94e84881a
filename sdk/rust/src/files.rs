//! Files of the drive, key-values and datasets.

use std::io;

use crate::rows::{ArrowBatch, Bytes, Column};
use crate::abi;

const ANSWER_BYTES: usize = 64 << 10;
/// The most bytes that one call reads.
const READ_BYTES_MAX: usize = 16 << 20;

struct Handle(u32);

impl Handle {
    fn new(handle: i32) -> Option<Self> {
        u32::try_from(handle).ok().map(Self)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the call takes no memory.
        unsafe { abi::close(self.0) }
    }
}

/// A file of the drive, open for reads. It comes as an argument or is opened by its name.
pub struct File(Handle);

/// A place where a pattern begins in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub offset: u64,
    pub pattern: usize,
}

impl File {
    pub(crate) fn from_handle(handle: u32) -> Self {
        Self(Handle(handle))
    }

    /// None if there is no such file.
    pub fn open(name: &str) -> Option<Self> {
        // SAFETY: the host reads the name only.
        Handle::new(unsafe { abi::file_open(name.as_ptr(), name.len()) }).map(Self)
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        // SAFETY: the call takes no memory.
        unsafe { abi::file_size(self.0.0) }
    }

    /// Reads at `offset`; fewer bytes than there is room for only at the end of the file.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        for part in into.chunks_mut(READ_BYTES_MAX) {
            // SAFETY: the host writes into `part` only, and only during the call.
            let length = unsafe { abi::file_read(self.0.0, offset + done as u64, part.as_mut_ptr(), part.len()) };
            done += length;
            if length < part.len() {
                break;
            }
        }
        done
    }

    /// Reads in order; the drive reads ahead.
    pub fn reader(self) -> io::BufReader<FileReader> {
        io::BufReader::with_capacity(256 << 10, FileReader { file: self, offset: 0 })
    }

    /// The places where patterns begin, found by the drive without a copy of the file's bytes, in their order.
    pub fn find(&self, patterns: &[&[u8]]) -> Vec<Hit> {
        const HITS_MAX: usize = 4096;
        let mut encoded = Vec::new();
        patterns.iter().for_each(|pattern| Bytes(pattern.to_vec()).encode(&mut encoded));
        let mut all: Vec<Hit> = Vec::new();
        let mut hits = vec![0_u64; HITS_MAX];
        loop {
            // The search goes on at the last hit, where hits of other patterns may not have fitted.
            let from = all.last().map_or(0, |hit| hit.offset);
            // SAFETY: the host reads the patterns and writes hits only, within their lengths.
            let count = unsafe {
                abi::file_find(self.0.0, from, u64::MAX, encoded.as_ptr(), encoded.len(), hits.as_mut_ptr(), HITS_MAX as u32)
            };
            while all.last().is_some_and(|hit| hit.offset == from) {
                all.pop();
            }
            let split = |hit: &u64| Hit { offset: hit & ((1 << 56) - 1), pattern: (hit >> 56) as usize };
            all.extend(hits[..count as usize].iter().map(split));
            if (count as usize) < HITS_MAX {
                return all;
            }
        }
    }
}

/// Reads a file from its beginning.
pub struct FileReader {
    file: File,
    offset: u64,
}

impl io::Read for FileReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(self.offset, into);
        self.offset += length as u64;
        Ok(length)
    }
}

/// The value of a key of the drive, None if there is none.
pub fn value(key: &[u8]) -> Option<Vec<u8>> {
    let mut into = vec![0; ANSWER_BYTES];
    loop {
        // SAFETY: the host reads the key and writes into `into` only, within their lengths.
        let length = unsafe { abi::value_get(key.as_ptr(), key.len(), into.as_mut_ptr(), into.len()) };
        let length = usize::try_from(length).ok()?;
        let fits = length <= into.len();
        into.resize(length, 0);
        if fits {
            return Some(into);
        }
    }
}

/// A dataset's part on this drive, as record batches.
pub struct Dataset {
    handle: Handle,
    room: usize,
}

impl Dataset {
    /// Opens columns of a dataset, all if none is named. None if there is no such dataset or column.
    pub fn open(name: &str, columns: &[&str]) -> Option<Self> {
        let columns = columns.join("\n");
        // SAFETY: the host reads both texts only.
        let handle = unsafe { abi::dataset_open(name.as_ptr(), name.len(), columns.as_ptr(), columns.len()) };
        Handle::new(handle).map(|handle| Self { handle, room: ANSWER_BYTES })
    }
}

impl Iterator for Dataset {
    type Item = ArrowBatch;

    fn next(&mut self) -> Option<ArrowBatch> {
        loop {
            let mut batch = vec![0; self.room];
            // SAFETY: the host writes into the batch only, within its length.
            let length = unsafe { abi::dataset_get(self.handle.0, batch.as_mut_ptr(), batch.len()) };
            if length > self.room {
                self.room = length;
                continue;
            }
            batch.truncate(length);
            return (length > 0).then_some(ArrowBatch(batch));
        }
    }
}
