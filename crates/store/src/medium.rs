//! [`Medium`]: the files under a store. All bytes that a store reads or writes pass through here, the index's, too, so that
//! a medium that lies can stand in for a real one.

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
/// What was written is durable once [`MediumFile::flush`] of the file has returned, and its name once
/// [`Medium::flush_names`] has. A flush that fails says nothing of what is durable: the caller must take all that was
/// written since the last one as lost.
pub trait Medium: Send + Sync + Debug {
    /// Where it is, for errors.
    fn path(&self) -> &Path;

    /// Opens a file for reading and writing; makes it, empty, where it is absent and `create` says so.
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn MediumFile>>;

    /// Names of the files in a folder (`""` is the medium's own), without order and without what is the medium's own, such
    /// as a lock. A folder that is not there is empty.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Unlinks a file. Those who have it open keep it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, over whatever has that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes the names in a folder durable: files made, removed and renamed.
    fn flush_names(&self, folder: &str) -> io::Result<()>;

    /// Whether what is written is forgotten: files seem to change, and do not.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Bytes that the device has left for us.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One open file.
pub trait MediumFile: Send + Sync + Debug {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts it, or grows it with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Fills `out` from `offset`, through the kernel's cache. Fewer bytes than that is an error.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, through the kernel's cache; grows the file where needed.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Bytes `range`, past the kernel's cache and with several requests in flight where the medium can. Returns them in
    /// memory of their own, aligned to [`ALIGNMENT`] where `range` starts so. Fewer bytes than that is an error.
    fn read_large(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.read_large_with(range, &mut |_| {})
    }

    /// As [`MediumFile::read_large`]; meanwhile `on` sees the bytes in order, in parts, as they come: a checksum can be
    /// made while the rest is still under way. Where the read fails, `on` may have seen a part.
    fn read_large_with(&self, range: Range<u64>, on: &mut dyn FnMut(&[u8])) -> io::Result<Bytes>;

    /// Writes `data` at `offset`, past the kernel's cache where the medium can. `offset` is a multiple of [`ALIGNMENT`]; up to
    /// the next multiple, what follows `data` may be overwritten with zeros.
    fn write_large(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Sets room aside, so that writing there cannot fail for lack of it and needs no new metadata. The file's length may
    /// grow to the end of `range`; what was not written reads as zeros. A medium that cannot does nothing.
    fn reserve(&self, range: Range<u64>) -> io::Result<()>;

    /// Gives back the room of `range`, which reads as zeros then. False: the medium cannot. Both ends are multiples of
    /// [`ALIGNMENT`].
    fn punch(&self, range: Range<u64>) -> io::Result<bool>;

    /// Makes all that was written durable, with the length.
    fn flush(&self) -> io::Result<()>;
}

/// Alignment of large values on the medium and in memory.
pub const ALIGNMENT: u64 = 4_096;
