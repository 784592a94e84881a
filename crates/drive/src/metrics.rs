//! [`Metrics`]: what a drive counts. The reference is `docs/reference/metrics.md`.
//!
//! Counters grow once a session, round or call, never once a row. What is known elsewhere, such as what the store holds, is asked
//! for when somebody looks.

mod background;

use std::time::Duration;

use parking_lot::Mutex;
use pithead_model::{Annotation, Blame, ByLevel, Counts, Fault};
use pithead_observe::{Counter, Gauge, Histogram, Labelled, Registry, Seconds, seconds_histogram};
use pithead_store::StoreUse;

use crate::sessions::Scarce;
use crate::sessions::Tally;

use background::BackgroundMetrics;
pub(crate) use background::BackgroundSample;

/// How sessions end.
const CAUSES: [&str; 5] = ["finished", "cancelled", "idle", "failed", "stopped"];
/// Kinds of errors: whose doing they are.
const BLAMES: [&str; 9] = ["user", "unsupported", "limit", "device", "conflict", "access", "cancelled", "corrupt", "bug"];
const CLASSES: [&str; 2] = ["foreground", "background"];

/// What a drive counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) opened: Counter,
    refused: Labelled<Counter>,
    closed: Labelled<Counter>,
    pub(crate) open_seconds: Histogram,
    pub(crate) session_seconds: Histogram,
    rounds: Counter,
    round_seconds: Histogram,
    turn_seconds: Seconds,
    host_seconds: Seconds,
    slices: Labelled<Counter>,
    pages: Labelled<Counter>,
    rows_in: Counter,
    rows_out: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    cpu_seconds: Seconds,
    pub(crate) spilled_bytes: Counter,
    pub(crate) loads: Labelled<Counter>,
    pub(crate) load_rows: Counter,
    pub(crate) load_bytes: Counter,
    pub(crate) merges: Labelled<Counter>,
    pub(crate) marks: Labelled<Counter>,
    pub(crate) copies: Labelled<Counter>,
    pub(crate) commits: Labelled<Counter>,
    errors: Labelled<Counter>,
    work: Mutex<ByLevel<Counts>>,
    background: BackgroundMetrics,
    sampled: Sampled,
}

/// What is looked up when somebody asks.
#[derive(Debug)]
struct Sampled {
    sessions: Gauge,
    hosts: Gauge,
    waiting: Gauge,
    memory: Gauge,
    uptime: Gauge<f64, std::sync::atomic::AtomicU64>,
    tasks: Labelled<Gauge>,
    busy: Seconds,
    readers: Gauge,
    reader_bytes: Gauge,
    keys: Gauge,
    live: Gauge,
    dead: Gauge,
    free: Gauge,
    cache_bytes: Gauge,
    cache_hits: Counter,
    cache_misses: Counter,
    medium_bytes: Counter,
}

/// Registers metrics one by one.
struct Maker<'a>(&'a mut Registry);

impl Maker<'_> {
    fn metric<M: Clone + pithead_observe::Metric>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn count(&mut self, name: &str, help: &str) -> Counter {
        self.metric(name, help, Counter::default())
    }

    fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        self.metric(name, help, Gauge::default())
    }

    fn seconds(&mut self, name: &str, help: &str) -> Seconds {
        self.metric(name, help, Seconds::default())
    }

    fn histogram(&mut self, name: &str, help: &str) -> Histogram {
        self.metric(name, help, seconds_histogram())
    }

    fn counts(&mut self, name: &str, help: &str, label: &'static str, values: &[&'static str]) -> Labelled<Counter> {
        Labelled::register(self.0, name, help, label, values)
    }
}

