//! [`serve`]: listens in clear and over TLS, and talks to whoever comes.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use pithead_entry::{Connection, Gate, Protocol, ServeOptions, ServerTlsFiles, accept};
use pithead_model::Fault;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::talk;
use crate::execute::Link;
use crate::options::Listeners;
use crate::service::Service;

/// As far as the entry has to know it: the server speaks first.
pub(crate) const PROTOCOL: Protocol = Protocol { name: "Kinetic", alpn: b"kinetic", greeting: b"" };
/// How long requests that run may go on once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Serves the protocol until `shutdown` ends. Then it takes no more requests, and returns when those that run have ended, or five
/// seconds later.
pub async fn serve(service: Arc<Service>, listeners: Listeners, shutdown: impl Future<Output = ()>) -> Result<(), Fault> {
    // A service is served once.
    let _ = service.ports.set(listeners.ports());
    let gate = Gate::new(service.options.connections);
    let (stop, stopped) = watch::channel(false);
    let mut listening = JoinSet::new();
    if let Some(listener) = listeners.plain {
        let (connections, accepting) = accept(listener, PROTOCOL, None, Arc::clone(&gate));
        listening.spawn(accepting);
        listening.spawn(take(Arc::clone(&service), connections, false, stopped.clone()));
    }
    if let Some((listener, files)) = listeners.tls {
        let tls = entry_of(files)?;
        let (connections, accepting) = accept(listener, PROTOCOL, tls, gate);
        listening.spawn(accepting);
        listening.spawn(take(Arc::clone(&service), connections, true, stopped));
    }
    shutdown.await;
    stop.send_replace(true);
    let ended = async { while listening.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
        tracing::warn!("requests of Kinetic clients were cut short: the drive stops");
    }
    Ok(())
}

fn entry_of(files: ServerTlsFiles) -> Result<Option<Arc<pithead_entry::ServerTls>>, Fault> {
    let options = ServeOptions { tls: Some(files), ..ServeOptions::default() };
    Ok(options.entry(PROTOCOL)?.tls)
}

type Connections = tokio::sync::mpsc::Receiver<std::io::Result<Connection>>;

async fn take(service: Arc<Service>, mut connections: Connections, tls: bool, mut stop: watch::Receiver<bool>) {
    let mut talks = JoinSet::new();
    loop {
        let taken = tokio::select! {
            taken = connections.recv() => taken,
            Some(_) = talks.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Some(Ok(connection)) = taken else { break };
        let peer = Arc::clone(connection.peer());
        // Clients may connect long before their first request, so that a place is taken at once. Strangers are let go by a limit
        // of their own.
        if let Err(fault) = peer.place.admit() {
            tracing::debug!(%fault, "a Kinetic client was turned away");
            continue;
        }
        let local = peer.socket.as_ref().and_then(|socket| TcpStream::from(socket.try_clone().ok()?).local_addr().ok());
        let link = Link { tls, loopback: pithead_entry::is_loopback(peer.place.address()), local };
        let (service, stop) = (Arc::clone(&service), stop.clone());
        talks.spawn(async move {
            service.metrics.connections.inc();
            let counted = Arc::clone(&service);
            talk(service, connection, link, stop).await;
            counted.metrics.connections.dec();
        });
    }
    // No more are taken; those that talk are told by the same signal.
    drop(connections);
    while talks.join_next().await.is_some() {}
}
