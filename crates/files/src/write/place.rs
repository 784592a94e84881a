//! [`place`]: what a path that is written to leads to.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// Links that lead to one another at most, as the system has it.
const LINKS_MAX: usize = 40;

/// What a path leads to.
#[derive(Debug)]
pub(super) enum Place {
    /// A file without links on its way, and what is there already.
    File(PathBuf, Option<Metadata>),
    /// A device or a pipe.
    Device,
    /// Something that this or another process has open, whatever it is.
    Stream(Stream),
}

/// What a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// This one's standard output.
    Stdout,
    /// This one's standard error.
    Stderr,
    Other,
}

/// Follows links one by one. Those of the system's own that stand for open files, such as `/dev/stdout`, are not
/// followed: what they lead to may be a file, and is not to be replaced.
pub(super) fn place(path: &Path) -> io::Result<Place> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Some(name) = path.file_name() else { break };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = fs::canonicalize(folder)?;
        if let Some(stream) = stream(&folder, name.to_str().unwrap_or_default(), std::process::id()) {
            return Ok(Place::Stream(stream));
        }
        let here = folder.join(name);
        match fs::symlink_metadata(&here) {
            Ok(there) if there.is_symlink() => path = folder.join(fs::read_link(&here)?),
            Ok(there) if there.is_file() => return Ok(Place::File(here, Some(there))),
            Ok(_) => return Ok(Place::Device),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::File(here, None)),
            Err(error) => return Err(error),
        }
    }
    // A folder that has no name of its own, or links in a circle: opening it says what is wrong.
    Ok(Place::Device)
}

/// What a name in a folder stands for, where that is what some process has open.
fn stream(folder: &Path, name: &str, own: u32) -> Option<Stream> {
    let parts: Vec<&str> = folder.iter().map(|part| part.to_str().unwrap_or_default()).collect();
    let (process, number) = match (parts.as_slice(), name) {
        (["/", "dev"], "stdout") => (Some(own), "1"),
        (["/", "dev"], "stderr") => (Some(own), "2"),
        (["/", "dev"], "stdin") => (Some(own), "0"),
        (["/", "dev", "fd"], number) => (Some(own), number),
        (["/", "proc", process, "fd"] | ["/", "proc", process, "task", _, "fd"], number) => (process.parse().ok(), number),
        _ => return None,
    };
    Some(match number {
        "1" if process == Some(own) => Stream::Stdout,
        "2" if process == Some(own) => Stream::Stderr,
        _ => Stream::Other,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_systems_names_for_open_files_are_streams_and_other_files_there_are_not() {
        for (folder, name, expected) in [
            ("/dev", "stdout", Some(Stream::Stdout)),
            ("/dev", "stderr", Some(Stream::Stderr)),
            ("/dev", "stdin", Some(Stream::Other)),
            ("/dev/fd", "1", Some(Stream::Stdout)),
            ("/dev/fd", "63", Some(Stream::Other)),
            ("/proc/7/fd", "1", Some(Stream::Stdout)),
            ("/proc/7/task/9/fd", "2", Some(Stream::Stderr)),
            ("/proc/8/fd", "1", Some(Stream::Other)),
            ("/dev", "null", None),
            ("/dev/shm", "stdout", None),
            ("/proc/7", "fd", None),
            ("/srv/dev", "stdout", None),
        ] {
            assert_eq!(stream(Path::new(folder), name, 7), expected, "{folder}/{name}");
        }
    }

    #[test]
    fn links_to_streams_and_devices_are_told_from_links_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let link = |name: &str, to: &str| {
            symlink(to, root.join(name)).unwrap();
            place(&root.join(name))
        };
        assert!(matches!(link("out", "/proc/self/fd/1").unwrap(), Place::Stream(Stream::Stdout)));
        assert!(matches!(link("again", "out").unwrap(), Place::Stream(Stream::Stdout)));
        assert!(matches!(link("null", "/dev/null").unwrap(), Place::Device));
        assert!(matches!(link("folder", ".").unwrap(), Place::Device));
        assert!(matches!(link("round", "round").unwrap(), Place::Device));
        let Place::File(path, None) = link("later", "real").unwrap() else { panic!("a file that is not there yet") };
        assert_eq!(path, root.join("real"));
        fs::write(root.join("real"), "").unwrap();
        let Place::File(path, Some(_)) = place(&root.join("folder/later")).unwrap() else { panic!("a file") };
        assert_eq!(path, root.join("real"));
        assert!(link("lost", "no/real").is_err());
    }
}
