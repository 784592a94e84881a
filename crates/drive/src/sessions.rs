//! [`Sessions`]: the open sessions of a drive, how many there may be, and the end of those that nobody pulls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pithead_model::{Blame, Fault, SessionId};

use crate::session::Session;

/// The open sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<SessionId, Arc<Session>>>,
    admitted: AtomicUsize,
    sessions_max: usize,
    stopping: AtomicBool,
}

/// A session's place among those that may be open; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Sessions>);

impl Sessions {
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self { open: Mutex::default(), admitted: AtomicUsize::new(0), sessions_max, stopping: AtomicBool::new(false) }
    }

    /// A place for a session, unless all are taken.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Place> {
        let more = |admitted| (admitted < self.sessions_max).then_some(admitted + 1);
        self.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Place(Arc::clone(self)))
    }

    /// Sessions that are open or about to be.
    pub(crate) fn count(&self) -> usize {
        self.admitted.load(Ordering::Acquire)
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
        let session = self.open.lock().remove(&id)?;
        session.stop();
        tracing::debug!(session = %id, "closed");
        Some(session)
    }

    /// Ends the sessions that have waited for their host longer than `idle_limit`.
    pub(crate) fn reap(&self, idle_limit: Duration) {
        let idle: Vec<Arc<Session>> =
            self.open.lock().values().filter(|session| session.activity.idle() > idle_limit).cloned().collect();
        for session in idle {
            tracing::warn!(session = %session.id, "closing a session that nobody has pulled for {idle_limit:?}");
            let what = format!("nobody pulled the session's rows for {idle_limit:?}");
            session.fail(Fault::new(Blame::Limit, what));
            self.close(session.id);
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

impl Drop for Place {
    fn drop(&mut self) {
        self.0.admitted.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let sessions = Arc::new(Sessions::new(2));
        let places = [sessions.admit().unwrap(), sessions.admit().unwrap()];
        assert!(sessions.admit().is_none());
        drop(places);
        assert_eq!(sessions.count(), 0);
        assert!(sessions.admit().is_some());
    }

    #[test]
    fn an_unknown_session_is_no_panic() {
        let sessions = Arc::new(Sessions::new(1));
        assert_eq!(sessions.get(SessionId(7)).unwrap_err().blame, Blame::User);
        assert!(sessions.close(SessionId(7)).is_none());
    }
}
