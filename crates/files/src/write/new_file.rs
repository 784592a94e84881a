//! [`NewFile`]: a file that appears when it is complete.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::place::{Place, Stream, place};

/// Buffered, so that a row is not a system call.
const BUFFER_BYTES: usize = 1 << 16;

/// What a file is named after while it is written, at most: a name may have 255 bytes.
const NAME_BYTES_MAX: usize = 200;

/// Names that are tried, of which a person, other writers and those that were killed have some.
const NUMBER_MAX: u32 = 1_000;

/// The permissions that a new file asks for; the process's mask takes some away.
const NEW_MODE: u32 = 0o666;

/// The permissions of a file's group.
const GROUP_MODE: u32 = 0o070;

/// A file under a name of its own until [`NewFile::finish`]; one that is not finished is removed, and what had the name
/// before stays.
#[derive(Debug)]
pub struct NewFile {
    writer: BufWriter<File>,
    /// None: a device, a pipe or an open stream, which is written as it is.
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    path: PathBuf,
    partial: PathBuf,
    is_done: bool,
}

impl NewFile {
    /// Begins a file. Where links lead to a file, it is that one which is replaced, and the links stay. The new file has the
    /// permissions of the one that it replaces, and its owner where that can be.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = match place(path)? {
            Place::Stream(Stream::Stdout) => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            Place::Stream(Stream::Stderr) => File::from(io::stderr().as_fd().try_clone_to_owned()?),
            // What the stream has already stays, if it is a file.
            Place::Stream(Stream::Other) => File::options().append(true).open(path)?,
            Place::Device => File::options().write(true).open(path)?,
            Place::File(path, before) => return Self::pending(path, before.as_ref()),
        };
        Ok(Self { writer: BufWriter::with_capacity(BUFFER_BYTES, file), pending: None })
    }

    fn pending(path: PathBuf, before: Option<&Metadata>) -> io::Result<Self> {
        let (partial, file) = new_beside(&path, if before.is_some() { 0o600 } else { NEW_MODE })?;
        let pending = Pending { path, partial, is_done: false };
        if let Some(before) = before {
            be_as(&file, before, 0o777)?;
        }
        Ok(Self { writer: BufWriter::with_capacity(BUFFER_BYTES, file), pending: Some(pending) })
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

/// A file that nobody else has, named after another one.
fn new_beside(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().filter(|name| name.len() <= NAME_BYTES_MAX).unwrap_or_default();
    let mut number = 0;
    loop {
        let mut partial = name.to_owned();
        if number > 0 {
            partial.push(format!(".{}-{number}", std::process::id()));
        }
        partial.push(".partial");
        let partial = path.with_file_name(partial);
        match File::options().write(true).create_new(true).mode(mode).open(&partial) {
            Ok(file) => return Ok((partial, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NUMBER_MAX => number += 1,
            Err(error) => return Err(error),
        }
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

/// Gives a file the owner of another one, where that can be, and those of its permissions that are in `mask`. Those of a
/// group that it cannot have are left out.
pub fn be_as(file: &File, other: &Metadata, mask: u32) -> io::Result<()> {
    let now = file.metadata()?;
    let changed = |is, wanted| (is != wanted).then_some(wanted);
    // Only root may give files away, and a person to none but their own groups.
    let _ = fchown(file, None, changed(now.gid(), other.gid()));
    let _ = fchown(file, changed(now.uid(), other.uid()), None);
    let has_group = file.metadata()?.gid() == other.gid();
    let mode = other.mode() & mask & if has_group { 0o777 } else { !GROUP_MODE };
    file.set_permissions(Permissions::from_mode(mode))
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) {
        let mut file = NewFile::create(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        assert!(file.is_regular());
        file.finish().unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        std::mem::drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        write(&path, "whole");
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let long = folder.path().join("x".repeat(255));
        write(&long, "whole");
        assert_eq!(fs::read(&long).unwrap(), b"whole");
        let missing = NewFile::create(&folder.path().join("no/out.csv")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_link_stays_and_the_file_that_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("there")).unwrap();
        fs::write(path("there/real.csv"), "old").unwrap();
        symlink("there/real.csv", path("link.csv")).unwrap();
        symlink("link.csv", path("second.csv")).unwrap();
        write(&path("second.csv"), "new");
        assert_eq!(fs::read_to_string(path("there/real.csv")).unwrap(), "new");
        assert!(path("second.csv").is_symlink() && path("link.csv").is_symlink());
        assert_eq!(fs::read_dir(path("there")).unwrap().count(), 1);
        // A link to nothing makes the file that it names.
        symlink("there/later.csv", path("later.csv")).unwrap();
        write(&path("later.csv"), "new");
        assert!(path("later.csv").is_symlink() && path("there/later.csv").is_file());
        symlink("round.csv", path("round.csv")).unwrap();
        NewFile::create(&path("round.csv")).unwrap_err();
    }

    #[test]
    fn a_file_of_the_users_own_that_ends_in_partial_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, own) = (folder.path().join("out.csv"), folder.path().join("out.csv.partial"));
        fs::write(&own, "precious").unwrap();
        drop(NewFile::create(&path).unwrap());
        // Two that write the same file at once do not meet before each takes the name.
        let mut first = NewFile::create(&path).unwrap();
        write(&path, "second");
        first.write_all(b"first").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        first.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_to_string(&own).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_permissions_from_the_first_byte_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        write(&path, "a");
        // As any other program makes a file: by the process's mask.
        fs::write(folder.path().join("other"), "").unwrap();
        assert_eq!(mode(&path), mode(&folder.path().join("other")));
        for wanted in [0o600, 0o640, 0o664] {
            fs::set_permissions(&path, Permissions::from_mode(wanted)).unwrap();
            let file = NewFile::create(&path).unwrap();
            let modes = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
            let partial = modes.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|it| it == "partial"));
            assert_eq!(mode(&partial.unwrap()), wanted);
            file.finish().unwrap();
            assert_eq!(mode(&path), wanted);
        }
    }

    #[test]
    fn a_device_behind_a_link_is_written_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("nothing");
        symlink("/dev/null", &link).unwrap();
        let mut file = NewFile::create(&link).unwrap();
        file.write_all(b"gone").unwrap();
        assert!(!file.is_regular());
        file.finish().unwrap();
        assert!(link.is_symlink());
    }
}
