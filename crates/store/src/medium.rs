//! [`Medium`]: the files under a store. All bytes that a store reads or writes pass through here, including the
//! index's, so that tests can replace the real medium by one that loses data or fails.

mod folder;
mod forgetful;
#[cfg(test)]
mod lying;
mod memory;
mod pool;
mod requests;
mod ring;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

pub use folder::FolderMedium;
#[cfg(test)]
pub(crate) use lying::{Call, LyingMedium, Trouble};

/// A folder of files on one device. Names are relative, at most one folder deep (`segments/…`).
///
/// Written data is durable once [`MediumFile::flush`] of the file has returned, and the file's name once
/// [`Medium::flush_names`] has. A flush that fails says nothing about what is durable: the caller must count everything
/// written since the last flush as lost.
pub trait Medium: Send + Sync + Debug {
    /// Where the medium is, for errors.
    fn path(&self) -> &Path;

    /// Opens a file for reading and writing. If it does not exist and `create` is set, makes an empty one.
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn MediumFile>>;

    /// Names of the files in a folder (`""` is the medium's own), in no order, and without files that belong to the
    /// medium itself, such as a lock. A folder that does not exist is empty.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Unlinks a file. Those who have it open can go on using it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames a file, and replaces a file that has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes the names in a folder durable: files that were made, removed and renamed.
    fn flush_names(&self, folder: &str) -> io::Result<()>;

    /// Whether writes are discarded: files seem to change, but do not.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The bytes that are free on the device.
    fn free_bytes(&self) -> io::Result<u64>;

    /// The size of the device. A medium that does not know it counts what is free.
    fn size_bytes(&self) -> io::Result<u64> {
        self.free_bytes()
    }
}

/// One open file.
pub trait MediumFile: Send + Sync + Debug {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Fills `out` from `offset`, through the kernel's cache. Fewer bytes than that is an error.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, through the kernel's cache. Extends the file where necessary.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Reads the bytes of `range`, past the kernel's cache and with several requests in flight if the medium can.
    /// Returns them in memory of their own, which is aligned to [`ALIGNMENT`] if `range` starts so. Fewer bytes are an
    /// error.
    fn read_large(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.read_large_with(range, &mut |_| {})
    }

    /// Like [`MediumFile::read_large`]. Meanwhile `on` receives the bytes in order, in parts, as they arrive, so that a
    /// checksum can be computed while the rest is still on its way. If the read fails, `on` may have received a part.
    fn read_large_with(&self, range: Range<u64>, on: &mut dyn FnMut(&[u8])) -> io::Result<Bytes>;

    /// Writes `data` at `offset`, past the kernel's cache if the medium can. `offset` is a multiple of [`ALIGNMENT`].
    /// Bytes after `data`, up to the next multiple, may be overwritten with zeros.
    fn write_large(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Allocates room, so that writing there cannot fail for lack of it and needs no new metadata. The file may grow to
    /// the end of `range`; bytes that were not written read as zeros. A medium that cannot do this does nothing.
    fn reserve(&self, range: Range<u64>) -> io::Result<()>;

    /// Gives back the room of `range`, which then reads as zeros. False if the medium cannot. Both ends are multiples
    /// of [`ALIGNMENT`].
    fn punch(&self, range: Range<u64>) -> io::Result<bool>;

    /// Makes everything that was written durable, including the length.
    fn flush(&self) -> io::Result<()>;
}

/// Alignment of large values on the medium and in memory.
pub const ALIGNMENT: u64 = 4_096;
