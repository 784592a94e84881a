//! [`StatementState`]: the engine's state of one statement, which the session's next one may use again.
//!
//! A state lists hundreds of functions. To copy one for each statement, and to give clients PostgreSQL's functions over what there is, took
//! a good part of a lookup. A session keeps the state of a statement that has ended, for a next one over the same datasets with the same
//! settings.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::execution::SessionState;
use parking_lot::Mutex;
use pithead_fleet::Snapshot;
use pithead_pg_catalog::SearchPath;

use crate::schemas::ClientView;

/// States that all sessions of a host keep at most: each takes some hundred kilobytes, and there may be thousands of sessions.
const IDLE_MAX: usize = 64;

static NO_TABLES: LazyLock<Arc<dyn CatalogProviderList>> = LazyLock::new(|| Arc::new(MemoryCatalogProviderList::new()));

/// The state that a session keeps. It goes with the session.
pub(crate) struct IdleState {
    kept: Mutex<Option<Idle>>,
    /// How many all sessions of the host keep.
    count: Arc<AtomicUsize>,
}

struct Idle {
    state: SessionState,
    made_for: MadeFor,
    _slot: Slot,
}

/// One of the states that may be kept.
struct Slot(Arc<AtomicUsize>);

/// What a state was made for.
#[derive(Clone)]
pub(crate) struct MadeFor {
    /// Which settings of the session, and which client.
    pub(crate) change: u64,
    pub(crate) snapshot: Arc<Snapshot>,
    /// What the state's functions show the client.
    pub(crate) client: Option<ClientView>,
    /// The client's path as they know it.
    pub(crate) path: Option<Arc<SearchPath>>,
}

impl IdleState {
    /// Of a session of a host whose sessions keep so many.
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Arc<IdleState> {
        Arc::new(IdleState { kept: Mutex::default(), count: Arc::clone(count) })
    }

    /// The state of a statement before, if it was made for these settings, this path, and the datasets as they are.
    pub(crate) fn take(
        self: &Arc<Self>,
        change: u64,
        snapshot: &Snapshot,
        path: Option<&Arc<SearchPath>>,
    ) -> Option<StatementState> {
        let Idle { state, made_for, .. } = self.kept.lock().take()?;
        let is_same = made_for.change == change && made_for.snapshot.is_as(snapshot) && made_for.path.as_ref() == path;
        is_same.then(|| StatementState::new(state, self, made_for))
    }

    fn keep(&self, mut state: SessionState, made_for: MadeFor) {
        let Some(slot) = Slot::take(&self.count) else { return };
        // Tables and views are of one statement, and hold the host.
        state.register_catalog_list(Arc::clone(&NO_TABLES));
        // What was kept before is dropped without the lock.
        let _before = self.kept.lock().replace(Idle { state, made_for, _slot: slot });
    }
}

impl Slot {
    fn take(count: &Arc<AtomicUsize>) -> Option<Slot> {
        let more = |count: usize| (count < IDLE_MAX).then_some(count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Slot(Arc::clone(count)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A state for one statement. Once that has ended, its session may keep the state.
pub(crate) struct StatementState {
    /// There until it is dropped.
    state: Option<SessionState>,
    /// Where it is kept then; none: nowhere.
    home: Option<(Weak<IdleState>, MadeFor)>,
}

impl StatementState {
    pub(crate) fn new(state: SessionState, home: &Arc<IdleState>, made_for: MadeFor) -> StatementState {
        StatementState { state: Some(state), home: Some((Arc::downgrade(home), made_for)) }
    }

    /// What its functions show the client; none: they are nobody's.
    pub(crate) fn client(&self) -> Option<ClientView> {
        self.home.as_ref().and_then(|(_, made_for)| made_for.client.clone())
    }

    /// It gets something that no other statement is to have.
    pub(crate) fn keep_apart(&mut self) {
        self.home = None;
    }
}

impl From<SessionState> for StatementState {
    fn from(state: SessionState) -> Self {
        StatementState { state: Some(state), home: None }
    }
}

impl Deref for StatementState {
    type Target = SessionState;

    fn deref(&self) -> &SessionState {
        self.state.as_ref().unwrap_or_else(|| unreachable!("a state is there until it is dropped"))
    }
}

impl DerefMut for StatementState {
    fn deref_mut(&mut self) -> &mut SessionState {
        self.state.as_mut().unwrap_or_else(|| unreachable!("a state is there until it is dropped"))
    }
}

impl fmt::Debug for StatementState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementState").field("is_kept", &self.home.is_some()).finish_non_exhaustive()
    }
}

impl Drop for StatementState {
    fn drop(&mut self) {
        let (Some(state), Some((home, made_for))) = (self.state.take(), self.home.take()) else { return };
        if let Some(home) = home.upgrade() {
            home.keep(state, made_for);
        }
    }
}
