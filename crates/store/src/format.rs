//! What makes a folder a store: its marker, its lock, its identity.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use pithead_model::DriveId;

use crate::StoreError;
use crate::segments::sync_dir;

/// The format that this release writes, and the newest that it reads.
const FORMAT: u32 = 1;
const MARKER: &str = "FORMAT";
const LOCK: &str = "LOCK";
/// A marker is one short line; more than this is none of ours.
const MARKER_BYTES_MAX: u64 = 64;

/// Takes the store for this process, until the file is dropped.
pub(crate) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| io_error(&path, 0, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: dir.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(io_error(&path, 0, error)),
    }
}

/// Whether the marker is there; a marker of another format is refused.
pub(crate) fn read_marker(dir: &Path) -> Result<bool, StoreError> {
    let path = dir.join(MARKER);
    let mut text = Vec::new();
    match File::open(&path).and_then(|file| file.take(MARKER_BYTES_MAX).read_to_end(&mut text)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io_error(&path, 0, error)),
        Ok(_) => {}
    }
    let text = String::from_utf8_lossy(&text);
    let text = text.trim();
    match text.strip_prefix("pithead store ").and_then(|number| number.parse::<u32>().ok()) {
        Some(FORMAT) => Ok(true),
        Some(number) => Err(other_format(dir, number.to_string())),
        None => Err(other_format(dir, format!("{text:?}"))),
    }
}

/// Writes the marker, whole or not at all: the last step of making a store.
pub(crate) fn write_marker(dir: &Path) -> Result<(), StoreError> {
    let new = dir.join("FORMAT.new");
    let written = File::create(&new)
        .and_then(|mut file| {
            writeln!(file, "pithead store {FORMAT}")?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&new, dir.join(MARKER)))
        .and_then(|()| sync_dir(dir));
    written.map_err(|error| io_error(&new, 64, error))
}

/// A drive's identity, new.
pub(crate) fn random_drive_id() -> Result<DriveId, StoreError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 8];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map_err(|error| io_error(path, 0, error))?;
    Ok(DriveId(u64::from_le_bytes(bytes)))
}

/// What the medium said, told apart where the medium is full.
pub(crate) fn io_error(path: &Path, needed: u64, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::NoSpace { path: path.to_path_buf(), needed },
        _ => StoreError::Io { path: path.to_path_buf(), source: error },
    }
}

/// Bytes that the medium under `path` has left for us.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, StoreError> {
    use std::os::unix::ffi::OsStrExt as _;
    let failed = |error: io::Error| io_error(path, 0, error);
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `name` is a C string and `stat` has room for the answer; both outlive the call.
    if unsafe { libc::statvfs(name.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: the call succeeded, so it has filled `stat`.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn other_format(dir: &Path, found: String) -> StoreError {
    StoreError::Format { path: dir.to_path_buf(), found, expected: FORMAT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_medium_is_told_apart() {
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        assert!(matches!(io_error(Path::new("p"), 7, full), StoreError::NoSpace { needed: 7, .. }));
        let broken = io::Error::from_raw_os_error(libc::EIO);
        assert!(matches!(io_error(Path::new("p"), 7, broken), StoreError::Io { .. }));
    }

    #[test]
    fn markers_of_other_formats_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!read_marker(dir.path()).unwrap());
        write_marker(dir.path()).unwrap();
        assert!(read_marker(dir.path()).unwrap());
        for text in ["pithead store 2\n", "", "something else", "pithead store 1 1"] {
            fs::write(dir.path().join(MARKER), text).unwrap();
            assert!(matches!(read_marker(dir.path()), Err(StoreError::Format { .. })), "{text:?}");
        }
    }
}
