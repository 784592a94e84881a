//! Folders that go with the process: where drives of this process are that only attach files, or that do work to be measured.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pithead_embed::Target;

use crate::error::CliError;

const PREFIX: &str = "pithead-attached-";
/// The file in a drive's folder that the process holds locked that has it open.
const LOCK: &str = "LOCK";

/// The folder of this process, once somebody has asked for it.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();
/// Whether it was made.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The folder of this process.
pub(crate) fn folder() -> PathBuf {
    FOLDER.get_or_init(|| new_path(PREFIX)).clone()
}

/// Whether what is written to a target goes with the process.
pub(crate) fn is_scratch(target: &Target) -> bool {
    matches!(target, Target::Data(data) if FOLDER.get() == Some(data))
}

/// Removes the folder of this process, if it has one: there is nothing in it that anybody has written.
pub(crate) fn remove() {
    if IN_USE.swap(false, Ordering::SeqCst) {
        let _ = fs::remove_dir_all(folder());
    }
}

/// The time for which a target is in use. Its end removes the folder that goes with the process.
#[derive(Debug)]
pub(crate) struct Scratch(());

impl Scratch {
    /// Where the target is such a folder, it is made, and those of processes that were killed are removed first.
    pub(crate) fn of(target: &Target) -> Result<Scratch, CliError> {
        if is_scratch(target) && !IN_USE.swap(true, Ordering::SeqCst) {
            remove_left(&std::env::temp_dir(), PREFIX);
            make(&folder()).inspect_err(|_| IN_USE.store(false, Ordering::SeqCst))?;
        }
        Ok(Scratch(()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove();
    }
}

/// Another folder, which goes when it is dropped. What a process that was killed has left of the kind is removed first.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes it, with a name that begins so.
    pub(crate) fn make(prefix: &str) -> Result<Folder, CliError> {
        remove_left(&std::env::temp_dir(), prefix);
        let folder = new_path(prefix);
        make(&folder)?;
        Ok(Folder(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Where it stays, the next one of the kind finds it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A name that nobody can have taken before: processes of containers have the same few numbers.
fn new_path(prefix: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{prefix}{}-{:016x}", std::process::id(), rand::random::<u64>()))
}

/// Makes a folder that is not there yet. Rows of others are nobody's business: it is for its owner alone.
fn make(folder: &Path) -> Result<(), CliError> {
    DirBuilder::new().mode(0o700).create(folder).map_err(|error| CliError::file(folder, error))
}

/// Removes the folders of this user's processes that are no more. What may not be removed stays.
fn remove_left(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| process_of(name, prefix));
        let is_own = || entry.metadata().is_ok_and(|there| there.is_dir() && there.uid() == user());
        if process.is_some_and(is_over) && is_own() && is_unused(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process that has made a folder, by its name, of which older releases had no more than that.
fn process_of(name: &str, prefix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.split('-').next()?.parse().ok()
}

/// As whom this process makes files.
fn user() -> u32 {
    // SAFETY: the call takes nothing, and cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether there is no such process. Where it is this one, another one of its number was before.
fn is_over(process: u32) -> bool {
    process == std::process::id() || !Path::new("/proc").join(process.to_string()).exists()
}

/// Whether nobody has a drive of a folder open. Numbers of processes do not say so: containers that share the folder have their own.
fn is_unused(folder: &Path) -> bool {
    let drives: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|drive| drive.path()).collect();
    let is_free = |drive: &PathBuf| File::open(drive.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
    !drives.is_empty() && drives.iter().all(is_free)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// No process has a number like this.
    const NOBODY: u32 = u32::MAX;

    #[test]
    fn folders_of_processes_that_are_no_more_go() {
        let parent = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let drive = parent.path().join(name).join("drive-0");
            fs::create_dir_all(&drive).unwrap();
            fs::write(drive.join(LOCK), "").unwrap();
            drive
        };
        let (left, older) = (made(&format!("{PREFIX}{NOBODY}-0")), made(&format!("{PREFIX}{NOBODY}")));
        let (own, other) = (made(&format!("{PREFIX}1-0")), made("attached-of-somebody"));
        let link = parent.path().join(format!("{PREFIX}{NOBODY}-1"));
        symlink(other.parent().unwrap(), &link).unwrap();
        let lock = File::open(left.join(LOCK)).unwrap();
        lock.lock().unwrap();
        remove_left(parent.path(), PREFIX);
        assert!(left.exists(), "somebody has it open");
        drop(lock);
        remove_left(parent.path(), PREFIX);
        assert!(!left.exists() && !older.exists() && own.exists() && other.exists() && link.is_symlink());
    }

    #[test]
    fn a_folder_is_a_new_one_that_its_owner_alone_reads() {
        // Of a process of this number, which was killed: its lock is there, and nobody has it.
        let left = std::env::temp_dir().join(format!("pithead-of-a-test-{}-0", std::process::id()));
        fs::create_dir_all(left.join("drive-0")).unwrap();
        fs::write(left.join("drive-0").join(LOCK), "").unwrap();
        let folder = Folder::make("pithead-of-a-test-").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(!left.exists() && new_path("a-") != new_path("a-"));
        assert!(make(&path).is_err(), "one that is there is not taken");
        drop(folder);
        assert!(!path.exists());
    }
}
