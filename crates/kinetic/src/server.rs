//! [`serve`]: listens in clear and over TLS, and talks to whoever comes.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use pithead_entry::{Connection, Gate, Peer, Protocol, ServeOptions, ServerTlsFiles, Shutdown, accept};
use pithead_model::{Fault, boxed};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::code::{Code, Failure};
use crate::connection::talk;
use crate::crowd::Crowd;
use crate::execute::Link;
use crate::options::Listeners;
use crate::parting::part;
use crate::reply::{send, unsolicited};
use crate::service::Service;

/// As far as the entry has to know it: the server speaks first.
pub(crate) const PROTOCOL: Protocol = Protocol { name: "Kinetic", alpn: b"kinetic", greeting: b"" };
/// How long requests that run may go on once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long a client whose place is wanted has to go, and how long one that is turned away has to be told so.
const ROOM_WAIT: Duration = Duration::from_secs(2);
/// How often a client that waits for room looks.
const ROOM_LOOK: Duration = Duration::from_millis(20);

/// Serves the protocol until `shutdown` ends. Then it takes no more requests, and returns when those that run have ended, or five
/// seconds later.
#[boxed]
pub async fn serve(service: Arc<Service>, listeners: Listeners, shutdown: Shutdown) -> Result<(), Fault> {
    // A service is served once.
    let _ = service.ports.set(listeners.ports());
    let gate = Gate::new(service.options.connections);
    let crowd = Crowd::new(service.options.connections);
    let (stop, stopped) = watch::channel(false);
    let mut listening = JoinSet::new();
    if let Some(listener) = listeners.plain {
        let (connections, accepting) = accept(listener, PROTOCOL, None, Arc::clone(&gate));
        listening.spawn(accepting);
        listening.spawn(take(
            Arc::clone(&service),
            connections,
            Door { tls: false, crowd: Arc::clone(&crowd) },
            stopped.clone(),
        ));
    }
    if let Some((listener, files)) = listeners.tls {
        let tls = entry_of(files)?;
        let (connections, accepting) = accept(listener, PROTOCOL, tls, gate);
        listening.spawn(accepting);
        listening.spawn(take(Arc::clone(&service), connections, Door { tls: true, crowd }, stopped));
    }
    shutdown.await;
    stop.send_replace(true);
    let ended = async { while listening.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
        tracing::warn!("requests of Kinetic clients were cut short: the drive stops");
    }
    Ok(())
}

/// What TLS is made with. An error where the files are not there, or are none.
pub(crate) fn entry_of(files: ServerTlsFiles) -> Result<Option<Arc<pithead_entry::ServerTls>>, Fault> {
    let options = ServeOptions { tls: Some(files), ..ServeOptions::default() };
    Ok(options.entry(PROTOCOL)?.tls)
}

type Connections = tokio::sync::mpsc::Receiver<std::io::Result<Connection>>;

/// Where connections come in.
struct Door {
    tls: bool,
    crowd: Arc<Crowd>,
}

async fn take(service: Arc<Service>, mut connections: Connections, door: Door, mut stop: watch::Receiver<bool>) {
    let mut talks = JoinSet::new();
    loop {
        let taken = tokio::select! {
            taken = connections.recv() => taken,
            Some(_) = talks.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Some(Ok(mut connection)) = taken else { break };
        let (service, stop, crowd) = (Arc::clone(&service), stop.clone(), Arc::clone(&door.crowd));
        let tls = door.tls;
        talks.spawn(async move {
            let peer = Arc::clone(connection.peer());
            if let Err(fault) = admit(&peer, &crowd).await {
                tracing::debug!(%fault, "a Kinetic client was turned away");
                turn_away(&mut connection, &fault).await;
                return;
            }
            let place = crowd.enter(peer.place.address());
            service.metrics.connections.inc();
            let counted = Arc::clone(&service);
            talk(service, connection, link(&peer, tls), place, stop).await;
            counted.metrics.connections.dec();
        });
    }
    // No more are taken; those that talk are told by the same signal.
    drop(connections);
    while talks.join_next().await.is_some() {}
}

/// Takes a place at the gate at once, since clients may connect long before their first request. When all are taken, the stranger
/// who has been there longest has to go.
async fn admit(peer: &Peer, crowd: &Crowd) -> Result<(), Fault> {
    let until = Instant::now() + ROOM_WAIT;
    let mut admitted = peer.place.admit();
    if admitted.is_err() && crowd.make_room(peer.place.address()) {
        while admitted.is_err() && Instant::now() < until {
            // Others may be told of the same place, and so it is looked at now and then, too.
            let _ = timeout(ROOM_LOOK, crowd.freed()).await;
            admitted = peer.place.admit();
        }
    }
    admitted
}

/// Tells a client that there is no room for it.
async fn turn_away(connection: &mut Connection, fault: &Fault) {
    let busy = unsolicited(&Failure::new(Code::ServiceBusy, format!("{}; try again later", fault.message)));
    if matches!(timeout(ROOM_WAIT, send(connection, busy)).await, Ok(true)) {
        part(connection).await;
    }
}

fn link(peer: &Peer, tls: bool) -> Link {
    let local = peer.socket.as_ref().and_then(|socket| TcpStream::from(socket.try_clone().ok()?).local_addr().ok());
    let address = peer.place.address();
    Link { tls, peer: address, loopback: pithead_entry::is_loopback(address), local }
}
