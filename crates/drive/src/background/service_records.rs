//! [`ServiceRecords`]: what services were told, and how far they are, as key-values of the drive's store. A drive that is killed
//! goes on from there.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use pithead_door::DedupSettings;
use pithead_model::{Blame, Fault};
use pithead_store::{Durability, Key, Store, Write};
use serde::{Deserialize, Serialize};

/// Keys of services.
const PREFIX: &str = "background/";
/// A position is a few words, and the keys of damaged values.
const POSITION_BYTES_MAX: usize = 1 << 20;

/// What a service is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wish {
    /// Its steps are run.
    Run,
    /// It rests where it is.
    Pause,
    /// It rests, and is nowhere.
    Stop,
}

/// The orders that a service was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServiceOrders {
    /// None: nobody has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wish: Option<Wish>,
    /// Whether the round in hand goes on without a pause.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) hurries: bool,
    /// Bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<u64>,
    /// What deduplication looks at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dedup: Option<DedupSettings>,
}

/// The records of services in the store, and the positions that were written last.
#[derive(Clone, Debug)]
pub(super) struct ServiceRecords {
    store: Arc<dyn Store>,
    positions: Arc<Mutex<HashMap<&'static str, Vec<u8>>>>,
}

impl ServiceRecords {
    pub(super) fn new(store: Arc<dyn Store>) -> ServiceRecords {
        ServiceRecords { store, positions: Arc::default() }
    }

    /// The orders to a service; a record that cannot be read counts as none. Blocks.
    pub(super) fn told(&self, service: &str) -> ServiceOrders {
        self.try_told(service).unwrap_or_else(|fault| {
            tracing::warn!(%fault, "a background service does as if it had been told nothing");
            ServiceOrders::default()
        })
    }

    /// The same; a record that cannot be read is a fault. Blocks.
    pub(super) fn try_told(&self, service: &str) -> Result<ServiceOrders, Fault> {
        let what = |why: &dyn Display| format!("what the service {service} was told cannot be read: {why}");
        match self.store.get(&told_key(service)) {
            Ok(None) => Ok(ServiceOrders::default()),
            Ok(Some((value, _))) => serde_json::from_slice(&value).map_err(|error| Fault::new(Blame::Corrupt, what(&error))),
            Err(error) => {
                let fault = Fault::from(error);
                Err(Fault { message: what(&fault.message), ..fault })
            }
        }
    }

    /// Changes what a service was told, durably. A service that was stopped is nowhere. Blocks.
    pub(super) fn tell(&self, service: &'static str, change: impl FnOnce(&mut ServiceOrders)) -> Result<(), Fault> {
        let mut told = self.told(service);
        change(&mut told);
        let value = serde_json::to_vec(&told).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
        let mut writes = vec![Write::put(told_key(service), value)];
        // Before the write, so that nobody believes what it deletes to be there still.
        let mut positions = self.positions.lock();
        if told.wish == Some(Wish::Stop) {
            positions.remove(service);
            writes.push(Write::delete(position_key(service)));
        }
        Ok(self.store.write(writes, Durability::Through)?)
    }

    /// Where a service was; empty: nowhere. Blocks.
    pub(super) fn position(&self, service: &'static str) -> Vec<u8> {
        let position = self.read(&position_key(service)).unwrap_or_default();
        self.positions.lock().insert(service, position.clone());
        position
    }

    /// Writes down where a service is, if that is news. It may be lost in a crash, which costs the work of a second or so. Blocks.
    pub(super) fn reached(&self, service: &'static str, position: Vec<u8>) -> Result<(), Fault> {
        let mut positions = self.positions.lock();
        let is_known = positions.get(service).map_or(position.is_empty(), |known| *known == position);
        if is_known || position.len() > POSITION_BYTES_MAX {
            return Ok(());
        }
        let write = match position.is_empty() {
            true => Write::delete(position_key(service)),
            false => Write::put(position_key(service), position.clone()),
        };
        self.store.write(vec![write], Durability::Back)?;
        positions.insert(service, position);
        Ok(())
    }

    fn read(&self, key: &Key) -> Option<Vec<u8>> {
        match self.store.get(key) {
            Ok(found) => found.map(|(value, _)| value.to_vec()),
            Err(error) => {
                tracing::warn!(key = %key.escape_ascii(), %error, "a background service begins anew");
                None
            }
        }
    }
}

fn told_key(service: &str) -> Key {
    format!("{PREFIX}{service}/told").into()
}

fn position_key(service: &str) -> Key {
    format!("{PREFIX}{service}/position").into()
}
