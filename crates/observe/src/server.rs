//! A small HTTP server for `/metrics` and `/health`. It keeps few connections open, and none for long.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The most connections at one time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// The longest time for a request's head.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// The longest time for a connection, until the caller has read the answer.
const CONNECTION_WAIT: Duration = Duration::from_secs(15);
/// The longest time to produce an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The pause after a connection could not be accepted, for example for lack of file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Whether a CSE can serve, as `/health` reports it.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// `ok`, or in one word what prevents it from serving: `stopping`, `full`, `failed`.
    pub status: &'static str,
    /// The reason for people, if it is not `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The identity of the drive; none for a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Release.
    pub version: &'static str,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Bytes free for values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Sessions open now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// The number of drives that answered, and of drives that the host was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives: Option<(usize, usize)>,
}

impl Health {
    /// Whether it can serve.
    pub fn is_ok(&self) -> bool {
        self.status == "ok"
    }
}

/// What the server shows.
pub trait Observed: Send + Sync {
    /// All metrics as OpenMetrics text.
    fn metrics(&self) -> BoxFuture<'_, String>;

    /// Whether it can serve.
    fn health(&self) -> BoxFuture<'_, Health>;
}

/// Reads the address to serve at: `HOST:PORT`, or a port of this machine that only the machine itself can reach.
pub async fn bind(listen: &str) -> io::Result<TcpListener> {
    match listen.parse::<u16>() {
        Ok(port) => TcpListener::bind(("127.0.0.1", port)).await,
        Err(_) => TcpListener::bind(listen).await,
    }
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, observed: Arc<dyn Observed>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics was not taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::debug!(%from, "too many connections for metrics: one was closed");
            continue;
        };
        let observed = Arc::clone(&observed);
        tokio::spawn(async move {
            let served = tokio::time::timeout(CONNECTION_WAIT, connection(stream, from, observed)).await;
            tracing::trace!(%from, in_time = served.is_ok(), "a connection for metrics has ended");
            drop(place);
        });
    }
}

/// One request and its answer.
async fn connection(stream: TcpStream, from: SocketAddr, observed: Arc<dyn Observed>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let observed = Arc::clone(&observed);
        async move { Ok::<_, Infallible>(answer(request.method(), request.uri().path(), &*observed).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%from, %error, "a request for metrics was not answered");
    }
}

async fn answer(method: &Method, path: &str, observed: &dyn Observed) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are answered\n".to_owned());
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => match tokio::time::timeout(ANSWER_WAIT, observed.metrics()).await {
            Ok(text) => response(StatusCode::OK, OPEN_METRICS, text),
            Err(_) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the metrics took too long to gather\n".to_owned()),
        },
        "/health" => match tokio::time::timeout(ANSWER_WAIT, observed.health()).await {
            Ok(health) => health_response(&health),
            Err(_) => {
                let text = r#"{"status":"failed","reason":"it did not say in time how it is"}"#;
                response(StatusCode::SERVICE_UNAVAILABLE, JSON, format!("{text}\n"))
            }
        },
        _ => response(StatusCode::NOT_FOUND, TEXT, "there are /metrics and /health\n".to_owned()),
    }
}

fn health_response(health: &Health) -> Response<Full<Bytes>> {
    let status = if health.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = serde_json::to_string(health).unwrap_or_else(|error| error.to_string());
    response(status, JSON, format!("{text}\n"))
}

fn response(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, hyper::header::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