impl Metrics {
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut whole = Registry::default();
        pithead_observe::register_process(&mut whole);
        let mut make = Maker(whole.sub_registry_with_prefix("pithead_drive"));
        limits.register(&mut make);
        let sampled = Sampled::new(&mut make);
        let background = BackgroundMetrics::new(&mut make);
        let outcomes = ["ok", "failed"];
        Self {
            opened: make.count("sessions_opened", "Sessions that OPEN granted"),
            refused: make.counts(
                "sessions_refused",
                "OPENs that were told to come back, by what was scarce",
                "scarce",
                &Scarce::LABELS,
            ),
            closed: make.counts("sessions_closed", "Sessions that ended, by cause", "cause", &CAUSES),
            open_seconds: make.histogram("open_seconds", "Time that OPEN took, those refused as busy left out"),
            session_seconds: make
                .histogram("session_seconds", "Time from OPEN until a session's rounds were done or ended early"),
            rounds: make.count("rounds", "Rounds that were closed by an annotation"),
            round_seconds: make.histogram("round_seconds", "Time of a task's round, from its plan to its last row"),
            turn_seconds: make.seconds("round_turn_wait_seconds", "Time that rounds waited for their turn at a reactor"),
            host_seconds: make.seconds("round_host_wait_seconds", "Time that rounds waited for their host to take rows"),
            slices: make.counts(
                "slices",
                "Slices that rounds took care of: read, or ruled out by their bounds",
                "how",
                &["read", "skipped"],
            ),
            pages: make.counts(
                "pages",
                "Pages of the slices that were read: decoded, or ruled out",
                "how",
                &["read", "skipped"],
            ),
            rows_in: make.count("rows_in", "Rows of the slices that were read"),
            rows_out: make.count("rows_out", "Rows that sessions sent"),
            bytes_in: make.count("slice_bytes_read", "Bytes that sessions read of slices, from the medium or from memory"),
            bytes_out: make.count("bytes_out", "Bytes of rows that sessions sent, as Arrow buffers"),
            cpu_seconds: make.seconds("cpu_seconds", "CPU time of rounds"),
            spilled_bytes: make.count("spilled_bytes", "Bytes that sessions spilled to temporary files"),
            loads: make.counts("loads", "Loads into a partition, by outcome", "outcome", &outcomes),
            load_rows: make.count("load_rows", "Rows that loads stored"),
            load_bytes: make.count("load_bytes", "Bytes of slices that loads stored"),
            merges: make.counts("merges", "Small runs that were merged into one, by outcome", "outcome", &outcomes),
            marks: make.counts("marks", "Runs whose rows were asked which of them go, by outcome", "outcome", &outcomes),
            copies: make.counts("copies", "Runs written as copies of another drive's, by outcome", "outcome", &outcomes),
            commits: make.counts(
                "commits",
                "Manifests replaced at their home, by outcome",
                "outcome",
                &["ok", "conflict", "failed"],
            ),
            errors: make.counts("errors", "Calls and sessions that failed, by whose doing it was", "kind", &BLAMES),
            work: Mutex::default(),
            background,
            sampled,
            registry: whole,
        }
    }

    /// OPEN was answered with busy.
    pub(crate) fn refused(&self, scarce: Scarce) {
        add(&self.refused, scarce.label(), 1);
    }

    /// A session ended.
    pub(crate) fn closed(&self, cause: &str) {
        add(&self.closed, cause, 1);
    }

    /// Something failed.
    pub(crate) fn failed(&self, fault: &Fault) {
        let kind = match fault.blame {
            Blame::User => "user",
            Blame::Unsupported => "unsupported",
            Blame::Limit => "limit",
            Blame::Device => "device",
            Blame::Conflict => "conflict",
            Blame::Access => "access",
            Blame::Cancelled => "cancelled",
            Blame::Corrupt => "corrupt",
            Blame::Bug => "bug",
        };
        add(&self.errors, kind, 1);
    }

    /// A task is through with a round's plan, of which it waited so long for its turn.
    pub(crate) fn ran_round(&self, wall: Duration, turn: Duration) {
        self.round_seconds.observe(wall.as_secs_f64());
        self.turn_seconds.inc_by(turn.as_secs_f64());
    }

    /// A round waited for its host.
    pub(crate) fn waited_for_host(&self, wait: Duration) {
        self.host_seconds.inc_by(wait.as_secs_f64());
    }

    /// A round was closed.
    pub(crate) fn closed_round(&self, tally: &Tally, rows_out: u64, bytes_out: u64) {
        let slices = tally.slices.len() as u64;
        let skipped = u64::from(tally.slices_skipped).min(slices);
        self.rounds.inc();
        add(&self.slices, "read", slices - skipped);
        add(&self.slices, "skipped", skipped);
        add(&self.pages, "read", tally.pages_read);
        add(&self.pages, "skipped", tally.pages_skipped);
        self.rows_in.inc_by(tally.rows_in);
        self.rows_out.inc_by(rows_out);
        self.bytes_in.inc_by(tally.medium_bytes);
        self.bytes_out.inc_by(bytes_out);
        self.cpu_seconds.inc_by(Duration::from_nanos(tally.cpu_ns).as_secs_f64());
    }

    /// A round was closed, with this annotation.
    pub(crate) fn counted(&self, round: &Annotation) {
        self.work.lock().get_mut(round.level).add(Counts::of(round));
    }

    /// What rounds counted since the start.
    pub(crate) fn work(&self) -> ByLevel<Counts> {
        *self.work.lock()
    }

    /// Something that stores was done, or was not.
    pub(crate) fn outcome<T>(counters: &Labelled<Counter>, result: &Result<T, Fault>) {
        let outcome = match result {
            Ok(_) => "ok",
            Err(fault) if fault.blame == Blame::Conflict && counters.get("conflict").is_some() => "conflict",
            Err(_) => "failed",
        };
        add(counters, outcome, 1);
    }
}

fn add(counters: &Labelled<Counter>, value: &str, count: u64) {
    if let Some(counter) = counters.get(value) {
        counter.inc_by(count);
    }
}

/// Bounds of a drive, which are metrics too, so that a share of them can be drawn.
pub(crate) struct Limits {
    pub(crate) sessions: usize,
    pub(crate) host_sessions: usize,
    pub(crate) memory: u64,
    pub(crate) cache: u64,
    pub(crate) threads: usize,
}

