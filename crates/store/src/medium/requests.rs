//! Large reads as several requests in flight, by io_uring or by a pool of threads.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::ALIGNMENT;
use super::memory::Memory;
use super::pool::Pool;
use super::ring::Ring;

/// The bytes of one request: an eighth of the read, within these bounds. Measurements (`folder/measured.rs`) show that
/// long reads gain nothing by larger requests. Short reads are cut up so that their first bytes can be processed while
/// the rest is on its way.
const REQUEST_BYTES: RangeInclusive<usize> = 128 << 10..=512 << 10;
/// The requests of one read in flight at a time. By measurement, 8 are up to a sixth slower on a virtual disk.
const DEPTH: usize = 16;
/// How long a read waits. The kernel usually gives up on a device before that.
pub(super) const READ_WAIT: Duration = Duration::from_secs(120);
/// How often a request is repeated that the kernel did not begin.
const ATTEMPTS: u32 = 16;

/// The means that keeps requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestsBy {
    /// io_uring, or a pool if the kernel refuses io_uring.
    Ring,
    /// Threads that block.
    Pool,
}

/// The requests of one medium.
#[derive(Debug)]
pub(super) enum Requests {
    Ring(Ring),
    Pool(Pool),
}

/// Receives the bytes of a read.
pub(super) type On<'a> = &'a mut dyn FnMut(&[u8]);

/// What to read, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadRequest {
    /// The offset in the file, a multiple of [`ALIGNMENT`].
    pub offset: u64,
    /// The bytes that must come. Requests are rounded up to [`ALIGNMENT`], and the file may end in between.
    pub bytes: usize,
    /// Bytes of one request.
    pub request_bytes: usize,
    /// Requests in flight at a time.
    pub depth: usize,
}

/// One read, shared by its reader and by whoever executes its requests. Memory to which the kernel may write lives as
/// long as any of them.
#[derive(Debug)]
pub(super) struct Job {
    file: Arc<File>,
    wanted: ReadRequest,
    memory_start: *mut u8,
    progress: Mutex<Progress>,
    changed: Condvar,
}

// SAFETY: only `memory_start` is not Send and Sync. It points into `progress.memory`, whose bytes are only written
// through parts, which are disjoint, and only read where parts have landed.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

#[derive(Debug)]
struct Progress {
    /// Where the next part starts.
    next: usize,
    flying: usize,
    error: Option<io::Error>,
    memory: Option<Memory>,
    /// The requests that have arrived, by their numbers.
    landed: Vec<bool>,
    /// How many of the first requests have arrived without a gap.
    prefix: usize,
}

/// One request of a job: bytes `at..at + bytes` from the job's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestPart {
    pub at: usize,
    pub bytes: usize,
    attempts: u32,
}

/// What to do after a request came back.
#[derive(Debug)]
pub(super) enum After {
    Done,
    /// Read the rest, or everything, once more.
    Again(RequestPart),
    Failed(io::Error),
}

impl ReadRequest {
    pub fn new(offset: u64, bytes: usize) -> Self {
        let part = (bytes / 8).next_multiple_of(ALIGNMENT as usize);
        Self { offset, bytes, request_bytes: part.clamp(*REQUEST_BYTES.start(), *REQUEST_BYTES.end()), depth: DEPTH }
    }
}

impl RequestsBy {
    pub fn from_env() -> Self {
        match std::env::var("PITHEAD_IO").as_deref() {
            Ok("pool") => RequestsBy::Pool,
            Ok("ring" | "") | Err(_) => RequestsBy::Ring,
            Ok(other) => {
                tracing::warn!("PITHEAD_IO is {other:?}; expected ring or pool, going on with ring");
                RequestsBy::Ring
            }
        }
    }
}

impl Requests {
    /// Never fails: if the kernel has no io_uring, or refuses it, a pool does the work.
    pub fn start(by: RequestsBy) -> Self {
        if by == RequestsBy::Ring {
            match Ring::start() {
                Ok(ring) => return Requests::Ring(ring),
                Err(error) => tracing::info!("no io_uring here ({error}); a pool of threads reads"),
            }
        }
        Requests::Pool(Pool::start())
    }

    pub fn name(&self) -> &'static str {
        match self {
            Requests::Ring(_) => "io_uring",
            Requests::Pool(_) => "pool",
        }
    }

    /// Reads what `wanted` describes into `memory`, which has room for it rounded up to [`ALIGNMENT`]. `on` receives
    /// the bytes in order, as they arrive.
    pub fn read(&self, file: &Arc<File>, wanted: ReadRequest, memory: Memory, on: On<'_>) -> io::Result<Memory> {
        let job = Arc::new(Job::new(Arc::clone(file), wanted, memory)?);
        match self {
            // The caller executes a single request itself: handing it over would only cost time.
            _ if wanted.bytes <= wanted.request_bytes => job.run(),
            Requests::Ring(ring) => ring.read(&job, wanted.depth)?,
            Requests::Pool(pool) => pool.call(&job, wanted.depth),
        }
        job.wait(matches!(self, Requests::Pool(_)), on)
    }
}

impl Job {
    fn new(file: Arc<File>, wanted: ReadRequest, mut memory: Memory) -> io::Result<Self> {
        let ReadRequest { bytes, request_bytes, .. } = wanted;
        // The conditions on which the pointers below rely.
        let aligned = request_bytes > 0 && request_bytes.is_multiple_of(ALIGNMENT as usize);
        if bytes == 0 || memory.as_ref().len() < bytes.next_multiple_of(ALIGNMENT as usize) || !aligned {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a large read needs aligned memory for all its bytes"));
        }
        let memory_start = memory.start();
        let landed = vec![false; bytes.div_ceil(request_bytes)];
        let progress = Progress { next: 0, flying: 0, error: None, memory: Some(memory), landed, prefix: 0 };
        Ok(Self { file, wanted, memory_start, progress: Mutex::new(progress), changed: Condvar::new() })
    }

