//! Where data goes: stdout, or a file that appears when it is complete.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::{Path, PathBuf};

use pithead_files::NewFile;

use crate::error::CliError;

/// Buffered, so that a row is not a system call.
const BUFFER_BYTES: usize = 1 << 16;

/// Where data goes.
pub(crate) enum Sink {
    /// Read by whoever it is.
    Stdout(BufWriter<Stdout>),
    /// Takes its name only with [`Sink::finish`]; what had the name before stays until then.
    File(NewFile, PathBuf),
}

impl Sink {
    /// To stdout.
    pub(crate) fn stdout() -> Self {
        Self::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout()))
    }

    /// To a file; `-` is stdout. What is there and is no regular file (a device, a pipe, an open stream) is written as it is.
    pub(crate) fn file(path: &Path) -> Result<Self, CliError> {
        if path == Path::new("-") {
            return Ok(Self::stdout());
        }
        let file = NewFile::create(path).map_err(|error| CliError::file(path, error))?;
        Ok(Self::File(file, path.to_owned()))
    }

    /// Whether it is a file that a person named.
    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Sink::File(file, _) if file.is_regular())
    }

    /// Whether a person looks at it.
    pub(crate) fn is_terminal(&self) -> bool {
        match self {
            Sink::Stdout(_) => io::stdout().is_terminal(),
            Sink::File(file, _) => !file.is_regular() && io::stdout().is_terminal(),
        }
    }

    /// Everything is written: the file gets its name.
    pub(crate) fn finish(self) -> Result<(), CliError> {
        match self {
            Sink::Stdout(mut out) => Ok(out.flush()?),
            Sink::File(file, path) => file.finish().map_err(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => CliError::BrokenPipe,
                _ => CliError::file(&path, error),
            }),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Stdout(out) => out.write(bytes),
            Sink::File(file, _) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Stdout(out) => out.flush(),
            Sink::File(file, _) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_is_stdout_and_a_path_to_a_dash_is_a_file() {
        assert!(matches!(Sink::file(Path::new("-")).unwrap(), Sink::Stdout(_)));
        let folder = tempfile::tempdir().unwrap();
        let sink = Sink::file(&folder.path().join("-")).unwrap();
        assert!(sink.is_file());
        sink.finish().unwrap();
        assert!(folder.path().join("-").is_file());
    }
}
