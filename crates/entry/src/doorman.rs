//! [`Doorman`]: who calls, and what becomes of those whom nobody knows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pithead_model::{Blame, Fault};
use subtle::ConstantTimeEq;

use crate::access::{Access, Identity};
use crate::connection::Peer;
use crate::scram::{Challenge, Key, Proven, hmac};
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
    /// What passes are made with.
    secret: Key,
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
        Doorman { callers, penalties: AtomicUsize::new(0), warned: Mutex::new(None), secret: rand::random() }
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

    /// How a caller is asked who says a name, so that it need not send its token; none: only the token itself says who it is.
    pub fn challenge(&self, name: &str) -> Option<Challenge> {
        match &self.callers {
            Callers::Anyone | Callers::Certified => None,
            Callers::Named(access) => access.get().challenge(name),
        }
    }

    /// What stands for the token in [`Doorman::admit`] of a caller who has proven that it has one, for as long as it has.
    pub fn pass(&self, proven: &Proven) -> Vec<u8> {
        [proven.client_key, hmac(&self.secret, &[&proven.client_key])].concat()
    }

    /// Whose pass it is; none: it is none of ours, or of somebody who is not known any more.
    fn by_pass(&self, access: &Access, pass: &[u8]) -> Option<Identity> {
        let (key, seal): (&Key, &[u8]) = pass.split_first_chunk()?;
        let seal = Key::try_from(seal).ok()?;
        match bool::from(hmac(&self.secret, &[key]).ct_eq(&seal)) {
            true => access.by_client_key(key).cloned(),
            false => None,
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
            Callers::Named(access) => {
                let (access, token) = (access.get(), token()?);
                let proven = token.and_then(|token| self.by_pass(&access, token));
                proven.map_or_else(|| named(&access, peer, token), Ok).map(Arc::new)
            }
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

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::gate::{ConnectionLimits, Gate};
    use crate::token::Token;

    /// A doorman who knows one token, its verifier's line, and somebody who comes.
    fn doorman(proves: bool) -> (Doorman, Token, Peer) {
        let token = Token::random();
        let line = match proves {
            true => format!("scram = \"{}\"\n", Access::default().verifier("me", &token)),
            false => String::new(),
        };
        let text = format!("[[identity]]\nname = \"me\"\ntoken = \"{}\"\n{line}read = [\"*\"]\n", token.hash());
        let access = Watched::new(vec![], move || Access::parse(&text)).unwrap();
        let peer = Peer::new(Gate::new(ConnectionLimits::default()).enter([127, 0, 0, 1].into()), None, None);
        (Doorman::new(Callers::Named(access)), token, peer)
    }

    /// What a client sends who has a secret.
    fn proof(challenge: &Challenge, secret: &str, message: &[u8]) -> Key {
        let salt = STANDARD.encode(challenge.salt());
        let keys = format!("{0}:{0}", STANDARD.encode([0; 32]));
        let verifier = crate::Verifier::parse(&format!("SCRAM-SHA-256${}:{salt}${keys}", challenge.iterations())).unwrap();
        let key = verifier.client_key(secret);
        let signature = hmac(&<Key>::from(<sha2::Sha256 as sha2::Digest>::digest(key)), &[message]);
        std::array::from_fn(|place| key[place] ^ signature[place])
    }

    #[test]
    fn who_proves_a_token_is_let_in_as_who_sends_it() {
        let (doorman, token, peer) = doorman(true);
        let challenge = doorman.challenge("me").unwrap();
        let proven = challenge.check(b"message", &proof(&challenge, token.text(), b"message")).unwrap();
        let pass = doorman.pass(&proven);
        for right in [&pass[..], token.text().as_bytes()] {
            assert_eq!(doorman.admit(&peer, || Ok(Some(right))).unwrap().name, "me");
        }
        // Neither the key alone, nor another doorman's pass, nor one that was changed.
        let (other, _, _) = self::doorman(true);
        let mut changed = pass.clone();
        changed[63] ^= 1;
        for wrong in [&pass[..32], &pass[..63], &other.pass(&proven), &changed, &[]] {
            assert!(matches!(doorman.admit(&peer, || Ok(Some(wrong))), Err(TurnedAway::Unknown(_))), "{wrong:?}");
        }
        for (name, secret) in [("me", "wrong"), ("nobody", token.text())] {
            let challenge = doorman.challenge(name).unwrap();
            assert!(challenge.check(b"message", &proof(&challenge, secret, b"message")).is_none(), "{name}");
        }
    }

    #[test]
    fn nobody_is_asked_for_proofs_that_nobody_could_give() {
        assert!(doorman(false).0.challenge("me").is_none());
        for callers in [Callers::Anyone, Callers::Certified] {
            assert!(Doorman::new(callers).challenge("me").is_none());
        }
    }
}
