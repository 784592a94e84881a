//! Operations that a PIN allows: lock, unlock, erase.

use std::time::Duration;

use subtle::ConstantTimeEq as _;
use tokio::time::{Instant, sleep, timeout_at};

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
/// How long PINs over all connections wait after a wrong one, so that guessing takes long.
const WRONG_PIN_WAIT: Duration = Duration::from_millis(500);

/// A PIN as a client sent it, and which of the two it is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SentPin<'a> {
    Lock(&'a [u8]),
    Erase(&'a [u8]),
}

impl Service {
    /// Compares a PIN before anything is done with it. `until`: when the time of the request is over. Whoever is wrong is told
    /// so after the wait.
    pub(crate) async fn compare_pin(&self, sent: SentPin<'_>, link: Link, until: Option<Instant>) -> Result<(), Failure> {
        let busy = |_| Failure::new(Code::ServiceBusy, "other PINs are compared first; try again later");
        let turn = self.pin_turns.take(link.peer);
        let turn = match until {
            None => turn.await,
            Some(until) => timeout_at(until, turn).await.map_err(busy)?,
        };
        let compared = self.check_sent(sent, link);
        if compared.is_err() {
            // The turn is kept meanwhile, also if the client goes or has to go.
            let kept = async move {
                sleep(WRONG_PIN_WAIT).await;
                drop(turn);
            };
            let _ = tokio::spawn(kept).await;
        }
        compared
    }

    /// Refuses a wrong PIN, at once.
    pub(crate) fn check_sent(&self, sent: SentPin<'_>, link: Link) -> Result<(), Failure> {
        let state = self.states.get();
        match sent {
            SentPin::Lock(pin) => check_pin(&state.lock_pin, pin, link, &self.options),
            SentPin::Erase(pin) => check_pin(&state.erase_pin, pin, link, &self.options),
        }
    }

    /// Does an operation whose PIN the client sent. It blocks. The PIN was compared, and may have been changed since.
    pub(crate) fn pin_operation(&self, operation: Option<&PinOperation>, pin: &[u8], link: Link) -> Result<Answer, Failure> {
        self.check_sent(pin_of(operation, pin)?, link)?;
        let kind = operation.and_then(|operation| operation.pin_op_type);
        match kind {
            Some(LOCK) => self.set_lock(true)?,
            Some(UNLOCK) if !self.states.get().locked => {
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

/// The PIN that an operation needs.
pub(crate) fn pin_of<'a>(operation: Option<&PinOperation>, pin: &'a [u8]) -> Result<SentPin<'a>, Failure> {
    match operation.and_then(|operation| operation.pin_op_type) {
        Some(LOCK | UNLOCK) if pin.is_empty() => Err(Failure::invalid("lock and unlock need a PIN")),
        Some(LOCK | UNLOCK) => Ok(SentPin::Lock(pin)),
        Some(ERASE | SECURE_ERASE) => Ok(SentPin::Erase(pin)),
        _ => Err(Failure::invalid("a PIN operation is unlock (1), lock (2), erase (3) or secure erase (4)")),
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
