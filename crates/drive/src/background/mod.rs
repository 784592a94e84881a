//! A drive's work behind the scenes: services whose steps run on its reactors, their orders, and the records of both.
//!
//! The services of drives that share reactors are told apart by the identity of their drive.

mod compaction;
mod dedup;
mod governor;
mod scrub;
mod service_records;
mod statistics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pithead_door::{BackgroundOrder, BackgroundStatus, CoreStatus, ServiceStatus};
use pithead_model::{Blame, DriveId, Fault};
use pithead_policy::background::BackgroundPolicy;
use pithead_sched::{Activity, CoreState, Pool, Service, ServiceState, Services};
use pithead_store::{Store, show_key};

use crate::resources::Workers;
use crate::storage::Storage;
use compaction::Compaction;
use dedup::{DedupService, DedupTold};
use governor::PolicyGovernor;
use scrub::{DamagedValues, ScrubService};
use service_records::{ServiceOrders, ServiceRecords, Wish};
use statistics::StatisticsService;

/// Reads every stored value.
pub(crate) const SCRUB: &str = "scrub";
/// Gives dead room of the store back.
pub(crate) const COMPACTION: &str = "compaction";
/// Lets values share the bytes that they have in common.
pub(crate) const DEDUP: &str = "dedup";
/// Makes filters of columns that were read in vain.
pub(crate) const STATISTICS: &str = "statistics";
/// All services of a drive.
pub(crate) const SERVICES: [&str; 4] = [SCRUB, COMPACTION, DEDUP, STATISTICS];

/// How often cores are measured, and their grants decided anew.
const INTERVAL: Duration = Duration::from_millis(20);
/// How often it is written down how far services are.
pub(crate) const KEEP_STEP: Duration = Duration::from_secs(5);
/// Damaged values that a status names.
const DAMAGED_MAX: usize = 100;

/// Starts what runs the services of all drives that share these reactors.
pub fn start_services(pool: &Arc<Pool>, policy: BackgroundPolicy) -> Arc<Services> {
    Arc::new(Services::start(pool, Box::new(PolicyGovernor::new(policy)), INTERVAL))
}

/// The services of one drive.
#[derive(Debug)]
pub(crate) struct Background {
    services: Arc<Services>,
    drive: DriveId,
    kept: ServiceRecords,
    store: Arc<dyn Store>,
    workers: Workers,
    /// What the scrub has found.
    found: Arc<Mutex<DamagedValues>>,
    /// Whether the scrub goes on without a pause until its round is over, and whether it is written down that it does.
    hurries: Arc<AtomicBool>,
    keeps_hurry: AtomicBool,
    /// Whether a scrub has no pace of its own: it reads all there is whenever it is told to start.
    scrubs_on_demand: bool,
    /// The policy that the drive began with: its goal is meant where the policy `tail` is asked for without any.
    first_policy: BackgroundPolicy,
    /// What deduplication looks at.
    dedup: Arc<Mutex<DedupTold>>,
    /// One order after the other, so that what is kept is what was told last.
    order: tokio::sync::Mutex<()>,
}

impl Background {
    /// Adds a drive's services, each as it was told before the drive was opened. A scrub takes `scrub_period` for all that is stored;
    /// none: no round begins unless it is told to. Blocks for a few look-ups.
    pub(crate) fn new(
        services: Arc<Services>,
        drive: DriveId,
        storage: &Storage,
        workers: Workers,
        first_policy: BackgroundPolicy,
        scrub_period: Option<Duration>,
    ) -> Background {
        let store = &storage.store;
        let kept = ServiceRecords::new(Arc::clone(store));
        let found = Arc::<Mutex<DamagedValues>>::default();
        let is_in_hurry = kept.told(SCRUB).hurries;
        let (hurries, keeps_hurry) = (Arc::new(AtomicBool::new(is_in_hurry)), AtomicBool::new(is_in_hurry));
        let scrub =
            ScrubService::new(Arc::clone(store), scrub_period, &kept.position(SCRUB), Arc::clone(&found), Arc::clone(&hurries));
        let told = DedupTold { settings: kept.told(DEDUP).dedup, hurries: false };
        let dedup = Arc::new(Mutex::new(told));
        let deduplicates = DedupService::new(Arc::clone(store), Arc::clone(&dedup), kept.position(DEDUP));
        let order = tokio::sync::Mutex::default();
        let scrubs_on_demand = scrub_period.is_none();
        let background = Background {
            services,
            drive,
            kept,
            store: Arc::clone(store),
            workers,
            found,
            hurries,
            keeps_hurry,
            scrubs_on_demand,
            first_policy,
            dedup,
            order,
        };
        background.add(SCRUB, Box::new(scrub), scrub_period.is_some());
        background.add(COMPACTION, Box::new(Compaction::new(Arc::clone(store))), true);
        background.add(DEDUP, Box::new(deduplicates), false);
        let (filters, leases) = (Arc::clone(storage.slices.filters()), Arc::clone(&storage.leases));
        background.add(STATISTICS, Box::new(StatisticsService::new(Arc::clone(store), filters, leases)), true);
        background
    }

