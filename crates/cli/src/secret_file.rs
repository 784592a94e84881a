//! Files that are written whole or not at all, and that only their owner can read where they are secret.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::CliError;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Its owner.
    Secret,
    /// Everybody.
    Public,
}

/// Writes a file that must not be there yet.
pub(crate) fn write_new(path: &Path, text: &str, mode: Mode) -> Result<(), CliError> {
    create(path, mode).and_then(|file| finish(file, text)).map_err(|error| CliError::file(path, error))
}

/// Writes a file, over one that may be there: whoever reads it meanwhile sees the old one whole, or the new one.
pub(crate) fn write_over(path: &Path, text: &str, mode: Mode) -> Result<(), CliError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = create(&new, mode).and_then(|file| finish(file, text)).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        // It may not even have been made.
        let _ = fs::remove_file(&new);
        CliError::file(path, error)
    })
}

fn create(path: &Path, mode: Mode) -> std::io::Result<File> {
    let mode = if mode == Mode::Secret { 0o600 } else { 0o644 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

fn finish(mut file: File, text: &str) -> std::io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
