//! [`Metrics`]: what the server counts. The reference is `docs/reference/metrics.md`.

use pithead_observe::{Counter, Gauge, Labelled, Registry};

/// The calls that are told apart.
const CALLS: [&str; 6] = ["info", "schema", "get", "put", "action", "other"];

/// What is counted of calls and rows.
pub(crate) struct Metrics {
    registry: Registry,
    calls: Labelled<Counter>,
    pub(crate) running: Gauge,
    pub(crate) errors: Counter,
    pub(crate) sent_rows: Counter,
    pub(crate) loaded_rows: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut whole = Registry::default();
        let registry = whole.sub_registry_with_prefix("pithead_flight_sql");
        let calls = Labelled::register(registry, "calls", "Calls, by their method", "method", &CALLS);
        let (running, errors, sent_rows, loaded_rows) =
            (Gauge::default(), Counter::default(), Counter::default(), Counter::default());
        registry.register("running", "Answers that are on their way to clients", running.clone());
        registry.register("errors", "Errors that clients were told of", errors.clone());
        registry.register("sent_rows", "Rows that were sent to clients", sent_rows.clone());
        registry.register("loaded_rows", "Rows that clients loaded by ingestion", loaded_rows.clone());
        Metrics { registry: whole, calls, running, errors, sent_rows, loaded_rows }
    }

    /// A call came.
    pub(crate) fn called(&self, method: &str) {
        if let Some(counter) = self.calls.get(method) {
            counter.inc();
        }
    }

    pub(crate) fn text(&self) -> String {
        pithead_observe::text(&self.registry)
    }
}
