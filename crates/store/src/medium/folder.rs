//! [`FolderMedium`]: a folder of a file system.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use super::forgetful::Forgetful;
use super::memory::MemoryPool;
use super::requests::{On, ReadRequest, Requests, RequestsBy};
use super::{ALIGNMENT, Medium, MediumFile};
use crate::StoreError;

/// The file that the process which has the folder open locks. It is not one of the store's files.
const LOCK: &str = "LOCK";
/// Data in memory that is not aligned is copied and written in pieces of this many bytes.
const COPY_BYTES: usize = 1 << 20;
/// Files and folders are for the owner alone, because they have users' data.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// A folder, locked for this process until it is dropped.
///
/// Large values bypass the kernel's cache through a second descriptor of their file (O_DIRECT), if the file system has
/// that; tmpfs, for example, does not. They are never accessed through the first descriptor, so that both agree.
#[derive(Debug)]
pub struct FolderMedium {
    dir: PathBuf,
    /// The folder by its descriptor: files stay in this folder though it is moved, or its file system unmounted, and another one takes
    /// its place.
    held: HeldFolder,
    direct: bool,
    /// Nothing is changed: writes are discarded.
    read_only: bool,
    io: Arc<Io>,
    _lock: Option<File>,
}

#[derive(Debug)]
struct FolderFile {
    cached: File,
    direct: Option<Arc<File>>,
    io: Arc<Io>,
}

/// The state that the files of one medium share.
#[derive(Debug)]
struct Io {
    requests: Requests,
    memory: Arc<MemoryPool>,
}

/// A folder that is open.
#[derive(Debug)]
struct HeldFolder {
    _folder: File,
    path: PathBuf,
}

impl HeldFolder {
    fn open(dir: &Path) -> io::Result<Self> {
        let folder = File::open(dir)?;
        let held = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        // Without /proc there is only its name.
        let path = if held.is_dir() { held } else { dir.to_path_buf() };
        Ok(Self { _folder: folder, path })
    }
}

impl FolderMedium {
    /// Makes the folder if it does not exist, and locks it. [`StoreError::InUse`] if another process has it open.
    ///
    /// With `PITHEAD_IO=pool` in the environment, it does not use io_uring.
    pub fn open(dir: &Path) -> Result<Arc<Self>, StoreError> {
        Self::open_by(dir, RequestsBy::from_env())
    }

    pub(super) fn open_by(dir: &Path, by: RequestsBy) -> Result<Arc<Self>, StoreError> {
        let io_error = |source| StoreError::Io { path: dir.to_path_buf(), source };
        make_folder(dir).map_err(io_error)?;
        let held = HeldFolder::open(dir).map_err(io_error)?;
        let lock_path = held.path.join(LOCK);
        let lock = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(&lock_path);
        let lock = lock.map_err(io_error)?;
        locked(dir, lock.try_lock())?;
        let direct = has_direct(&lock_path);
        let io = Arc::new(Io { requests: Requests::start(by), memory: Arc::default() });
        tracing::debug!(dir = %dir.display(), direct, requests = io.requests.name(), "opened the medium");
        Ok(Arc::new(Self { dir: dir.to_path_buf(), held, direct, read_only: false, io, _lock: Some(lock) }))
    }

    /// Opens an existing folder for reading only; it may be on a medium that refuses writes. Nothing in it is made or
    /// changed: writes seem to succeed and are discarded. [`StoreError::InUse`] if another process has it open for
    /// writing; [`StoreError::Io`] if it cannot be read.
    pub fn open_read_only(dir: &Path) -> Result<Arc<Self>, StoreError> {
        let io_error = |source| StoreError::Io { path: dir.to_path_buf(), source };
        // If there is no lock file, no process has ever opened the folder.
        let lock = match File::open(dir.join(LOCK)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            lock => Some(lock.map_err(io_error)?),
        };
        lock.as_ref().map_or(Ok(()), |lock| locked(dir, lock.try_lock_shared()))?;
        if !dir.is_dir() {
            return Err(io_error(io::ErrorKind::NotFound.into()));
        }
        let held = HeldFolder::open(dir).map_err(io_error)?;
        let io = Arc::new(Io { requests: Requests::start(RequestsBy::from_env()), memory: Arc::default() });
        Ok(Arc::new(Self { dir: dir.to_path_buf(), held, direct: false, read_only: true, io, _lock: lock }))
    }

