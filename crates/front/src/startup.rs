//! [`begin`]: a connection from its first byte until it is known who calls.

use std::sync::Arc;

use pithead_entry::{Connection, Identity, Peer, TlsNow, TurnedAway};
use pithead_model::{Blame, Fault};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::Complaint;
use crate::link::{Link, Read};
use crate::message::{Message, STARTUP_BYTES_MAX, Startup};
use crate::scram;
use crate::serve::{Entrance, Front};
use crate::sql_state::{NOT_AUTHORIZED, PROTOCOL_VIOLATION, TOO_MANY, WRONG_PASSWORD};

/// How often a client may ask for encryption before it begins.
const ASKED_MAX: usize = 4;
/// A password is asked for in clear. It is a token of which the access file has a hash alone, which no challenge can be made of.
const CLEARTEXT: i32 = 3;

/// A connection whose caller is known.
pub(crate) struct Begun {
    pub(crate) link: Link,
    pub(crate) peer: Arc<Peer>,
    pub(crate) caller: Arc<Identity>,
    /// What it is known by: a token, or the pass of who has proven one; none: something else.
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) user: String,
    /// Settings that it begins with.
    pub(crate) parameters: Vec<(String, String)>,
}

/// Brings a connection to where statements are taken. None: it has ended, or was there to cancel something.
pub(crate) async fn begin(front: &Arc<Front>, entrance: &Entrance, mut connection: Connection) -> Option<Begun> {
    let mut secured: Option<Arc<TlsNow>> = None;
    for _ in 0..ASKED_MAX {
        let body = first(&mut connection).await?;
        match Startup::read(&body) {
            Ok(Startup::Tls) => match &entrance.tls {
                Some(tls) if secured.is_none() => {
                    connection.write_all(b"S").await.ok()?;
                    connection.flush().await.ok()?;
                    let now = tls.now();
                    let within = connection.secure(Arc::clone(&now.config)).await;
                    connection = within.map_err(|why| tracing::debug!("no TLS: {why}")).ok()?;
                    secured = Some(now);
                }
                _ => connection.write_all(b"N").await.ok()?,
            },
            Ok(Startup::Gss) => connection.write_all(b"N").await.ok()?,
            Ok(Startup::Cancel { process, secret }) => {
                cancel(front, entrance, &connection, process, secret).await;
                return None;
            }
            Ok(Startup::Session { minor, parameters }) => {
                return session(front, entrance, connection, secured.as_deref(), minor, parameters).await;
            }
            Err(why) => {
                front.metrics.began("malformed");
                let mut link = Link::new(connection, &front.large, Arc::clone(&front.metrics));
                link.out.error(&Complaint::fatal(PROTOCOL_VIOLATION, why.to_string()));
                link.close().await;
                return None;
            }
        }
    }
    None
}

/// What a connection begins with, without its length. None: it has ended, or begins with something else.
async fn first(connection: &mut Connection) -> Option<Vec<u8>> {
    let length = connection.read_i32().await.ok()?;
    let length = usize::try_from(length).ok()?.checked_sub(4).filter(|length| (4..=STARTUP_BYTES_MAX).contains(length))?;
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.ok()?;
    Some(body)
}

async fn cancel(front: &Front, entrance: &Entrance, connection: &Connection, process: i32, secret: i32) {
    front.metrics.began("cancel");
    if !front.running.cancel(process, secret) {
        // Whoever guesses waits, and is told nothing.
        let fault = Fault::new(Blame::Access, "a cancellation of something that does not run");
        entrance.doorman.punish(connection.peer(), &fault).await;
    }
}

async fn session(
    front: &Arc<Front>,
    entrance: &Entrance,
    connection: Connection,
    secured: Option<&TlsNow>,
    minor: u16,
    parameters: Vec<(String, String)>,
) -> Option<Begun> {
    let peer = Arc::clone(connection.peer());
    let mut link = Link::new(connection, &front.large, Arc::clone(&front.metrics));
    if minor > 0 || parameters.iter().any(|(name, _)| name.starts_with("_pq_.")) {
        let unknown: Vec<String> =
            parameters.iter().map(|(name, _)| name.clone()).filter(|name| name.starts_with("_pq_.")).collect();
        link.out.negotiate(&unknown);
    }
    let known = known(entrance, &mut link, &peer, secured, &parameters).await;
    match known {
        Ok((user, caller, token)) => {
            front.metrics.began("admitted");
            link.known = true;
            Some(Begun { link, peer, caller, token, user, parameters })
        }
        Err(complaint) => {
            front.metrics.began("refused");
            if let Some(complaint) = complaint {
                link.out.error(&complaint);
                link.close().await;
            }
            None
        }
    }
}

