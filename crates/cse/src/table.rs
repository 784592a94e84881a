//! [`SessionTable`]: the open sessions of a CSE, and the end of those that nobody pulls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pithead_door::OpenSession;
use pithead_model::{Blame, Fault, SessionId, SessionState};

use crate::shutdown::Shutdown;

/// How long a host that opened a session may take to ask for its rows: it does so at once, unless it was killed in between.
const FIRST_GET_LIMIT: Duration = Duration::from_secs(15);
/// How long a host may take to close a session whose last event was sent. One that was killed never does.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A session as the table sees it.
pub trait TableSession {
    /// Its id.
    fn id(&self) -> SessionId;
    /// The session for who looks at the CSE. The owner is known to the server alone, and stays empty.
    fn described(&self) -> OpenSession;
    /// Where it stands.
    fn state(&self) -> SessionState;
    /// How long the CSE has waited for the host; zero while the host waits for the CSE.
    fn idle(&self) -> Duration;
    /// How long it has been open.
    fn age(&self) -> Duration;
}

/// How long sessions may last.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Without their host pulling.
    pub idle: Duration,
    /// At all; none: as long as they like.
    pub open: Option<Duration>,
}

impl SessionLimits {
    /// How often sessions should be looked at.
    pub fn step(&self) -> Duration {
        (self.idle.min(self.open.unwrap_or(self.idle)) / 4).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}

/// Why a session ends before its work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its host closed it, or is gone.
    Closed,
    /// The CSE stops.
    Stopped,
    /// An operator has ended it.
    Killed,
    /// Nobody pulled its rows.
    Idle,
    /// It was open for too long.
    Overtime,
}

impl Cause {
    /// One word for metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Cause::Closed => "cancelled",
            Cause::Stopped => "stopped",
            Cause::Killed => "killed",
            Cause::Idle => "idle",
            Cause::Overtime => "overtime",
        }
    }

    /// What the session's host is told, where it has not ended the session itself. `keeper`: what kind of CSE it is.
    pub fn fault(self, keeper: &str) -> Option<Fault> {
        let told = match self {
            Cause::Closed | Cause::Stopped => return None,
            Cause::Killed => format!("an operator of the {keeper} has ended the session"),
            Cause::Idle => format!("nobody pulled the session's rows for longer than the {keeper}'s idle limit"),
            Cause::Overtime => format!("the session was open for longer than the {keeper} allows"),
        };
        Some(Fault::new(Blame::Limit, told))
    }
}

/// The open sessions of a CSE.
#[derive(Debug)]
pub struct SessionTable<S> {
    shutdown: Shutdown,
    open: Mutex<HashMap<SessionId, Arc<S>>>,
}

impl<S: TableSession> SessionTable<S> {
    /// An empty one.
    pub fn new(shutdown: Shutdown) -> Self {
        Self { shutdown, open: Mutex::default() }
    }

    /// Whether the CSE is about to go.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Puts in one that was opened.
    pub fn insert(&self, session: Arc<S>) {
        self.open.lock().insert(session.id(), session);
    }

    /// One that is open.
    pub fn get(&self, id: SessionId) -> Result<Arc<S>, Fault> {
        let session = self.open.lock().get(&id).cloned();
        session.ok_or_else(|| {
            Fault::new(Blame::User, format!("there is no session {id}")).hint(format!(
                "it was closed, or nobody pulled its rows for longer than the {}'s idle limit",
                self.shutdown.keeper()
            ))
        })
    }

    /// Takes one out; none: it is not there any more.
    pub fn remove(&self, id: SessionId) -> Option<Arc<S>> {
        self.open.lock().remove(&id)
    }

    /// Takes all out.
    pub fn remove_all(&self) -> Vec<Arc<S>> {
        self.open.lock().drain().map(|(_, session)| session).collect()
    }

    /// How many of them are so.
    pub fn count(&self, is_so: impl Fn(&S) -> bool) -> usize {
        self.open.lock().values().filter(|session| is_so(session)).count()
    }

