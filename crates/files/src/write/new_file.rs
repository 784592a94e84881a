//! [`NewFile`]: a file that appears when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Buffered, so that a row is not a system call.
const BUFFER_BYTES: usize = 1 << 16;

/// A file under a name of its own until [`NewFile::finish`]; one that is not finished is removed, and what had the name before stays.
#[derive(Debug)]
pub struct NewFile {
    writer: BufWriter<File>,
    /// None: a device or a pipe, which is written as it is.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    path: PathBuf,
    partial: PathBuf,
    is_done: bool,
}

impl NewFile {
    /// Begins a file.
    pub fn create(path: &Path) -> io::Result<Self> {
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            let device = File::options().write(true).open(path)?;
            return Ok(Self { writer: BufWriter::with_capacity(BUFFER_BYTES, device), pending: None });
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let writer = BufWriter::with_capacity(BUFFER_BYTES, File::create(&partial)?);
        Ok(Self { writer, pending: Some(Pending { path: path.to_owned(), partial, is_done: false }) })
    }

    /// Whether it is a file, and not a device or a pipe.
    pub fn is_regular(&self) -> bool {
        self.pending.is_some()
    }

    /// Everything is written: the file gets its name.
    pub fn finish(mut self) -> io::Result<()> {
        self.writer.flush()?;
        if let Some(pending) = &mut self.pending {
            std::fs::rename(&pending.partial, &pending.path)?;
            pending.is_done = true;
        }
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_done {
            // A leftover does no harm beyond its space, and there is nobody left to tell.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        std::mem::drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
