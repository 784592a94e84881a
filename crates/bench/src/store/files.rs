//! What the kernel keeps of files, and what it read for this process.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use pithead_model::Fault;
use rustix::fs::{Advice, fadvise};

use crate::tables;

/// Asks the kernel to forget what it caches of all files in a folder. What was written is flushed first, since only then it
/// can be forgotten.
pub(super) fn drop_cached(folder: &Path) -> Result<(), Fault> {
    let drop_all = || -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                drop_cached(&path).map_err(|fault| io::Error::other(fault.message))?;
            } else {
                let file = File::open(&path)?;
                file.sync_all()?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
            }
        }
        Ok(())
    };
    drop_all().map_err(|error| tables::io(folder, &error))
}

/// Bytes that this process has had read from devices so far; none where the kernel does not say.
pub(super) fn device_bytes_read() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok())
}
