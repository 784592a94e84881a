//! [`Sessions`]: the open sessions of a drive, how many there may be, and the end of those that nobody pulls.

use std::sync::Arc;

use parking_lot::Mutex;
use pithead_cse::{Cause, SessionLimits, SessionTable, Shutdown};
use pithead_device::{Device, Instant};
use pithead_door::OpenSession;
use pithead_model::{Fault, SessionId, SessionState};

use crate::metrics::Metrics;
use crate::sessions::session::Session;
use crate::sessions::turns::{Refusal, TurnLimits, Turns};

/// The open sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    table: SessionTable<Session>,
    turns: Mutex<Turns>,
    device: Arc<dyn Device>,
    metrics: Arc<Metrics>,
}

/// A session's place among those that may be open; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionPermit {
    sessions: Arc<Sessions>,
    host: u64,
    since: Instant,
    is_taken: bool,
}

impl Sessions {
    pub(crate) fn new(limits: TurnLimits, shutdown: Shutdown, device: Arc<dyn Device>, metrics: Arc<Metrics>) -> Self {
        Self { table: SessionTable::new(shutdown), turns: Mutex::new(Turns::new(limits)), device, metrics }
    }

    /// Whether the drive is about to go.
    pub(crate) fn shutdown(&self) -> &Shutdown {
        self.table.shutdown()
    }

    /// A place for a session of `host`, where it is the host's turn. The free memory is enough for `memory_room` sessions.
    pub(crate) fn admit(self: &Arc<Self>, host: u64, memory_room: usize) -> Result<SessionPermit, Refusal> {
        let since = self.device.clock().now();
        self.turns.lock().ask(host, memory_room, since).inspect_err(|refusal| self.metrics.refused(refusal.scarce))?;
        Ok(SessionPermit { sessions: Arc::clone(self), host, since, is_taken: true })
    }

    /// Sessions that are open or about to be.
    pub(crate) fn count(&self) -> usize {
        self.turns.lock().total()
    }

    /// Hosts that have sessions, and hosts that wait for one.
    pub(crate) fn hosts(&self, now: Instant) -> (usize, usize) {
        self.turns.lock().hosts(now)
    }

    /// Sessions of a host whose rounds run.
    pub(crate) fn running(&self, host: u64) -> usize {
        self.table.count(|session| session.host == host && session.progress.state() == SessionState::Running)
    }

    pub(crate) fn insert(&self, session: Arc<Session>) {
        self.table.insert(session);
    }

    pub(crate) fn get(&self, id: SessionId) -> Result<Arc<Session>, Fault> {
        self.table.get(id)
    }

    /// Ends a session if it is there. Its tasks stop at their next step; see [`Session::stopped`].
    pub(crate) fn close(&self, id: SessionId) -> Option<Arc<Session>> {
        self.end(id, self.closing())
    }

    /// Why a session ends that is closed now.
    fn closing(&self) -> Cause {
        if self.table.shutdown().has_begun() { Cause::Stopped } else { Cause::Closed }
    }

    /// Ends somebody's session if it is there, who is told so.
    pub(crate) fn kill(&self, id: SessionId) -> Option<Arc<Session>> {
        let killed = self.end(id, Cause::Killed)?;
        tracing::warn!(session = %id, "an operator has ended a session");
        Some(killed)
    }

    /// The open sessions, the longest open first.
    pub(crate) fn list(&self) -> Vec<OpenSession> {
        self.table.list()
    }

    fn end(&self, id: SessionId, cause: Cause) -> Option<Arc<Session>> {
        let session = self.table.remove(id)?;
        self.ended(&session, cause);
        Some(session)
    }

    /// It is not in the table any more.
    fn ended(&self, session: &Session, cause: Cause) {
        let is_finished = session.progress.state() == SessionState::Finished;
        let word = match cause.word() {
            _ if is_finished => "finished",
            _ if session.fault().is_some() => "failed",
            word => word,
        };
        self.metrics.closed(word);
        tracing::debug!(session = %session.id, cause = word, "closed");
        match cause.fault(self.table.shutdown().keeper()) {
            Some(fault) if !is_finished => session.fail(fault),
            _ => session.stop(),
        }
    }

    /// Ends the sessions that last longer than they may.
    pub(crate) fn reap(&self, limits: &SessionLimits) {
        for (id, cause) in self.table.overdue(limits) {
            if self.end(id, cause).is_some() && cause != Cause::Closed {
                tracing::warn!(session = %id, cause = cause.word(), ?limits, "ended a session");
            }
        }
    }

    /// Ends all sessions; see [`Session::stopped`].
    pub(crate) fn close_all(&self) -> Vec<Arc<Session>> {
        let sessions = self.table.remove_all();
        sessions.iter().for_each(|session| self.ended(session, self.closing()));
        sessions
    }
}

impl SessionPermit {
    /// Who has it.
    pub(crate) fn host(&self) -> u64 {
        self.host
    }

    /// Gives it back, because the memory was not enough after all.
    pub(crate) fn give_back(mut self) -> Refusal {
        self.is_taken = false;
        let refusal = self.sessions.turns.lock().give_back(self.host, self.sessions.device.clock().now());
        self.sessions.metrics.refused(refusal.scarce);
        refusal
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        if self.is_taken {
            let held = self.sessions.device.clock().now().since(self.since);
            self.sessions.turns.lock().release(self.host, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use pithead_device::Native;

    use super::*;
    use crate::metrics::Limits;
    use crate::sessions::turns::Scarce;

    fn sessions(places: usize) -> Arc<Sessions> {
        let limits = Limits { sessions: places, host_sessions: places, memory: 0, cache: 0, threads: 1 };
        let turns = TurnLimits { sessions: places, host_sessions: places };
        Arc::new(Sessions::new(turns, Shutdown::of("drive"), Arc::new(Native::new()), Arc::new(Metrics::new(&limits))))
    }

    #[test]
    fn places_are_bounded_and_come_back() {
        let sessions = sessions(2);
        let places = [sessions.admit(1, 9).unwrap(), sessions.admit(2, 9).unwrap()];
        assert_eq!(sessions.admit(3, 9).err().map(|refusal| refusal.scarce), Some(Scarce::Sessions));
        drop(places);
        assert_eq!(sessions.count(), 0);
        assert_eq!(sessions.admit(3, 9).unwrap().give_back().scarce, Scarce::Memory);
        assert_eq!(sessions.count(), 0);
        assert!(sessions.admit(3, 9).is_ok());
    }
}
