//! [`Service`]: what all connections share.

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use pithead_device::Device;
use pithead_model::Fault;
use pithead_sched::Pool;
use pithead_store::Store;
use tokio::sync::Semaphore;

use crate::applets::{Applets, RUNNING_MAX};
use crate::batch_room::BatchRoom;
use crate::code::Failure;
use crate::erasures::Erasures;
use crate::identity::Identity;
use crate::machine::Machine;
use crate::metrics::Metrics;
use crate::options::{KineticOptions, Ports};
use crate::pin_turns::PinTurns;
use crate::proto::{Message, auth};
use crate::receiving::Receiving;
use crate::release::Release;
use crate::resident::ResidentLooks;
use crate::sign::verify;
use crate::slices::Slices;
use crate::space::Space;
use crate::state::States;
use crate::turns::Turns;

/// Requests that the store does at one time, a reactor. Most of them wait for a flush, and those that wait together share one. Requests
/// of queries have the pool's other threads.
const TURNS_PER_REACTOR: usize = 8;
/// The power level at which everything is done.
pub(crate) const OPERATIONAL: i32 = 1;
/// Events that GETLOG can tell of.
const EVENTS_MAX: usize = 64;

/// What the protocol is served over.
#[derive(Debug)]
pub struct Parts {
    /// The drive's store.
    pub store: Arc<dyn Store>,
    /// Its slices.
    pub slices: Arc<dyn Slices>,
    /// What runs programs.
    pub applets: Arc<dyn Applets>,
    /// The threads that calls of the store run on: those of queries.
    pub pool: Arc<Pool>,
    /// The drive's hardware.
    pub device: Arc<dyn Device>,
    /// The folder whose medium GETLOG tells of.
    pub folder: Option<PathBuf>,
}

/// The protocol over one store.
#[derive(Debug)]
pub struct Service {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) slices: Arc<dyn Slices>,
    pub(crate) applets: Arc<dyn Applets>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) options: KineticOptions,
    pub(crate) states: States,
    pub(crate) metrics: Metrics,
    pub(crate) machine: Machine,
    pub(crate) turns: Arc<Turns>,
    /// One for each program that may run besides.
    pub(crate) applets_running: Semaphore,
    /// Held by the one check or compaction that may run.
    pub(crate) upkeep: Mutex<()>,
    /// Who has a PIN compared.
    pub(crate) pin_turns: PinTurns,
    pub(crate) power: AtomicI32,
    /// Bytes that open batches hold.
    pub(crate) batch_room: Arc<BatchRoom>,
    /// Long messages that are received.
    pub(crate) receiving: Arc<Receiving>,
    /// Which batches were opened too early to be done.
    pub(crate) erasures: Erasures,
    pub(crate) resident_looks: ResidentLooks,
    pub(crate) release: Release,
    pub(crate) ports: OnceLock<Ports>,
    connections: AtomicI64,
    events: Mutex<VecDeque<String>>,
}

impl Service {
    /// Over a store that is open. It blocks for as long as it takes to read the protocol's own state.
    pub fn open(parts: Parts, options: KineticOptions) -> Result<Arc<Service>, Fault> {
        let hint = "a drive that is started without --kinetic serves queries all the same";
        let states = States::open(Arc::clone(&parts.store)).map_err(|error| Fault::from(error).hint(hint))?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let service = Service {
            turns: Turns::new(parts.pool.reactors() * TURNS_PER_REACTOR, options.limits.waiting),
            batch_room: BatchRoom::new(options.limits.batch_bytes),
            applets_running: Semaphore::new(RUNNING_MAX),
            machine: Machine::new(parts.folder),
            store: parts.store,
            slices: parts.slices,
            applets: parts.applets,
            pool: parts.pool,
            device: parts.device,
            options,
            states,
            metrics: Metrics::new(),
            upkeep: Mutex::default(),
            pin_turns: PinTurns::default(),
            power: AtomicI32::new(OPERATIONAL),
            receiving: Arc::default(),
            erasures: Erasures::default(),
            resident_looks: ResidentLooks::default(),
            release: Release::running(),
            ports: OnceLock::new(),
            // Numbers that no connection had before a restart.
            connections: AtomicI64::new(since_epoch.as_millis() as i64),
            events: Mutex::default(),
        };
        service.tell("started");
        Ok(Arc::new(service))
    }

    /// All metrics of the protocol as OpenMetrics text.
    pub fn metrics_text(&self) -> String {
        self.metrics.waiting.set(self.turns.count().1 as i64);
        self.metrics.text()
    }

    /// Whether everybody knows how to sign requests here.
    pub fn has_factory_identity(&self) -> bool {
        self.states.get().identities.values().any(|identity| identity.is_factory())
    }

    pub(crate) fn next_connection(&self) -> i64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Refuses an identity that is no more, or may do other things now. A request may have waited for long since it was checked.
    pub(crate) fn check_known(&self, identity: &Arc<Identity>) -> Result<(), Failure> {
        match self.states.get().identities.get(&identity.number) {
            Some(now) if Arc::ptr_eq(now, identity) || now == identity => Ok(()),
            _ => Err(Failure::not_authorized(format!("identity {} was changed meanwhile", identity.number))),
        }
    }

    /// Does the writes of a request, whose sender has to be known still. Whoever takes the sender away and then erases all keys, takes
    /// these with them.
    pub(crate) fn while_known<T>(
        &self,
        identity: &Arc<Identity>,
        write: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.erasures.during(|| self.check_known(identity).and_then(|()| write()))
    }

    /// Whether a message has the signature of an identity.
    pub(crate) fn is_signed(&self, message: &Message) -> bool {
        let Some(sent) = message.hmac_auth.as_ref().filter(|_| message.auth_type == Some(auth::HMAC)) else { return false };
        let identity = self.states.get().identities.get(&sent.identity.unwrap_or(0)).cloned();
        let bytes = message.command_bytes.as_deref().unwrap_or_default();
        identity.is_some_and(|identity| verify(&identity.key, bytes, sent.hmac.as_deref().unwrap_or_default()))
    }

    /// The keys that an identity sees over a link.
    pub(crate) fn space<'a>(&'a self, identity: &'a Identity, tls: bool) -> Space<'a> {
        Space { store: &*self.store, slices: &*self.slices, identity, tls }
    }

    /// Notes an event, in the log and for GETLOG.
    pub(crate) fn tell(&self, event: impl Display) {
        tracing::info!("kinetic: {event}");
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut events = self.events.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(format!("{seconds} {event}\n"));
    }

    /// The last events, oldest first, each with the seconds since 1970.
    pub(crate) fn events(&self) -> String {
        self.events.lock().iter().map(String::as_str).collect()
    }
}
