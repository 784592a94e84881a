//! What is counted of background services, and of the reactors that they share with the foreground.

use std::time::Duration;

use pithead_door::{BackgroundStatus, ServiceStatus};
use pithead_observe::{Counter, Gauge, Labelled, Seconds};
use pithead_sched::CoreCounts;

use super::{Maker, raise};
use crate::background::{DEDUP, SCRUB, SERVICES};

/// Metrics of background services.
#[derive(Debug)]
pub(super) struct BackgroundMetrics {
    running: Labelled<Gauge>,
    steps: Labelled<Counter>,
    bytes: Labelled<Counter>,
    seconds: Labelled<Seconds>,
    damaged: Gauge,
    saved: Gauge,
    background: Seconds,
    waits: Counter,
    wait_seconds: Seconds,
    stalls: Counter,
    moves: Counter,
}

impl BackgroundMetrics {
    pub(super) fn new(make: &mut Maker<'_>) -> Self {
        let mut of_service = |name: &str, help: &str| Labelled::register(make.0, name, help, "service", &SERVICES);
        Self {
            steps: of_service("service_steps", "Steps of background services"),
            bytes: of_service("service_bytes", "Bytes that background services read, moved or gave back"),
            running: Labelled::register(
                make.0,
                "service_running",
                "Whether a background service has something to do and may do it: 1, else 0",
                "service",
                &SERVICES,
            ),
            seconds: Labelled::register(
                make.0,
                "service_busy_seconds",
                "Time of steps of background services",
                "service",
                &SERVICES,
            ),
            damaged: make.gauge("scrub_damaged_values", "Damaged values that the scrub knows of"),
            saved: make.gauge("dedup_saved_bytes", "Bytes that the store saves by deduplication"),
            background: make.seconds("reactor_background_seconds", "CPU time of background work, of all cores together"),
            waits: make.count("reactor_waits", "Times that a foreground task was ready and then had its turn at a reactor"),
            wait_seconds: make.seconds("reactor_wait_seconds", "Time that these tasks waited for their reactor"),
            stalls: make.count("reactor_stalls", "Tasks that held a reactor for more than 250 ms"),
            moves: make.count("background_moves", "Steps of background services that ran on another core than the one before"),
        }
    }

    pub(super) fn take(&self, sample: &BackgroundSample) {
        for service in &sample.status.services {
            self.take_service(service);
        }
        let sum = |of: fn(&CoreCounts) -> u64| sample.reactors.iter().map(of).sum::<u64>();
        let seconds = |of| Duration::from_nanos(sum(of)).as_secs_f64();
        raise(&self.waits, sum(|core| core.polls));
        raise(&self.stalls, sum(|core| core.stalls));
        raise(&self.moves, sample.status.cores.iter().map(|core| core.moves).sum());
        raise_seconds(&self.background, seconds(|core| core.background_ns));
        raise_seconds(&self.wait_seconds, seconds(|core| core.delay_ns));
    }

    fn take_service(&self, service: &ServiceStatus) {
        if service.name == SCRUB {
            self.damaged.set(i64::try_from(service.found).unwrap_or(i64::MAX));
        }
        if service.name == DEDUP {
            self.saved.set(i64::try_from(service.found).unwrap_or(i64::MAX));
        }
        if let Some(gauge) = self.running.get(&service.name) {
            gauge.set(i64::from(service.activity == "running"));
        }
        if let Some(counter) = self.steps.get(&service.name) {
            raise(counter, service.steps);
        }
        if let Some(counter) = self.bytes.get(&service.name) {
            raise(counter, service.bytes);
        }
        if let Some(counter) = self.seconds.get(&service.name) {
            raise_seconds(counter, Duration::from_nanos(service.busy_ns).as_secs_f64());
        }
    }
}

/// Background services and reactors at the moment.
pub(crate) struct BackgroundSample {
    pub(crate) status: BackgroundStatus,
    pub(crate) reactors: Vec<CoreCounts>,
}

fn raise_seconds(counter: &Seconds, seconds: f64) {
    counter.inc_by((seconds - counter.get()).max(0.0));
}