    /// How large values are read and written, for people.
    pub fn io_name(&self) -> &'static str {
        if self.direct { self.io.requests.name() } else { "buffered" }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    /// The store makes all names itself, so a strange name is a bug; it must still not lead out of the folder.
    fn place(&self, name: &str) -> io::Result<PathBuf> {
        let parts: Vec<Component<'_>> = Path::new(name).components().collect();
        let plain = parts.iter().all(|part| matches!(part, Component::Normal(_)));
        if plain && parts.len() <= 2 {
            return Ok(self.held.path.join(name));
        }
        let what = format!("{name:?} is no name of a file in the store: at most one folder, and no `..`");
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

impl Medium for FolderMedium {
    fn path(&self) -> &Path {
        &self.dir
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn MediumFile>> {
        let path = self.place(name)?;
        if self.read_only {
            let file = FolderFile { cached: File::open(&path)?, direct: None, io: Arc::clone(&self.io) };
            return Ok(Arc::new(Forgetful::new(Arc::new(file))?));
        }
        if let (true, Some(folder)) = (create, path.parent()) {
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
        }
        let cached = OpenOptions::new().read(true).write(true).create(create).truncate(false).mode(FILE_MODE).open(&path)?;
        let direct = if self.direct { Some(Arc::new(open_direct(&path)?)) } else { None };
        Ok(Arc::new(FolderFile { cached, direct, io: Arc::clone(&self.io) }))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.place(folder)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let ours = folder.is_empty() && entry.file_name() == LOCK;
            // The store gives no file a name that is not text.
            if let (false, true, Ok(name)) = (ours, entry.file_type()?.is_file(), entry.file_name().into_string()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::remove_file(self.place(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::rename(self.place(from)?, self.place(to)?)
    }

    fn flush_names(&self, folder: &str) -> io::Result<()> {
        let path = self.place(folder)?;
        if folder.is_empty() || path.try_exists()? {
            File::open(&path)?.sync_all()?;
        }
        // The folder itself may be new.
        if folder.is_empty() { Ok(()) } else { File::open(&self.held.path)?.sync_all() }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.held.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn size_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.held.path)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }
}

impl MediumFile for FolderFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.cached.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.cached.set_len(bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.cached.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.cached.write_all_at(data, offset)
    }

    fn read_large_with(&self, range: Range<u64>, on: &mut dyn FnMut(&[u8])) -> io::Result<Bytes> {
        let length = self.len()?;
        // This check comes before any memory is allocated: the range may come from a damaged record.
        if range.start > range.end || range.end > length {
            let what = format!("bytes {} to {} of a file that has {length}", range.start, range.end);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let offset = range.start - range.start % ALIGNMENT;
        let (skipped, bytes) = ((range.start - offset) as usize, (range.end - offset) as usize);
        let mut memory = self.io.memory.take(bytes)?;
        let memory = match &self.direct {
            Some(direct) => {
                self.io.requests.read(direct, ReadRequest::new(offset, bytes), memory, &mut skipping(skipped, on))?
            }
            None => {
                self.cached.read_exact_at(&mut memory.as_mut()[..bytes], offset)?;
                on(&memory.as_ref()[skipped..bytes]);
                memory
            }
        };
        Ok(Bytes::from_owner(memory).slice(skipped..bytes))
    }

    fn write_large(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !offset.is_multiple_of(ALIGNMENT) {
            let what = format!("a large value starts at a multiple of {ALIGNMENT}, not at {offset}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // Without O_DIRECT it is done in the same way, so that a file has the same length on every medium.
        let file = self.direct.as_deref().unwrap_or(&self.cached);
        let aligned = self.direct.is_none() || data.as_ptr().addr().is_multiple_of(ALIGNMENT as usize);
        let as_it_is = if aligned { data.len() - data.len() % ALIGNMENT as usize } else { 0 };
        let (head, tail) = data.split_at(as_it_is);
        file.write_all_at(head, offset)?;
        self.write_copied(file, offset + as_it_is as u64, tail)
    }

    fn reserve(&self, range: Range<u64>) -> io::Result<()> {
        // The file's length grows at once. A write into the room then changes no length, which a flush would have to
        // commit, and several writers need not wait for each other.
        match fallocate(&self.cached, FallocateFlags::empty(), range) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => Ok(done?),
        }
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        match fallocate(&self.cached, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, range) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            done => Ok(done.map(|()| true)?),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.cached.sync_data()
    }
}

/// The outcome of the attempt to lock a folder.
fn locked(dir: &Path, tried: Result<(), TryLockError>) -> Result<(), StoreError> {
    match tried {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: dir.to_path_buf() }),
        Err(TryLockError::Error(source)) => Err(StoreError::Io { path: dir.to_path_buf(), source }),
    }
}

/// Makes a folder, and makes its name durable.
fn make_folder(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(dir)?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)
}

/// Whether files beside `path` can be opened with O_DIRECT, at the store's alignment.
fn has_direct(path: &Path) -> bool {
    let Ok(file) = open_direct(path) else { return false };
    let Ok(stat) = rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return true };
    // Kernels before 6.1 do not report it; 4 KiB is right for all common devices.
    let said = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
    let fits = |alignment: u32| alignment != 0 && ALIGNMENT.is_multiple_of(u64::from(alignment));
    !said || (fits(stat.stx_dio_mem_align) && fits(stat.stx_dio_offset_align))
}

fn fallocate(file: &File, flags: FallocateFlags, range: Range<u64>) -> Result<(), Errno> {
    match range.end.checked_sub(range.start) {
        None | Some(0) => Ok(()),
        Some(bytes) => rustix::fs::fallocate(file, flags, range.start, bytes),
    }
}

/// Drops the first bytes.
fn skipping(mut skipped: usize, on: On<'_>) -> impl FnMut(&[u8]) {
    move |bytes| {
        let (left_out, rest) = bytes.split_at(skipped.min(bytes.len()));
        skipped -= left_out.len();
        on(rest);
    }
}

impl FolderFile {
    /// Writes through aligned memory, with zeros up to the next multiple of [`ALIGNMENT`].
    fn write_copied(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let mut memory = self.io.memory.take(data.len().min(COPY_BYTES))?;
        let memory = memory.as_mut();
        let mut at = offset;
        for piece in data.chunks(COPY_BYTES) {
            let padded = piece.len().next_multiple_of(ALIGNMENT as usize);
            memory[..piece.len()].copy_from_slice(piece);
            memory[piece.len()..padded].fill(0);
            file.write_all_at(&memory[..padded], at)?;
            at += padded as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod measured;
#[cfg(test)]
mod tests;
