//! Operations that a PIN allows: lock, unlock, erase.

use subtle::ConstantTimeEq as _;

use crate::code::{Code, Failure};
use crate::execute::{Answer, Link};
use crate::options::KineticOptions;
use crate::proto::PinOperation;
use crate::service::Service;
use crate::state::DeviceState;

const UNLOCK: i32 = 1;
const LOCK: i32 = 2;
const ERASE: i32 = 3;
const SECURE_ERASE: i32 = 4;

impl Service {
    /// Does an operation whose PIN the client sent. It blocks.
    pub(crate) fn pin_operation(&self, operation: Option<&PinOperation>, pin: &[u8], link: Link) -> Result<Answer, Failure> {
        let kind = operation.and_then(|operation| operation.pin_op_type);
        let state = self.states.get();
        match kind {
            Some(LOCK | UNLOCK) if pin.is_empty() => return Err(Failure::invalid("lock and unlock need a PIN")),
            Some(LOCK | UNLOCK) => check_pin(&state.lock_pin, pin, link, &self.options)?,
            Some(ERASE | SECURE_ERASE) => check_pin(&state.erase_pin, pin, link, &self.options)?,
            _ => return Err(Failure::invalid("a PIN operation is unlock (1), lock (2), erase (3) or secure erase (4)")),
        }
        match kind {
            Some(LOCK) => self.set_lock(true)?,
            Some(UNLOCK) if !state.locked => {
                return Err(Failure::new(Code::DeviceAlreadyUnlocked, "the device is not locked"));
            }
            Some(UNLOCK) => self.set_lock(false)?,
            _ => self.erase_device(kind == Some(SECURE_ERASE))?,
        }
        Ok(Answer::success())
    }

    fn set_lock(&self, locked: bool) -> Result<(), Failure> {
        self.states.change(|state| {
            state.locked = locked;
            Ok::<_, Failure>(())
        })?;
        self.tell(if locked { "locked" } else { "unlocked" });
        Ok(())
    }

    /// Back to a new device, as far as Kinetic clients see one: no keys, the factory's identity, no PINs, not locked. Datasets
    /// and their slices are not theirs, and stay.
    fn erase_device(&self, secure: bool) -> Result<(), Failure> {
        // The state goes last: an erase that was cut short can be asked for again with the same PIN.
        self.erase_keys()?;
        if secure {
            // The room of the values is given back to the medium, and not only to the store.
            self.store.compact()?;
        }
        self.states.change(|state| {
            *state = DeviceState::default();
            Ok::<_, Failure>(())
        })?;
        // Who was an identity until now may have put keys meanwhile, and has no batches any more, either.
        self.erase_keys()?;
        self.tell("erased: no keys of clients, the factory's identity, no PINs");
        Ok(())
    }
}

/// Compares PINs in a time that does not depend on where they differ. A PIN that was never set is like credentials that
/// everybody knows: any PIN is right, on this machine only unless the operator says otherwise.
pub(crate) fn check_pin(set: &[u8], sent: &[u8], link: Link, options: &KineticOptions) -> Result<(), Failure> {
    if set.is_empty() {
        return match link.loopback || options.default_credentials {
            true => Ok(()),
            false => Err(Failure::not_authorized("no PIN was set, and only this machine may do without one")),
        };
    }
    match bool::from(set.ct_eq(sent)) {
        true => Ok(()),
        false => Err(Failure::not_authorized("the PIN is wrong")),
    }
}
