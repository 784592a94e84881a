//! [`Guard`]: looks at every call before its body is read: whose it is, and whether its connection is one too many.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use pithead_entry::{Doorman, Peer, TurnedAway, not_known};
use pithead_model::{Blame, Fault};
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::error::{not_known_status, to_status};
use crate::receipt::{CountedBody, Received};
use crate::receiving::PUT_IDLE_MAX;

/// How long a caller may pause within a call that is one message. Puts have a limit of their own.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The method whose messages come as they are made.
const PUT: &str = "/DoPut";
/// What stands before a service: its doorman, and what all of its callers have sent that is not read yet.
#[derive(Clone)]
struct Before {
    doorman: Arc<Doorman>,
    received: Arc<Received>,
}

/// A service behind a [`Doorman`].
#[derive(Clone)]
pub(crate) struct Guard<S> {
    inner: S,
    before: Before,
}

impl<S> Guard<S> {
    pub(crate) fn new(inner: S, doorman: Arc<Doorman>) -> Self {
        Self { inner, before: Before { doorman, received: Arc::default() } }
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
            let fault = Fault::new(Blame::Bug, "a call came without its connection");
            return Box::pin(std::future::ready(Ok(to_status(&fault).into_http())));
        };
        let admitted = self.before.doorman.admit(&peer, || token(request.headers()));
        match admitted {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                let received = Arc::clone(&self.before.received);
                let pause_max = if request.uri().path().ends_with(PUT) { PUT_IDLE_MAX } else { PAUSE_MAX };
                let request = request.map(|body| Body::new(CountedBody::new(body, pause_max, received, peer)));
                Box::pin(self.inner.call(request))
            }
            Err(TurnedAway::TooMany(fault)) => Box::pin(std::future::ready(Ok(to_status(&fault).into_http()))),
            Err(TurnedAway::Unknown(fault)) => {
                // Frees what of the body has come, before the wait.
                drop(request);
                let doorman = Arc::clone(&self.before.doorman);
                Box::pin(async move {
                    doorman.punish(&peer, &fault).await;
                    Ok(not_known_status(&fault).into_http())
                })
            }
        }
    }
}

/// The token in a call's headers.
fn token(headers: &HeaderMap) -> Result<Option<&[u8]>, Fault> {
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(None) };
    header.as_bytes().strip_prefix(b"Bearer ").map(Some).ok_or_else(|| not_known("expected `Bearer` and a token"))
}
