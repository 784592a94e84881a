//! [`serve`]: takes connections of clients until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use pithead_entry::{Connection, Doorman, Protocol, ServeOptions, ServerTls, accept};
use pithead_host::Host;
use pithead_model::Fault;
use pithead_observe::{Health, Observed};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cancel::Running;
use crate::connection::Talk;
use crate::link::Large;
use crate::metrics::Metrics;
use crate::startup::begin;

/// As far as the entry has to know it: TLS is agreed on by a message of the protocol.
const PROTOCOL: Protocol = Protocol { name: "PostgreSQL", alpn: b"postgresql", greeting: b"" };
/// How long statements that run may go on once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// A host, and the clients that it is served to.
pub struct Front {
    pub(crate) host: Host,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) running: Arc<Running>,
    pub(crate) large: Arc<Large>,
}

/// What stands before it.
pub(crate) struct Entrance {
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) doorman: Doorman,
}

impl Front {
    /// A server of this host, that nobody has connected to.
    pub fn new(host: Host) -> Arc<Front> {
        Arc::new(Front { host, metrics: Arc::new(Metrics::new()), running: Arc::default(), large: Arc::default() })
    }
}

/// Serves PostgreSQL's protocol until `shutdown` ends. Then no statement begins, and it returns when those that run have ended, or five
/// seconds later.
pub async fn serve(
    front: Arc<Front>,
    listener: TcpListener,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Fault> {
    let entry = options.entry(PROTOCOL)?;
    let entrance = Arc::new(Entrance { tls: entry.tls, doorman: entry.doorman });
    let (mut connections, accepting) = accept(listener, PROTOCOL, None, entry.gate);
    let accepting = tokio::spawn(accepting);
    let (stop, stopped) = watch::channel(false);
    let mut talks = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let taken = tokio::select! {
            taken = connections.recv() => taken,
            Some(_) = talks.join_next() => continue,
            () = &mut shutdown => break,
        };
        let Some(Ok(connection)) = taken else { break };
        talks.spawn(talk(Arc::clone(&front), Arc::clone(&entrance), connection, stopped.clone()));
    }
    stop.send_replace(true);
    accepting.abort();
    let ended = async { while talks.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
        tracing::warn!("statements of clients were cut short: the server stops");
    }
    talks.shutdown().await;
    Ok(())
}

async fn talk(front: Arc<Front>, entrance: Arc<Entrance>, connection: Connection, stop: watch::Receiver<bool>) {
    let Some(begun) = begin(&front, &entrance, connection).await else { return };
    let metrics = Arc::clone(&front.metrics);
    metrics.connections.inc();
    let _counted = Counted(Arc::clone(&metrics));
    Talk::new(front, entrance, begun).run(stop).await;
}

/// Counts a connection as long as it is open, however it ends.
struct Counted(Arc<Metrics>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

impl Observed for Front {
    fn metrics(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let host = self.host.metrics_text();
            // Only the last may say that it ends.
            format!("{}{}", host.strip_suffix("# EOF\n").unwrap_or(&host), self.metrics.text())
        })
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Observed::health(&self.host)
    }
}
