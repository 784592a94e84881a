//! [`serve`]: takes connections of clients until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use futures::StreamExt;
use futures::future::BoxFuture;
use pithead_entry::{Entry, ServeOptions, accept};
use pithead_host::{Host, Session};
use pithead_model::{Blame, Fault};
use pithead_observe::{Health, Observed};
use pithead_wire::{HTTP_2, HttpConnection};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use crate::caller::{Caller, Sessions};
use crate::cancel::Running;
use crate::guard::Guard;
use crate::kept::{Kept, Limits};
use crate::metrics::Metrics;
use crate::prepared::Prepared;
use crate::service::Service;
use crate::statement::Asked;

/// The one catalog, whose schemas are the domains.
pub(crate) const CATALOG: &str = "pithead";
/// How long a prepared statement stays that nobody uses.
pub(crate) const IDLE: Duration = Duration::from_secs(3_600);
/// Most bytes of a message from a client.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// What a call may have in flight towards the server, and all calls of a connection.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Calls of a connection at a time.
const CALLS_MAX: u32 = 256;
/// Most bytes of a call's headers.
const HEADER_BYTES_MAX: u32 = 32 << 10;
/// How often it is asked whether a client is there still, and how long the answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long calls may go on once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Answers that wait to be fetched.
const TICKETS: Limits =
    Limits { each: 1_024, bytes_each: 128 << 20, all: 16_384, bytes_all: 512 << 20, idle: Duration::from_secs(600) };
const STATEMENTS: Limits = Limits { each: 4_096, bytes_each: 64 << 20, all: 65_536, bytes_all: 512 << 20, idle: IDLE };

/// A host, and what is kept for clients between their calls.
pub struct FlightSql {
    pub(crate) host: Host,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) running: Arc<Running>,
    pub(crate) tickets: Kept<Asked>,
    pub(crate) statements: Kept<Arc<Prepared>>,
    sessions: Sessions,
}

impl FlightSql {
    /// A server of this host, that nobody has called.
    pub fn new(host: Host) -> Arc<FlightSql> {
        Arc::new(FlightSql {
            host,
            metrics: Arc::new(Metrics::new()),
            running: Arc::default(),
            tickets: Kept::new("ticket", TICKETS),
            statements: Kept::new("prepared statement", STATEMENTS),
            sessions: Sessions::default(),
        })
    }

    /// The host's session for a caller.
    pub(crate) async fn session(&self, caller: &Caller) -> Result<Arc<Session>, Fault> {
        self.sessions.session(&self.host, caller).await
    }

    /// What is counted, as text.
    pub fn metrics_text(&self) -> String {
        self.metrics.text()
    }
}

/// Serves Flight SQL until `shutdown` ends. Then nothing new is accepted, answers that are on their way end with an error, and other
/// calls have five seconds to finish.
pub async fn serve(
    flight: Arc<FlightSql>,
    listener: TcpListener,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Fault> {
    let Entry { tls, doorman, gate } = options.entry(HTTP_2)?;
    let (stop, stopped) = watch::channel(false);
    let service = FlightServiceServer::new(Service { flight, stopped: stopped.clone() })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(usize::MAX);
    let told = async {
        shutdown.await;
        stop.send_replace(true);
    };
    let (connections, accepting) = accept(listener, HTTP_2, tls, gate);
    let connections = ReceiverStream::new(connections).map(|connection| connection.map(HttpConnection));
    let accepting = tokio::spawn(accepting);
    let serving = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .add_service(Guard::new(service, Arc::new(doorman)))
        .serve_with_incoming_shutdown(connections, told);
    let overdue = async {
        let mut stopped = stopped;
        // An error says that the server is gone, which stops its calls as well.
        let _ = stopped.wait_for(|stopped| *stopped).await;
        tokio::time::sleep(STOP_GRACE).await;
    };
    let result = tokio::select! {
        result = serving => result.map_err(|error| Fault::new(Blame::Device, format!("the server failed: {error}"))),
        () = overdue => Ok(()),
    };
    accepting.abort();
    let _ = accepting.await;
    result
}

impl Observed for FlightSql {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(async { self.metrics_text() })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Observed::health(&self.host)
    }
}
