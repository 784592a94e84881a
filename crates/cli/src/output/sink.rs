//! Where data goes: stdout, or a file that appears when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// Buffered, so that a row is not a system call.
const BUFFER_BYTES: usize = 1 << 16;

/// Where data goes.
pub(crate) struct Sink {
    writer: BufWriter<Box<dyn Write + Send>>,
    file: Option<PendingFile>,
}

/// A file under a name of its own until [`Sink::finish`]; one that is not finished is removed.
struct PendingFile {
    path: PathBuf,
    partial: PathBuf,
    done: bool,
}

impl Sink {
    /// To stdout.
    pub(crate) fn stdout() -> Self {
        Self { writer: BufWriter::with_capacity(BUFFER_BYTES, Box::new(io::stdout())), file: None }
    }

    /// To a file, which takes its name only with [`Sink::finish`]; what had the name before stays until then.
    ///
    /// What is there and is no regular file (a device, a pipe) is written as it is.
    pub(crate) fn file(path: &Path) -> Result<Self, CliError> {
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            let device = File::options().write(true).open(path).map_err(|error| CliError::file(path, error))?;
            return Ok(Self { writer: BufWriter::with_capacity(BUFFER_BYTES, Box::new(device)), file: None });
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|error| CliError::file(path, error))?;
        Ok(Self {
            writer: BufWriter::with_capacity(BUFFER_BYTES, Box::new(file)),
            file: Some(PendingFile { path: path.to_owned(), partial, done: false }),
        })
    }

    /// Whether it is a file that a person named.
    pub(crate) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether a person looks at it.
    pub(crate) fn is_terminal(&self) -> bool {
        self.file.is_none() && io::stdout().is_terminal()
    }

    /// Everything is written: the file gets its name.
    pub(crate) fn finish(mut self) -> Result<(), CliError> {
        self.writer.flush()?;
        if let Some(file) = &mut self.file {
            std::fs::rename(&file.partial, &file.path).map_err(|error| CliError::file(&file.path, error))?;
            file.done = true;
        }
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.done {
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
        let mut sink = Sink::file(&path).unwrap();
        sink.write_all(b"half").unwrap();
        std::mem::drop(sink);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        let mut sink = Sink::file(&path).unwrap();
        sink.write_all(b"whole").unwrap();
        sink.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
