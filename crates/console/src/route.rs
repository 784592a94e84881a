//! [`respond`]: what is asked for where, and within which bounds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, Request, StatusCode};
use pithead_entry::{Identity, Peer};
use pithead_model::{Blame, Bytes as Size};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::caller::known;
use crate::checks::{check_host, check_json, check_site, make_safe};
use crate::console::Console;
use crate::entrance::Entrance;
use crate::query::{QueryRequest, run};
use crate::refused::{Refused, Reply, json_reply};
use crate::state::state;
use crate::{files, statements};

/// The most bytes of a request's body.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The longest time for it to come.
const BODY_WAIT: Duration = Duration::from_secs(20);
/// Where one statement is asked for, by its number.
const STATEMENTS: &str = "/api/statements/";

/// What is to be cancelled.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancellation {
    id: u64,
}

/// Answers a request.
pub(crate) async fn respond(console: &Arc<Console>, entrance: &Entrance, peer: &Peer, request: Request<Incoming>) -> Reply {
    let mut reply = answered(console, entrance, peer, request).await.unwrap_or_else(|refused| refused.reply());
    make_safe(reply.headers_mut());
    reply
}

async fn answered(
    console: &Arc<Console>,
    entrance: &Entrance,
    peer: &Peer,
    request: Request<Incoming>,
) -> Result<Reply, Refused> {
    check_host(request.headers(), entrance.is_open)?;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let is_api = path.starts_with("/api/");
    let is_read = method == Method::GET || (method == Method::HEAD && !is_api);
    if is_read && let Some(file) = files::find(&path) {
        return Ok(file);
    }
    if !is_api {
        return if is_read { Err(nothing_there(&path)) } else { Ok(not_allowed("GET, HEAD")) };
    }
    check_site(request.headers())?;
    let caller = known(entrance, peer, request.headers()).await?;
    match (path.as_str(), &method) {
        ("/api/state", &Method::GET) => Ok(json_reply(StatusCode::OK, &state(console, &caller).await)),
        ("/api/query", &Method::POST) => query(console, entrance, &caller, request).await,
        ("/api/cancel", &Method::POST) => cancel(console, &caller, request).await,
        ("/api/state", _) => Ok(not_allowed("GET")),
        ("/api/query" | "/api/cancel", _) => Ok(not_allowed("POST")),
        (one, method) => match one.strip_prefix(STATEMENTS).map(str::parse::<u64>) {
            Some(Ok(id)) if method == Method::GET => statement(console, &caller, id),
            Some(Ok(_)) => Ok(not_allowed("GET")),
            _ => Err(nothing_there(one)),
        },
    }
}

fn statement(console: &Console, caller: &Identity, id: u64) -> Result<Reply, Refused> {
    let found = console.host.activity().find(id).filter(|followed| followed.is_shown_to(caller));
    let followed = found.ok_or_else(|| no_statement(id))?;
    Ok(json_reply(StatusCode::OK, &statements::whole(&followed, caller)))
}

async fn cancel(console: &Console, caller: &Identity, request: Request<Incoming>) -> Result<Reply, Refused> {
    let Cancellation { id } = body(request).await?;
    // One that the caller may not see is to it as one that is not there.
    let found = console.host.activity().find(id).filter(|followed| followed.is_shown_to(caller));
    let followed = found.ok_or_else(|| no_statement(id))?;
    // One that has ended has nothing to cancel, and one that has sent what it changes goes on.
    let is_cancelled = followed.ending().is_none() && followed.cancel();
    if is_cancelled {
        tracing::info!(id, by = %caller.name, "a statement is cancelled from the console");
    }
    Ok(json_reply(StatusCode::OK, &json!({ "cancelled": is_cancelled })))
}

async fn query(
    console: &Arc<Console>,
    entrance: &Entrance,
    caller: &Arc<Identity>,
    request: Request<Incoming>,
) -> Result<Reply, Refused> {
    let session = console.sessions.session(&console.host, caller, request.headers())?;
    let asked: QueryRequest = body(request).await?;
    let Ok(place) = Arc::clone(&console.places).try_acquire_owned() else {
        let what = "too many statements run from consoles at this time";
        return Err(Refused::with(StatusCode::SERVICE_UNAVAILABLE, Blame::Limit, what));
    };
    let answer = run(console.host.clone(), session, asked, &entrance.work).await;
    drop(place);
    Ok(json_reply(StatusCode::OK, &answer))
}

/// A request's body, from JSON.
async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Refused> {
    check_json(request.headers())?;
    let too_large = || {
        let what = format!("a request has at most {} here", Size(BODY_BYTES_MAX as u64));
        Refused::with(StatusCode::PAYLOAD_TOO_LARGE, Blame::Limit, what)
    };
    if request.body().size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let bytes: Bytes = match tokio::time::timeout(BODY_WAIT, Limited::new(request.into_body(), BODY_BYTES_MAX).collect()).await
    {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Ok(Err(error)) => return Err(Refused::malformed(format!("the request broke off: {error}"))),
        Err(_) => {
            let what = "the request took too long to come";
            return Err(Refused::with(StatusCode::REQUEST_TIMEOUT, Blame::Limit, what));
        }
    };
    serde_json::from_slice(&bytes).map_err(|error| Refused::malformed(format!("the request is not what is expected: {error}")))
}

fn no_statement(id: u64) -> Refused {
    let what = format!("statement {id} does not run, and is none of the last ones");
    Refused::with(StatusCode::NOT_FOUND, Blame::User, what)
}

fn nothing_there(path: &str) -> Refused {
    Refused::with(StatusCode::NOT_FOUND, Blame::User, format!("there is nothing at {path}"))
}

fn not_allowed(allowed: &'static str) -> Reply {
    let what = format!("only {allowed} is answered here");
    let mut reply = Refused::with(StatusCode::METHOD_NOT_ALLOWED, Blame::User, what).reply();
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}