    /// What is open, the longest open first.
    pub fn list(&self) -> Vec<OpenSession> {
        let mut open: Vec<OpenSession> = self.open.lock().values().map(|session| session.described()).collect();
        open.sort_by(|a, b| b.open_s.total_cmp(&a.open_s));
        open
    }

    /// Those that have to end: they are open for too long, their host does not pull, or has not closed them after their last
    /// event, which is taken as done ([`Cause::Closed`]).
    pub fn overdue(&self, limits: &SessionLimits) -> Vec<(SessionId, Cause)> {
        let cause = |session: &S| {
            let is_late = session.idle() > idle_limit(session.state(), limits.idle);
            match (session.state(), limits.open) {
                (SessionState::Finished, _) => is_late.then_some(Cause::Closed),
                (_, Some(limit)) if session.age() > limit => Some(Cause::Overtime),
                _ => is_late.then_some(Cause::Idle),
            }
        };
        let open = self.open.lock();
        open.values().filter_map(|session| Some((session.id(), cause(session)?))).collect()
    }
}

fn idle_limit(state: SessionState, limit: Duration) -> Duration {
    match state {
        SessionState::Opened => limit.min(FIRST_GET_LIMIT),
        SessionState::Finished => limit.min(CLOSE_LIMIT),
        _ => limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Fake {
        id: u64,
        state: SessionState,
        idle_s: u64,
        age_s: u64,
    }

    impl TableSession for Fake {
        fn id(&self) -> SessionId {
            SessionId(self.id)
        }

        fn described(&self) -> OpenSession {
            OpenSession {
                session: self.id(),
                owner: None,
                host: 0,
                datasets: vec![],
                state: self.state,
                open_s: self.age_s as f64,
                slices_done: 0,
                slices_total: 0,
                memory: 0,
                programs: vec![],
            }
        }

        fn state(&self) -> SessionState {
            self.state
        }

        fn idle(&self) -> Duration {
            Duration::from_secs(self.idle_s)
        }

        fn age(&self) -> Duration {
            Duration::from_secs(self.age_s)
        }
    }

    fn table(sessions: &[Fake]) -> SessionTable<Fake> {
        let table = SessionTable::new(Shutdown::of("drive"));
        sessions.iter().for_each(|session| table.insert(Arc::new(*session)));
        table
    }

    #[test]
    fn who_does_not_pull_or_takes_too_long_is_overdue() {
        let fake = |id, state, idle_s, age_s| Fake { id, state, idle_s, age_s };
        let table = table(&[
            fake(1, SessionState::Opened, 14, 14),
            fake(2, SessionState::Opened, 16, 16),
            fake(3, SessionState::Running, 16, 16),
            fake(4, SessionState::Running, 61, 61),
            fake(5, SessionState::Finished, 3, 9),
            fake(6, SessionState::Finished, 1, 9),
            fake(7, SessionState::Running, 0, 101),
            fake(8, SessionState::Finished, 1, 101),
        ]);
        let limits = SessionLimits { idle: Duration::from_secs(60), open: Some(Duration::from_secs(100)) };
        let mut overdue = table.overdue(&limits);
        overdue.sort_by_key(|(id, _)| id.0);
        let idle = |id| (SessionId(id), Cause::Idle);
        assert_eq!(overdue, [idle(2), idle(4), (SessionId(5), Cause::Closed), (SessionId(7), Cause::Overtime)]);
        let unbounded = SessionLimits { open: None, ..limits };
        assert!(!table.overdue(&unbounded).iter().any(|(id, _)| id.0 == 7));
    }

    #[test]
    fn the_longest_open_is_the_first() {
        let fake = |id, age_s| Fake { id, state: SessionState::Running, idle_s: 0, age_s };
        let table = table(&[fake(1, 5), fake(2, 9), fake(3, 7)]);
        assert_eq!(table.list().iter().map(|session| session.session.0).collect::<Vec<_>>(), [2, 3, 1]);
    }

    #[test]
    fn one_that_is_not_there_is_the_callers_mistake() {
        let table = table(&[]);
        assert_eq!(table.get(SessionId(7)).err().map(|fault| fault.blame), Some(Blame::User));
        assert!(table.remove(SessionId(7)).is_none());
    }
}
