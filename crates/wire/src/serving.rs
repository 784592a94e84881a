//! [`serve_calls`]: takes connections for a service of gRPC until it is told to stop.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use http::{Request, Response};
use pithead_entry::{Entry, ServeOptions, accept};
use pithead_model::Fault;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::Server;
use tower_service::Service;

use crate::connection::{HTTP_2, HttpConnection};
use crate::error::WireError;
use crate::guard::{Guard, Reception};

/// Bounds of what the connections of a server hold, and of its waits.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// What a call may have in flight towards the server.
    pub stream_window_bytes: u32,
    /// The same for all calls of a connection.
    pub connection_window_bytes: u32,
    /// HTTP/2's frames. None: as large as HTTP/2 has them.
    pub frame_bytes: Option<u32>,
    /// Calls of a connection at a time.
    pub calls: u32,
    /// Most bytes of a call's headers.
    pub header_bytes: u32,
    /// How often it is asked whether a client is there still.
    pub ping_interval: Duration,
    /// How long the answer may take.
    pub ping_timeout: Duration,
    /// How long calls may go on once the server is told to stop.
    pub stop_grace: Duration,
}

/// Serves calls until `shutdown` ends. Then `stop` becomes true, nothing new is accepted, and calls have a grace to finish.
///
/// Fails where files that `options` name cannot be read.
pub async fn serve_calls<S, R>(
    (service, reception): (S, R),
    listener: TcpListener,
    options: &ServeOptions,
    limits: ServeLimits,
    (stop, shutdown): (watch::Sender<bool>, impl Future<Output = ()>),
) -> Result<(), Fault>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    R: Reception,
{
    let Entry { tls, doorman, gate } = options.entry(HTTP_2)?;
    let told = async {
        shutdown.await;
        stop.send_replace(true);
    };
    let (connections, accepting) = accept(listener, HTTP_2, tls, gate);
    let connections = ReceiverStream::new(connections).map(|connection| connection.map(HttpConnection::new));
    let accepting = tokio::spawn(accepting);
    let serving = Server::builder()
        .initial_stream_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_frame_size(limits.frame_bytes)
        .max_concurrent_streams(limits.calls)
        .http2_max_header_list_size(limits.header_bytes)
        .http2_keepalive_interval(Some(limits.ping_interval))
        .http2_keepalive_timeout(Some(limits.ping_timeout))
        .add_service(Guard::new(service, reception, doorman))
        .serve_with_incoming_shutdown(connections, told);
    let overdue = async {
        until_stopped(stop.subscribe()).await;
        tokio::time::sleep(limits.stop_grace).await;
    };
    let result = tokio::select! {
        result = serving => result.map_err(|error| WireError::Serve(error.to_string()).into()),
        () = overdue => Ok(()),
    };
    // The listener is closed when this returns, so that another server can have its address.
    accepting.abort();
    let _ = accepting.await;
    result
}

/// Waits until the server is told to stop.
pub(crate) async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // An error says that the server is gone, which stops its calls as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
