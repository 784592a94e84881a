//! [`States`]: what the protocol itself keeps in the store, so that it survives a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use pithead_store::{Durability, Store, StoreError, Write};
use serde::{Deserialize, Serialize};

use crate::identity::{FACTORY_IDENTITY, Identity};
use crate::keys::STATE_KEY;

/// The protocol's own state. It is stored as JSON under a key that no client can name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceState {
    /// The version that requests have to name.
    pub cluster_version: i64,
    /// Whether a PIN has locked the device.
    pub locked: bool,
    /// The PIN for locks; empty: none was set.
    pub lock_pin: Vec<u8>,
    /// The PIN for erasing; empty: none was set.
    pub erase_pin: Vec<u8>,
    /// Who signs requests, by number.
    pub identities: BTreeMap<i64, Arc<Identity>>,
}

impl Default for DeviceState {
    fn default() -> Self {
        let identities = BTreeMap::from([(FACTORY_IDENTITY, Arc::new(Identity::factory()))]);
        Self { cluster_version: 0, locked: false, lock_pin: Vec::new(), erase_pin: Vec::new(), identities }
    }
}

/// The state as it is, and the way to change it.
#[derive(Debug)]
pub(crate) struct States {
    store: Arc<dyn Store>,
    now: RwLock<Arc<DeviceState>>,
    /// Held while the state is changed: one change at a time.
    changing: Mutex<()>,
}

impl States {
    /// Reads the state, or begins with that of a new device.
    pub fn open(store: Arc<dyn Store>) -> Result<States, StoreError> {
        let state = match store.get(STATE_KEY)? {
            None => DeviceState::default(),
            Some((value, _)) => serde_json::from_slice(&value)
                .map_err(|error| StoreError::Corrupt { key: STATE_KEY.escape_ascii().to_string(), what: error.to_string() })?,
        };
        Ok(States { store, now: RwLock::new(Arc::new(state)), changing: Mutex::new(()) })
    }

    /// The state as it is.
    pub fn get(&self) -> Arc<DeviceState> {
        Arc::clone(&self.now.read())
    }

    /// Changes the state durably. If `change` fails or the store does, nothing has changed. It blocks.
    pub fn change<E: From<StoreError>>(&self, change: impl FnOnce(&mut DeviceState) -> Result<(), E>) -> Result<(), E> {
        let _one = self.changing.lock();
        let mut next = DeviceState::clone(&self.get());
        change(&mut next)?;
        let json = serde_json::to_vec(&next).map_err(|error| StoreError::TooLarge(error.to_string()))?;
        // A locked drive that is full is unlocked all the same.
        self.store.write(vec![Write::put(STATE_KEY, json)], Durability::Reserved)?;
        *self.now.write() = Arc::new(next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pithead_store::MemoryStore;

    use super::*;
    use crate::code::Failure;
    use crate::identity::Scope;

    #[test]
    fn changes_survive_and_failed_ones_do_not() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let states = States::open(Arc::clone(&store)).unwrap();
        let lock = |state: &mut DeviceState| {
            state.locked = true;
            state.cluster_version = -3;
            state.lock_pin = vec![0, 255];
            Ok::<_, Failure>(())
        };
        states.change(lock).unwrap();
        let failed = |state: &mut DeviceState| {
            state.locked = false;
            Err(Failure::invalid("no"))
        };
        assert!(states.change(failed).is_err());
        let again = States::open(Arc::clone(&store)).unwrap();
        assert_eq!(again.get(), states.get());
        assert!(again.get().locked && again.get().identities.contains_key(&FACTORY_IDENTITY));
        store.write(vec![Write::put(STATE_KEY, "{")], Durability::Through).unwrap();
        assert!(matches!(States::open(store), Err(StoreError::Corrupt { .. })));
    }

    /// Releases of before had no bounds for scopes.
    #[test]
    fn an_identity_that_would_be_refused_now_is_read() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut scopes = vec![Scope::everything(); 300];
        scopes.push(Scope { offset: 4_096, value: vec![b'x'; 5_000], ..Scope::everything() });
        let mut state = DeviceState::default();
        state.identities.insert(7, Arc::new(Identity { number: 7, scopes, ..Identity::factory() }));
        let json = serde_json::to_vec(&state).unwrap();
        store.write(vec![Write::put(STATE_KEY, json)], Durability::Through).unwrap();
        assert_eq!(*States::open(store).unwrap().get(), state);
    }
}
