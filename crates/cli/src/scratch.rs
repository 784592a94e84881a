//! Where drives of this process are that only attach files: a folder that goes with the process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use pithead_embed::Target;

const PREFIX: &str = "pithead-attached-";
/// The file in a drive's folder that the process holds locked that has it open.
const LOCK: &str = "LOCK";

/// Whether this process has such a folder.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The folder of this process.
pub(crate) fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()))
}

/// Whether what is written to a target goes with the process.
pub(crate) fn is_scratch(target: &Target) -> bool {
    *target == Target::Data(folder())
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
    /// Where the target is such a folder, those of processes that were killed are removed first.
    pub(crate) fn of(target: &Target) -> Scratch {
        if is_scratch(target) {
            remove_left(&std::env::temp_dir());
            IN_USE.store(true, Ordering::SeqCst);
        }
        Scratch(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove();
    }
}

/// Removes the folders of processes that are no more. What may not be removed stays: it is somebody else's.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if process.is_some_and(is_over) && is_unused(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
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
        let left = made(&format!("{PREFIX}{NOBODY}"));
        let (own, other) = (made(&format!("{PREFIX}1")), made("attached-of-somebody"));
        let lock = File::open(left.join(LOCK)).unwrap();
        lock.lock().unwrap();
        remove_left(parent.path());
        assert!(left.exists(), "somebody has it open");
        drop(lock);
        remove_left(parent.path());
        assert!(!left.exists() && own.exists() && other.exists());
    }
}
