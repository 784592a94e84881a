//! [`Metrics`]: what a server of clients counts. The reference is `docs/reference/metrics.md`.

use pithead_observe::{Counter, Gauge, Labelled, Registry};

/// How connections begin.
const BEGINNINGS: [&str; 4] = ["admitted", "refused", "cancel", "malformed"];

/// What is counted of clients and their connections.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) connections: Gauge,
    begun: Labelled<Counter>,
    pub(crate) sent_bytes: Counter,
    pub(crate) errors: Counter,
    pub(crate) copied_rows: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut whole = Registry::default();
        let registry = whole.sub_registry_with_prefix("pithead_front");
        let begun = Labelled::register(registry, "begun", "Connections, by how they began", "outcome", &BEGINNINGS);
        let connections = Gauge::default();
        registry.register("connections", "Connections of clients that are open", connections.clone());
        let (sent_bytes, errors, copied_rows) = (Counter::default(), Counter::default(), Counter::default());
        registry.register("sent_bytes", "Bytes that were sent to clients", sent_bytes.clone());
        registry.register("errors", "Errors that clients were told of", errors.clone());
        registry.register("copied_rows", "Rows that clients loaded by COPY", copied_rows.clone());
        Metrics { registry: whole, connections, begun, sent_bytes, errors, copied_rows }
    }

    /// A connection began.
    pub(crate) fn began(&self, outcome: &str) {
        if let Some(counter) = self.begun.get(outcome) {
            counter.inc();
        }
    }

    pub(crate) fn text(&self) -> String {
        pithead_observe::text(&self.registry)
    }
}
