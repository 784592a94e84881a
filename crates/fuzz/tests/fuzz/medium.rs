//! A medium in memory, made of the bytes of a case.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use pithead_store::{Medium, MediumFile};

/// Files grow to so much: a case's bytes may ask for more.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Files by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A medium that holds files in memory, and loses nothing.
#[derive(Debug, Default)]
pub struct MemoryMedium {
    files: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
}

#[derive(Debug, Default)]
struct MemoryFile(Mutex<Vec<u8>>);

impl MemoryMedium {
    pub fn new(files: Files) -> Arc<Self> {
        let files = files.into_iter().map(|(name, bytes)| (name, Arc::new(MemoryFile(Mutex::new(bytes)))));
        Arc::new(Self { files: Mutex::new(files.collect()) })
    }

    /// What it holds now.
    pub fn files(&self) -> Files {
        self.files.lock().iter().map(|(name, file)| (name.clone(), file.0.lock().clone())).collect()
    }
}

impl Medium for MemoryMedium {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn MediumFile>> {
        let mut files = self.files.lock();
        match files.get(name) {
            Some(file) => Ok(Arc::clone(file) as Arc<dyn MediumFile>),
            None if create => Ok(Arc::clone(files.entry(name.to_owned()).or_default()) as Arc<dyn MediumFile>),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let within = |name: &String| match (folder, name.split_once('/')) {
            ("", None) => Some(name.clone()),
            (folder, Some((first, rest))) if first == folder => Some(rest.to_owned()),
            _ => None,
        };
        Ok(self.files.lock().keys().filter_map(within).collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn flush_names(&self, _folder: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 30)
    }
}

impl MemoryFile {
    fn grow(&self, bytes: u64) -> io::Result<()> {
        let mut held = self.0.lock();
        match usize::try_from(bytes) {
            Ok(length) if bytes <= FILE_BYTES_MAX => {
                if length > held.len() {
                    held.resize(length, 0);
                }
                Ok(())
            }
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

fn range(offset: u64, bytes: usize, length: usize) -> io::Result<Range<usize>> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    match start.checked_add(bytes) {
        Some(end) if end <= length => Ok(start..end),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl MediumFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.grow(bytes)?;
        self.0.lock().truncate(bytes as usize);
        Ok(())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let held = self.0.lock();
        out.copy_from_slice(&held[range(offset, out.len(), held.len())?]);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.grow(offset.saturating_add(data.len() as u64))?;
        let mut held = self.0.lock();
        let range = range(offset, data.len(), held.len())?;
        held[range].copy_from_slice(data);
        Ok(())
    }

    fn read_large_with(&self, wanted: Range<u64>, on: &mut dyn FnMut(&[u8])) -> io::Result<Bytes> {
        let held = self.0.lock();
        let bytes = usize::try_from(wanted.end.saturating_sub(wanted.start)).unwrap_or(usize::MAX);
        let found = &held[range(wanted.start, bytes, held.len())?];
        on(found);
        Ok(Bytes::copy_from_slice(found))
    }

    fn write_large(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data)
    }

    fn reserve(&self, range: Range<u64>) -> io::Result<()> {
        self.grow(range.end)
    }

    fn punch(&self, _range: Range<u64>) -> io::Result<bool> {
        Ok(false)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
