//! [`SpillFolder`]: where a host's operators put what does not fit into memory.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManager, DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::{SpillFile, TempFileFactory};
use parking_lot::Mutex;
use pithead_model::{Blame, Fault};

/// A folder of a host's own among the system's temporary ones, made when something is first spilled.
///
/// Work that was cancelled may hold its files until its next step, and a process that ends does not wait for that. So the folder
/// goes when the host ends, whoever holds files in it.
#[derive(Debug, Default)]
pub struct SpillFolder {
    state: Mutex<SpillState>,
}

#[derive(Debug, Default)]
enum SpillState {
    #[default]
    Unused,
    Used {
        folder: PathBuf,
        files: Arc<DiskManager>,
    },
    Removed,
}

impl SpillFolder {
    /// Where operators of one session get their files.
    pub(crate) fn of_session(self: &Arc<Self>) -> DiskManagerBuilder {
        let files = Arc::clone(self) as Arc<dyn TempFileFactory>;
        DiskManagerBuilder::default().with_mode(DiskManagerMode::Custom(files))
    }

    /// Deletes all that was spilled. From now on nothing is.
    pub fn remove(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), SpillState::Removed);
        if let SpillState::Used { folder, .. } = before
            && let Err(error) = fs::remove_dir_all(&folder)
        {
            tracing::warn!(%error, folder = %folder.display(), "what was spilled stays");
        }
    }
}

impl TempFileFactory for SpillFolder {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let files = {
            let mut state = self.state.lock();
            if matches!(*state, SpillState::Unused) {
                *state = make()?;
            }
            match &*state {
                SpillState::Used { files, .. } => Arc::clone(files),
                _ => return Err(DataFusionError::External(Box::new(Fault::new(Blame::Cancelled, "the host has ended")))),
            }
        };
        files.create_tmp_file(description)
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Rows of others are nobody's business: the folder is for its owner alone.
fn make() -> Result<SpillState> {
    let name = format!("pithead-{}-{:016x}", std::process::id(), rand::random::<u64>());
    let folder = std::env::temp_dir().join(name);
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![folder.clone()]));
    Ok(SpillState::Used { folder, files: Arc::new(files.build()?) })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_folder_goes_while_files_are_held() {
        let spills = Arc::new(SpillFolder::default());
        let file = spills.create_temp_file("a sort").unwrap();
        file.open_writer().unwrap().write_all(b"rows").unwrap();
        let folder = match &*spills.state.lock() {
            SpillState::Used { folder, .. } => folder.clone(),
            other => panic!("{other:?}"),
        };
        assert!(file.path().unwrap().starts_with(&folder));
        spills.remove();
        assert!(!folder.exists() && spills.create_temp_file("another").is_err());
    }
}
