//! [`Guard`]: looks at every call before its body is read: whose it is, and whether its connection is one too many.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use pithead_model::{Blame, Fault};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::access::{Access, Identity};
use crate::connection::Peer;
use crate::error::{not_known, not_known_status, to_status};
use crate::receipt::{CountedBody, Received};
use crate::receiving::PUT_IDLE_MAX;
use crate::watched::Watched;

/// How long a caller may pause within a call that is one message. Puts have a limit of their own.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The method whose messages come as they are made.
const PUT: &str = "/DoPut";
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

/// What all calls of a drive pass.
pub(crate) struct Doorman {
    callers: Callers,
    received: Arc<Received>,
    penalties: AtomicUsize,
    warned: Mutex<Option<Instant>>,
}

impl Doorman {
    pub(crate) fn new(callers: Callers) -> Doorman {
        Doorman { callers, received: Arc::default(), penalties: AtomicUsize::new(0), warned: Mutex::new(None) }
    }

    /// Logs that a caller was turned away, unless that was logged just now: who is turned away must not fill the log.
    fn warn(&self, peer: &Peer, fault: &Fault) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|last| last.elapsed() >= WARN_INTERVAL) {
            *warned = Some(Instant::now());
            tracing::warn!(address = %peer.place.address(), "turned away: {}", fault.message);
        }
    }

    /// Who calls. A fault if that is nobody who may.
    fn identify(&self, peer: &Peer, headers: &HeaderMap) -> Result<Arc<Identity>, Fault> {
        match &self.callers {
            Callers::Anyone => Ok(Arc::new(Identity::anyone())),
            Callers::Certified => {
                let name = peer.certificate.as_ref().and_then(|names| names.first().cloned());
                Ok(Arc::new(Identity::unlimited(name.unwrap_or_else(|| "a certificate without names".to_owned()))))
            }
            Callers::Named(access) => named(&access.get(), peer, headers).map(Arc::new),
        }
    }
}

fn named(access: &Access, peer: &Peer, headers: &HeaderMap) -> Result<Identity, Fault> {
    if let Some(header) = headers.get(AUTHORIZATION) {
        let token = header.as_bytes().strip_prefix(b"Bearer ").ok_or_else(|| not_known("expected `Bearer` and a token"))?;
        return access.by_token(token).cloned().ok_or_else(|| not_known("the token is not one that this drive knows"));
    }
    match &peer.certificate {
        Some(names) => access.by_certificate(names).cloned().ok_or_else(|| {
            not_known(format!("the drive's access file names nobody with a certificate for {}", names.join(", ")))
        }),
        None => Err(not_known("the drive asks for a token, and none came with the call")),
    }
}

/// A service behind a [`Doorman`].
#[derive(Clone)]
pub(crate) struct Guard<S> {
    inner: S,
    doorman: Arc<Doorman>,
}

impl<S> Guard<S> {
    pub(crate) fn new(inner: S, doorman: Arc<Doorman>) -> Self {
        Self { inner, doorman }
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
        let known = self.doorman.identify(&peer, request.headers());
        let admitted = known.map_err(Refused::Unknown).and_then(|caller| match peer.place.admit() {
            Ok(()) => Ok(caller),
            Err(fault) => Err(Refused::TooMany(fault)),
        });
        match admitted {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                let received = Arc::clone(&self.doorman.received);
                let pause_max = if request.uri().path().ends_with(PUT) { PUT_IDLE_MAX } else { PAUSE_MAX };
                let request = request.map(|body| Body::new(CountedBody::new(body, pause_max, received, peer)));
                Box::pin(self.inner.call(request))
            }
            Err(Refused::TooMany(fault)) => Box::pin(std::future::ready(Ok(to_status(&fault).into_http()))),
            Err(Refused::Unknown(fault)) => {
                // Frees what of the body has come, before the wait.
                drop(request);
                let doorman = Arc::clone(&self.doorman);
                Box::pin(async move { Ok(turn_away(&doorman, &peer, &fault).await.into_http()) })
            }
        }
    }
}

enum Refused {
    Unknown(Fault),
    TooMany(Fault),
}

/// Answers a caller who is not known, after a while. Who asks too often is hung up on.
async fn turn_away(doorman: &Doorman, peer: &Peer, fault: &Fault) -> Status {
    let failures = peer.failures.fetch_add(1, Ordering::AcqRel) + 1;
    doorman.warn(peer, fault);
    let waiting = doorman.penalties.fetch_add(1, Ordering::AcqRel);
    if failures > FAILURES_MAX || waiting >= PENALTIES_MAX {
        peer.place.end().end();
    } else {
        tokio::time::sleep(PENALTY).await;
    }
    doorman.penalties.fetch_sub(1, Ordering::AcqRel);
    not_known_status(fault)
}
