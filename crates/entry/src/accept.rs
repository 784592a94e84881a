//! Takes connections at a listener, and brings each as far as its protocol beside the others.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::rustls::ServerConfig;

use crate::connection::Connection;
use crate::gate::{ConnectionPermit, Gate};
use crate::protocol::Protocol;
use crate::tls::ServerTls;

/// How long to wait after a connection could not be taken, as when the process has no more files to open.
const RETRY: Duration = Duration::from_millis(50);
/// How long a caller says nothing before it is asked whether it is there, and before it is asked again.
const ASKED_AFTER: Duration = Duration::from_secs(60);
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How often it is asked before the connection is closed.
const ASKED_MAX: u32 = 6;
/// Connections that wait for the server to take them. It takes them at once.
const READY_MAX: usize = 16;

/// Takes connections until the receiver is dropped, and then closes the listener.
pub fn accept(
    listener: TcpListener,
    protocol: Protocol,
    tls: Option<Arc<ServerTls>>,
    gate: Arc<Gate>,
) -> (mpsc::Receiver<io::Result<Connection>>, impl Future<Output = ()> + Send + 'static) {
    let (sender, receiver) = mpsc::channel(READY_MAX);
    let accepting = async move {
        // Ends with this future, and with it all handshakes.
        let mut beginning = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = beginning.join_next() => continue,
                () = sender.closed() => return,
            };
            match accepted {
                Ok((socket, address)) => {
                    let place = gate.enter(address.ip().to_canonical());
                    let tls = tls.as_ref().map(|tls| tls.get());
                    let sender = sender.clone();
                    beginning.spawn(begin(socket, protocol, tls, place, sender));
                }
                Err(error) => {
                    tracing::debug!("no connection was taken: {error}");
                    if !is_callers(&error) {
                        gate.make_room();
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }
    };
    (receiver, accepting)
}

async fn begin(
    socket: TcpStream,
    protocol: Protocol,
    tls: Option<Arc<ServerConfig>>,
    place: Arc<ConnectionPermit>,
    sender: mpsc::Sender<io::Result<Connection>>,
) {
    let address = place.address();
    if socket.set_nodelay(true).is_err() || keep_alive(&socket).is_err() {
        return;
    }
    match Connection::begin(socket, protocol, tls, place).await {
        // If nobody takes it, the server has stopped.
        Ok(connection) => drop(sender.send(Ok(connection)).await),
        Err(why) => tracing::debug!(%address, "a connection ended before its first call: {why}"),
    }
}

/// Has the system ask a caller who says nothing whether it is there still. A machine that has lost power says nothing, and its
/// connections would keep their places.
fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(ASKED_AFTER).with_interval(ASKED_AGAIN_AFTER).with_retries(ASKED_MAX);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

/// Whether it is only this caller who has gone.
fn is_callers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::ConnectionLimits;

    #[tokio::test]
    async fn who_has_vanished_is_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let protocol = Protocol { name: "test", alpn: b"test", greeting: b"" };
        let (mut connections, accepting) = accept(listener, protocol, None, Gate::new(ConnectionLimits::default()));
        let accepting = tokio::spawn(accepting);
        let _client = TcpStream::connect(address).await.unwrap();
        let connection = connections.recv().await.unwrap().unwrap();
        let socket = SockRef::from(connection.peer().socket.as_ref().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), ASKED_AFTER);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), ASKED_AGAIN_AFTER);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), ASKED_MAX);
        accepting.abort();
    }
}
