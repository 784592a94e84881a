//! What the medium under a folder is, as far as the kernel tells.

use std::fs;
use std::path::Path;

use pithead_model::{Blame, Fault};
use pithead_store::FolderMedium;
use serde::Serialize;

/// The medium, for whoever compares figures.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct MediumNotes {
    /// The file system's type.
    file_system: String,
    /// The block device, and the bus that it is on.
    device: String,
    /// What the device says of its write cache: `write back` means that a flush has to empty it.
    write_cache: String,
    /// How large values are read: `io_uring`, a pool of threads, or buffered where there is no O_DIRECT.
    large_io: String,
}

impl MediumNotes {
    /// Of the medium that a folder is on.
    pub(super) fn of(folder: &Path) -> Result<Self, Fault> {
        let probe = folder.join("probe");
        let large_io = FolderMedium::open(&probe).map_err(Fault::from)?.io_name().to_owned();
        let folder = folder.canonicalize().map_err(|error| Fault::new(Blame::Device, error.to_string()))?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let (number, file_system, source) = mount_of(&mounts, &folder).unwrap_or_default();
        let block = fs::canonicalize(format!("/sys/dev/block/{number}")).unwrap_or_default();
        // A partition has its queue one folder up.
        let read = |name: &str| {
            let own = fs::read_to_string(block.join(name));
            let text = own.or_else(|_| fs::read_to_string(block.join("..").join(name))).unwrap_or_default();
            text.trim().to_owned()
        };
        let bus = ["virtio", "nvme", "ata", "usb", "loop", "mmc"].into_iter().find(|bus| block.to_string_lossy().contains(bus));
        let spins = if read("queue/rotational") == "1" { ", says that it rotates" } else { "" };
        let write_cache = read("queue/write_cache");
        Ok(Self {
            file_system,
            device: format!("{source} ({}{spins})", bus.unwrap_or("unknown bus")),
            write_cache: if write_cache.is_empty() { "unknown".to_owned() } else { write_cache },
            large_io,
        })
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        format!("{} on {}; write cache: {}; large values by {}", self.file_system, self.device, self.write_cache, self.large_io)
    }
}

/// The device's number, the file system's type and the source of the mount that holds `folder`.
fn mount_of(mounts: &str, folder: &Path) -> Option<(String, String, String)> {
    let parse = |line: &str| {
        let (mount, rest) = line.split_once(" - ")?;
        let mount: Vec<&str> = mount.split(' ').collect();
        let rest: Vec<&str> = rest.split(' ').collect();
        let point = Path::new(mount.get(4)?);
        let depth = folder.starts_with(point).then(|| point.components().count())?;
        Some((depth, ((*mount.get(2)?).to_owned(), (*rest.first()?).to_owned(), (*rest.get(1)?).to_owned())))
    };
    // Of mounts at one point, the last hides the others; `max_by_key` gives the last.
    mounts.lines().filter_map(parse).max_by_key(|(depth, _)| *depth).map(|(_, mount)| mount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_holds_a_folder() {
        let mounts = "21 1 254:0 / / rw - ext4 /dev/vda rw\n22 21 0:5 / /dev rw shared:2 - devtmpfs udev rw\n\
                      30 21 8:1 / /data rw - xfs /dev/sda1 rw\nnonsense\n";
        let found = |folder: &str| mount_of(mounts, Path::new(folder)).unwrap();
        assert_eq!(found("/data/x"), ("8:1".into(), "xfs".into(), "/dev/sda1".into()));
        assert_eq!(found("/database").1, "ext4");
        assert_eq!(mount_of("", Path::new("/")), None);
    }
}
