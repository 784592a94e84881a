//! [`Sessions`]: the open sessions of a drive, how many there may be, and the end of those that nobody pulls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pithead_device::{Device, Instant};
use pithead_model::{Blame, Fault, SessionId, SessionState};
use pithead_wire::OpenSession;

use crate::metrics::Metrics;
use crate::session::Session;
use crate::turns::{Refusal, TurnLimits, Turns};

/// How long a host that opened a session may take to ask for its rows.
const FIRST_GET_LIMIT: Duration = Duration::from_secs(15);

/// The open sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<SessionId, Arc<Session>>>,
    turns: Mutex<Turns>,
    device: Arc<dyn Device>,
    metrics: Arc<Metrics>,
    stopping: AtomicBool,
}

/// A session's place among those that may be open; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    sessions: Arc<Sessions>,
    host: u64,
    since: Instant,
    is_taken: bool,
}

impl Sessions {
    pub(crate) fn new(limits: TurnLimits, device: Arc<dyn Device>, metrics: Arc<Metrics>) -> Self {
        let turns = Mutex::new(Turns::new(limits));
        Self { open: Mutex::default(), turns, device, metrics, stopping: AtomicBool::new(false) }
    }

    /// A place for a session of `host`, where it is the host's turn. The free memory is enough for `memory_room` sessions.
    pub(crate) fn admit(self: &Arc<Self>, host: u64, memory_room: usize) -> Result<Place, Refusal> {
        let since = self.device.clock().now();
        self.turns.lock().ask(host, memory_room, since).inspect_err(|refusal| self.metrics.refused(refusal.scarce))?;
        Ok(Place { sessions: Arc::clone(self), host, since, is_taken: true })
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
        let runs = |session: &&Arc<Session>| session.host == host && session.progress.state() == SessionState::Running;
        self.open.lock().values().filter(runs).count()
    }

    pub(crate) fn insert(&self, session: Arc<Session>) {
        self.open.lock().insert(session.id, session);
    }

    pub(crate) fn get(&self, id: SessionId) -> Result<Arc<Session>, Fault> {
        let session = self.open.lock().get(&id).cloned();
        session.ok_or_else(|| {
            Fault::new(Blame::User, format!("there is no session {id}"))
                .hint("it was closed, or nobody pulled its rows for longer than the drive's idle limit")
        })
    }

    /// Ends a session if it is there. Its tasks stop at their next step; see [`Session::stopped`].
    pub(crate) fn close(&self, id: SessionId) -> Option<Arc<Session>> {
        self.end(id, if self.refusing() { "stopped" } else { "cancelled" })
    }

    /// Ends somebody's session if it is there, who is told so.
    pub(crate) fn kill(&self, id: SessionId) -> Option<Arc<Session>> {
        let killed = self.end(id, "killed")?;
        tracing::warn!(session = %id, "an operator has ended a session");
        Some(killed)
    }

    /// What is open, the longest open first.
    pub(crate) fn list(&self) -> Vec<OpenSession> {
        let now = self.device.clock().now();
        let mut open: Vec<Arc<Session>> = self.open.lock().values().cloned().collect();
        open.sort_by_key(|session| session.opened);
        open.iter().map(|session| session.described(now)).collect()
    }

    /// `cause` is why it ends unless its work is done or has failed.
    fn end(&self, id: SessionId, cause: &str) -> Option<Arc<Session>> {
        let session = self.open.lock().remove(&id)?;
        let cause = match session.progress.state() {
            SessionState::Finished => "finished",
            _ if session.fault().is_some() => "failed",
            _ => cause,
        };
        self.metrics.closed(cause);
        tracing::debug!(session = %id, cause, "closed");
        let told = match cause {
            "idle" => Some("nobody pulled the session's rows for longer than the drive's idle limit"),
            "overtime" => Some("the session was open for longer than the drive allows"),
            "killed" => Some("an operator of the drive has ended the session"),
            _ => None,
        };
        match told {
            Some(told) => session.fail(Fault::new(Blame::Limit, told)),
            None => session.stop(),
        }
        Some(session)
    }

    /// Ends the sessions that have waited for their host longer than `idle_limit`, and those whose host never asked for rows
    /// sooner: it does so at once, unless it was killed in between. And those that are open for longer than `open_limit`.
    pub(crate) fn reap(&self, idle_limit: Duration, open_limit: Option<Duration>) {
        let now = self.device.clock().now();
        let is_over = |session: &Session| open_limit.is_some_and(|limit| now.since(session.opened) > limit);
        let over: Vec<SessionId> =
            self.open.lock().values().filter(|session| is_over(session)).map(|session| session.id).collect();
        for session in over {
            tracing::warn!(%session, ?open_limit, "closing a session that is open for too long");
            self.end(session, "overtime");
        }
        let limit = |session: &Session| match session.progress.state() {
            SessionState::Opened => idle_limit.min(FIRST_GET_LIMIT),
            _ => idle_limit,
        };
        let idle: Vec<SessionId> = self
            .open
            .lock()
            .values()
            .filter(|session| session.activity.idle() > limit(session))
            .map(|session| session.id)
            .collect();
        for session in idle {
            tracing::warn!(%session, ?idle_limit, "closing a session that nobody has pulled");
            self.end(session, "idle");
        }
    }

    /// From now on no session is opened.
    pub(crate) fn refuse(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn refusing(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Ends all sessions; see [`Session::stopped`].
    pub(crate) fn close_all(&self) -> Vec<Arc<Session>> {
        let ids: Vec<SessionId> = self.open.lock().keys().copied().collect();
        ids.into_iter().filter_map(|id| self.close(id)).collect()
    }
}

impl Place {
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

impl Drop for Place {
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
    use crate::turns::Scarce;

    fn sessions(places: usize) -> Arc<Sessions> {
        let limits = Limits { sessions: places, host_sessions: places, memory: 0, cache: 0, threads: 1 };
        let turns = TurnLimits { sessions: places, host_sessions: places };
        Arc::new(Sessions::new(turns, Arc::new(Native::new()), Arc::new(Metrics::new(&limits))))
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

    #[test]
    fn an_unknown_session_is_no_panic() {
        let sessions = sessions(1);
        assert_eq!(sessions.get(SessionId(7)).unwrap_err().blame, Blame::User);
        assert!(sessions.close(SessionId(7)).is_none());
    }
}
