//! [`Doorman`]: who calls, and what becomes of those whom nobody knows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};

use crate::access::{Access, Identity};
use crate::connection::Peer;
use crate::watched::Watched;

/// How often it is logged that somebody was turned away.
const WARN_INTERVAL: Duration = Duration::from_secs(1);
/// How long the answer to wrong credentials waits.
const PENALTY: Duration = Duration::from_millis(500);
/// Answers that wait so at a time. Over that the connection ends at once, so that no memory is held for them.
const PENALTIES_MAX: usize = 256;
/// Calls with wrong credentials that a connection may make. One more ends it at once.
const FAILURES_MAX: u32 = 16;

/// Who may call.
pub(crate) enum Callers {
    /// Everybody, and all may do everything.
    Anyone,
    /// Who shows a certificate; all of these may do everything. TLS has checked the certificate.
    Certified,
    /// Whom the access file names.
    Named(Watched<Access>),
}

/// What all calls of a server pass.
pub struct Doorman {
    callers: Callers,
    penalties: AtomicUsize,
    warned: Mutex<Option<Instant>>,
}

/// Why a call is not let in.
#[derive(Debug)]
pub enum TurnedAway {
    /// Nobody knows the caller: [`Doorman::punish`] before this is said.
    Unknown(Fault),
    /// The caller's connection is one too many.
    TooMany(Fault),
}

impl Doorman {
    pub(crate) fn new(callers: Callers) -> Doorman {
        Doorman { callers, penalties: AtomicUsize::new(0), warned: Mutex::new(None) }
    }

    /// Who calls, and a place for the connection that the call came over. `token`: the secret that came with the call, which is
    /// looked at only where callers are told apart by it.
    pub fn admit<'a>(
        &self,
        peer: &Peer,
        token: impl FnOnce() -> Result<Option<&'a [u8]>, Fault>,
    ) -> Result<Arc<Identity>, TurnedAway> {
        let caller = self.identify(peer, token).map_err(TurnedAway::Unknown)?;
        peer.place.admit().map_err(TurnedAway::TooMany)?;
        Ok(caller)
    }

    /// Whether a caller has to send a token, since nothing else says who it is.
    pub fn asks_for_token(&self, peer: &Peer) -> bool {
        match &self.callers {
            Callers::Anyone | Callers::Certified => false,
            Callers::Named(access) => {
                let known = |names: &Vec<String>| access.get().by_certificate(names).is_some();
                !peer.certificate.as_ref().is_some_and(known)
            }
        }
    }

    fn identify<'a>(
        &self,
        peer: &Peer,
        token: impl FnOnce() -> Result<Option<&'a [u8]>, Fault>,
    ) -> Result<Arc<Identity>, Fault> {
        match &self.callers {
            Callers::Anyone => Ok(Arc::new(Identity::anyone())),
            Callers::Certified => {
                let name = peer.certificate.as_ref().and_then(|names| names.first().cloned());
                Ok(Arc::new(Identity::unlimited(name.unwrap_or_else(|| "a certificate without names".to_owned()))))
            }
            Callers::Named(access) => named(&access.get(), peer, token()?).map(Arc::new),
        }
    }

    /// Keeps a caller who is not known waiting for a while. Who asks too often is hung up on.
    pub async fn punish(&self, peer: &Peer, fault: &Fault) {
        let failures = peer.failures.fetch_add(1, Ordering::AcqRel) + 1;
        self.warn(peer, fault);
        let waiting = self.penalties.fetch_add(1, Ordering::AcqRel);
        if failures > FAILURES_MAX || waiting >= PENALTIES_MAX {
            peer.place.end().end();
        } else {
            tokio::time::sleep(PENALTY).await;
        }
        self.penalties.fetch_sub(1, Ordering::AcqRel);
    }

    /// Logs that a caller was turned away, unless that was logged just now: who is turned away must not fill the log.
    fn warn(&self, peer: &Peer, fault: &Fault) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|last| last.elapsed() >= WARN_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!(address = %peer.place.address(), "turned away: {}", fault.message);
        }
    }
}

fn named(access: &Access, peer: &Peer, token: Option<&[u8]>) -> Result<Identity, Fault> {
    if let Some(token) = token {
        return access.by_token(token).cloned().ok_or_else(|| not_known("the token is not one that this drive knows"));
    }
    match &peer.certificate {
        Some(names) => access.by_certificate(names).cloned().ok_or_else(|| {
            not_known(format!("the drive's access file names nobody with a certificate for {}", names.join(", ")))
        }),
        None => Err(not_known("the drive asks for a token, and none came with the call")),
    }
}

/// The fault of a call whose caller is not known.
pub fn not_known(why: impl Into<String>) -> Fault {
    let hint = "name a file with a token that the drive knows: --token-file FILE or PITHEAD_TOKEN_FILE";
    Fault::new(Blame::Access, why).hint(hint)
}