    /// The next part to read. `None` if all parts were requested, or if the read has failed.
    pub fn take(&self) -> Option<RequestPart> {
        let mut progress = self.progress.lock();
        if progress.error.is_some() || progress.next >= self.wanted.bytes {
            return None;
        }
        let at = progress.next;
        let bytes = (self.wanted.bytes - at).next_multiple_of(ALIGNMENT as usize).min(self.wanted.request_bytes);
        progress.next = at + bytes;
        progress.flying += 1;
        Some(RequestPart { at, bytes, attempts: 0 })
    }

    /// Reports the outcome of a part that [`Job::take`] gave.
    pub fn land(&self, part: RequestPart, result: io::Result<()>) {
        let mut progress = self.progress.lock();
        progress.flying -= 1;
        match result {
            Ok(()) => {
                if let Some(landed) = progress.landed.get_mut(part.at / self.wanted.request_bytes) {
                    *landed = true;
                }
            }
            Err(error) => {
                progress.error.get_or_insert(error);
            }
        }
        let before = progress.prefix;
        while progress.landed.get(progress.prefix) == Some(&true) {
            progress.prefix += 1;
        }
        if progress.prefix > before || progress.error.is_some() {
            self.changed.notify_all();
        }
    }

    /// Makes the read fail, whatever is still in flight.
    pub fn fail(&self, error: io::Error) {
        self.progress.lock().error.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Evaluates what a request returned: the number of bytes that were read.
    pub fn after(&self, part: RequestPart, result: io::Result<usize>) -> After {
        let needed = part.bytes.min(self.wanted.bytes - part.at);
        match result {
            Ok(bytes) if bytes >= needed => After::Done,
            // The read was cut short in the middle of the file. The rest must start at a multiple of the alignment.
            Ok(bytes) if bytes > 0 && bytes.is_multiple_of(ALIGNMENT as usize) => {
                After::Again(RequestPart { at: part.at + bytes, bytes: part.bytes - bytes, attempts: 0 })
            }
            Ok(bytes) => {
                let at = self.file_offset(part);
                let what = format!("{bytes} bytes came of {needed} at {at}: the file ends there");
                After::Failed(io::Error::new(io::ErrorKind::UnexpectedEof, what))
            }
            Err(error) if repeatable(&error) && part.attempts < ATTEMPTS => {
                After::Again(RequestPart { attempts: part.attempts + 1, ..part })
            }
            Err(error) => After::Failed(error),
        }
    }

    /// Reads parts on this thread, until none is left.
    pub fn run(&self) {
        while self.run_one() {}
    }

    /// Reads one part on this thread; false if none was left.
    fn run_one(&self) -> bool {
        let Some(mut part) = self.take() else { return false };
        let result = loop {
            match self.after(part, self.read_part(part)) {
                After::Done => break Ok(()),
                After::Again(rest) => part = rest,
                After::Failed(error) => break Err(error),
            }
        };
        self.land(part, result);
        true
    }

    /// The descriptor to read from, which is open as long as the job lives.
    pub fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The offset of a part in the file.
    pub fn file_offset(&self, part: RequestPart) -> u64 {
        self.wanted.offset + part.at as u64
    }

    /// The place for a part's bytes: `part.bytes` bytes of this job's memory that belong to no other part.
    pub fn memory_of(&self, part: RequestPart) -> *mut u8 {
        self.memory_start.wrapping_add(part.at)
    }

    fn read_part(&self, part: RequestPart) -> io::Result<usize> {
        // SAFETY: `new` saw that the memory has room for all parts, and it lives as long as the job: the reader only
        // gets it once all parts have landed. `take` gives out every part once, so no one else has these bytes. They
        // hold zeros or an earlier value.
        let out = unsafe { std::slice::from_raw_parts_mut(self.memory_of(part), part.bytes) };
        std::os::unix::fs::FileExt::read_at(&*self.file, out, self.file_offset(part))
    }

    /// Waits for all parts, and shows them to `on` in order. `helping`: reads parts itself before it waits.
    fn wait(&self, helping: bool, on: On<'_>) -> io::Result<Memory> {
        let deadline = Instant::now() + READ_WAIT;
        let mut shown = 0;
        while shown < self.wanted.bytes {
            let helped = helping && self.run_one();
            let there = self.landed(shown, (!helped).then_some(deadline))?;
            // SAFETY: these bytes have landed: nothing writes to them any more. The memory lives as long as the job.
            on(unsafe { std::slice::from_raw_parts(self.memory_start.wrapping_add(shown), there - shown) });
            shown = there;
        }
        self.progress.lock().memory.take().ok_or_else(|| io::Error::other("a read was waited for twice"))
    }

    /// The bytes that have arrived without a gap. With a deadline, waits until there are more than `shown`. After an
    /// error the memory stays with the job, because parts of it may still be written to.
    fn landed(&self, shown: usize, deadline: Option<Instant>) -> io::Result<usize> {
        let mut progress = self.progress.lock();
        loop {
            if let Some(error) = &progress.error {
                return Err(copy_of(error));
            }
            let there = (progress.prefix * self.wanted.request_bytes).min(self.wanted.bytes);
            let Some(deadline) = deadline.filter(|_| there <= shown) else { return Ok(there) };
            if self.changed.wait_until(&mut progress, deadline).timed_out() {
                let what = format!("the medium did not answer within {} s", READ_WAIT.as_secs());
                progress.error.get_or_insert(io::Error::new(io::ErrorKind::TimedOut, what));
            }
        }
    }
}

fn repeatable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests;
