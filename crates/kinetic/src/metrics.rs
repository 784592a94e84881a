//! [`Metrics`]: what is counted of the protocol, for operators and for GETLOG.

use parking_lot::Mutex;
use pithead_observe::{Counter, Gauge, Histogram, Labelled, Registry, seconds_histogram, text};

use crate::code::{Code, RequestKind};
use crate::proto::Statistics;

/// Requests by the codes that operators look for; all others are failures.
const OUTCOMES: [&str; 5] = ["success", "not_found", "mismatch", "refused", "failed"];

/// Counters of the protocol, since the drive was started.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Labelled<Counter>,
    bytes: Labelled<Counter>,
    outcomes: Labelled<Counter>,
    pub seconds: Histogram,
    pub connections: Gauge,
    pub waiting: Gauge,
    pub turned_away: Counter,
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("pithead_kinetic");
        let kinds = RequestKind::ALL.map(RequestKind::name);
        let requests = Labelled::register(
            &mut registry,
            "requests",
            "Requests of Kinetic clients that were answered, by kind",
            "kind",
            &kinds,
        );
        let bytes = Labelled::register(&mut registry, "value_bytes", "Bytes of values put and got, by kind", "kind", &kinds);
        let outcomes = Labelled::register(&mut registry, "outcomes", "How requests went", "outcome", &OUTCOMES);
        let seconds = seconds_histogram();
        registry.register("request_seconds", "Time from a request's arrival to its answer", seconds.clone());
        let (connections, waiting, turned_away) = (Gauge::default(), Gauge::default(), Counter::default());
        registry.register("connections", "Connections of Kinetic clients", connections.clone());
        registry.register("waiting", "Requests that wait for their turn", waiting.clone());
        registry.register("turned_away", "Requests with a wrong signature, identity or PIN", turned_away.clone());
        Metrics { registry: Mutex::new(registry), requests, bytes, outcomes, seconds, connections, waiting, turned_away }
    }

    pub fn count(&self, kind: RequestKind, code: Code, value_bytes: u64) {
        let outcome = match code {
            Code::Success | Code::ExecuteComplete => "success",
            Code::NotFound => "not_found",
            Code::VersionMismatch | Code::VersionFailure | Code::InvalidBatch => "mismatch",
            Code::InternalError | Code::DataError | Code::PermDataError | Code::NoSpace => "failed",
            _ => "refused",
        };
        for (counters, label, by) in
            [(&self.requests, kind.name(), 1), (&self.bytes, kind.name(), value_bytes), (&self.outcomes, outcome, 1)]
        {
            if let Some(counter) = counters.get(label) {
                counter.inc_by(by);
            }
        }
    }

    /// As GETLOG tells.
    pub fn statistics(&self) -> Vec<Statistics> {
        let count = |counters: &Labelled<Counter>, kind: RequestKind| counters.get(kind.name()).map(Counter::get);
        let of = |kind: RequestKind| Statistics {
            message_type: Some(kind as i32),
            count: count(&self.requests, kind),
            bytes: count(&self.bytes, kind),
        };
        RequestKind::ALL.into_iter().map(of).collect()
    }

    /// As OpenMetrics text.
    pub fn text(&self) -> String {
        text(&self.registry.lock())
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