    /// A service that nobody has told anything, and that does not run by default, keeps its place for whoever opens the drive next.
    fn add(&self, service: &str, runs: Box<dyn Service>, by_default: bool) {
        let told = self.kept.told(service);
        let wish = told.wish.unwrap_or(match by_default {
            true => Wish::Run,
            false if runs.position().is_empty() => Wish::Stop,
            false => Wish::Pause,
        });
        let name = self.name(service);
        self.services.add(&name, runs, wish != Wish::Run);
        self.services.limit(&name, told.limit);
        if wish == Wish::Stop {
            self.services.stop(&name);
        }
    }

    /// What a service is called beside those of other drives.
    fn name(&self, service: &str) -> String {
        format!("{service} of drive {}", self.drive)
    }

    /// Does what it is told, durably where it is to outlast the process, and says how all is then.
    pub(crate) async fn order(&self, order: BackgroundOrder) -> Result<BackgroundStatus, Fault> {
        let _turn = self.order.lock().await;
        match order {
            BackgroundOrder::Look => {}
            BackgroundOrder::Start(service) => self.start(&service).await?,
            BackgroundOrder::Pause(service) => {
                self.wish(&service, Wish::Pause).await?;
                self.services.pause(&self.name(&service));
            }
            BackgroundOrder::Stop(service) => {
                self.wish(&service, Wish::Stop).await?;
                self.services.stop(&self.name(&service));
                if service == SCRUB {
                    self.hurry(false);
                    self.found.lock().forget();
                }
            }
            BackgroundOrder::Limit { service, bytes_per_second } => {
                let limit = bytes_per_second.map(|limit| limit.max(1));
                self.keep(&service, move |told| told.limit = limit).await?;
                self.services.limit(&self.name(&service), limit);
            }
            BackgroundOrder::Deduplicate(settings) => {
                dedup::check(&settings)?;
                let kept = settings.clone();
                self.keep(DEDUP, move |told| told.dedup = Some(kept)).await?;
                self.dedup.lock().settings = Some(settings);
            }
            BackgroundOrder::Policy(policy) => {
                let policy = match (policy.as_str(), self.first_policy) {
                    ("tail", BackgroundPolicy::Tail(goal)) => BackgroundPolicy::Tail(goal),
                    _ => policy.parse().map_err(|why| Fault::new(Blame::User, why))?,
                };
                self.services.govern(Box::new(PolicyGovernor::new(policy)));
            }
        }
        Ok(self.status().await)
    }

    async fn start(&self, service: &str) -> Result<(), Fault> {
        let name = self.name(check(service)?);
        let state = self.services.list().into_iter().find(|state| state.name == name);
        if let Some(Activity::Broken(why)) = state.as_ref().map(|state| &state.activity) {
            let fault = Fault::new(Blame::Bug, format!("the service {service} is broken: a step of it panicked: {why}"));
            return Err(fault.hint("it runs again after the drive is started again"));
        }
        if service == DEDUP && self.dedup.lock().settings.is_none() {
            self.find_settings().await?;
        }
        let ran = state.is_some_and(|state| !matches!(state.activity, Activity::Paused | Activity::Stopped));
        let hurries = service == SCRUB && (ran || self.scrubs_on_demand);
        self.keep(service, move |told| (told.wish, told.hurries) = (Some(Wish::Run), told.hurries || hurries)).await?;
        if hurries {
            self.hurry(true);
        }
        if service == DEDUP {
            self.dedup.lock().hurries = true;
        }
        self.services.resume(&name);
        Ok(())
    }

    /// What deduplication was told to look at, where that could not be read when the drive was opened, or nobody has said so.
    async fn find_settings(&self) -> Result<(), Fault> {
        let kept = self.kept.clone();
        let told = self.workers.blocking(move || kept.try_told(DEDUP)).await?;
        let told = told.map_err(|fault| {
            fault.hint("say anew what it is to look at, as in `pithead service start dedup --domain main --kinetic`")
        })?;
        let settings = told.dedup.ok_or_else(dedup::none_named)?;
        self.dedup.lock().settings = Some(settings);
        Ok(())
    }

    /// A service that is stopped hurries no more.
    async fn wish(&self, service: &str, wish: Wish) -> Result<(), Fault> {
        self.keep(service, move |told| (told.wish, told.hurries) = (Some(wish), told.hurries && wish != Wish::Stop)).await
    }

    /// Sets what has been written down.
    fn hurry(&self, hurries: bool) {
        self.hurries.store(hurries, Ordering::Relaxed);
        self.keeps_hurry.store(hurries, Ordering::Relaxed);
    }

