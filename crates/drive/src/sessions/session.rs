//! [`Session`]: one sub-plan from OPEN to CLOSE.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use datafusion::execution::memory_pool::MemoryPool;
use futures::future::{AbortHandle, Abortable};
use parking_lot::Mutex;
use pithead_cse::TableSession;
use pithead_device::{Device, Instant};
use pithead_door::OpenSession;
use pithead_exec::Bound;
use pithead_functions::SessionCalls;
use pithead_model::{Blame, DatasetName, Fault, Level, SessionId, SessionProfile, SessionState};
use tokio::sync::watch;

use crate::resources::Grant;
use crate::resources::Usage;
use crate::sessions::admission::SessionPermit;
use crate::sessions::queue::Queue;
use crate::sessions::rounds::RoundPolicy;
use crate::sessions::steer::Steer;
use crate::sessions::summary::SessionSummary;
use crate::sessions::uses::SessionUse;
use crate::sessions::waits::Waits;
use crate::storage::Lease;

/// Longest that CLOSE waits for a session's tasks to let go.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// What a session holds until its rounds are done. Dropping it frees everything.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) bound: Arc<Bound>,
    pub(crate) policy: RoundPolicy,
    /// How far its slices are taken.
    pub(crate) steer: Arc<Steer>,
    /// The driving dataset's partition.
    pub(crate) partition: u32,
    pub(crate) level_max: Level,
    pub(crate) memory: Arc<dyn MemoryPool>,
    pub(crate) grant: Grant,
    /// What it keeps of its partial results, and what was kept before.
    pub(crate) summary: Option<SessionSummary>,
    pub(crate) used: SessionUse,
    /// What it reads, the driving dataset first.
    pub(crate) datasets: Vec<DatasetName>,
    pub(crate) _lease: Lease,
}

/// One sub-plan from OPEN to CLOSE.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Who opened it.
    pub(crate) host: u64,
    pub(crate) opened: Instant,
    datasets: Vec<DatasetName>,
    /// Bytes that were granted.
    memory: u64,
    pub(crate) waits: Waits,
    pub(crate) steer: Arc<Steer>,
    pub(crate) queue: Queue,
    /// Whether the host has the last event.
    pub(crate) is_delivered: AtomicBool,
    pub(crate) progress: Progress,
    pub(crate) activity: Activity,
    usage: Arc<Usage>,
    calls: SessionCalls,
    slices_total: u32,
    work: Mutex<Option<Work>>,
    ending: Mutex<Ending>,
    tasks: watch::Sender<usize>,
    place: Mutex<Option<SessionPermit>>,
}

/// How a session ends before its time.
#[derive(Debug, Default)]
struct Ending {
    stopped: bool,
    fault: Option<Fault>,
    handles: Vec<AbortHandle>,
}

/// How far a session is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    state: Mutex<Stage>,
    pub(crate) rounds: AtomicU32,
    pub(crate) slices_done: AtomicU32,
    pub(crate) other_rows_in: AtomicU64,
    pub(crate) other_medium_bytes: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Opened,
    Running,
    Finished,
    Failed,
}

/// When the host was last heard of.
#[derive(Debug)]
pub(crate) struct Activity {
    device: Arc<dyn Device>,
    at_ns: AtomicU64,
    /// The host waits for the drive, not the drive for the host.
    waiting: AtomicBool,
}

/// Counts a task of a session while it lives.
pub(crate) struct TaskMark(Arc<Session>);

impl Session {
    pub(crate) fn new(id: SessionId, work: Work, usage: Arc<Usage>, device: Arc<dyn Device>, place: SessionPermit) -> Self {
        let opened = device.clock().now();
        let progress = Progress::default();
        // What another session has answered for counts as answered for.
        let done = work.bound.slices_total() - work.bound.slices_left().len() as u32;
        progress.slices_done.store(done, Ordering::Relaxed);
        Self {
            id,
            host: place.host(),
            opened,
            datasets: work.datasets.clone(),
            memory: work.grant.bytes(),
            waits: Waits::default(),
            steer: Arc::clone(&work.steer),
            queue: Queue::default(),
            is_delivered: AtomicBool::new(false),
            progress,
            activity: Activity::new(device),
            usage,
            calls: work.bound.calls(),
            slices_total: work.bound.slices_total(),
            work: Mutex::new(Some(work)),
            ending: Mutex::default(),
            tasks: watch::Sender::new(0),
            place: Mutex::new(Some(place)),
        }
    }

    /// Takes the work for GET, which may be asked once.
    pub(crate) fn begin(&self) -> Result<Work, Fault> {
        let work = self.work.lock().take();
        let work =
            work.ok_or_else(|| Fault::new(Blame::User, format!("session {} was asked for its rows already", self.id)))?;
        self.progress.become_running();
        self.waits.for_get(self.activity.device.clock().now().since(self.opened));
        Ok(work)
    }

