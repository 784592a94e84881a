//! Mapped segments, shared by all who read them.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Advice, Mmap, MmapOptions};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::format::io_error;
use crate::record::Place;
use crate::{StoreError, Value};

/// Most bytes kept mapped beside what readers hold. Address space, not memory: the kernel takes pages back as it needs.
const MAPPED_BYTES_MAX: u64 = 8 << 30;
/// Most files kept mapped; the kernel allows 65,530 mappings in a process.
const MAPPED_FILES_MAX: usize = 4_096;

/// Keeps segments mapped, the oldest given up first where there are too many.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    slots: HashMap<u64, Slot>,
    /// In the order in which they were mapped. May name files that are forgotten.
    order: VecDeque<u64>,
    bytes: u64,
}

/// The lock is held while the first reader maps and verifies; the others then share what it got.
#[derive(Clone, Debug)]
struct Slot {
    bytes: u64,
    value: Arc<Mutex<Option<Value>>>,
}

impl Mapped {
    /// The value at `place` of the file at `path`. `place.bytes` is above 0.
    pub fn get(&self, key: &str, path: &Path, place: Place, checksum: u64) -> Result<Value, StoreError> {
        let slot = self.files.lock().slot(place);
        let mut value = slot.lock();
        if let Some(value) = &*value {
            return Ok(value.clone());
        }
        let mapped = map(key, path, place)?;
        if xxh3_64(&mapped) != checksum {
            return Err(corrupt(key, format!("its checksum does not hold ({})", path.display())));
        }
        *value = Some(mapped.clone());
        Ok(mapped)
    }

    /// Gives a file up; who reads it keeps it.
    pub fn forget(&self, file: u64) {
        self.files.lock().remove(file);
    }
}

impl Files {
    fn slot(&mut self, place: Place) -> Arc<Mutex<Option<Value>>> {
        if let Some(slot) = self.slots.get(&place.file) {
            return Arc::clone(&slot.value);
        }
        let slot = Slot { bytes: place.bytes, value: Arc::default() };
        self.bytes += slot.bytes;
        self.order.push_back(place.file);
        self.slots.insert(place.file, slot.clone());
        self.shrink();
        slot.value
    }

    fn shrink(&mut self) {
        while self.bytes > MAPPED_BYTES_MAX || self.order.len() > MAPPED_FILES_MAX {
            match self.order.pop_front() {
                Some(oldest) => self.remove(oldest),
                None => return,
            }
        }
    }

    fn remove(&mut self, file: u64) {
        if let Some(slot) = self.slots.remove(&file) {
            self.bytes -= slot.bytes;
        }
    }
}

fn map(key: &str, path: &Path, place: Place) -> Result<Value, StoreError> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => corrupt(key, format!("its segment {} is missing", path.display())),
        _ => io_error(path, 0, error),
    })?;
    let length = file.metadata().map_err(|error| io_error(path, 0, error))?.len();
    // A mapping that reaches past the end of its file kills the process that reads there.
    if place.offset.checked_add(place.bytes).is_none_or(|end| end > length) {
        let what =
            format!("its segment {} has {length} bytes, too few for {} from {}", path.display(), place.bytes, place.offset);
        return Err(corrupt(key, what));
    }
    // SAFETY: segment files are written once, before a key names them, and are only ever unlinked after that; the store's
    // lock keeps other processes of ours away.
    let mapping = unsafe { MmapOptions::new().offset(place.offset).len(place.bytes as usize).map(&file) };
    let mapping = mapping.map_err(|error| io_error(path, 0, error))?;
    read_ahead(&mapping).map_err(|error| io_error(path, 0, error))?;
    Ok(Value::from_owner(mapping))
}

/// Brings all pages in. Where the medium cannot read one this is an error, where touching it would be a signal. Older
/// kernels do not know the request.
fn read_ahead(mapping: &Mmap) -> io::Result<()> {
    match mapping.advise(Advice::PopulateRead) {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => Ok(()),
    }
}

fn corrupt(key: &str, what: String) -> StoreError {
    StoreError::Corrupt { key: key.to_string(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_one_mapping() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"value").unwrap();
        let mapped = Mapped::default();
        let place = Place { file: 1, offset: 0, bytes: 5 };
        let first = mapped.get("k", &path, place, xxh3_64(b"value")).unwrap();
        let second = mapped.get("k", &path, place, xxh3_64(b"value")).unwrap();
        assert_eq!(first.as_ptr(), second.as_ptr());
        mapped.forget(1);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(first, &b"value"[..]);
        assert!(mapped.get("k", &path, place, 0).is_err());
    }

    #[test]
    fn the_oldest_are_given_up_first() {
        let mut files = Files::default();
        for file in 0..MAPPED_FILES_MAX as u64 + 10 {
            files.slot(Place { file, offset: 0, bytes: 1 });
        }
        assert_eq!(files.slots.len(), MAPPED_FILES_MAX);
        assert!(!files.slots.contains_key(&9) && files.slots.contains_key(&10));
        files.slot(Place { file: 1 << 20, offset: 0, bytes: MAPPED_BYTES_MAX });
        assert_eq!((files.slots.len(), files.bytes), (1, MAPPED_BYTES_MAX));
    }

    #[test]
    fn places_past_the_end_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, b"value").unwrap();
        for (offset, bytes) in [(0, 6), (1, 5), (u64::MAX, 1), (5, 1)] {
            assert!(matches!(map("k", &path, Place { file: 1, offset, bytes }), Err(StoreError::Corrupt { .. })));
        }
    }
}
