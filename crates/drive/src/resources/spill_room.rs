//! [`SpillRoom`]: where rows lie that do not fit in memory, and what they leave of the medium.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use pithead_model::{Blame, Bytes, Fault, SLICE_BYTES_MAX};

/// Bytes that stay free for what is stored: the store's reserve is not among them.
const LEFT_BYTES_MIN: u64 = 4 * SLICE_BYTES_MAX as u64;
/// After so many bytes the medium is looked at again.
const LOOK_BYTES: u64 = 16 << 20;

/// The directory of spilled rows, of all sessions and loads of a drive. It lies on the store's medium.
pub(crate) struct SpillRoom {
    directory: PathBuf,
    free: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    spilled: AtomicU64,
}

impl SpillRoom {
    /// `free`: bytes of the medium that are free, if that is known.
    pub(crate) fn new(directory: &Path, free: impl Fn() -> Option<u64> + Send + Sync + 'static) -> SpillRoom {
        SpillRoom { directory: directory.to_owned(), free: Box::new(free), spilled: AtomicU64::new(0) }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Called before so many bytes are spilled; refuses where too little is left.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Fault> {
        let before = self.spilled.fetch_add(bytes, Ordering::Relaxed);
        if before / LOOK_BYTES == before.wrapping_add(bytes) / LOOK_BYTES {
            return Ok(());
        }
        match (self.free)() {
            Some(free) if free < LEFT_BYTES_MIN.saturating_add(bytes) => {
                let what = format!("no room to spill: {} of the drive are free", Bytes(free));
                Err(Fault::new(Blame::Limit, what).hint("free space on the medium, or read less at a time"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for SpillRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillRoom").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_keeps_its_room() {
        let take = |free: Option<u64>| {
            let room = SpillRoom::new(Path::new("/"), move || free);
            (0..64).try_for_each(|_| room.take(1 << 20)).map_err(|fault| fault.blame)
        };
        assert_eq!(take(Some(LEFT_BYTES_MIN)), Err(Blame::Limit));
        assert_eq!((take(Some(2 * LEFT_BYTES_MIN)), take(None)), (Ok(()), Ok(())));
        // A few rows are no harm.
        assert!(SpillRoom::new(Path::new("/"), || Some(0)).take(1 << 20).is_ok());
    }
}
