//! Who asks, and [`Sessions`]: the host's sessions that statements of open pages go through, one a page, so that SET holds there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use parking_lot::Mutex;
use pithead_entry::{Identity, Peer, TurnedAway, bearer, not_known};
use pithead_host::{Client, Host, Session};
use pithead_model::{Blame, Fault};

use crate::entrance::Entrance;
use crate::refused::Refused;

/// The header by which a page says which of several it is.
const PAGE: &str = "x-pithead-page";
/// Longest value of it.
const PAGE_BYTES_MAX: usize = 64;
/// Sessions that are there at a time. The one whose page has not asked for longest makes place.
const SESSIONS_MAX: usize = 256;
/// How long a session is there for a page that asks for nothing.
const IDLE_MAX: Duration = Duration::from_secs(3600);

/// Finds out who sends a request.
pub(crate) async fn known(entrance: &Entrance, peer: &Peer, headers: &HeaderMap) -> Result<Arc<Identity>, Refused> {
    let token = token(headers)?;
    if token.is_none() && entrance.doorman.asks_for_token(peer) {
        // How every page begins: that is no attempt to guess.
        return Err(unknown("this server asks for a token"));
    }
    match entrance.doorman.admit(peer, || Ok(token)) {
        Ok(caller) => Ok(caller),
        Err(TurnedAway::Unknown(fault)) => {
            entrance.doorman.punish(peer, &fault).await;
            Err(unknown(&fault.message.replace("this drive", "this server").replace("the drive", "the server")))
        }
        Err(TurnedAway::TooMany(fault)) => Err(Refused { status: StatusCode::SERVICE_UNAVAILABLE, fault }),
    }
}

fn unknown(why: &str) -> Refused {
    let hint = "give the token of an identity of the access file, as `pithead token` made it";
    Refused { status: StatusCode::UNAUTHORIZED, fault: Fault { hint: Some(hint.to_owned()), ..not_known(why) } }
}

/// The token of `Authorization: Bearer TOKEN`.
fn token(headers: &HeaderMap) -> Result<Option<&[u8]>, Refused> {
    bearer(headers.get(AUTHORIZATION).map(HeaderValue::as_bytes)).map_err(|fault| unknown(&fault.message))
}

/// Whose session it is: the caller's number and name, and the page.
type Key = (Option<u64>, String, String);

/// A page's session, and the number of its connection, by which its statements are found.
pub(crate) struct PageSession {
    pub(crate) session: Session,
    pub(crate) connection: i64,
}

/// The sessions that there are.
#[derive(Default)]
pub(crate) struct Sessions {
    kept: Mutex<HashMap<Key, (Arc<PageSession>, Instant)>>,
    /// Connections of PostgreSQL's protocol have numbers above 0.
    last: AtomicI64,
}

impl Sessions {
    /// The session of a caller's page. The caller may have other rights than when it was made.
    pub(crate) fn session(
        &self,
        host: &Host,
        caller: &Arc<Identity>,
        headers: &HeaderMap,
    ) -> Result<Arc<PageSession>, Refused> {
        let page = headers.get(PAGE).map_or(Ok(""), |page| page.to_str().map_err(|_| wrong_page()))?;
        if page.len() > PAGE_BYTES_MAX || !page.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(wrong_page());
        }
        let key = (caller.number(), caller.name.clone(), page.to_owned());
        let mut kept = self.kept.lock();
        kept.retain(|_, (session, used)| used.elapsed() < IDLE_MAX || Arc::strong_count(session) > 1);
        if let Some((session, used)) = kept.get_mut(&key) {
            *used = Instant::now();
            session.session.set_caller(Arc::clone(caller));
            return Ok(Arc::clone(session));
        }
        if kept.len() >= SESSIONS_MAX {
            let oldest = kept.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| kept.remove(&key));
        }
        let session = self.made(host, caller);
        kept.insert(key, (Arc::clone(&session), Instant::now()));
        Ok(session)
    }

    fn made(&self, host: &Host, caller: &Arc<Identity>) -> Arc<PageSession> {
        let connection = -1 - self.last.fetch_add(1, Ordering::Relaxed);
        let (caller, user) = (Arc::clone(caller), caller.name.clone());
        let session = host.session_for(Client { caller, user, process: connection, shown: Arc::new(|_: &str| None) });
        Arc::new(PageSession { session, connection })
    }
}

fn wrong_page() -> Refused {
    let what = format!("the header {PAGE} has at most {PAGE_BYTES_MAX} letters and digits");
    Refused::with(StatusCode::BAD_REQUEST, Blame::User, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_and_nothing_else() {
        let read = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            token(&headers).map(|token| token.map(<[u8]>::to_vec)).map_err(|refused| refused.status)
        };
        assert_eq!(read("Bearer abc").unwrap().unwrap(), b"abc");
        assert_eq!(read("bearer  abc ").unwrap().unwrap(), b"abc");
        for wrong in ["Basic abc", "Bearer", "", "abc"] {
            assert_eq!(read(wrong).unwrap_err(), StatusCode::UNAUTHORIZED, "{wrong}");
        }
        assert!(token(&HeaderMap::new()).unwrap().is_none());
    }
}