impl Limits {
    fn register(&self, make: &mut Maker<'_>) {
        let mut limit = |name: &str, help: &str, value: u64| {
            make.gauge(name, help).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        limit("sessions_limit", "Sessions that may be open", self.sessions as u64);
        limit("host_sessions_limit", "Sessions that one host may have open", self.host_sessions as u64);
        limit("memory_limit_bytes", "Memory for sessions and loads", self.memory);
        limit("cache_limit_bytes", "Memory for slices that were read: open readers and the store's cache", self.cache);
        limit("threads", "Reactors", self.threads as u64);
    }
}

impl Sampled {
    fn new(make: &mut Maker<'_>) -> Self {
        Self {
            sessions: make.gauge("sessions_open", "Sessions open now"),
            hosts: make.gauge("hosts", "Hosts that have sessions open now"),
            waiting: make.gauge("hosts_waiting", "Hosts that were told to come back and are still expected"),
            memory: make.gauge("memory_granted_bytes", "Memory that sessions and loads were granted"),
            uptime: make.metric("uptime_seconds", "Time since the drive started", Gauge::default()),
            tasks: Labelled::register(
                make.0,
                "tasks",
                "Tasks on the reactors that have not ended, by class",
                "class",
                &CLASSES,
            ),
            busy: make.seconds("reactor_busy_seconds", "Time that reactors spent on tasks, all together"),
            readers: make.gauge("slice_readers", "Slices that are kept open"),
            reader_bytes: make.gauge("slice_reader_bytes", "Bytes of slices that are kept open"),
            keys: make.gauge("store_keys", "Keys in the store"),
            live: make.gauge("store_live_bytes", "Bytes of values in the store, as they are stored"),
            dead: make.gauge("store_dead_bytes", "Bytes on the medium that compaction will give back"),
            free: make.gauge("store_free_bytes", "Bytes free on the medium for values"),
            cache_bytes: make.gauge("store_cache_bytes", "Bytes that the store's cache keeps"),
            cache_hits: make.count("store_cache_hits", "Reads of values that the store's cache answered"),
            cache_misses: make.count("store_cache_misses", "Reads of values that went to the medium"),
            medium_bytes: make.count("store_medium_bytes_read", "Bytes of values that were read from the medium"),
        }
    }

    fn take_store(&self, used: &StoreUse) {
        let set = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.keys, used.keys);
        set(&self.live, used.stored_bytes());
        set(&self.dead, used.dead_bytes);
        set(&self.free, used.free_bytes);
        set(&self.cache_bytes, used.cache.bytes);
        raise(&self.cache_hits, used.cache.hits);
        raise(&self.cache_misses, used.cache.misses);
        raise(&self.medium_bytes, used.cache.missed_bytes);
    }
}

/// Sets a counter to what was counted elsewhere. Two who look at once may be one step off; counters never fall.
fn raise(counter: &Counter, value: u64) {
    counter.inner().fetch_max(value, std::sync::atomic::Ordering::Relaxed);
}

/// What a drive has at the moment, for metrics that are asked and not counted.
pub(crate) struct Sample {
    /// None: the store does not say.
    pub(crate) store: Option<StoreUse>,
    pub(crate) sessions: usize,
    /// Hosts that have sessions, and hosts that wait for one.
    pub(crate) hosts: (usize, usize),
    pub(crate) memory_reserved: u64,
    /// Slices that are open, and their bytes.
    pub(crate) readers: (usize, u64),
    /// Tasks in the foreground and in the background.
    pub(crate) tasks: [usize; 2],
    pub(crate) uptime: Duration,
    /// Time that the reactors have spent on tasks.
    pub(crate) busy: Duration,
    pub(crate) background: BackgroundSample,
}

impl Metrics {
    /// All metrics as OpenMetrics text. Figures of the store are those of the last time that it answered.
    pub(crate) fn text(&self, sample: &Sample) -> String {
        let sampled = &self.sampled;
        if let Some(used) = &sample.store {
            sampled.take_store(used);
        }
        let pairs = [
            (&sampled.sessions, sample.sessions as u64),
            (&sampled.hosts, sample.hosts.0 as u64),
            (&sampled.waiting, sample.hosts.1 as u64),
            (&sampled.memory, sample.memory_reserved),
            (&sampled.readers, sample.readers.0 as u64),
            (&sampled.reader_bytes, sample.readers.1),
        ];
        for (gauge, value) in pairs {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        for (label, live) in CLASSES.iter().zip(sample.tasks) {
            if let Some(gauge) = sampled.tasks.get(label) {
                gauge.set(live as i64);
            }
        }
        sampled.uptime.set(sample.uptime.as_secs_f64());
        self.background.take(&sample.background);
        sampled.busy.inc_by((sample.busy.as_secs_f64() - sampled.busy.get()).max(0.0));
        pithead_observe::text(&self.registry)
    }
}
