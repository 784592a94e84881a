//! Segment files: large values, one a file, `segments/<number, 16 hexadecimal digits>.seg`.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::bounds::check_value;
use crate::format::io_error;
use crate::mapped::Mapped;
use crate::record::Place;
use crate::{Staged, StoreError, Value};

const EXTENSION: &str = "seg";

/// The segment files of one store.
#[derive(Debug)]
pub(crate) struct Segments {
    dir: PathBuf,
    /// The next file's number. Numbers are not used twice while the store is open, so that a mapping cannot be taken
    /// for another file's.
    next: AtomicU64,
    /// Bytes and checksum of each file that is staged and not yet adopted.
    staged: Mutex<HashMap<u64, (u64, u64)>>,
    mapped: Mapped,
}

impl Segments {
    /// Opens the folder, makes it if absent, and deletes each file for which `named` says no: what a crash has left of
    /// values that were never adopted, or that were deleted.
    pub fn open(dir: PathBuf, named: impl Fn(u64) -> bool) -> Result<Self, StoreError> {
        fs::create_dir_all(&dir).map_err(|error| io_error(&dir, 0, error))?;
        let mut last = 0;
        for entry in fs::read_dir(&dir).map_err(|error| io_error(&dir, 0, error))? {
            let path = entry.map_err(|error| io_error(&dir, 0, error))?.path();
            let Some(file) = file_number(&path) else { continue };
            last = last.max(file);
            if !named(file) {
                tracing::info!(path = %path.display(), "deleting a segment that no key names");
                fs::remove_file(&path).map_err(|error| io_error(&path, 0, error))?;
            }
        }
        let next = AtomicU64::new(last.saturating_add(1));
        Ok(Self { dir, next, staged: Mutex::default(), mapped: Mapped::default() })
    }

    /// Sees to it that no number up to `file` is given out.
    pub fn skip_to(&self, file: u64) {
        self.next.fetch_max(file.saturating_add(1), Ordering::Relaxed);
    }

    /// Writes a value to a file of its own and flushes it. `what` names the value in errors.
    pub fn stage(&self, what: &str, value: &[u8]) -> Result<Staged, StoreError> {
        check_value(what, value.len())?;
        let file = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path(file);
        if let Err(error) = write_flushed(&path, value).and_then(|()| sync_dir(&self.dir)) {
            self.delete(file);
            return Err(io_error(&path, value.len() as u64, error));
        }
        let (bytes, checksum) = (value.len() as u64, xxh3_64(value));
        self.staged.lock().insert(file, (bytes, checksum));
        Ok(Staged { file, bytes, checksum })
    }

    /// Whether this store staged the value and nothing has become of it since; from now on something has.
    pub fn claim(&self, staged: &Staged) -> bool {
        let mut waiting = self.staged.lock();
        let found = waiting.get(&staged.file) == Some(&(staged.bytes, staged.checksum));
        if found {
            waiting.remove(&staged.file);
        }
        found
    }

    /// Deletes a file. Values already handed out stay valid. A file that cannot be deleted is left for the next open.
    pub fn delete(&self, file: u64) {
        let path = self.path(file);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a segment could not be deleted");
            }
            _ => {}
        }
        // Only now: a reader that has opened the file just before may have had it kept.
        self.mapped.forget(file);
    }

    /// The value at `place`, mapped. Its checksum is verified when it is mapped, and not again while it stays so.
    pub fn read(&self, key: &str, place: Place, checksum: u64) -> Result<Value, StoreError> {
        if place.bytes == 0 {
            return Ok(Value::new());
        }
        self.mapped.get(key, &self.path(place.file), place, checksum)
    }

    fn path(&self, file: u64) -> PathBuf {
        self.dir.join(format!("{file:016x}.{EXTENSION}"))
    }
}

fn file_number(path: &Path) -> Option<u64> {
    if path.extension()? != EXTENSION {
        return None;
    }
    let stem = path.file_stem()?.to_str().filter(|stem| stem.len() == 16)?;
    u64::from_str_radix(stem, 16).ok()
}

fn write_flushed(path: &Path, value: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(value)?;
    file.sync_all()
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_segments() {
        assert_eq!(file_number(Path::new("s/00000000000000ff.seg")), Some(255));
        for other in ["s/ff.seg", "s/00000000000000ff", "s/00000000000000ff.tmp", "s/00000000000000fg.seg"] {
            assert_eq!(file_number(Path::new(other)), None, "{other}");
        }
    }
}