    async fn keep(&self, service: &str, change: impl FnOnce(&mut ServiceOrders) + Send + 'static) -> Result<(), Fault> {
        let (kept, service) = (self.kept.clone(), check(service)?);
        self.workers.blocking(move || kept.tell(service, change)).await?
    }

    /// Writes down how far services are, where that has changed. Blocks.
    pub(crate) fn keep_positions(&self) -> Result<(), Fault> {
        for service in SERVICES {
            if let Some(state) = self.state(service) {
                self.kept.reached(service, state.position)?;
            }
        }
        self.keep_end_of_hurry()
    }

    /// Writes down that a round is over that went on without a pause. While an order is being carried out, that waits. Blocks.
    fn keep_end_of_hurry(&self) -> Result<(), Fault> {
        let Ok(_turn) = self.order.try_lock() else { return Ok(()) };
        if self.hurries.load(Ordering::Relaxed) || !self.keeps_hurry.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.kept.tell(SCRUB, |told| told.hurries = false)?;
        self.keeps_hurry.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Writes down how far services are, and ends them: they hold the store no longer. Blocks for a step at most.
    pub(crate) fn end(&self) {
        if let Err(fault) = self.keep_positions() {
            tracing::warn!(%fault, "how far background services are was not written down");
        }
        for service in SERVICES {
            self.services.remove(&self.name(service));
        }
    }

    fn state(&self, service: &str) -> Option<ServiceState> {
        let name = self.name(service);
        self.services.list().into_iter().find(|state| state.name == name)
    }

    /// What runs them.
    #[cfg(test)]
    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// How all is, without damaged values that are gone.
    pub(crate) async fn status(&self) -> BackgroundStatus {
        if self.found.lock().keys().next().is_some() {
            let (store, found) = (Arc::clone(&self.store), Arc::clone(&self.found));
            if let Err(fault) = self.workers.blocking(move || scrub::forget_gone(&*store, &found)).await {
                tracing::warn!(%fault, "whether damaged values are still there is not known");
            }
        }
        let all = self.services.list();
        let mine = SERVICES.iter().filter_map(|service| {
            let name = self.name(service);
            all.iter().find(|state| state.name == name).map(|state| self.service_status(service, state))
        });
        BackgroundStatus {
            policy: self.services.governor(),
            cores: self.services.cores().into_iter().map(core_status).collect(),
            services: mine.collect(),
        }
    }

    fn service_status(&self, service: &str, state: &ServiceState) -> ServiceStatus {
        let (activity, why) = match &state.activity {
            Activity::Running => ("running", None),
            Activity::Idle => ("idle", None),
            Activity::Paused => ("paused", None),
            Activity::Stopped => ("stopped", None),
            Activity::Failed(why) => ("failed", Some(why.clone())),
            Activity::Broken(why) => ("broken", Some(why.clone())),
        };
        let damaged = match service {
            SCRUB => self.found.lock().keys().take(DAMAGED_MAX).map(|key| show_key(key)).collect(),
            _ => Vec::new(),
        };
        ServiceStatus {
            name: service.to_owned(),
            activity: activity.to_owned(),
            why,
            done_bytes: state.progress.done_bytes,
            total_bytes: state.progress.total_bytes,
            found: if service == SCRUB { self.found.lock().count() } else { state.progress.found },
            damaged,
            dedup: if service == DEDUP { self.dedup.lock().settings.clone() } else { None },
            // A sum of nothing is -0.
            bytes_per_second: state.bytes_per_second + 0.0,
            limit: state.limit,
            left_s: state.left().filter(|_| goes_on(&state.activity)).map(|left| left.as_secs()),
            steps: state.steps,
            bytes: state.bytes,
            busy_ns: state.busy.as_nanos() as u64,
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for service in SERVICES {
            self.services.remove(&self.name(service));
        }
    }
}

/// Whether a service will end its round without being told anything.
fn goes_on(activity: &Activity) -> bool {
    matches!(activity, Activity::Running | Activity::Idle | Activity::Failed(_))
}

fn core_status(core: CoreState) -> CoreStatus {
    CoreStatus {
        foreground: core.load.foreground,
        background: core.load.background,
        queue_delay_us: core.load.queue_delay.as_secs_f64() * 1e6,
        share: core.grant.share,
        strict: core.grant.strict,
        stalls: core.counts.stalls,
        stalled: core.stalled.map(|(task, held)| format!("{task} ({held:.1?})")),
        steps: core.steps,
        moves: core.moves,
    }
}

/// The service of this name.
fn check(service: &str) -> Result<&'static str, Fault> {
    SERVICES.into_iter().find(|known| *known == service).ok_or_else(|| {
        let named: String = service.chars().take(40).collect();
        Fault::new(Blame::User, format!("no service {named:?}; the services are {}", SERVICES.join(", ")))
            .hint("`pithead service ls` shows them")
    })
}
