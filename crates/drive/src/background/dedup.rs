//! [`DedupService`]: values that have bytes in common share them, round after round.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pithead_door::DedupSettings;
use pithead_model::{Blame, DatasetName, Fault};
use pithead_sched::{Progress, Service, Stepped};
use pithead_store::{Chunking, Dedup, DedupOptions, Key, Store};
use serde::{Deserialize, Serialize};

use super::scrub::{from_hex, to_hex};
use crate::programs::FILE_PREFIX;
use crate::storage::SLICE_PREFIX;

/// Bytes of a step.
const STEP_BYTES: u64 = 64 << 10;
/// How long after a round the next one looks for what is new.
const REST: Duration = Duration::from_secs(600);
/// How long to wait after a step has failed.
const FAILED: Duration = Duration::from_secs(60);
/// The memory for known chunks.
const MEMORY_BYTES: u64 = 64 << 20;
/// How often the store is asked how much is saved, in a round and between rounds.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_AT_REST: Duration = Duration::from_secs(5);

/// The orders to the service, which it shares with those who steer it.
#[derive(Debug, Default)]
pub(super) struct DedupTold {
    /// None: nobody has said so.
    pub(super) settings: Option<DedupSettings>,
    /// Whether the next round begins at once.
    pub(super) hurries: bool,
}

/// Where a round is, as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Position {
    /// The last key that was looked at, in hexadecimal digits.
    after: String,
    /// Bytes of values that were looked at before.
    done_bytes: u64,
}

/// Rounds over the values of some domains, and those of Kinetic clients.
pub(super) struct DedupService {
    store: Arc<dyn Store>,
    told: Arc<Mutex<DedupTold>>,
    /// None until there are settings; with those that it was made of.
    dedup: Option<(Dedup, DedupSettings)>,
    /// The position in the store, until the first round goes on there.
    position: Vec<u8>,
    /// When the next round begins.
    due: Option<Instant>,
    saved_bytes: u64,
    looked: Option<Instant>,
}

impl DedupService {
    /// Goes on at a position.
    pub(super) fn new(store: Arc<dyn Store>, told: Arc<Mutex<DedupTold>>, position: Vec<u8>) -> DedupService {
        let mut service = DedupService { store, told, dedup: None, position, due: None, saved_bytes: 0, looked: None };
        service.look();
        service
    }

    /// Takes up settings that have changed; false: there are none.
    fn is_set(&mut self) -> bool {
        let told = self.told.lock();
        let Some(settings) = &told.settings else { return false };
        if self.dedup.as_ref().is_some_and(|(_, known)| known == settings) {
            return true;
        }
        let Ok(options) = options(settings) else { return false };
        let mut dedup = Dedup::new(options);
        let position = std::mem::take(&mut self.position);
        if let Ok(Position { after, done_bytes }) = serde_json::from_slice(&position)
            && let Some(key) = from_hex(&after)
        {
            dedup.go_on_after(key, done_bytes);
        }
        (self.dedup, self.due) = (Some((dedup, settings.clone())), None);
        true
    }

    fn look(&mut self) {
        if self.looked.is_none_or(|looked| looked.elapsed() > LOOK) {
            self.saved_bytes = self.store.usage().map_or(self.saved_bytes, |used| used.saved_bytes());
            self.looked = Some(Instant::now());
        }
    }

    fn end_round(&mut self) {
        self.told.lock().hurries = false;
        self.looked = None;
        self.look();
        self.due = Some(Instant::now() + REST);
        tracing::info!(saved = self.saved_bytes, "all values were looked at for what they have in common");
    }
}

impl Service for DedupService {
    fn step(&mut self) -> Stepped {
        if !self.is_set() {
            return Stepped::Idle { pause: REST };
        }
        let left = self.due.map(|due| due.saturating_duration_since(Instant::now()));
        match left.filter(|left| !left.is_zero()) {
            Some(pause) if !std::mem::take(&mut self.told.lock().hurries) => {
                self.look();
                return Stepped::Idle { pause: pause.min(LOOK_AT_REST) };
            }
            _ => self.due = None,
        }
        let Some((dedup, _)) = &mut self.dedup else { return Stepped::Idle { pause: REST } };
        match self.store.dedup_step(dedup, STEP_BYTES) {
            Ok(Some(bytes)) => {
                self.look();
                Stepped::Did { bytes }
            }
            Ok(None) => {
                self.end_round();
                Stepped::Did { bytes: 0 }
            }
            Err(error) => Stepped::Failed { why: error.to_string(), pause: FAILED },
        }
    }

    fn blocks(&self) -> bool {
        !self.dedup.as_ref().is_some_and(|(dedup, _)| dedup.computes())
    }

