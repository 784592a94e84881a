//! SETUP and SET_POWER_LEVEL.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use pithead_store::{Durability, KeyRange, Store, StoreError, Write};

use crate::code::{Code, Failure};
use crate::execute::{Answer, Call};
use crate::identity::Permission;
use crate::keys::CLIENT_PREFIX;
use crate::pins::SentPin;
use crate::proto::Setup;
use crate::service::{OPERATIONAL, Service};

/// Only the power level can be changed.
const HIBERNATE: i32 = 2;
/// As HIBERNATE, but clients are told that the drive is shut down.
const SHUTDOWN: i32 = 3;
/// The number of SETUP's operation for firmware.
const FIRMWARE: i32 = 1;
/// Keys that are deleted in one write.
const ERASED_AT_ONCE: usize = 1_024;

impl Service {
    pub(crate) fn setup(&self, call: &Call) -> Result<Answer, Failure> {
        let setup = check_setup(call)?;
        if let Some(pin) = erase_pin(setup) {
            // It was compared, and may have been changed since.
            self.check_sent(pin, call.link)?;
            self.erase_keys()?;
            self.tell(format_args!("identity {} erased all keys of clients", call.identity.number));
        }
        if let Some(version) = setup.new_cluster_version {
            self.states.change(|state| {
                state.cluster_version = version;
                Ok::<_, Failure>(())
            })?;
            self.tell(format_args!("the cluster version is {version}"));
        }
        Ok(Answer::success())
    }

    /// Deletes all keys of clients, and nothing else. It ends durably. Batches that were opened before its end are not done.
    pub(crate) fn erase_keys(&self) -> Result<(), StoreError> {
        self.erasures.note();
        let erased = erase(&*self.store);
        self.erasures.note();
        erased
    }

    pub(crate) fn set_power_level(&self, call: &Call) -> Result<Answer, Failure> {
        let power = call.body.power.as_ref().ok_or_else(|| Failure::invalid("SET_POWER_LEVEL has a power"))?;
        call.check(Permission::Power, None)?;
        match power.level {
            Some(level @ (OPERATIONAL | HIBERNATE | SHUTDOWN)) => {
                self.power.store(level, Ordering::Release);
                self.tell(format_args!("the power level is {level}"));
                Ok(Answer::success())
            }
            _ => Err(Failure::invalid("a power level is OPERATIONAL (1), HIBERNATE (2) or SHUTDOWN (3)")),
        }
    }

    /// Refuses all but a change of the power level while the drive hibernates.
    pub(crate) fn check_power(&self) -> Result<(), Failure> {
        match self.power.load(Ordering::Acquire) {
            HIBERNATE => Err(Failure::new(Code::Hibernate, "the drive hibernates")),
            SHUTDOWN => Err(Failure::new(Code::Shutdown, "the drive is shut down")),
            _ => Ok(()),
        }
    }
}

/// The PIN of a request for an erasure; none: it asks for none, or is refused whatever its PIN.
pub(crate) fn setup_pin(call: &Call) -> Option<SentPin<'_>> {
    check_setup(call).ok().and_then(erase_pin)
}

fn erase_pin(setup: &Setup) -> Option<SentPin<'_>> {
    (setup.instant_secure_erase == Some(true)).then(|| SentPin::Erase(setup.pin.as_deref().unwrap_or_default()))
}

/// Refuses what is not done whatever its PIN.
fn check_setup(call: &Call) -> Result<&Setup, Failure> {
    let setup = call.body.setup.as_ref().ok_or_else(|| Failure::invalid("SETUP has a setup"))?;
    call.check(Permission::Setup, None)?;
    if setup.firmware_download == Some(true) || setup.setup_op_type == Some(FIRMWARE) {
        return Err(Failure::invalid("the firmware of this drive is a program: install another release"));
    }
    Ok(setup)
}

/// Passes once over the keys up to the one that is the last now, so that it ends however fast others put new ones.
fn erase(store: &dyn Store) -> Result<(), StoreError> {
    let all = KeyRange::prefix(CLIENT_PREFIX);
    let last = store.range(&KeyRange { reverse: true, limit: 1, ..all.clone() })?.pop();
    let Some(last) = last else { return store.flush() };
    let mut range = KeyRange { end: Bound::Included(last.key), limit: ERASED_AT_ONCE, ..all };
    loop {
        let entries = store.range(&range)?;
        let Some(last) = entries.last() else { return store.flush() };
        range.start = Bound::Excluded(last.key.clone());
        store.write(entries.into_iter().map(|entry| Write::delete(entry.key)).collect(), Durability::Back)?;
    }
}

#[cfg(test)]
mod tests {
    use pithead_store::MemoryStore;

    use super::*;
    use crate::keys::stored;

    #[test]
    fn erasing_takes_clients_keys_and_nothing_else() {
        let store = MemoryStore::new();
        let clients = (0..2_500_u32).map(|number| Write::put(stored(&number.to_be_bytes()), "v"));
        let ours = ["slice/main/t", "kinetic/state", "manifest/main"].map(|key| Write::put(key, "v"));
        store.write(clients.chain(ours).collect(), Durability::Through).unwrap();
        erase(&store).unwrap();
        let left: Vec<_> = store.list(b"").unwrap().into_iter().map(|entry| entry.key).collect();
        assert_eq!(left, ["kinetic/state", "manifest/main", "slice/main/t"]);
    }
}
