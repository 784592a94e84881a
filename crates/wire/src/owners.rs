//! [`Owners`]: who opened which session.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use pithead_door::OpenSession;
use pithead_entry::Identity;
use pithead_model::{Fault, SessionId};

/// Sessions whose owner is kept before those that have ended are looked for.
const OWNERS_MAX: usize = 65_536;

/// Who opened which session. The owner of one that is open is never forgotten.
#[derive(Debug)]
pub(crate) struct Owners {
    by_session: Mutex<HashMap<SessionId, String>>,
    kept_max: usize,
}

impl Default for Owners {
    fn default() -> Owners {
        Owners { by_session: Mutex::default(), kept_max: OWNERS_MAX }
    }
}

impl Owners {
    /// Keeps the owner of a session that was opened just now. `open`: those that are open, which is asked for only when many are
    /// kept.
    pub(crate) async fn insert(
        &self,
        session: SessionId,
        owner: &Identity,
        open: impl Future<Output = Result<Vec<OpenSession>, Fault>>,
    ) {
        let Some(kept) = self.keep(session, owner) else { return };
        // If they are not told, the next one asks again.
        let Ok(open) = open.await else { return };
        let open: HashSet<SessionId> = open.into_iter().map(|open| open.session).collect();
        // One that was kept only meanwhile may be missing there.
        let ended: Vec<SessionId> = kept.into_iter().filter(|session| !open.contains(session)).collect();
        let mut by_session = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        for session in ended {
            by_session.remove(&session);
        }
    }

    /// All sessions that are kept, if they are too many.
    fn keep(&self, session: SessionId, owner: &Identity) -> Option<Vec<SessionId>> {
        let mut by_session = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        by_session.insert(session, owner.name.clone());
        (by_session.len() > self.kept_max).then(|| by_session.keys().copied().collect())
    }

    pub(crate) fn of(&self, session: SessionId) -> Option<String> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    /// Whether somebody else opened the session. Of sessions that nobody opened, the drive itself says so.
    pub(crate) fn is_of_another(&self, session: SessionId, caller: &Identity) -> bool {
        let by_session = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        by_session.get(&session).is_some_and(|owner| *owner != caller.name)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use pithead_model::Blame;
    use pithead_model::SessionState;

    use super::*;

    fn open(session: SessionId) -> OpenSession {
        OpenSession {
            session,
            owner: None,
            host: 0,
            datasets: Vec::new(),
            state: SessionState::Running,
            open_s: 0.0,
            slices_done: 0,
            slices_total: 0,
            memory: 0,
            programs: Vec::new(),
        }
    }

    /// After many others, everybody was taken for the owner of one that was open still, and its owner was not.
    #[tokio::test]
    async fn an_open_session_keeps_its_owner_however_many_others_end() {
        let owners = Owners { kept_max: 4, ..Owners::default() };
        let [jobs, other] = ["jobs", "other"].map(Identity::unlimited);
        let long = SessionId(0);
        owners.insert(long, &jobs, ready(Err(Fault::new(Blame::Bug, "nobody asks")))).await;
        for number in 1..100 {
            let now = [long, SessionId(number)].map(open);
            owners.insert(SessionId(number), &other, ready(Ok(now.into()))).await;
            assert!(owners.is_of_another(long, &other) && !owners.is_of_another(long, &jobs), "{number}");
            assert!(owners.by_session.lock().unwrap().len() <= 4, "those that have ended go");
        }
        assert_eq!((owners.of(long).as_deref(), owners.of(SessionId(99)).as_deref()), (Some("jobs"), Some("other")));
        assert_eq!(owners.of(SessionId(1)), None);
    }
}
