//! [`Watched`]: what was read from files, and is read again when they change.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use pithead_model::{Blame, Fault, SECRET_FILE_BYTES_MAX};

/// How often it is looked whether files have changed, at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A value made of files. When one of them has changed, the value is made anew; where that fails, the old one stays.
pub struct Watched<T> {
    files: Vec<PathBuf>,
    make: Box<dyn Fn() -> Result<T, Fault> + Send + Sync>,
    state: Mutex<WatchedState<T>>,
}

struct WatchedState<T> {
    value: Arc<T>,
    stamps: Vec<Stamp>,
    looked: Instant,
}

/// What changes when a file does.
type Stamp = Option<(SystemTime, u64)>;

impl<T> Watched<T> {
    /// Makes the value for the first time. Fails where `make` does.
    pub fn new(files: Vec<PathBuf>, make: impl Fn() -> Result<T, Fault> + Send + Sync + 'static) -> Result<Watched<T>, Fault> {
        // Stamps first: a change meanwhile is then seen at the next look.
        let stamps = stamps(&files);
        let state = WatchedState { value: Arc::new(make()?), stamps, looked: Instant::now() };
        Ok(Watched { files, make: Box::new(make), state: Mutex::new(state) })
    }

    /// The value, at most a second behind its files.
    pub fn get(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK_INTERVAL {
            self.look(&mut state);
        }
        Arc::clone(&state.value)
    }

    fn look(&self, state: &mut WatchedState<T>) {
        state.looked = Instant::now();
        let stamps = stamps(&self.files);
        if stamps == state.stamps {
            return;
        }
        state.stamps = stamps;
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        match (self.make)() {
            Ok(value) => {
                state.value = Arc::new(value);
                tracing::info!("read again: {}", names.join(", "));
            }
            Err(fault) => tracing::error!("what was read before stays in force: {fault}"),
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let metadata = fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(stamp).collect()
}

/// A small file whole.
pub(crate) fn read_bounded(path: &Path) -> Result<Vec<u8>, Fault> {
    let failed = |error: std::io::Error| Fault::new(Blame::User, format!("cannot read {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(SECRET_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > SECRET_FILE_BYTES_MAX {
        let message = format!("{} is over the bound of {SECRET_FILE_BYTES_MAX} bytes", path.display());
        return Err(Fault::new(Blame::Limit, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        fs::write(&file, "1").unwrap();
        let read = file.clone();
        let number = move || {
            let text = String::from_utf8(read_bounded(&read)?).unwrap();
            text.parse::<u64>().map_err(|error| Fault::new(Blame::User, error.to_string()))
        };
        let watched = Watched::new(vec![file.clone()], number).unwrap();
        let look = || {
            watched.state.lock().unwrap().looked -= LOOK_INTERVAL;
            *watched.get()
        };
        assert_eq!(look(), 1);
        fs::write(&file, "22").unwrap();
        assert_eq!(look(), 22);
        fs::write(&file, "none").unwrap();
        assert_eq!(look(), 22);
        fs::remove_file(&file).unwrap();
        assert_eq!(look(), 22);
        fs::write(&file, "333").unwrap();
        assert_eq!(look(), 333);
    }

    #[test]
    fn large_and_missing_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("large");
        assert!(read_bounded(&file).unwrap_err().message.contains("large"));
        File::create(&file).unwrap().set_len(SECRET_FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(read_bounded(&file).unwrap_err().blame, Blame::Limit);
    }
}
