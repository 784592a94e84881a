//! [`FlightSql`]: a host, and what is kept for clients between their calls.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use pithead_host::{Host, Session};
use pithead_model::Fault;
use pithead_observe::{Health, Observed};

use crate::caller::{Caller, Options, Sessions};
use crate::cancel::Running;
use crate::error::Refused;
use crate::handle_store::{HandleStore, Limits};
use crate::metrics::Metrics;
use crate::prepared::Prepared;
use crate::statement::PlannedQuery;
use crate::values::Values;

/// The one catalog, whose schemas are the domains.
pub(crate) const CATALOG: &str = "pithead";
/// How long a prepared statement stays that nobody uses.
pub(crate) const IDLE: Duration = Duration::from_secs(3_600);

/// How long something stays that a client has not come back for.
const WAITING: Duration = Duration::from_secs(600);

/// Answers that wait to be fetched.
const TICKETS: Limits =
    Limits { each: 1_024, bytes_each: 128 << 20, all: 16_384, bytes_all: 512 << 20, idle: WAITING, idle_at_first: WAITING };
/// Prepared statements, with the values that are bound to them.
const STATEMENTS: Limits =
    Limits { each: 4_096, bytes_each: 128 << 20, all: 65_536, bytes_all: 512 << 20, idle: IDLE, idle_at_first: IDLE };
/// Sessions of Flight's, with what they have set. A pool's connections may be idle overnight; but clients without cookies begin a
/// session that they never come back to.
const SESSIONS: Limits = Limits {
    each: 4_096,
    bytes_each: 4 << 20,
    all: 65_536,
    bytes_all: 64 << 20,
    idle: Duration::from_secs(24 * 3_600),
    idle_at_first: WAITING,
};

/// A host, and what is kept for clients between their calls.
pub struct FlightSql {
    pub(crate) host: Host,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) running: Arc<Running>,
    pub(crate) tickets: HandleStore<PlannedQuery>,
    pub(crate) statements: HandleStore<Arc<Prepared>>,
    /// The sessions of Flight's that are open.
    pub(crate) open: HandleStore<Arc<Mutex<Options>>>,
    sessions: Sessions,
}

impl FlightSql {
    /// A server of this host, that nobody has called.
    pub fn new(host: Host) -> Arc<FlightSql> {
        Arc::new(FlightSql {
            host,
            metrics: Arc::new(Metrics::new()),
            running: Arc::default(),
            tickets: HandleStore::new("ticket", TICKETS),
            statements: HandleStore::new("prepared statement", STATEMENTS),
            open: HandleStore::new("session", SESSIONS),
            sessions: Sessions::default(),
        })
    }

    /// The host's session for a caller.
    pub(crate) async fn session(&self, caller: &Caller) -> Result<Arc<Session>, Fault> {
        self.sessions.session(&self.host, caller).await
    }

    /// A statement that a caller has prepared, with the rights that the caller has now.
    pub(crate) fn prepared(&self, caller: &Caller, handle: &[u8]) -> Result<Arc<Prepared>, Refused> {
        let prepared = self.statements.get(caller.owner(), handle)?;
        prepared.called_by(caller);
        Ok(prepared)
    }

    /// Binds rows of values to a prepared statement. They count among what is kept.
    pub(crate) fn bind(&self, caller: &Caller, handle: &[u8], values: Values) -> Result<(), Refused> {
        let count = |bytes| self.statements.recount(caller.owner(), handle, bytes);
        self.prepared(caller, handle)?.bind(values, count)
    }

    /// What is counted, as text.
    pub fn metrics_text(&self) -> String {
        self.metrics.text()
    }
}

impl Observed for FlightSql {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(async { self.metrics_text() })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Observed::health(&self.host)
    }
}
