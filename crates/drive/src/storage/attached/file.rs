//! [`Stamp`] and [`FileBytes`]: a file as it was seen, and its bytes for as long as it is that file.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pithead_slice::{ReadAt, SliceError};

/// The file itself, not what a link of its name leads to.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_CLOEXEC;

/// More than a step of any clock by which file systems write down times.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
/// How long a file is waited for that is changed all the time.
const SETTLING_MAX: Duration = Duration::from_secs(2);

/// What tells a file, as it was seen, from another one, and from itself after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) bytes: u64,
    modified: (i64, i64),
    /// As modified, and nobody can set it.
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The metadata of a file, once it has not been changed for a moment: a file that takes another's place within one step of the
    /// file system's clock may have all else in common with it. Adds the time of the wait.
    pub(crate) fn settled(path: &Path, waited: &mut Duration) -> io::Result<Metadata> {
        let started = Instant::now();
        loop {
            let metadata = std::fs::metadata(path)?;
            let changed = Duration::new(metadata.ctime().max(0) as u64, metadata.ctime_nsec().max(0) as u32);
            let age = SystemTime::now().duration_since(UNIX_EPOCH + changed).unwrap_or(SETTLED_AFTER);
            if metadata.is_dir() || age >= SETTLED_AFTER {
                return Ok(metadata);
            }
            if started.elapsed() > SETTLING_MAX {
                return Err(io::Error::other("it is changed again and again"));
            }
            std::thread::sleep(SETTLED_AFTER - age);
            *waited += SETTLED_AFTER - age;
        }
    }

    /// As bytes, to be hashed.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let times = [self.modified.0, self.modified.1, self.changed.0, self.changed.1].map(|time| time as u64);
        let numbers = [self.device, self.inode, self.bytes].into_iter().chain(times);
        numbers.flat_map(u64::to_le_bytes).collect()
    }
}

/// The bytes of a file as it was when it was seen. Each read opens it anew, so that thousands of files need no handles, and finds out
/// whether it is still that file before and after.
#[derive(Debug)]
pub(crate) struct FileBytes {
    path: PathBuf,
    stamp: Stamp,
}

impl FileBytes {
    /// Of the file with this path, which must not be a link.
    pub(crate) fn new(path: &Path, stamp: Stamp) -> FileBytes {
        FileBytes { path: path.to_owned(), stamp }
    }

    fn check(&self, file: &File) -> Result<(), SliceError> {
        match file.metadata() {
            Ok(metadata) if Stamp::of(&metadata) == self.stamp => Ok(()),
            Ok(_) => Err(self.gone("was changed")),
            Err(error) => Err(self.medium(&error)),
        }
    }

    fn gone(&self, how: &str) -> SliceError {
        SliceError::Gone(format!("the attached file {} {how}", self.path.display()))
    }

    fn medium(&self, error: &io::Error) -> SliceError {
        SliceError::Medium(format!("the attached file {}: {error}", self.path.display()))
    }
}

impl ReadAt for FileBytes {
    fn bytes(&self) -> u64 {
        self.stamp.bytes
    }

    fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        let bytes = range.end.checked_sub(range.start).filter(|_| range.end <= self.stamp.bytes);
        let Some(bytes) = bytes.and_then(|bytes| usize::try_from(bytes).ok()) else {
            return Err(SliceError::Corrupt(format!(
                "bytes {} to {} lie beyond {}",
                range.start,
                range.end,
                self.path.display()
            )));
        };
        let file = match OpenOptions::new().read(true).custom_flags(FLAGS).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.gone("was removed")),
            Err(error) => return Err(self.medium(&error)),
        };
        self.check(&file)?;
        // Memory that is written once, by the read.
        let mut buffer = Vec::with_capacity(bytes);
        let read = (&file).seek(SeekFrom::Start(range.start)).and_then(|_| (&file).take(bytes as u64).read_to_end(&mut buffer));
        if read.map_err(|error| self.medium(&error))? < bytes {
            return Err(self.gone("became shorter"));
        }
        // Bytes of a file that was written meanwhile would be a mix of two states.
        self.check(&file)?;
        Ok(buffer.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &Path) -> FileBytes {
        FileBytes::new(path, Stamp::of(&std::fs::metadata(path).unwrap()))
    }

    #[test]
    fn a_file_is_read_until_it_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = seen(&path);
        assert_eq!((file.read_at(2..5).unwrap(), file.read_at(10..10).unwrap()), (Bytes::from("234"), Bytes::new()));
        assert!(matches!(file.read_at(5..11), Err(SliceError::Corrupt(_))));
        assert!(matches!(file.read_at(Range { start: 5, end: 4 }), Err(SliceError::Corrupt(_))));
        let other = directory.path().join("b");
        std::fs::write(&other, b"0123456789").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(matches!(file.read_at(2..5), Err(SliceError::Gone(_))), "another file of its name");
        let file = seen(&path);
        let later = SystemTime::now() + Duration::from_secs(5);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(matches!(file.read_at(2..5), Err(SliceError::Gone(_))), "written in place");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(file.read_at(2..5), Err(SliceError::Gone(_))), "removed");
    }

    #[test]
    fn files_that_follow_each_other_at_once_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let (path, next) = (directory.path().join("a"), directory.path().join("b"));
        for round in 0..20 {
            std::fs::write(&next, b"0123456789").unwrap();
            std::fs::rename(&next, &path).unwrap();
            let mut waited = Duration::ZERO;
            let file = FileBytes::new(&path, Stamp::of(&Stamp::settled(&path, &mut waited).unwrap()));
            // Its place in the file system is free for the second one.
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, b"9876543210").unwrap();
            assert!(matches!(file.read_at(2..5), Err(SliceError::Gone(_))), "round {round}");
        }
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, secret) = (directory.path().join("a"), directory.path().join("secret"));
        std::fs::write(&path, b"x").unwrap();
        std::fs::write(&secret, b"y").unwrap();
        let file = seen(&path);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        assert!(file.read_at(0..1).is_err());
    }
}