    fn only_reads(&self) -> bool {
        self.dedup.as_ref().is_some_and(|(dedup, _)| dedup.only_reads())
    }

    fn progress(&self) -> Progress {
        let (done_bytes, total_bytes) = self.dedup.as_ref().map_or((0, 0), |(dedup, _)| dedup.progress());
        Progress { done_bytes, total_bytes, found: self.saved_bytes }
    }

    fn position(&self) -> Vec<u8> {
        let Some((dedup, _)) = &self.dedup else { return self.position.clone() };
        let Some(after) = dedup.after() else { return Vec::new() };
        let position = Position { after: to_hex(after), done_bytes: dedup.progress().0 };
        serde_json::to_vec(&position).unwrap_or_default()
    }

    fn restart(&mut self) {
        (self.dedup, self.position, self.due) = (None, Vec::new(), None);
    }
}

/// Refuses settings that mean nothing.
pub(super) fn check(settings: &DedupSettings) -> Result<(), Fault> {
    options(settings)?;
    if settings.domains.is_empty() && !settings.kinetic {
        return Err(none_named());
    }
    Ok(())
}

/// Nobody has said what is to be deduplicated.
pub(super) fn none_named() -> Fault {
    Fault::new(Blame::User, "expected what is to be deduplicated: domains, the values of Kinetic clients, or both")
        .hint("for example `pithead service start dedup --domain main --kinetic`")
}

/// Each domain is a scope of its own, and so are the values of Kinetic clients.
fn options(settings: &DedupSettings) -> Result<DedupOptions, Fault> {
    let chunking: Chunking = settings.chunks.parse().map_err(|why: String| Fault::new(Blame::User, why))?;
    let mut scopes: Vec<Key> = Vec::with_capacity(settings.domains.len() + 1);
    for domain in &settings.domains {
        // Refuses what is no name, and could reach into another domain's keys.
        DatasetName::new(domain.clone(), "any".to_owned())?;
        scopes.push(format!("{SLICE_PREFIX}{domain}/").into());
    }
    if settings.kinetic {
        scopes.push(Key::from_static(FILE_PREFIX.as_bytes()));
    }
    scopes.sort();
    scopes.dedup();
    Ok(DedupOptions { chunking, scopes, memory_bytes: MEMORY_BYTES })
}

#[cfg(test)]
mod tests {
    use pithead_store::{DiskStore, Durability, StoreOptions, Write};

    use super::*;

    fn settings(domains: &[&str], kinetic: bool) -> DedupSettings {
        let domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
        DedupSettings { chunks: "cdc".into(), domains, kinetic }
    }

    #[test]
    fn settings_name_domains_or_kinetic_values() {
        let scopes = options(&settings(&["main", "lab", "main"], true)).unwrap().scopes;
        assert_eq!(scopes, ["kinetic/key/", "slice/lab/", "slice/main/"]);
        check(&settings(&["main"], false)).unwrap();
        check(&settings(&[], true)).unwrap();
        for wrong in [settings(&[], false), settings(&[""], true), settings(&["a/b"], false)] {
            assert_eq!(check(&wrong).unwrap_err().blame, Blame::User, "{wrong:?}");
        }
        assert!(check(&DedupSettings { chunks: "3KiB".into(), ..settings(&["main"], true) }).is_err());
    }

    #[test]
    fn a_service_rests_until_it_is_set_and_after_a_round() {
        let directory = tempfile::tempdir().unwrap();
        let options = StoreOptions { background: false, ..StoreOptions::default() };
        let store: Arc<dyn Store> = Arc::new(DiskStore::open(directory.path(), options).unwrap());
        let value: Vec<u8> = (0..200_000_u32).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
        let puts = ["slice/main/a", "slice/main/b", "slice/lab/c"].map(|key| Write::put(key, value.clone()));
        store.write(puts.into(), Durability::Through).unwrap();
        let told = Arc::<Mutex<DedupTold>>::default();
        let mut service = DedupService::new(Arc::clone(&store), Arc::clone(&told), Vec::new());
        assert_eq!(service.step(), Stepped::Idle { pause: REST });
        told.lock().settings = Some(settings(&["main"], false));
        let mut position = Vec::new();
        while matches!(service.step(), Stepped::Did { .. }) {
            if !service.position().is_empty() {
                position = service.position();
            }
        }
        assert_eq!(service.progress().found, 800_000);
        assert!(service.position().is_empty(), "the round is over");
        assert_eq!(service.step(), Stepped::Idle { pause: LOOK_AT_REST });
        told.lock().hurries = true;
        assert!(matches!(service.step(), Stepped::Did { .. }));
        // A drive that is started again goes on from there.
        let again = DedupService::new(store, told, position.clone());
        assert_eq!((again.position(), again.progress().found), (position, 800_000));
    }
}
