//! [`CodeFolder`]: compiled code in files, for processes of one user; and the files that secrets are in.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::cache::{CodeStore, Sealed, Secret, hex};

const SECRET_FILE: &str = "secret";
const SECRET_BYTES: usize = 32;
/// The most files of code, of which those that were used last stay.
const FILES_MAX: usize = 64;
/// How the name of a file of code ends.
const CODE_SUFFIX: &str = ".code";

impl Secret {
    /// The secret in a file, which is made where there is none, or one that is damaged: it appears whole or not at all, and nobody
    /// else can read it. Code that another secret has sealed is compiled anew.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        match fs::read(path).map(<[u8; SECRET_BYTES]>::try_from) {
            Ok(Ok(secret)) => Ok(Self(secret)),
            Ok(Err(_)) => Self::made(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::made(path),
            Err(error) => Err(error),
        }
    }

    fn made(path: &Path) -> io::Result<Self> {
        let secret: [u8; SECRET_BYTES] = rand::random();
        replace(path, &secret, true)?;
        Ok(Self(secret))
    }
}

/// Puts a file there, whole or not at all. Two processes that do so at once both succeed.
fn replace(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let new = path.with_extension(format!("new-{:016x}", rand::random::<u64>()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&new, path)?;
        match path.parent().filter(|_| durable) {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}

/// A folder that nobody else may write to, with the code of the modules that were used last.
#[derive(Debug)]
pub struct CodeFolder {
    folder: PathBuf,
}

impl CodeFolder {
    /// Opens the folder, or makes it, with a secret of its own.
    pub fn open(folder: &Path) -> io::Result<Sealed> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let about = fs::metadata(folder)?;
        if about.uid() != rustix::process::geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return Err(io::Error::other("others may write to it"));
        }
        let secret = Secret::of_file(&folder.join(SECRET_FILE))?;
        Ok(Sealed::new(Arc::new(Self { folder: folder.to_owned() }), secret))
    }

    fn path(&self, key: &[u8; 32]) -> PathBuf {
        self.folder.join(hex(key) + CODE_SUFFIX)
    }

    /// Deletes the code that was not used for longest.
    fn sweep(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            if entry.file_name().to_string_lossy().ends_with(CODE_SUFFIX) {
                files.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        files.sort_unstable();
        let many = files.len().saturating_sub(FILES_MAX);
        files[..many].iter().try_for_each(|(_, path)| fs::remove_file(path))
    }
}

impl CodeStore for CodeFolder {
    fn load(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        let path = self.path(key);
        let code = fs::read(&path).ok()?;
        // It was used now. Where that cannot be said, it goes a little earlier.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(code)
    }

    fn save(&self, key: &[u8; 32], sealed: &[u8]) {
        // The next process compiles again what was not kept.
        if let Err(error) = replace(&self.path(key), sealed, false).and_then(|()| self.sweep()) {
            tracing::debug!(%error, folder = %self.folder.display(), "compiled code was not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_secret_stays_the_same_and_is_nobody_elses_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program.secret");
        let first = Secret::of_file(&path).unwrap().0;
        assert_eq!(Secret::of_file(&path).unwrap().0, first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, b"short").unwrap();
        assert_ne!(Secret::of_file(&path).unwrap().0, first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn code_is_sealed_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let code = CodeFolder::open(&folder.path().join("a/b")).unwrap();
        let key = |number: usize| [number as u8; 32];
        let then = |number: usize| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000 + number as u64);
        let path = |number: usize| CodeFolder { folder: folder.path().join("a/b") }.path(&key(number));
        for number in 0..FILES_MAX {
            code.save(&key(number), b"code");
            File::open(path(number)).unwrap().set_modified(then(number)).unwrap();
        }
        assert_eq!(code.load(&key(0)), Some(b"code".to_vec()), "and it was used last by that");
        code.save(&key(FILES_MAX), b"more");
        let there = [0, 1, 2, FILES_MAX].map(|number| code.load(&key(number)).is_some());
        assert_eq!(there, [true, false, true, true]);
        let again = CodeFolder::open(&folder.path().join("a/b")).unwrap();
        assert_eq!(again.load(&key(2)), Some(b"code".to_vec()));
        fs::rename(path(2), path(3)).unwrap();
        assert_eq!(again.load(&key(3)), None, "it is sealed as that of another module");
        fs::set_permissions(folder.path().join("a/b"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(CodeFolder::open(&folder.path().join("a/b")).is_err());
    }
}
