//! [`Runtimes`]: the memory pool and the spill files of each session, as DataFusion's operators see them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::common::Result as DataFusionResult;
use datafusion::execution::disk_manager::{DiskManager, DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::Stream;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault};

/// Makes sessions' runtimes. All spill below one directory, which is wiped when the drive opens.
pub(crate) struct Runtimes {
    base: RuntimeEnv,
    files: Arc<DiskManager>,
    directory: PathBuf,
}

/// What a session used of memory and temporary space.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    memory_peak: AtomicU64,
    spilled_bytes: AtomicU64,
}

impl Usage {
    pub(crate) fn memory_peak(&self) -> u64 {
        self.memory_peak.load(Ordering::Relaxed)
    }

    pub(crate) fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes.load(Ordering::Relaxed)
    }
}

impl Runtimes {
    pub(crate) fn open(directory: &Path) -> Result<Self, Fault> {
        let failed = |error: io::Error| Fault::new(Blame::Device, format!("{}: {error}", directory.display()));
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => std::fs::create_dir_all(directory).map_err(failed)?,
        }
        let files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![directory.to_path_buf()]));
        let base = RuntimeEnvBuilder::new().with_disk_manager_builder(files).build().map_err(fault_from_datafusion)?;
        Ok(Self { files: Arc::clone(&base.disk_manager), base, directory: directory.to_owned() })
    }

    /// Where spill files lie.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A runtime whose operators share `memory` bytes.
    pub(crate) fn session(&self, memory: u64, usage: &Arc<Usage>) -> Result<Arc<RuntimeEnv>, Fault> {
        let bytes = usize::try_from(memory).unwrap_or(usize::MAX);
        let pool = WatchedPool { inner: FairSpillPool::new(bytes), usage: Arc::clone(usage) };
        let files = SessionFiles { files: Arc::clone(&self.files), usage: Arc::clone(usage) };
        RuntimeEnvBuilder::from_runtime_env(&self.base)
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Custom(Arc::new(files))))
            .build_arc()
            .map_err(fault_from_datafusion)
    }
}

impl fmt::Debug for Runtimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtimes").field("files", &self.files).finish_non_exhaustive()
    }
}

/// A pool that remembers the most that was reserved at one time.
#[derive(Debug)]
struct WatchedPool {
    inner: FairSpillPool,
    usage: Arc<Usage>,
}

impl WatchedPool {
    fn watch(&self) {
        self.usage.memory_peak.fetch_max(self.inner.reserved() as u64, Ordering::Relaxed);
    }
}

impl fmt::Display for WatchedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl MemoryPool for WatchedPool {
    fn name(&self) -> &str {
        "session"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.inner.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
        self.watch();
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.inner.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionResult<()> {
        self.inner.try_grow(reservation, additional)?;
        self.watch();
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.inner.memory_limit()
    }
}

/// Spill files in the drive's shared directory, their bytes counted for one session. A directory a session would cost
/// system calls even where nothing spills.
struct SessionFiles {
    files: Arc<DiskManager>,
    usage: Arc<Usage>,
}

impl TempFileFactory for SessionFiles {
    fn create_temp_file(&self, description: &str) -> DataFusionResult<Arc<dyn SpillFile>> {
        let inner = self.files.create_tmp_file(description)?;
        Ok(Arc::new(CountedFile { inner, usage: Arc::clone(&self.usage) }))
    }
}

struct CountedFile {
    inner: Arc<dyn SpillFile>,
    usage: Arc<Usage>,
}

impl SpillFile for CountedFile {
    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn size(&self) -> Option<u64> {
        self.inner.size()
    }

    fn read_stream(&self) -> DataFusionResult<Pin<Box<dyn Stream<Item = DataFusionResult<Bytes>> + Send>>> {
        self.inner.read_stream()
    }

    fn open_writer(&self) -> DataFusionResult<Box<dyn SpillWriter>> {
        Ok(Box::new(CountedWriter { inner: self.inner.open_writer()?, usage: Arc::clone(&self.usage) }))
    }
}

struct CountedWriter {
    inner: Box<dyn SpillWriter>,
    usage: Arc<Usage>,
}

impl io::Write for CountedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.usage.spilled_bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl SpillWriter for CountedWriter {
    fn finish(&mut self) -> DataFusionResult<()> {
        self.inner.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_uses_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let runtimes = Runtimes::open(&directory.path().join("tmp")).unwrap();
        let usage = Arc::new(Usage::default());
        let runtime = runtimes.session(1_000, &usage).unwrap();
        let reservation = MemoryConsumer::new("test").register(&runtime.memory_pool);
        reservation.try_grow(900).unwrap();
        assert!(reservation.try_grow(200).is_err());
        drop(reservation);
        let file = runtime.disk_manager.create_tmp_file("test").unwrap();
        let mut writer = file.open_writer().unwrap();
        io::Write::write_all(&mut writer, b"spilled").unwrap();
        writer.finish().unwrap();
        assert_eq!((usage.memory_peak(), usage.spilled_bytes()), (900, 7));
    }
}
