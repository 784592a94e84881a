//! The index's file as redb sees it, with a switch.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

use crate::blocks::CheckedFile;
use crate::medium::MediumFile;

/// The checked file, until it is shut. redb makes all commits durable when it is dropped. After [`IndexFile::shut`] it
/// cannot, so that commits whose large values are lost do not come back. Clones share the switch.
#[derive(Clone, Debug)]
pub(super) struct IndexFile {
    file: CheckedFile,
    shut: Arc<AtomicBool>,
}

impl IndexFile {
    pub fn new(file: CheckedFile) -> Self {
        Self { file, shut: Arc::default() }
    }

    /// Prevents all further writes.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        if self.shut.load(Ordering::Acquire) { Err(io::Error::other("the index is shut")) } else { Ok(()) }
    }
}

impl StorageBackend for IndexFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.check()?;
        self.file.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.file.write(offset, data)
    }
}

/// A file of redb's without the store's checksums, as in format 1.
#[derive(Debug)]
pub(crate) struct PlainFile(pub Arc<dyn MediumFile>);

impl StorageBackend for PlainFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
