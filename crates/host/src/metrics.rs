//! [`Metrics`]: what a host counts. The reference is `docs/reference/metrics.md`.

use std::time::Instant;

use futures::future::BoxFuture;
use pithead_model::{Blame, Fault};
use pithead_observe::{Counter, Family, Gauge, Health, Histogram, Labelled, Observed, Registry, Seconds, seconds_histogram};

use crate::Host;
use pithead_load::LoadReport;
use pithead_remote::ProfileSnapshot;

/// Kinds of statements.
const KINDS: [&str; 5] = ["query", "explain", "set", "drop", "unknown"];
/// How statements end: done, by whose doing they failed, or dropped by the client.
const OUTCOMES: [&str; 10] =
    ["ok", "user", "unsupported", "limit", "device", "conflict", "access", "cancelled", "corrupt", "bug"];

/// What a host counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    started: Instant,
    /// By kind and outcome.
    statements: Vec<([&'static str; 2], Counter)>,
    pub(crate) running: Gauge,
    pub(crate) statement_seconds: Histogram,
    pub(crate) planning_seconds: Histogram,
    rows: Counter,
    rows_from_drives: Counter,
    link_bytes: Counter,
    medium_bytes: Counter,
    rounds: Counter,
    sessions: Counter,
    failovers: Counter,
    busy: Counter,
    busy_seconds: Seconds,
    drive_cpu_seconds: Seconds,
    pub(crate) slow: Counter,
    loads: Labelled<Counter>,
    load_rows: Counter,
    load_bytes: Counter,
    drives: Labelled<Gauge>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut whole = Registry::default();
        pithead_observe::register_process(&mut whole);
        let registry = whole.sub_registry_with_prefix("pithead_host");
        let statements = statements(registry);
        let load_outcomes = ["ok", "failed"];
        let made = Self {
            registry: Registry::default(),
            started: Instant::now(),
            statements,
            running: metric(registry, "statements_running", "Statements that run now"),
            statement_seconds: histogram(registry, "statement_seconds", "Time from a query's text to its last row"),
            planning_seconds: histogram(
                registry,
                "planning_seconds",
                "Time from a query's text until it started to run, with small tables that are computed first",
            ),
            rows: metric(registry, "rows", "Rows that clients were given"),
            rows_from_drives: metric(registry, "rows_from_drives", "Rows that came from the drives"),
            link_bytes: metric(registry, "link_bytes", "Bytes of queries over the links, both ways; none in-process"),
            medium_bytes: metric(registry, "slice_bytes_read", "Bytes that drives read of slices for queries"),
            rounds: metric(registry, "rounds", "Rounds of drives whose rows were admitted"),
            sessions: metric(registry, "sessions", "Sessions at drives"),
            failovers: metric(registry, "failovers", "Sessions that went on at another copy, since a drive failed"),
            busy: metric(registry, "busy", "Times that a drive answered busy"),
            busy_seconds: metric(registry, "busy_wait_seconds", "Time that sessions waited for drives that were busy"),
            drive_cpu_seconds: metric(registry, "drive_cpu_seconds", "CPU time at the drives for queries"),
            slow: metric(registry, "slow_queries", "Queries that were told of in the log as slow"),
            loads: Labelled::register(registry, "loads", "Loads, by outcome", "outcome", &load_outcomes),
            load_rows: metric(registry, "load_rows", "Rows that loads made visible"),
            load_bytes: metric(registry, "load_stored_bytes", "Bytes of slices that loads made visible, of one copy"),
            drives: Labelled::register(registry, "drives", "Drives of this host", "state", &["reached", "absent"]),
        };
        Self { registry: whole, ..made }
    }

    /// A statement ended.
    pub(crate) fn ended(&self, kind: &str, outcome: &str) {
        if let Some((_, counter)) = self.statements.iter().find(|(labels, _)| *labels == [kind, outcome]) {
            counter.inc();
        }
    }

    /// What a query took, once it has ended.
    pub(crate) fn took(&self, sums: &ProfileSnapshot, rows: u64) {
        self.rows.inc_by(rows);
        self.rows_from_drives.inc_by(sums.rows_from_drives);
        self.link_bytes.inc_by(sums.link_bytes);
        self.medium_bytes.inc_by(sums.medium_bytes);
        self.rounds.inc_by(sums.rounds);
        self.sessions.inc_by(sums.sessions);
        self.failovers.inc_by(sums.failovers);
        self.busy.inc_by(sums.busy);
        self.busy_seconds.inc_by(sums.busy_us as f64 / 1e6);
        self.drive_cpu_seconds.inc_by(sums.drive_cpu_ns as f64 / 1e9);
    }

    /// A load ended.
    pub(crate) fn loaded(&self, result: &Result<LoadReport, Fault>) {
        if let Some(counter) = self.loads.get(if result.is_ok() { "ok" } else { "failed" }) {
            counter.inc();
        }
        if let Ok(report) = result {
            self.load_rows.inc_by(report.rows);
            self.load_bytes.inc_by(report.stored_bytes);
        }
    }
}

/// All kinds with all outcomes are there from the start.
fn statements(registry: &mut Registry) -> Vec<([&'static str; 2], Counter)> {
    let family = Family::<[(&'static str, &'static str); 2], Counter>::default();
    let pairs = KINDS.iter().flat_map(|kind| OUTCOMES.iter().map(move |outcome| [*kind, *outcome]));
    let member = |[kind, outcome]: [&'static str; 2]| {
        ([kind, outcome], family.get_or_create_owned(&[("kind", kind), ("outcome", outcome)]))
    };
    let members = pairs.map(member).collect();
    registry.register("statements", "Statements that ended, by kind and outcome: ok, or whose doing the error was", family);
    members
}

fn metric<M: Clone + Default + pithead_observe::Metric>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn histogram(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = seconds_histogram();
    registry.register(name, help, histogram.clone());
    histogram
}

/// The label of an outcome.
pub(crate) fn outcome<T>(result: &Result<T, Fault>) -> &'static str {
    let Err(fault) = result else { return "ok" };
    match fault.blame {
        Blame::User => "user",
        Blame::Unsupported => "unsupported",
        Blame::Limit => "limit",
        Blame::Device => "device",
        Blame::Conflict => "conflict",
        Blame::Access => "access",
        Blame::Cancelled => "cancelled",
        Blame::Corrupt => "corrupt",
        Blame::Bug => "bug",
    }
}

impl Host {
    /// All metrics as OpenMetrics text.
    pub fn metrics_text(&self) -> String {
        let (metrics, drives) = (self.metrics(), self.fleet().connected());
        for (state, count) in [("reached", drives.all().len()), ("absent", drives.absent().len())] {
            if let Some(gauge) = metrics.drives.get(state) {
                gauge.set(count as i64);
            }
        }
        pithead_observe::text(&metrics.registry)
    }
}

impl Observed for Host {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(async { self.metrics_text() })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(async {
            let drives = self.fleet().refreshed().await;
            let (reached, named) = (drives.all().len(), drives.all().len() + drives.absent().len());
            let (status, reason) = match drives.absent().first() {
                _ if reached == 0 => ("failed", Some("no drive is reached".to_owned())),
                Some(absent) => ("degraded", Some(format!("drive {} is not reached", absent.door.label()))),
                None => ("ok", None),
            };
            Health {
                status,
                reason,
                id: None,
                version: env!("CARGO_PKG_VERSION"),
                uptime_s: Metrics::uptime_s(Host::metrics(self)),
                free_bytes: None,
                sessions: None,
                drives: Some((reached, named)),
            }
        })
    }
}

impl Metrics {
    fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}
