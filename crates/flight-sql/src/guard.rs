//! [`Guard`]: looks at every call before its body is read: whose it is, and whether its connection is one too many.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use pithead_entry::{Doorman, Peer, TurnedAway, not_known};
use pithead_model::Fault;
use pithead_wire::{CountedBody, Received};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower_service::Service;

use crate::error::to_status;

/// How long a caller may pause within a call that is one message.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The method whose messages come as they are made.
const PUT: &str = "/DoPut";
/// How long a caller may pause within it.
const PUT_PAUSE_MAX: Duration = Duration::from_secs(300);
/// What is said to those whom nobody knows.
const HOW: &str = "hint: give the token of an identity of the access file, as `Authorization: Bearer TOKEN`, or as the password of a \
                   user that is named as the identity";

/// What a user and a token are written in. ADBC's driver leaves out what fills the last group up.
const BASIC: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent));

/// What a call says of its caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// As whom it wants to be known, where it says so.
    pub(crate) user: Option<String>,
    /// The secret.
    pub(crate) token: Option<Vec<u8>>,
}

impl Credentials {
    /// Those of a call's headers: `Bearer TOKEN`, or `Basic` with a user and a token as its password.
    fn read(headers: &HeaderMap) -> Result<Credentials, Fault> {
        let Some(header) = headers.get(AUTHORIZATION) else { return Ok(Credentials::default()) };
        let wrong = || not_known("expected `Bearer` and a token, or `Basic` with a user and a token");
        let (scheme, rest) = header.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(wrong)?;
        match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Ok(Credentials { user: None, token: Some(rest.trim().as_bytes().to_vec()) }),
            "basic" => {
                let decoded =
                    BASIC.decode(rest.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(wrong)?;
                let (user, token) = decoded.split_once(':').ok_or_else(wrong)?;
                let user = Some(user.to_owned()).filter(|user| !user.is_empty());
                Ok(Credentials { user, token: Some(token.as_bytes().to_vec()) })
            }
            _ => Err(wrong()),
        }
    }
}

/// A service behind a [`Doorman`].
#[derive(Clone)]
pub(crate) struct Guard<S> {
    inner: S,
    doorman: Arc<Doorman>,
    received: Arc<Received>,
}

impl<S> Guard<S> {
    pub(crate) fn new(inner: S, doorman: Arc<Doorman>) -> Self {
        Self { inner, doorman, received: Arc::default() }
    }
}

impl<S: NamedService> NamedService for Guard<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Some(peer) = request.extensions().get::<Arc<Peer>>().cloned() else {
            return answered(to_status(&Fault::bug("a call came without its connection")));
        };
        let read = Credentials::read(request.headers());
        let admitted = self.doorman.admit(&peer, || match &read {
            Ok(credentials) => Ok(credentials.token.as_deref()),
            Err(fault) => Err(fault.clone()),
        });
        let credentials = read.unwrap_or_default();
        let is_other = |name: &str| credentials.user.as_ref().is_some_and(|user| user != name);
        let fault = match admitted {
            Ok(caller) if caller.number().is_some() && is_other(&caller.name) => {
                not_known("the user is not the one that the credentials belong to")
            }
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(credentials);
                let received = Arc::clone(&self.received);
                let pause_max = if request.uri().path().ends_with(PUT) { PUT_PAUSE_MAX } else { PAUSE_MAX };
                let request =
                    request.map(|body| Body::new(CountedBody::new(Body::new(Whole(body)), pause_max, received, peer)));
                return Box::pin(self.inner.call(request));
            }
            Err(TurnedAway::TooMany(fault)) => return answered(to_status(&fault)),
            Err(TurnedAway::Unknown(fault)) => fault,
        };
        // Frees what of the body has come, before the wait.
        drop(request);
        let doorman = Arc::clone(&self.doorman);
        Box::pin(async move {
            doorman.punish(&peer, &fault).await;
            let what = fault.message.replace("this drive", "this server").replace("the drive", "the server");
            Ok(Status::unauthenticated(format!("{what}\n{HOW}")).into_http())
        })
    }
}

fn answered(status: Status) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
    Box::pin(std::future::ready(Ok(status.into_http())))
}

/// A body that was broken off fails. Tonic takes a caller that cancels for one that has sent all, and rows that are being loaded would
/// become visible in part.
struct Whole(Body);

impl HttpBody for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.0).poll_frame(context).map_err(|status| match status.code() {
            Code::Cancelled => Status::aborted("the client broke it off"),
            _ => status,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &[u8]) -> Result<Credentials, Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, http::HeaderValue::from_bytes(header).unwrap());
        Credentials::read(&headers)
    }

    #[test]
    fn both_kinds_of_credentials_are_read() {
        let told = |user: Option<&str>, token: &str| Credentials { user: user.map(str::to_owned), token: Some(token.into()) };
        assert_eq!(read(b"Bearer abc").unwrap(), told(None, "abc"));
        assert_eq!(read(b"bearer abc").unwrap(), told(None, "abc"));
        assert_eq!(read(b"Basic bWU6YTpi").unwrap(), told(Some("me"), "a:b"));
        assert_eq!(read(b"Basic OmFi").unwrap(), told(None, "ab"));
        for padded in [&b"Basic bWU6eA=="[..], b"Basic bWU6eA"] {
            assert_eq!(read(padded).unwrap(), told(Some("me"), "x"));
        }
        for wrong in [&b"Bearer"[..], b"Digest a", b"Basic ?", b"Basic bWU=", b"Basic /w==", b"\xff\xff x"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(Credentials::read(&HeaderMap::new()).unwrap(), Credentials::default());
    }
}