    /// Whether it was told to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.ending.lock().stopped
    }

    /// The same future, which ends early when the session is stopped.
    pub(crate) fn until_stopped<F: Future>(&self, future: F) -> Abortable<F> {
        let (handle, registration) = AbortHandle::new_pair();
        let mut ending = self.ending.lock();
        if ending.stopped {
            handle.abort();
        }
        ending.handles.push(handle);
        Abortable::new(future, registration)
    }

    pub(crate) fn profile(&self) -> SessionProfile {
        let (predicted, settled) = self.steer.costs();
        SessionProfile {
            predicted,
            settled,
            calls: self.calls.sums(),
            link_bytes_per_s: self.steer.link_rate(),
            state: self.progress.state(),
            rounds: self.progress.rounds.load(Ordering::Relaxed),
            slices_total: self.slices_total,
            slices_done: self.progress.slices_done.load(Ordering::Relaxed),
            memory_peak: self.usage.memory_peak(),
            spilled_bytes: self.usage.spilled_bytes(),
            other_rows_in: self.progress.other_rows_in.load(Ordering::Relaxed),
            other_medium_bytes: self.progress.other_medium_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn mark_task(self: &Arc<Self>) -> TaskMark {
        self.tasks.send_modify(|tasks| *tasks += 1);
        TaskMark(Arc::clone(self))
    }

    /// Tells the session's tasks to stop, and frees what waits for GET or for the host.
    pub(crate) fn stop(&self) {
        self.progress.fail();
        let mut ending = self.ending.lock();
        ending.stopped = true;
        ending.handles.drain(..).for_each(|handle| handle.abort());
        drop(ending);
        self.queue.end();
        drop((self.work.lock().take(), self.place.lock().take()));
    }

    /// Stops because of `fault`, which GET reports unless there was one before.
    pub(crate) fn fail(&self, fault: Fault) {
        self.ending.lock().fault.get_or_insert(fault);
        self.stop();
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.ending.lock().fault.clone()
    }

    /// Ends once no task of the session holds anything, within a limit.
    pub(crate) async fn stopped(&self) {
        let mut tasks = self.tasks.subscribe();
        let gone = tasks.wait_for(|tasks| *tasks == 0);
        if tokio::time::timeout(CLOSE_WAIT, gone).await.is_err() {
            tracing::warn!(session = %self.id, "tasks still run after CLOSE");
        }
    }
}

impl TableSession for Session {
    fn id(&self) -> SessionId {
        self.id
    }

    fn described(&self) -> OpenSession {
        OpenSession {
            session: self.id,
            owner: None,
            host: self.host,
            datasets: self.datasets.clone(),
            state: self.progress.state(),
            open_s: self.age().as_secs_f64(),
            slices_done: self.progress.slices_done.load(Ordering::Relaxed),
            slices_total: self.slices_total,
            memory: self.memory,
            programs: vec![],
        }
    }

    /// It has finished for the table once its host has its last event: until then a slow host may take its time.
    fn state(&self) -> SessionState {
        match self.progress.state() {
            SessionState::Finished if !self.is_delivered.load(Ordering::Relaxed) => SessionState::Running,
            state => state,
        }
    }

    fn idle(&self) -> Duration {
        self.activity.idle()
    }

    fn age(&self) -> Duration {
        self.activity.device.clock().now().since(self.opened)
    }
}

impl Drop for TaskMark {
    fn drop(&mut self) {
        self.0.tasks.send_modify(|tasks| *tasks -= 1);
    }
}

impl Progress {
    pub(crate) fn state(&self) -> SessionState {
        match *self.state.lock() {
            Stage::Opened => SessionState::Opened,
            Stage::Running => SessionState::Running,
            Stage::Finished => SessionState::Finished,
            Stage::Failed => SessionState::Failed,
        }
    }

    fn become_running(&self) {
        *self.state.lock() = Stage::Running;
    }

    pub(crate) fn finish(&self) {
        let mut state = self.state.lock();
        if *state == Stage::Running {
            *state = Stage::Finished;
        }
    }

    /// A session that finished stays so.
    pub(crate) fn fail(&self) {
        let mut state = self.state.lock();
        if *state != Stage::Finished {
            *state = Stage::Failed;
        }
    }
}

impl Activity {
    fn new(device: Arc<dyn Device>) -> Self {
        let now = device.clock().now();
        Self { device, at_ns: AtomicU64::new(now.0), waiting: AtomicBool::new(false) }
    }

    /// The host asked for something, and waits for it or has it.
    pub(crate) fn touch(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
        self.at_ns.store(self.device.clock().now().0, Ordering::Relaxed);
    }

    /// How long the drive has waited for the host.
    pub(crate) fn idle(&self) -> Duration {
        if self.waiting.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        self.device.clock().now().since(pithead_device::Instant(self.at_ns.load(Ordering::Relaxed)))
    }
}