/// Who calls: the user name, the identity, and the password or the pass that says so.
type Login = (String, Arc<Identity>, Option<Vec<u8>>);

/// Finds out who calls; without a complaint, the connection has ended.
async fn known(
    entrance: &Entrance,
    link: &mut Link,
    peer: &Peer,
    secured: Option<&TlsNow>,
    parameters: &[(String, String)],
) -> Result<Login, Option<Complaint>> {
    if entrance.tls.is_some() && secured.is_none() {
        return Err(Some(
            Complaint::fatal(NOT_AUTHORIZED, "connections to this server are within TLS").hint("sslmode=require"),
        ));
    }
    let user = parameters.iter().find(|(name, _)| name == "user").map(|(_, user)| user.clone()).filter(|user| !user.is_empty());
    let Some(user) = user else { return Err(Some(Complaint::fatal(NOT_AUTHORIZED, "no user name is given"))) };
    let token = match entrance.doorman.asks_for_token(peer) {
        true => Some(credentials(entrance, link, peer, secured, &user).await?),
        false => None,
    };
    let admitted = entrance.doorman.admit(peer, || Ok(token.as_deref()));
    let wrong = if token.is_some() { WRONG_PASSWORD } else { NOT_AUTHORIZED };
    match admitted {
        Ok(caller) if caller.number().is_none() || caller.name == user => Ok((user, caller, token)),
        Ok(_) => {
            let fault = Fault::new(Blame::Access, format!("user {user:?} is not who the credentials belong to"));
            Err(Some(refused(entrance, peer, &fault, wrong, &user).await))
        }
        Err(TurnedAway::Unknown(fault)) => Err(Some(refused(entrance, peer, &fault, wrong, &user).await)),
        Err(TurnedAway::TooMany(fault)) => Err(Some(Complaint::fatal(TOO_MANY, fault.message))),
    }
}

/// The token of somebody who says a name, or the pass of who has proven that it has one.
async fn credentials(
    entrance: &Entrance,
    link: &mut Link,
    peer: &Peer,
    secured: Option<&TlsNow>,
    user: &str,
) -> Result<Vec<u8>, Option<Complaint>> {
    let Some(challenge) = entrance.doorman.challenge(user) else { return password(link).await };
    let end_point = secured.and_then(|tls| tls.end_point.as_deref());
    match scram::exchange(link, &challenge, end_point).await? {
        Some(proven) => Ok(entrance.doorman.pass(&proven)),
        None => {
            let fault = Fault::new(Blame::Access, format!("user {user:?} has not proven a token"));
            Err(Some(refused(entrance, peer, &fault, WRONG_PASSWORD, user).await))
        }
    }
}

async fn refused(entrance: &Entrance, peer: &Peer, fault: &Fault, code: &'static str, user: &str) -> Complaint {
    entrance.doorman.punish(peer, fault).await;
    let (what, hint) = match code {
        WRONG_PASSWORD => {
            ("password", "the password is the token of the identity that the user is named after, as `pithead token` made it")
        }
        _ => ("certificate", "the user is to be named as the identity that the certificate belongs to"),
    };
    Complaint::fatal(code, format!("{what} authentication failed for user {user:?}")).hint(hint)
}

async fn password(link: &mut Link) -> Result<Vec<u8>, Option<Complaint>> {
    link.out.authentication(CLEARTEXT);
    link.flush().await.map_err(|_| None)?;
    let violation = |what: &str| Some(Complaint::fatal(PROTOCOL_VIOLATION, what));
    match link.next().await {
        Read::Message(tag, body) => match Message::read(tag, body) {
            Ok(Message::Password(mut bytes)) if bytes.last() == Some(&0) => {
                bytes.pop();
                Ok(bytes)
            }
            Ok(Message::Terminate) => Err(None),
            _ => Err(violation("expected a password")),
        },
        Read::Gone => Err(None),
        Read::TooLarge { .. } | Read::Malformed(_) => Err(violation("expected a password")),
    }
}
