//! Files that are written whole or not at all, and that only their owner can read where they are secret.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pithead_files::be_as;
use pithead_model::{Blame, Fault};

use crate::error::CliError;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Its owner.
    Secret,
    /// Its owner, and whom the owner lets read it later on.
    Guarded,
    /// Everybody.
    Public,
}

/// Writes a file that must not be there yet. `otherwise`: what to do where it is.
pub(crate) fn write_new(path: &Path, text: &str, mode: Mode, otherwise: &str) -> Result<(), CliError> {
    let file = create(path, mode).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Fault::new(Blame::User, format!("{} is there already", path.display())).hint(otherwise).into()
        }
        _ => CliError::file(path, error),
    })?;
    finish(file, text).map_err(|error| {
        let _ = fs::remove_file(path);
        CliError::file(path, error)
    })
}

/// Writes a file, over one that may be there: whoever reads it meanwhile sees the old one whole, or the new one. Where links lead
/// to a file, it is that one which is replaced. It keeps its permissions, of which a secret one has none for everybody, and its
/// owner where that can be.
pub(crate) fn write_over(path: &Path, text: &str, mode: Mode) -> Result<(), CliError> {
    Ready::make(path, text, mode)?.put()
}

/// A file that is written whole, beside the place where it is to be. Unless it is put there, it goes.
#[derive(Debug)]
pub(crate) struct Ready {
    path: PathBuf,
    new: PathBuf,
}

impl Ready {
    /// Writes it, as [`write_over`] does.
    pub(crate) fn make(path: &Path, text: &str, mode: Mode) -> Result<Self, CliError> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let before = fs::metadata(&path).ok();
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let ready = Self { new: path.with_file_name(name), path };
        let made = match &before {
            // Nobody else reads it before it is as the old one.
            Some(before) => create(&ready.new, Mode::Secret)
                .and_then(|file| be_as(&file, before, if mode == Mode::Secret { 0o770 } else { 0o777 }).map(|()| file)),
            None => create(&ready.new, mode),
        };
        made.and_then(|file| finish(file, text)).map_err(|error| CliError::file(&ready.path, error))?;
        Ok(ready)
    }

    /// Puts it into its place.
    pub(crate) fn put(self) -> Result<(), CliError> {
        fs::rename(&self.new, &self.path).map_err(|error| CliError::file(&self.path, error))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // Mostly it is in its place; it may not even have been made.
        let _ = fs::remove_file(&self.new);
    }
}

fn create(path: &Path, mode: Mode) -> std::io::Result<File> {
    let mode = if mode == Mode::Public { 0o644 } else { 0o600 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

fn finish(mut file: File, text: &str) -> std::io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_permissions_and_the_links_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        symlink("real", &link).unwrap();
        fs::write(&real, "old").unwrap();
        for (before, given, after) in [
            (0o600, Mode::Public, 0o600),
            (0o640, Mode::Public, 0o640),
            (0o644, Mode::Public, 0o644),
            (0o644, Mode::Guarded, 0o644),
            (0o644, Mode::Secret, 0o640),
        ] {
            fs::set_permissions(&real, Permissions::from_mode(before)).unwrap();
            write_over(&link, "new", given).unwrap();
            assert_eq!(mode(&real), after, "{before:o}");
            assert_eq!(fs::read_to_string(&real).unwrap(), "new");
            assert!(link.is_symlink());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        write_over(&folder.path().join("first"), "new", Mode::Guarded).unwrap();
        assert_eq!(mode(&folder.path().join("first")), 0o600);
    }

    #[test]
    fn what_is_not_put_into_its_place_goes_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_new(&path, "old", Mode::Public, "another").unwrap();
        let CliError::Fault(fault) = write_new(&path, "new", Mode::Public, "another").unwrap_err() else { panic!("a fault") };
        assert_eq!((fault.blame, fault.hint.as_deref()), (Blame::User, Some("another")));
        let ready = Ready::make(&path, "new", Mode::Public).unwrap();
        assert_eq!((fs::read_dir(folder.path()).unwrap().count(), fs::read_to_string(&path).unwrap()), (2, "old".to_owned()));
        drop(ready);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        Ready::make(&path, "new", Mode::Public).unwrap().put().unwrap();
        assert_eq!((fs::read_dir(folder.path()).unwrap().count(), fs::read_to_string(&path).unwrap()), (1, "new".to_owned()));
    }
}
