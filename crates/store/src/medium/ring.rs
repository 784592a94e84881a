//! [`Ring`]: requests in flight by io_uring.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use io_uring::{IoUring, Probe, cqueue, opcode, types};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};

use super::requests::{After, Job, READ_WAIT, RequestPart};

/// The requests of all readers in flight at a time. The completion queue has twice the room, so it never overflows.
const SLOTS: u16 = 64;

/// One ring for all readers of a medium. An eventfd signals completions. The thread that waits on it requests a job's
/// next part when one arrives, so that a reader wakes only once.
#[derive(Debug)]
pub(super) struct Ring {
    shared: Arc<Shared>,
    reaper: Option<JoinHandle<()>>,
}

struct Shared {
    ring: IoUring,
    event: OwnedFd,
    /// Whoever uses the submission queue holds this lock.
    slots: Mutex<Slots>,
    freed: Condvar,
    stop: AtomicBool,
    /// The kernel refused a submission: from then on readers read by themselves.
    broken: AtomicBool,
}

#[derive(Debug)]
struct Slots {
    taken: Vec<Option<Flight>>,
    free: Vec<u16>,
}

/// A request that the kernel has. It owns its share of the job, and so the memory to which the kernel writes.
#[derive(Debug)]
struct Flight {
    job: Arc<Job>,
    part: RequestPart,
}

impl Ring {
    /// An error if the kernel has no io_uring or is too old, or if a policy forbids it.
    pub fn start() -> io::Result<Self> {
        let ring = IoUring::builder().dontfork().build(u32::from(SLOTS))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring cannot read"));
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        let slots = Slots { taken: (0..SLOTS).map(|_| None).collect(), free: (0..SLOTS).collect() };
        let shared = Arc::new(Shared {
            ring,
            event,
            slots: Mutex::new(slots),
            freed: Condvar::new(),
            stop: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        });
        let reaper = Arc::clone(&shared);
        let reaper = std::thread::Builder::new().name("medium-ring".to_string()).spawn(move || reaper.reap())?;
        Ok(Self { shared, reaper: Some(reaper) })
    }

    /// Requests the parts of `job`, `depth` at a time. They arrive while the caller waits for the job.
    ///
    /// Each is submitted by itself. Of several submitted together, the kernel sends none to the device before it has cleared and pinned
    /// the memory of all, which takes as long as the read itself where the memory is new.
    pub fn read(&self, job: &Arc<Job>, depth: usize) -> io::Result<()> {
        if self.shared.broken.load(Ordering::Relaxed) {
            job.run();
            return Ok(());
        }
        let mut slots = self.shared.slots_with_room()?;
        for _ in 0..depth.max(1) {
            let Some(slot) = slots.free.pop() else { break };
            let Some(part) = job.take() else {
                slots.free.push(slot);
                break;
            };
            self.shared.push(&mut slots, slot, Flight { job: Arc::clone(job), part });
            self.shared.submit().inspect_err(|error| job.fail(io::Error::new(error.kind(), error.to_string())))?;
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let idle = self.shared.slots.lock().idle();
        let told = rustix::io::write(&self.shared.event, &1_u64.to_ne_bytes()).is_ok();
        // If a device still owes an answer, the thread stays until it comes, together with the memory for it.
        if let (true, true, Some(reaper)) = (idle, told, self.reaper.take()) {
            let _ = reaper.join();
        }
    }
}

impl Shared {
    fn slots_with_room(&self) -> io::Result<MutexGuard<'_, Slots>> {
        let deadline = Instant::now() + READ_WAIT;
        let mut slots = self.slots.lock();
        while slots.free.is_empty() {
            if self.freed.wait_until(&mut slots, deadline).timed_out() && slots.free.is_empty() {
                let what = format!("{SLOTS} requests to the medium are unanswered for {} s", READ_WAIT.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
        }
        Ok(slots)
    }

    /// Puts a request into the submission queue. `slot` is the caller's, and empty.
    fn push(&self, slots: &mut Slots, slot: u16, flight: Flight) {
        let (job, part) = (&flight.job, flight.part);
        // A part is at most as long as a value, far below 4 GiB.
        let read = opcode::Read::new(types::Fd(job.raw_fd()), job.memory_of(part), part.bytes as u32);
        let entry = read.offset(job.file_offset(part)).build().user_data(u64::from(slot));
        // SAFETY: whoever uses the submission queue holds the lock of `slots`, so it has one user at a time. The memory
        // and the descriptor belong to the job, which `taken` keeps until the completion is here: at once below.
        let pushed = unsafe { self.ring.submission_shared().push(&entry) };
        if pushed.is_err() {
            // Only where earlier submissions failed, as there are no more slots than entries.
            slots.free.push(slot);
            flight.job.land(part, Err(io::Error::new(io::ErrorKind::ResourceBusy, "io_uring takes no more requests")));
            return;
        }
        slots.taken[usize::from(slot)] = Some(flight);
    }

    /// Tells the kernel of what was pushed. The caller holds the lock of `slots`.
    fn submit(&self) -> io::Result<()> {
        loop {
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.broken.store(true, Ordering::Relaxed);
                    tracing::warn!("io_uring refuses requests ({error}); reads go on without it");
                    return Err(error);
                }
                Ok(_) => return Ok(()),
            }
        }
    }

    fn reap(&self) {
        loop {
            let mut count = [0; 8];
            match rustix::io::read(&self.event, &mut count) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    // This cannot happen for a descriptor that only this process has. Readers wait no longer than their
                    // limit.
                    self.broken.store(true, Ordering::Relaxed);
                    tracing::error!("the eventfd of io_uring failed: {error}");
                    return;
                }
            }
            let mut slots = self.slots.lock();
            // SAFETY: only this thread ever uses the completion queue.
            let completions: Vec<cqueue::Entry> = unsafe { self.ring.completion_shared() }.collect();
            for completion in &completions {
                self.land(&mut slots, completion);
                // Jobs whose parts do not reach the kernel end by their time limit.
                let _ = self.submit();
            }
            self.freed.notify_all();
            if self.stop.load(Ordering::Acquire) && slots.idle() {
                return;
            }
        }
    }

    /// Settles one completion, and uses its slot for the job's next part.
    fn land(&self, slots: &mut Slots, completion: &cqueue::Entry) {
        let slot = completion.user_data() as u16;
        let Some(Flight { job, part }) = slots.taken.get_mut(usize::from(slot)).and_then(Option::take) else { return };
        let result = usize::try_from(completion.result()).map_err(|_| io::Error::from_raw_os_error(-completion.result()));
        let next = match job.after(part, result) {
            After::Again(rest) => Some(rest),
            After::Done => {
                job.land(part, Ok(()));
                job.take()
            }
            After::Failed(error) => {
                job.land(part, Err(error));
                None
            }
        };
        match next {
            Some(part) => self.push(slots, slot, Flight { job, part }),
            None => slots.free.push(slot),
        }
    }
}

impl Slots {
    fn idle(&self) -> bool {
        self.free.len() == usize::from(SLOTS)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("slots", &self.slots).finish_non_exhaustive()
    }
}
