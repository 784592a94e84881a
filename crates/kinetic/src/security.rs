//! SECURITY: identities and PINs.

use std::sync::Arc;

use bytes::Bytes;

use crate::code::Failure;
use crate::execute::{Answer, Call};
use crate::identity::{Identity, Permission};
use crate::limits::{Limits, check_bytes};
use crate::pins::{SentPin, check_pin};
use crate::proto::Security;
use crate::service::Service;
use crate::state::DeviceState;

impl Service {
    /// Makes or replaces identities by their numbers, or sets one of the PINs: all that the request says, or nothing.
    pub(crate) fn security(&self, call: &Call) -> Result<Answer, Failure> {
        let limits = &self.options.limits;
        let asked = check_security(call, limits)?;
        let identities: Vec<Identity> = asked.acl.iter().map(|acl| Identity::read(acl, limits)).collect::<Result<_, _>>()?;
        let numbers: Vec<String> = identities.iter().map(|identity| identity.number.to_string()).collect();
        self.states.change(|state| {
            self.set_pins(state, asked, call)?;
            state.identities.extend(identities.into_iter().map(|identity| (identity.number, Arc::new(identity))));
            match state.identities.len() <= limits.identities {
                true => Ok(()),
                false => Err(Failure::invalid(format!("at most {} identities are kept", limits.identities))),
            }
        })?;
        if !numbers.is_empty() {
            self.tell(format_args!("identity {} set {}", call.identity.number, numbers.join(", ")));
        }
        Ok(Answer::success())
    }

    fn set_pins(&self, state: &mut DeviceState, asked: &Security, call: &Call) -> Result<(), Failure> {
        let set = |kept: &mut Vec<u8>, old: &Option<Bytes>, new: &Option<Bytes>| {
            if old.is_none() && new.is_none() {
                return Ok(());
            }
            check_pin(kept, old.as_deref().unwrap_or_default(), call.link, &self.options)?;
            // A field that is missing is empty: the old PIN alone takes the PIN away.
            *kept = new.as_deref().unwrap_or_default().to_vec();
            Ok::<_, Failure>(())
        };
        set(&mut state.lock_pin, &asked.old_lock_pin, &asked.new_lock_pin)?;
        set(&mut state.erase_pin, &asked.old_erase_pin, &asked.new_erase_pin)
    }
}

/// The PIN as it is of a request that sets it; none: it sets none, or is refused whatever the PIN is.
pub(crate) fn old_pin<'a>(call: &'a Call, limits: &Limits) -> Option<SentPin<'a>> {
    let asked = check_security(call, limits).ok()?;
    let sent = |old: &'a Option<Bytes>, new: &Option<Bytes>| {
        (old.is_some() || new.is_some()).then(|| old.as_deref().unwrap_or_default())
    };
    let lock = sent(&asked.old_lock_pin, &asked.new_lock_pin).map(SentPin::Lock);
    lock.or_else(|| sent(&asked.old_erase_pin, &asked.new_erase_pin).map(SentPin::Erase))
}

/// Refuses what is not done whatever the PIN is.
fn check_security<'a>(call: &'a Call, limits: &Limits) -> Result<&'a Security, Failure> {
    if !call.link.tls {
        return Err(Failure::invalid("SECURITY is sent over TLS only"));
    }
    let asked = call.body.security.as_ref().ok_or_else(|| Failure::invalid("SECURITY has a security"))?;
    call.check(Permission::Security, None)?;
    check_one(asked)?;
    for pin in [&asked.new_lock_pin, &asked.new_erase_pin].into_iter().flatten() {
        check_bytes("PIN", pin.len(), limits.pin_bytes)?;
    }
    Ok(asked)
}

/// Refuses a request for more than one thing.
fn check_one(asked: &Security) -> Result<(), Failure> {
    let sets = [
        !asked.acl.is_empty(),
        asked.old_lock_pin.is_some() || asked.new_lock_pin.is_some(),
        asked.old_erase_pin.is_some() || asked.new_erase_pin.is_some(),
    ];
    match sets.into_iter().filter(|set| *set).count() {
        0 | 1 => Ok(()),
        _ => Err(Failure::invalid("SECURITY sets identities, the lock PIN or the erase PIN: one of them at a time")),
    }
}
