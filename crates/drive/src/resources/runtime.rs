//! [`Runtimes`]: the memory pool and the spill files of each session, as DataFusion's operators see them.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::common::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::disk_manager::{DiskManager, DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use futures::Stream;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault};

use crate::resources::spill_room::SpillRoom;

/// Makes sessions' runtimes. All spill below one directory, which is wiped when the drive opens.
pub(crate) struct Runtimes {
    base: RuntimeEnv,
    files: Arc<DiskManager>,
    room: Arc<SpillRoom>,
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
    /// `free`: bytes that are free on the medium of the directory, if that is known.
    pub(crate) fn open(directory: &Path, free: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Result<Self, Fault> {
        let failed = |error: io::Error| Fault::new(Blame::Device, format!("{}: {error}", directory.display()));
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => std::fs::create_dir_all(directory).map_err(failed)?,
        }
        let files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![directory.to_path_buf()]));
        let base = RuntimeEnvBuilder::new().with_disk_manager_builder(files).build().map_err(fault_from_datafusion)?;
        Ok(Self { files: Arc::clone(&base.disk_manager), base, room: Arc::new(SpillRoom::new(directory, free)) })
    }

    /// Where spill files lie.
    pub(crate) fn room(&self) -> &Arc<SpillRoom> {
        &self.room
    }

    /// A runtime whose operators share `memory` bytes.
    pub(crate) fn session(&self, memory: u64, usage: &Arc<Usage>) -> Result<Arc<RuntimeEnv>, Fault> {
        let bytes = usize::try_from(memory).unwrap_or(usize::MAX);
        let pool = WatchedPool { inner: FairSpillPool::new(bytes), usage: Arc::clone(usage) };
        let spill = Spill { room: Arc::clone(&self.room), usage: Arc::clone(usage) };
        let files = SessionFiles { files: Arc::clone(&self.files), spill };
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
    spill: Spill,
}

/// Where a session's spilled bytes are counted.
#[derive(Clone)]
struct Spill {
    room: Arc<SpillRoom>,
    usage: Arc<Usage>,
}

impl TempFileFactory for SessionFiles {
    fn create_temp_file(&self, description: &str) -> DataFusionResult<Arc<dyn SpillFile>> {
        let inner = self.files.create_tmp_file(description)?;
        Ok(Arc::new(CountedFile { inner, spill: self.spill.clone() }))
    }
}

struct CountedFile {
    inner: Arc<dyn SpillFile>,
    spill: Spill,
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
        Ok(Box::new(CountedWriter { inner: self.inner.open_writer()?, spill: self.spill.clone() }))
    }
}

struct CountedWriter {
    inner: Box<dyn SpillWriter>,
    spill: Spill,
}

impl io::Write for CountedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Wrapped, so that the fault is found below the error of the file.
        let full = |fault: Fault| io::Error::new(io::ErrorKind::StorageFull, DataFusionError::External(Box::new(fault)));
        self.spill.room.take(bytes.len() as u64).map_err(full)?;
        let written = self.inner.write(bytes)?;
        self.spill.usage.spilled_bytes.fetch_add(written as u64, Ordering::Relaxed);
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
        let runtimes = Runtimes::open(&directory.path().join("tmp"), || None).unwrap();
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

    /// A regression: a session spilled until nothing could be stored any more, and the medium got the blame.
    #[test]
    fn a_session_that_spills_too_much_is_stopped_and_not_the_medium_to_blame() {
        let directory = tempfile::tempdir().unwrap();
        let runtimes = Runtimes::open(&directory.path().join("tmp"), || Some(1 << 20)).unwrap();
        let runtime = runtimes.session(1_000, &Arc::default()).unwrap();
        let file = runtime.disk_manager.create_tmp_file("test").unwrap();
        let mut writer = file.open_writer().unwrap();
        let page = vec![0; 1 << 20];
        let error = (0..64).try_for_each(|_| io::Write::write_all(&mut writer, &page)).unwrap_err();
        let arrow = datafusion::arrow::error::ArrowError::from(error);
        let fault = fault_from_datafusion(DataFusionError::from(arrow));
        assert_eq!(fault.blame, Blame::Limit, "{fault}");
        drop((writer, file, runtime));
        assert!(runtimes.room().directory().read_dir().unwrap().next().is_none_or(|entry| !entry.unwrap().path().is_file()));
    }
}
