//! [`Guard`]: looks at every call before its body is read: whose it is, and whether its connection is one too many.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use pithead_entry::{Doorman, Identity, Peer, TurnedAway, bearer};
use pithead_model::Fault;
use tonic::Status;
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
/// The method whose messages come as an application takes them.
const EXCHANGE: &str = "/DoExchange";

/// How a service hears who calls, and how it says no.
pub trait Reception: Clone + Send + Sync + 'static {
    /// What a call says of its caller.
    type Credentials: Default + Send;

    /// Reads them.
    fn credentials(&self, headers: &HeaderMap) -> Result<Self::Credentials, Fault>;

    /// The secret among them.
    fn token<'a>(&self, credentials: &'a Self::Credentials) -> Option<&'a [u8]>;

    /// Puts the caller where the service finds it, or refuses credentials that are not those of this caller.
    fn introduce(
        &self,
        caller: Arc<Identity>,
        _credentials: Self::Credentials,
        extensions: &mut Extensions,
    ) -> Result<(), Fault> {
        extensions.insert(caller);
        Ok(())
    }

    /// A fault as the service's clients read it.
    fn status(&self, fault: &Fault) -> Status;

    /// The fault of a caller whom nobody knows.
    fn not_known(&self, fault: &Fault) -> Status;

    /// How long a caller may pause within a call of this path before its next message. Within a message nobody may pause for longer
    /// than a put.
    fn pause_max(&self, path: &str) -> Duration {
        pause_max(path)
    }

    /// The body of a call that was let in.
    fn body(&self, body: Body) -> Body {
        body
    }
}

/// The reception of a drive: `Bearer TOKEN`. A body that is broken off needs no care: a put says by a message of its own that
/// it is whole ([`crate::put::PutMark::End`], and the last piece of a run), or is one message; one that ends sooner keeps nothing.
#[derive(Clone, Copy)]
pub(crate) struct DoorReception;

impl Reception for DoorReception {
    type Credentials = Option<Vec<u8>>;

    fn credentials(&self, headers: &HeaderMap) -> Result<Option<Vec<u8>>, Fault> {
        Ok(bearer(headers.get(AUTHORIZATION).map(HeaderValue::as_bytes))?.map(<[u8]>::to_vec))
    }

    fn token<'a>(&self, credentials: &'a Option<Vec<u8>>) -> Option<&'a [u8]> {
        credentials.as_deref()
    }

    fn status(&self, fault: &Fault) -> Status {
        to_status(fault)
    }

    fn not_known(&self, fault: &Fault) -> Status {
        not_known_status(fault)
    }

    /// The inputs of an application have no limit of time: pings find a host that is gone. OPEN's messages have one of their own.
    fn pause_max(&self, path: &str) -> Duration {
        if path.ends_with(EXCHANGE) { Duration::MAX } else { pause_max(path) }
    }
}

/// How long a caller may pause where its service has no other limit.
fn pause_max(path: &str) -> Duration {
    if path.ends_with(PUT) { PUT_IDLE_MAX } else { PAUSE_MAX }
}

/// A service behind a [`Doorman`], who is asked the way its reception says.
#[derive(Clone)]
pub(crate) struct Guard<S, R> {
    inner: S,
    reception: R,
    doorman: Arc<Doorman>,
    /// What all callers have sent that is not read yet.
    received: Arc<Received>,
}

impl<S, R: Reception> Guard<S, R> {
    pub(crate) fn new(inner: S, reception: R, doorman: Doorman) -> Self {
        Self { inner, reception, doorman: Arc::new(doorman), received: Arc::default() }
    }

    /// Whose the call is.
    fn admit(&self, peer: &Peer, request: &mut Request<Body>) -> Result<(), TurnedAway> {
        let read = self.reception.credentials(request.headers());
        let caller = self.doorman.admit(peer, || match &read {
            Ok(credentials) => Ok(self.reception.token(credentials)),
            Err(fault) => Err(fault.clone()),
        })?;
        // Where nobody has to say who it is, what cannot be read is nothing.
        let credentials = read.unwrap_or_default();
        self.reception.introduce(caller, credentials, request.extensions_mut()).map_err(TurnedAway::Unknown)
    }
}

impl<S: NamedService, R> NamedService for Guard<S, R> {
    const NAME: &'static str = S::NAME;
}

impl<S, R> Service<Request<Body>> for Guard<S, R>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
    R: Reception,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Some(peer) = request.extensions().get::<Arc<Peer>>().cloned() else {
            return answered(self.reception.status(&Fault::bug("a call came without its connection")));
        };
        match self.admit(&peer, &mut request) {
            Ok(()) => {
                let received = Arc::clone(&self.received);
                let pause_max = self.reception.pause_max(request.uri().path());
                let whole = |body| CountedBody::new(self.reception.body(body), pause_max, received, peer);
                let request = request.map(|body| Body::new(whole(body)));
                Box::pin(self.inner.call(request))
            }
            Err(TurnedAway::TooMany(fault)) => answered(self.reception.status(&fault)),
            Err(TurnedAway::Unknown(fault)) => {
                // Frees what of the body has come, before the wait.
                drop(request);
                let (doorman, status) = (Arc::clone(&self.doorman), self.reception.not_known(&fault));
                Box::pin(async move {
                    doorman.punish(&peer, &fault).await;
                    Ok(status.into_http())
                })
            }
        }
    }
}

fn answered(status: Status) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
    Box::pin(std::future::ready(Ok(status.into_http())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An application whose host had no input for half a minute was ended.
    #[test]
    fn only_an_exchange_may_be_silent_without_a_limit() {
        let may = |method: &str| DoorReception.pause_max(&format!("/arrow.flight.protocol.FlightService/{method}"));
        assert_eq!([may("DoExchange"), may("DoPut"), may("DoGet")], [Duration::MAX, PUT_IDLE_MAX, PAUSE_MAX]);
    }
}
