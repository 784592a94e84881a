//! [`Application`]: an application that runs, as a session of the drive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pithead_cse::TableSession;
use pithead_device::{Device, Instant};
use pithead_door::OpenSession;
use pithead_model::{Fault, SessionId, SessionState};

use super::faults::program_fault;
use crate::resources::Grant;

/// How long the tasks of an application that was stopped may take to be gone.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// An application with what it holds of the drive.
pub(crate) struct Application {
    pub(super) id: SessionId,
    pub(super) running: pithead_program::Application,
    /// The modules of its SSDlets, each once.
    pub(super) modules: Vec<String>,
    pub(super) grant: Grant,
    pub(super) device: Arc<dyn Device>,
    pub(super) started: Instant,
    /// Why it was ended, if the drive has ended it.
    pub(super) fault: Mutex<Option<Fault>>,
    pub(super) is_finished: AtomicBool,
    /// Whether its host waits for it now, and when that was last so.
    pub(super) is_awaited: AtomicBool,
    pub(super) awaited_ns: AtomicU64,
}

impl Application {
    /// Stops it because of `fault`, of which its host is told unless there was one before.
    pub(super) fn fail(&self, fault: Fault) {
        self.fault.lock().get_or_insert(fault);
        self.running.stop();
    }

    /// Waits for its end, and returns the processor time that its SSDlets took, in nanoseconds.
    pub(super) async fn finished(&self) -> Result<u64, Fault> {
        let ended = self.running.wait().await;
        self.is_finished.store(true, Ordering::Relaxed);
        match ended {
            Ok(()) => Ok(self.running.run_time().as_nanos() as u64),
            Err(error) => Err(self.why(error)),
        }
    }

    /// Why it failed: what the drive has against it goes before what the sandbox says.
    pub(super) fn why(&self, error: pithead_program::ProgramError) -> Fault {
        self.fault.lock().clone().unwrap_or_else(|| program_fault(error))
    }

    /// Ends once no task of it holds anything, within a limit.
    pub(crate) async fn stopped(&self) {
        if tokio::time::timeout(STOP_WAIT, self.running.wait()).await.is_err() {
            tracing::warn!(session = %self.id, "SSDlets still run after their end");
        }
    }

    /// Its host waits for something, or has it.
    pub(super) fn touch(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
        self.awaited_ns.store(self.device.clock().now().0, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Application {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Application").field("id", &self.id).field("modules", &self.modules).finish_non_exhaustive()
    }
}

impl TableSession for Application {
    fn id(&self) -> SessionId {
        self.id
    }

    fn described(&self) -> OpenSession {
        OpenSession {
            session: self.id,
            owner: None,
            host: 0,
            datasets: vec![],
            state: self.state(),
            open_s: self.age().as_secs_f64(),
            slices_done: 0,
            slices_total: 0,
            memory: self.grant.bytes(),
            programs: self.modules.clone(),
        }
    }

    fn state(&self) -> SessionState {
        match (self.is_finished.load(Ordering::Relaxed), &*self.fault.lock()) {
            (_, Some(_)) => SessionState::Failed,
            (true, None) => SessionState::Finished,
            (false, None) => SessionState::Running,
        }
    }

    fn idle(&self) -> Duration {
        if self.is_awaited.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        self.device.clock().now().since(Instant(self.awaited_ns.load(Ordering::Relaxed)))
    }

    fn age(&self) -> Duration {
        self.device.clock().now().since(self.started)
    }
}
